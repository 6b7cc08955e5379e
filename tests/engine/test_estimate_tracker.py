"""Node estimates: queried before an admission, awaited only by the workload concerned, never final (C3)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Admit, Evict
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Affinity, Cluster, ClusterName
from controller.engine.state.estimates import ANSWER_TTL_MS, MIN_REFUSAL_MS, QUERY_TIMEOUT_MS, Estimate, units_consumed
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import positive, scale, total
from controller.engine.state.workloads import (
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadUid,
)
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.workloads import changed

START = 1_000_000


def pods(count: int, *, cpu: int, minimum: int | None = None, claim: str | None = "") -> PodSet:
    request = (("cpu", cpu * 1000), ("pods", 1000))
    return PodSet(request, count, count if minimum is None else minimum, claim)


def gang(*sets: PodSet, **parts) -> SchedulingRequirements:
    return SchedulingRequirements(
        positive(total(scale(pod_set.amounts, pod_set.count) for pod_set in sets)),
        positive(total(scale(pod_set.amounts, pod_set.minimum) for pod_set in sets)),
        ONE_CLUSTER,
        pod_sets=sets,
        **parts,
    )


job = workload


def site(name: str, cpu: int, used: int = 0) -> Cluster:
    return replace(cluster(name, cpu=cpu * 1000), used={"cpu": used * 1000})


class EstimateHarness:
    """Engine whose queries the test answers."""

    def __init__(self, *clusters: Cluster, fifo: bool = False, **policy) -> None:
        self.now = START
        self.engine = Engine(Policy(**{"node_estimates": True, "startup_timeout_ms": None, **policy}))
        self.engine.queue_changed(Queue(QueueName("q"), ROOT, fifo=fifo))
        for member in clusters:
            self.engine.cluster_changed(member, self.now)
        self.queries = []

    def add(self, *jobs: Workload):
        for submitted in jobs:
            self.engine.workload_changed(submitted, self.now)
        return self

    def plan(self, after: int = 0) -> list[str]:
        """Return the admissions of one plan with their clusters, in order."""
        self.now += after
        plan = self.engine.plan(self.now)
        self.queries += plan.queries
        self.last = plan
        return [
            f"{decision.workload.name}@{decision.clusters[0].name}"
            for decision in plan.decisions
            if isinstance(decision, Admit)
        ]

    def answer(self, count: int | None, *, silent: bool = False) -> None:
        """Give the same answer to all open queries."""
        for query in self.queries:
            self.engine.cluster_estimated(Estimate(query, count, silent), self.now)
        self.queries = []

    def asked(self) -> list[str]:
        return [query.cluster for query in self.queries]

    def run(self, name: str) -> None:
        self.engine.workload_changed(changed(self.engine.workloads[WorkloadUid(name)], has_run=True), self.now)


@pytest.mark.parametrize(
    ("count", "answer", "is_admitted"),
    [
        pytest.param(4, 6, True, id="more-than-the-gang"),
        pytest.param(6, 4, False, id="fewer-than-the-gang"),
        pytest.param(6, None, True, id="no-answer-the-sum-decides"),
        pytest.param(6, -1, True, id="a-negative-count-is-no-answer"),
        pytest.param(8, 2**31 - 1, False, id="a-huge-count-bypasses-no-other-limit"),
    ],
)
def test_gang_is_admitted_by_the_estimate(count, answer, is_admitted):
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(count, cpu=5))))
    harness.plan()
    harness.answer(answer, silent=answer is None)

    assert harness.plan() == (["a@m1"] if is_admitted else [])


def test_only_the_estimated_workload_waits_for_its_answer():
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(4, cpu=5))))

    assert harness.plan() == []
    assert harness.asked() == ["m1"]
    assert harness.last.waits == ()
    assert harness.engine.refusal(WorkloadUid("a")) is None
    harness.add(job("b", gang(pods(1, cpu=1, claim=None))))
    assert harness.plan(after=5) == ["b@m1"]


def test_gang_refused_by_the_estimator_is_queried_again():
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    harness.plan()
    harness.answer(4)

    assert harness.plan() == []
    refusal = harness.engine.refusal(WorkloadUid("a"))
    assert refusal is not None
    assert (refusal.reason, refusal.cluster) == (Reason.INSUFFICIENT_CAPACITY, "m1")
    assert "estimator" in (refusal.subject or "")
    assert harness.asked() == []
    assert harness.last.wake_at == START + ANSWER_TTL_MS

    harness.plan(after=ANSWER_TTL_MS)
    assert harness.asked() == ["m1"]
    harness.answer(6)
    assert harness.plan() == ["a@m1"]


def test_fifo_head_blocks_its_queue_while_it_is_estimated():
    harness = EstimateHarness(site("m1", 32), fifo=True).add(
        job("a", gang(pods(4, cpu=5)), created_at=1), job("b", gang(pods(1, cpu=1, claim=None)), created_at=2)
    )

    assert harness.plan() == []
    harness.answer(4)
    assert harness.plan() == ["a@m1", "b@m1"]


def test_workloads_do_not_wait_for_an_unresponsive_estimator():
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(1, cpu=5))))
    harness.plan()
    assert harness.last.wake_at == START + QUERY_TIMEOUT_MS
    assert harness.plan(after=QUERY_TIMEOUT_MS) == ["a@m1"]
    harness.answer(None, silent=True)
    harness.add(job("b", gang(pods(2, cpu=5))))

    assert harness.plan(after=1) == ["b@m1"]
    assert harness.asked() == []
    harness.add(job("c", gang(pods(3, cpu=5))))

    assert harness.plan(after=ANSWER_TTL_MS) == ["c@m1"]
    assert harness.asked() == ["m1"], "one question tells whether it answers again"


def test_queries_of_one_queue_leave_some_for_others():
    harness = EstimateHarness(site("m1", 10_000))
    harness.engine.queue_changed(Queue(QueueName("other"), ROOT, priority=-1))
    harness.add(*(job(f"a-{number}", gang(pods(1, cpu=1 + number))) for number in range(100)))
    harness.add(*(job(f"b-{number}", gang(pods(2, cpu=1 + number)), queue="other") for number in range(3)))
    harness.plan()
    assert len(harness.asked()) == 24 + 3
    harness.answer(100_000)
    assert len([name for name in harness.plan() if name.startswith("b-")]) == 3


def test_answer_to_an_outdated_query_is_ignored():
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    harness.plan()
    (query,) = harness.queries

    harness.engine.cluster_estimated(
        Estimate(type(query)(ClusterName("m2"), query.pods, query.asked_at), 9), harness.now
    )
    harness.engine.cluster_estimated(
        Estimate(type(query)(query.cluster, query.pods, query.asked_at - 1), 9), harness.now
    )

    assert harness.plan() == []


def test_unobserved_admissions_are_deducted_from_estimates():
    harness = EstimateHarness(site("m1", 100)).add(
        *(job(name, gang(pods(2, cpu=5)), created_at=ord(name)) for name in "abc")
    )
    harness.plan()
    harness.answer(4)

    assert harness.plan() == ["a@m1", "b@m1"]
    assert harness.engine.refusal(WorkloadUid("c")).reason is Reason.INSUFFICIENT_CAPACITY

    harness.plan(after=ANSWER_TTL_MS)
    harness.answer(4)
    assert harness.plan() == [], "their pods are still to come"

    harness.run("a")
    harness.run("b")
    harness.plan(after=MIN_REFUSAL_MS)
    harness.answer(2)
    assert harness.plan() == ["c@m1"]


def test_estimates_of_hyperjob_parts_deduct_one_another():
    group = HyperJobGang("h/1", 2, 2)
    harness = EstimateHarness(site("m1", 100)).add(
        *(job(name, gang(pods(2, cpu=5)), gang=group) for name in ("h-0", "h-1"))
    )
    harness.plan()
    harness.answer(3)
    assert harness.plan() == []

    harness.plan(after=ANSWER_TTL_MS)
    harness.answer(4)
    assert harness.plan() == ["h-0@m1", "h-1@m1"]


def test_workload_refused_by_one_estimator_uses_another_cluster():
    harness = EstimateHarness(site("m1", 40), site("m2", 90)).add(job("a", gang(pods(6, cpu=5))))
    harness.plan()
    assert harness.asked() == ["m1"]
    harness.answer(5)
    harness.plan()
    assert harness.asked() == ["m2"]
    harness.answer(9)

    assert harness.plan() == ["a@m2"]


def test_changed_cluster_summary_queries_again_at_a_bounded_rate():
    harness = EstimateHarness(site("m1", 400)).add(job("a", gang(pods(6, cpu=5))))
    count = 0
    for number in range(100):
        harness.engine.cluster_changed(site("m1", 400, used=number), harness.now)
        harness.plan(after=10)
        count += len(harness.queries)
        harness.answer(5)

    assert 3 <= count <= 1000 // MIN_REFUSAL_MS + 1


def test_idle_engine_makes_no_queries_and_wakes_once():
    harness = EstimateHarness(site("m1", 40)).add(job("a", gang(pods(6, cpu=5))))
    harness.plan()
    harness.answer(5)
    harness.plan()
    harness.engine.workload_removed(WorkloadUid("a"), harness.now)
    harness.plan(after=ANSWER_TTL_MS)

    assert harness.asked() == []
    assert harness.last.wake_at is None


@pytest.mark.parametrize("answer", [6, 0, None])
def test_answers_are_dropped_when_they_expire(answer):
    harness = EstimateHarness(site("m1", 400))
    for number in range(1, 4):
        harness.add(job("a", gang(pods(number, cpu=5)))).plan()
        harness.answer(answer)
        harness.plan()
        harness.engine.workload_removed(WorkloadUid("a"), harness.now)
    harness.plan(after=ANSWER_TTL_MS)

    estimates = harness.engine.cluster_usage.cluster_state(ClusterName("m1")).estimates
    assert estimates.answers == {}


def test_disabled_estimates_make_no_query_and_delay_nothing():
    harness = EstimateHarness(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    harness.plan()
    harness.queries = []
    harness.engine.policy_changed(Policy(startup_timeout_ms=None))

    assert harness.plan() == ["a@m1"]
    assert harness.asked() == []


@pytest.mark.parametrize(
    ("sets", "answer"),
    [
        pytest.param([pods(1, cpu=2), pods(2, cpu=5)], 1, id="different-pods-as-whole-gangs"),
        pytest.param([pods(8, cpu=5, minimum=2)], 2, id="gang-minimum-only"),
    ],
)
def test_estimate_covers_one_gang(sets, answer):
    harness = EstimateHarness(site("m1", 100)).add(*(job(name, gang(*sets), created_at=ord(name)) for name in "ab"))
    harness.plan()
    harness.answer(answer)

    assert harness.plan() == ["a@m1"]


def test_large_pods_consume_several_units_of_an_estimate():
    small, large = pods(4, cpu=2), pods(3, cpu=5)

    assert units_consumed((small,), (large,)) == 9
    assert units_consumed((large,), (small,)) == 4
    assert units_consumed((small,), (small,)) == 4
    assert units_consumed((small, large), (small, large)) == 1


def test_refused_workload_does_not_block_borrowing():
    harness = EstimateHarness(site("m1", 40), reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0))
    harness.engine.queue_changed(Queue(QueueName("r"), ROOT))
    harness.add(job("a", gang(pods(4, cpu=5)))).plan()
    harness.answer(3)
    harness.plan()
    harness.add(*(job(name, gang(pods(5, cpu=2, claim=None)), queue=QueueName("r"), created_at=2) for name in "bcd"))

    assert harness.plan() == ["b@m1", "c@m1", "d@m1"]


def test_workload_refused_by_an_estimator_reclaims_elsewhere():
    harness = EstimateHarness(site("m1", 10), site("m2", 30), reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0))
    harness.engine.queue_changed(Queue(QueueName("b"), ROOT))
    running = {"b-0": ("m1", 1), "b-1": ("m1", 1), "b-2": ("m2", 5)}
    for name, (at, count) in running.items():
        borrower = job(name, gang(pods(count, cpu=5)), queue=QueueName("b"), on=at, admitted_at=1)
        harness.add(changed(borrower, has_run=True))
    harness.add(*(job(name, gang(pods(1, cpu=5))) for name in ("a-0", "a-1")))
    harness.plan()
    harness.answer(0)

    assert harness.plan() == []
    assert [decision.workload.name for decision in harness.last.decisions if isinstance(decision, Evict)] == ["b-0"]


@pytest.mark.parametrize(
    ("answer", "evicted"), [pytest.param(0, [], id="refused"), pytest.param(1, ["old"], id="fits")]
)
def test_estimator_is_queried_before_an_eviction_for_quota(answer, evicted):
    """Nothing leaves the cluster of the preemptor, so its nodes stay as they are."""
    harness = EstimateHarness(site("m1", 10), site("m2", 10), preemption=EvictionPolicy(enabled=True, min_runtime_ms=0))
    harness.engine.queue_changed(Queue(QueueName("q"), ROOT, capability={"cpu": 5000}))
    only = replace(ONE_CLUSTER, affinity=Affinity(names=(ClusterName("m2"),)))
    harness.add(changed(job("old", gang(pods(1, cpu=5)), on="m1", admitted_at=1), has_run=True))
    harness.add(job("new", replace(gang(pods(1, cpu=5)), placement=only), priority=9))

    assert (harness.plan(), harness.last.decisions, harness.asked()) == ([], (), ["m2"])
    harness.answer(answer)
    harness.plan()
    assert [decision.workload.name for decision in harness.last.decisions if isinstance(decision, Evict)] == evicted


def test_refused_large_workload_precedes_later_small_ones():
    """All answers expire together, so that the queue's order decides once there is capacity."""
    harness = EstimateHarness(site("m1", 40)).add(job("large", gang(pods(4, cpu=5)), created_at=1))
    harness.plan()
    harness.answer(3)
    harness.plan()
    harness.add(job("small-1", gang(pods(1, cpu=5)), created_at=2)).plan(after=10)
    harness.answer(3)
    assert harness.plan() == ["small-1@m1"]

    harness.add(job("small-2", gang(pods(1, cpu=5)), created_at=3))
    harness.engine.workload_removed(WorkloadUid("small-1"), harness.now)
    harness.plan(after=490)
    assert harness.asked() == ["m1", "m1"], "the large one is asked for together with the small one"
    harness.answer(4)
    assert harness.plan() == ["large@m1"]


