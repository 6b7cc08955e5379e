"""Answers of Karmada's scheduler estimator about the nodes of one cluster (C3).

An answer is valid for a limited time and until the cluster changes. Admissions whose pods the estimator
cannot observe yet are deducted from it. Without an answer, the sum over all nodes decides.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import CPU, MEMORY, MILLI, PODS
from controller.engine.state.workloads import (
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)

Pods = tuple[PodSet, ...]

_UNKNOWN_QUEUE = QueueName("")

#: Lifetime of an answer while the cluster does not change, and retry interval of an unavailable estimator.
ANSWER_TTL_MS: Final = 30_000
#: Minimum lifetime of a refusal in milliseconds; it bounds how often a query is repeated.
MIN_REFUSAL_MS: Final = 200
#: Time after which a query is given up and the sum decides, in milliseconds.
QUERY_TIMEOUT_MS: Final = 10_000
#: Maximum number of open queries to one estimator.
MAX_OPEN_QUERIES: Final = 32
#: A queue with this many open queries leaves as many to queues with fewer.
_FAIR_OPEN_QUERIES: Final = 8
#: A gang of more distinct pods is not estimated; the sum decides.
MAX_POD_SETS: Final = 64


@dataclass(frozen=True, slots=True)
class Query:
    """A query to one cluster's estimator: how many of these pods, or gangs of them, its nodes can hold."""

    cluster: ClusterName
    pods: Pods
    asked_at: int
    """In milliseconds; distinguishes it from earlier queries of the same cluster and pods."""

    @property
    def gang(self) -> Pods:
        """Return the pods that the gang minimum needs, largest first.

        Karmada counts whole gangs by first fit, which wastes least in this order.
        """
        return tuple(sorted(gang_of(self.pods), key=_scarcity_key, reverse=True))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Result of a query."""

    query: Query
    count: int | None = None
    """Number of pods that fit if all pods of the gang are equal, else number of gangs; ``None`` if not counted."""
    is_silent: bool = False
    """The estimator did not answer, or its answer was invalid."""


def gang_of(pods: Pods) -> Pods:
    """Return the pod sets that the gang minimum needs."""
    return tuple(pod_set for pod_set in pods if pod_set.minimum > 0)


def _scarcity_key(pods: PodSet) -> tuple[int, int, int, tuple[tuple[str, int], ...]]:
    """Return a key that sorts pods by scarce resources: extended resources, CPU, memory."""
    amounts = pods.amounts
    extended = sum(amount for name, amount in pods.requests if "/" in name)
    return extended, amounts.get(CPU, 0), amounts.get(MEMORY, 0), pods.requests


def can_be_estimated(requirements: SchedulingRequirements) -> bool:
    """Return whether an estimator can be queried: the workload is not divided and all pods of its gang are known."""
    gang = gang_of(requirements.pod_sets)
    return (
        bool(gang)
        and not requirements.is_divided
        and len(gang) <= MAX_POD_SETS
        and all(p.node_claim is not None for p in gang)
    )


@dataclass(slots=True)
class Answer:
    """A valid answer."""

    remaining: int | None
    """The count less what was admitted since and is not observed; ``None`` where nothing was counted."""
    required: int
    answered_at: int
    expires_at: int

    @property
    def refuses(self) -> bool:
        """Return whether one more gang does not fit."""
        return self.remaining is not None and self.remaining < self.required


@dataclass(slots=True)
class OpenQuery:
    """A query without an answer."""

    query: Query
    consumed: int
    """What unobserved admissions consume of the answer."""
    is_stale: bool = False
    """The cluster has changed since the query was made."""
    queue: QueueName = _UNKNOWN_QUEUE
    """The queue of the workload for which the query was made."""

    @property
    def expires_at(self) -> int:
        """Return when the query is given up."""
        return self.query.asked_at + QUERY_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class EstimatesCheckpoint:
    """Immutable copy of the queries and answers of one cluster."""

    answers: tuple[tuple[Pods, Answer], ...] = ()
    open_queries: tuple[OpenQuery, ...] = ()
    is_silent: bool = False
    retry_at: int = 0


@dataclass(slots=True, eq=False)
class ClusterEstimates:
    """Open queries to the estimator of one cluster, and its answers."""

    answers: dict[Pods, Answer] = field(default_factory=dict)
    open_queries: dict[Pods, OpenQuery] = field(default_factory=dict)
    unobserved_pods: dict[WorkloadUid, Pods] = field(default_factory=dict)
    """Pods of workloads that are admitted on the cluster and do not run yet."""
    is_silent: bool = False
    """The estimator did not answer the last query; no workload waits for it."""
    retry_at: int = 0
    """When an estimator that did not answer is queried again."""

    def checkpoint(self) -> EstimatesCheckpoint:
        """Return a copy of the queries and answers, without what is derived from workloads."""
        answers = tuple((pods, replace(answer)) for pods, answer in self.answers.items())
        open_queries = tuple(replace(query) for query in self.open_queries.values())
        return EstimatesCheckpoint(answers, open_queries, self.is_silent, self.retry_at)

    def restore(self, checkpoint: EstimatesCheckpoint) -> None:
        """Restore queries and answers from *checkpoint*."""
        self.answers = {pods: replace(answer) for pods, answer in checkpoint.answers}
        self.open_queries = {query.query.pods: replace(query) for query in checkpoint.open_queries}
        self.is_silent, self.retry_at = checkpoint.is_silent, checkpoint.retry_at

    def refuses(self, requirements: SchedulingRequirements) -> bool:
        """Return whether the latest answer is that the nodes cannot hold *requirements*."""
        answer = self.answers.get(requirements.pod_sets)
        return answer is not None and answer.refuses

    def must_wait(self, requirements: SchedulingRequirements, now: int) -> bool:
        """Return whether a workload must wait for an answer."""
        return not self.is_silent and can_be_estimated(requirements) and not self._has_valid_answer(requirements, now)

    def may_query(self, requirements: SchedulingRequirements, queue: QueueName, now: int) -> bool:
        """Return whether a query for *requirements* of a workload in *queue* is useful now."""
        if (
            requirements.pod_sets in self.open_queries
            or not self._has_free_query(queue)
            or not can_be_estimated(requirements)
        ):
            return False
        is_due = not self.is_silent or (self.retry_at <= now and not self.open_queries)
        return is_due and not self._has_valid_answer(requirements, now)

    def _has_free_query(self, queue: QueueName) -> bool:
        free = MAX_OPEN_QUERIES - len(self.open_queries)
        if free > _FAIR_OPEN_QUERIES or free <= 0:
            return free > 0
        return sum(query.queue == queue for query in self.open_queries.values()) < _FAIR_OPEN_QUERIES

    def _has_valid_answer(self, requirements: SchedulingRequirements, now: int) -> bool:
        answer = self.answers.get(requirements.pod_sets)
        return answer is not None and now < answer.expires_at

    def add_query(self, query: Query, queue: QueueName) -> None:
        """Record *query*, for a workload in *queue*, as open."""
        self.answers.pop(query.pods, None)
        consumed = sum(units_consumed(query.pods, pods) for pods in self.unobserved_pods.values())
        self.open_queries[query.pods] = OpenQuery(query, consumed, queue=queue)
        if self.is_silent:
            self.retry_at = query.asked_at + ANSWER_TTL_MS

    def add_answer(self, estimate: Estimate, now: int) -> Answer | None:
        """Record an answer received at *now* and return it; ``None`` if its query is not open."""
        query = self.open_queries.get(estimate.query.pods)
        if query is None or query.query != estimate.query:
            return None
        del self.open_queries[estimate.query.pods]
        is_counted = estimate.count is not None and estimate.count >= 0
        self.is_silent = estimate.is_silent or (estimate.count is not None and not is_counted)
        self.retry_at = now + ANSWER_TTL_MS
        remaining = estimate.count - query.consumed if estimate.count is not None and is_counted else None
        ttl_ms = MIN_REFUSAL_MS if query.is_stale and remaining is not None else ANSWER_TTL_MS
        answer = Answer(remaining, units_per_gang(estimate.query.pods), now, now + ttl_ms)
        self.answers[estimate.query.pods] = answer
        return answer

    def add_unobserved(self, uid: WorkloadUid, pods: Pods) -> None:
        """Deduct the pods of an admitted workload from all answers."""
        self.unobserved_pods[uid] = pods
        for query_pods, query in self.open_queries.items():
            query.consumed += units_consumed(query_pods, pods)
        self.deduct(pods)

    def deduct(self, pods: Pods, times: int = 1) -> None:
        """Deduct *pods* from all answers for a trial; *times* -1 reverts it."""
        for query_pods, answer in self.answers.items():
            if answer.remaining is not None:
                answer.remaining -= times * units_consumed(query_pods, pods)

    def invalidate(self, now: int) -> list[tuple[Pods, Answer]]:
        """Drop answers after a change on the cluster; return the refusals that are kept for a while.

        A refusal is kept until it is ``MIN_REFUSAL_MS`` old, which bounds how often a query is repeated.
        """
        retained: list[tuple[Pods, Answer]] = []
        for pods, answer in list(self.answers.items()):
            if answer.remaining is None:
                continue
            if answer.refuses and now < answer.answered_at + MIN_REFUSAL_MS:
                answer.expires_at = answer.answered_at + MIN_REFUSAL_MS
                retained.append((pods, answer))
            else:
                del self.answers[pods]
        for query in self.open_queries.values():
            query.is_stale = True
        return retained


def units_per_gang(pods: Pods) -> int:
    """Return how many counted units one gang takes: its pods where all are equal, else one."""
    gang = gang_of(pods)
    return gang[0].minimum if len(gang) == 1 else 1


def is_unobserved(workload: Workload | None) -> bool:
    """Return whether a workload is admitted and its pods may not be on nodes yet."""
    return (
        workload is not None
        and workload.state is WorkloadState.ADMITTED
        and not workload.has_run
        and workload.admission is not None
        and not workload.admission.reported
    )


def pods_of(workload: Workload, cluster_charge: ClusterCharge) -> Pods:
    """Return the pods of *workload* on one cluster; uncounted pods are represented by one pod with the whole charge."""
    pod_sets, requirements = workload.requirements.pod_sets, workload.requirements
    if not pod_sets:
        return (PodSet(tuple(sorted(cluster_charge.charge.items())), 1, 1),)
    if requirements.is_divided:
        count = cluster_charge.charge.get(PODS, 0) // MILLI
        return (PodSet(pod_sets[0].requests, count, count),)
    return pod_sets


@lru_cache(maxsize=8192)
def units_consumed(query_pods: Pods, others: Pods) -> int:
    """Return an upper bound of the counted units of *query_pods* that the pods *others* consume.

    A pod displaces the fewest pods of the gang that together request as much, and at most as many whole gangs as
    pods.
    """
    gang = gang_of(query_pods)
    if len(gang) > 1 and _count_by_request(
        (pod_set.requests, pod_set.minimum) for pod_set in gang
    ) == _count_by_request((pod_set.requests, pod_set.count) for pod_set in others):
        return 1
    return sum(other.count * _displaced_pods(gang, other) for other in others)


def _count_by_request(pods: Iterable[tuple[object, int]]) -> dict[object, int]:
    counts: dict[object, int] = {}
    for request, count in pods:
        counts[request] = counts.get(request, 0) + count
    return {request: count for request, count in counts.items() if count}


def _displaced_pods(gang: Pods, other: PodSet) -> int:
    """Return how many pods of *gang* one pod of *other* displaces at most."""
    requests = [pod_set.amounts for pod_set in gang]
    displaced = []
    for name, amount in other.requests:
        amounts_requested = [request[name] for request in requests if request.get(name, 0) > 0]
        if amount > 0 and amounts_requested:
            displaced.append(-(-amount // min(amounts_requested)))
    # Each displaced pod frees all its resources; for differing pods, each resource may displace another one.
    return max(displaced, default=0) if len(gang) == 1 else sum(displaced)
