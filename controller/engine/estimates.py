"""What Karmada's scheduler estimator has counted on the nodes of one cluster (C3).

An answer counts for a while, and until something changes on the cluster.
Admissions whose pods the estimator cannot see yet are taken off it. Without
an answer the sum over all nodes decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from controller.engine.clusters import ClusterName
from controller.engine.requests import PodSet
from controller.engine.resources import CPU, MEMORY, MILLI, PODS, Resources
from controller.engine.workloads import ClusterCharge, SchedulingRequirements, Workload, WorkloadState, WorkloadUid

Pods = tuple[PodSet, ...]

#: How long an answer counts while nothing changes, and a silent estimator is left alone, in milliseconds.
ANSWER_TTL_MS: Final = 30_000
#: How long a refusal counts at least, whatever changes: so often a question is repeated at most.
MIN_REFUSAL_MS: Final = 200
#: After this the sum decides, even if nobody has told that the estimator is silent.
QUERY_TIMEOUT_MS: Final = 10_000
#: So many questions to one estimator are open at a time.
MAX_OPEN_QUERIES: Final = 32
#: A gang of more different pods is judged by the sum.
MAX_POD_SETS: Final = 64


@dataclass(frozen=True, slots=True)
class Query:
    """A question to the estimator of one cluster: how much room its nodes have for a gang of these pods."""

    cluster: ClusterName
    pods: Pods
    asked_at: int
    """In milliseconds; tells it from earlier ones of the same cluster and pods."""

    @property
    def gang(self) -> Pods:
        """Return the pods of the gang minimum, without those of which it needs none, the largest first.

        Karmada counts whole gangs by first fit, which wastes least in this order.
        """
        return tuple(sorted(gang_of(self.pods), key=_scarcity_key, reverse=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What came of a query."""

    query: Query
    count: int | None = None
    """How many pods fit where all of the gang are equal, else how many whole gangs; ``None``: it was not counted."""
    is_silent: bool = False
    """The estimator did not answer, or not sensibly."""


def gang_of(pods: Pods) -> Pods:
    """Return the pods of which the gang minimum needs some."""
    return tuple(each for each in pods if each.minimum > 0)


def _scarcity_key(pods: PodSet) -> tuple[int, int, int, tuple[tuple[str, int], ...]]:
    """Return a key that puts pods in the order of what is scarce: extended resources, CPU, memory."""
    amounts = pods.amounts
    extended = sum(amount for name, amount in pods.request if "/" in name)
    return extended, amounts.get(CPU, 0), amounts.get(MEMORY, 0), pods.request


def can_be_estimated(shape: SchedulingRequirements) -> bool:
    """Say whether an estimator can be asked for *shape*: it goes whole to a cluster, and all its pods are known."""
    gang = gang_of(shape.pod_sets)
    is_divided = shape.replicas > 0 and shape.placement.divided
    return bool(gang) and not is_divided and len(gang) <= MAX_POD_SETS and all(p.node_claim is not None for p in gang)


@dataclass(slots=True)
class Answer:
    """An answer that counts."""

    remaining: int | None
    """What was counted less what was admitted since and not seen; ``None`` where nothing was counted."""
    required: int
    answered_at: int
    expires_at: int

    @property
    def refuses(self) -> bool:
        """Say whether one more does not fit."""
        return self.remaining is not None and self.remaining < self.required


@dataclass(slots=True)
class OpenQuery:
    """A question without an answer."""

    query: Query
    consumed: int
    """What admissions take of the answer that the estimator may not see."""
    is_stale: bool = False
    """Something has changed on the cluster since it was asked."""

    @property
    def expires_at(self) -> int:
        """Return when the sum decides instead."""
        return self.query.asked_at + QUERY_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class EstimatesCheckpoint:
    """All that was asked and answered of one cluster at one moment; nothing in it changes any more."""

    answers: tuple[tuple[Pods, Answer], ...] = ()
    open_queries: tuple[OpenQuery, ...] = ()
    is_silent: bool = False
    retry_at: int = 0