# Admission times in virtual time: a slow, silent or wrong estimator delays only workloads of its cluster.

END_MS, STEP_MS = 60_000, 50
TIMEOUT_MS = 3_000


def arrivals() -> Iterator[Workload]:
    """Yield workloads for m1, whose estimator misbehaves, for m2, and some that need no estimate."""
    for number in range(60):
        on, claim = ("m1", "m2")[number % 2], None if number % 3 == 0 else ""
        placement = replace(ONE_CLUSTER, affinity=Affinity(names=(ClusterName(on),)))
        shape = replace(gang(pods(1 + number % 4, cpu=1, claim=claim)), placement=placement)
        name = f"{on}-{number:02}" + ("-unasked" if claim is None else "")
        yield job(name, shape, created_at=500 * number)


def admission_times(answer) -> dict[str, int]:
    """Run one minute; *answer* returns after which time m1's estimator answers what."""
    engine, times, coming = EstimateHarness(site("m1", 1000), site("m2", 1000)).engine, {}, list(arrivals())
    answers: list[tuple[int, Estimate]] = []
    for now in range(0, END_MS, STEP_MS):
        while coming and coming[0].created_at <= now:
            engine.workload_changed(coming.pop(0), now)
        for due in [due for due in answers if due[0] <= now]:
            answers.remove(due)
            engine.cluster_estimated(due[1], now)
        plan = engine.plan(now)
        times |= {
            decision.workload.name: now - decision.workload.created_at
            for decision in plan.decisions
            if isinstance(decision, Admit)
        }
        for query in plan.queries:
            after, count, is_silent = (STEP_MS, 1000, False) if query.cluster == "m2" else answer(query)
            answers.append((now + after, Estimate(query, count, is_silent)))
    return times


@cache
def prompt_admission_times() -> dict[str, int]:
    return admission_times(lambda _: (STEP_MS, 1000, False))


BAD = [
    pytest.param(lambda _: (2_900, 1000, False), 2_900, id="slow"),
    pytest.param(lambda _: (TIMEOUT_MS, None, True), TIMEOUT_MS, id="timed-out"),
    pytest.param(lambda _: (END_MS, 1000, False), QUERY_TIMEOUT_MS, id="never"),
    pytest.param(lambda _: (STEP_MS, None, True), STEP_MS, id="failing"),
    pytest.param(lambda _: (STEP_MS, -7, False), STEP_MS, id="negative"),
    pytest.param(lambda _: (STEP_MS, 2**31 - 2, False), STEP_MS, id="huge"),
    pytest.param(lambda _: (STEP_MS, 0, False), None, id="always-no"),
]


@pytest.mark.parametrize(("answer", "most"), BAD)
def test_bad_estimator_delays_only_its_workloads_by_one_answer(answer, most):
    times, prompt = admission_times(answer), prompt_admission_times()
    own = {name for name in prompt if name.startswith("m1") and not name.endswith("unasked")}
    others = {name: time for name, time in prompt.items() if name not in own}

    assert len(others) == 40
    assert {name: times[name] for name in others} == others
    if most is None:
        assert not own & set(times), "it is a refusal, and never final"
    else:
        assert own <= set(times)
        assert max(times[name] for name in own) <= most + STEP_MS