@dataclass(slots=True, eq=False)
class ClusterEstimates:
    """The questions to the estimator of one cluster, and its answers."""

    answers: dict[Pods, Answer] = field(default_factory=dict)
    open_queries: dict[Pods, OpenQuery] = field(default_factory=dict)
    unobserved_pods: dict[WorkloadUid, Pods] = field(default_factory=dict)
    """The pods of workloads that are admitted there and do not run yet."""
    is_silent: bool = False
    """The estimator did not answer when it was last asked: nobody waits for it."""
    retry_at: int = 0
    """When a silent one is asked again."""

    def checkpoint(self) -> EstimatesCheckpoint:
        """Return all of it but what the workloads tell."""
        answers = tuple((pods, replace(answer)) for pods, answer in self.answers.items())
        asked = tuple(replace(each) for each in self.open_queries.values())
        return EstimatesCheckpoint(answers, asked, self.is_silent, self.retry_at)

    def restore(self, memory: EstimatesCheckpoint) -> None:
        """Take *memory* for what was asked and answered."""
        self.answers = {pods: replace(answer) for pods, answer in memory.answers}
        self.open_queries = {each.query.pods: replace(each) for each in memory.open_queries}
        self.is_silent, self.retry_at = memory.is_silent, memory.retry_at

    def refuses(self, shape: SchedulingRequirements) -> bool:
        """Say whether the nodes have no room for *shape* as far as is known."""
        answer = self.answers.get(shape.pod_sets)
        return answer is not None and answer.refuses

    def must_wait(self, shape: SchedulingRequirements, now: int) -> bool:
        """Say whether *shape* has to wait for an answer."""
        return not self.is_silent and can_be_estimated(shape) and not self._has_valid_answer(shape, now)

    def may_query(self, shape: SchedulingRequirements, now: int) -> bool:
        """Say whether a question for *shape* makes sense now."""
        if (
            shape.pod_sets in self.open_queries
            or len(self.open_queries) >= MAX_OPEN_QUERIES
            or not can_be_estimated(shape)
        ):
            return False
        is_due = not self.is_silent or (self.retry_at <= now and not self.open_queries)
        return is_due and not self._has_valid_answer(shape, now)

    def _has_valid_answer(self, shape: SchedulingRequirements, now: int) -> bool:
        answer = self.answers.get(shape.pod_sets)
        return answer is not None and now < answer.expires_at

    def add_query(self, query: Query) -> None:
        """Take *query* for asked."""
        self.answers.pop(query.pods, None)
        self.open_queries[query.pods] = OpenQuery(
            query, sum(units_consumed(query.pods, pods) for pods in self.unobserved_pods.values())
        )
        if self.is_silent:
            self.retry_at = query.asked_at + ANSWER_TTL_MS

    def add_answer(self, estimate: Estimate, now: int) -> Answer | None:
        """Take an answer at *now*; return it, ``None`` for one to a question that is not open."""
        asked = self.open_queries.get(estimate.query.pods)
        if asked is None or asked.query != estimate.query:
            return None
        del self.open_queries[estimate.query.pods]
        is_counted = estimate.count is not None and estimate.count >= 0
        self.is_silent = estimate.is_silent or (estimate.count is not None and not is_counted)
        self.retry_at = now + ANSWER_TTL_MS
        left = estimate.count - asked.consumed if estimate.count is not None and is_counted else None
        lasts = MIN_REFUSAL_MS if asked.is_stale and left is not None else ANSWER_TTL_MS
        answer = Answer(left, units_per_gang(estimate.query.pods), now, now + lasts)
        self.answers[estimate.query.pods] = answer
        return answer

    def add_unobserved(self, uid: WorkloadUid, pods: Pods) -> None:
        """Take the pods of a workload that was admitted off all that was counted."""
        self.unobserved_pods[uid] = pods
        for question, asked in self.open_queries.items():
            asked.consumed += units_consumed(question, pods)
        self.deduct(pods)

    def deduct(self, pods: Pods, times: int = 1) -> None:
        """Take *pods* off all that was counted, for a trial; give them back with *times* -1."""
        for question, answer in self.answers.items():
            if answer.remaining is not None:
                answer.remaining -= times * units_consumed(question, pods)

    def invalidate(self, now: int) -> list[tuple[Pods, Answer]]:
        """Ask again what was counted before something changed at *now*; return the refusals that count a little longer.

        All answers end at once, so that nobody is overtaken because it was
        refused lately while others were not.
        """
        kept: list[tuple[Pods, Answer]] = []
        for pods, answer in list(self.answers.items()):
            if answer.remaining is None:
                continue
            if answer.refuses and now < answer.answered_at + MIN_REFUSAL_MS:
                answer.expires_at = answer.answered_at + MIN_REFUSAL_MS
                kept.append((pods, answer))
            else:
                del self.answers[pods]
        for asked in self.open_queries.values():
            asked.is_stale = True
        return kept


def units_per_gang(pods: Pods) -> int:
    """Return how much of what is counted one gang takes: its pods where they are equal, else one."""
    gang = gang_of(pods)
    return gang[0].minimum if len(gang) == 1 else 1


def is_unobserved(workload: Workload | None) -> bool:
    """Say whether a workload is admitted and its pods may not be on nodes yet."""
    return (
        workload is not None
        and workload.state is WorkloadState.ADMITTED
        and not workload.has_run
        and workload.admission is not None
        and not workload.admission.shown
    )


def pods_of(workload: Workload, booking: ClusterCharge) -> Pods:
    """Return the pods of *workload* on one cluster; where nobody has counted them, its charge as if it were one pod."""
    sets, shape = workload.shape.pod_sets, workload.shape
    if not sets:
        return (PodSet(_sorted_amounts(booking.charge), 1, 1),)
    if shape.replicas and shape.placement.divided:
        count = booking.charge.get(PODS, 0) // MILLI
        return (PodSet(sets[0].request, count, count),)
    return sets


def _sorted_amounts(amounts: Resources) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))


@lru_cache(maxsize=8192)
def units_consumed(asked: Pods, others: Pods) -> int:
    """Return how much of what was counted for the gang of *asked* the pods *others* take at most.

    A pod takes the place of the fewest pods of the gang that ask together for
    as much, and of whole gangs at most as many as of its pods.
    """
    gang = gang_of(asked)
    if len(gang) > 1 and _count_by_request((each.request, each.minimum) for each in gang) == _count_by_request(
        (each.request, each.count) for each in others
    ):
        return 1
    return sum(other.count * _displaced_pods(gang, other) for other in others)


def _count_by_request(pods: Iterable[tuple[object, int]]) -> dict[object, int]:
    """Return how many pods there are of each request."""
    counts: dict[object, int] = {}
    for request, count in pods:
        counts[request] = counts.get(request, 0) + count
    return {request: count for request, count in counts.items() if count}


def _displaced_pods(gang: Pods, other: PodSet) -> int:
    """Return of how many pods of *gang* one pod of *other* takes the place at most."""
    requests = [each.amounts for each in gang]
    parts = []
    for name, amount in other.request:
        asked = [request[name] for request in requests if request.get(name, 0) > 0]
        if amount > 0 and asked:
            parts.append(-(-amount // min(asked)))
    # Each pod that goes frees all resources at once; where they differ, perhaps another one for each resource.
    return max(parts, default=0) if len(gang) == 1 else sum(parts)
