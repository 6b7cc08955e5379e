"""Node estimates: queried before an admission, awaited only by the workload concerned, never final (C3)."""

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.estimates import ANSWER_TTL_MS, MIN_REFUSAL_MS, QUERY_TIMEOUT_MS, Estimate, units_consumed
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import positive, scale, total
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from tests.workloads import changed

START = 1_000_000
ONE = Placement(spread=(Spread("cluster", 1, 1),))


def pods(count: int, *, cpu: int, minimum: int | None = None, claim: str | None = "") -> PodSet:
    request = (("cpu", cpu * 1000), ("pods", 1000))
    return PodSet(request, count, count if minimum is None else minimum, claim)


def gang(*sets: PodSet, **parts) -> SchedulingRequirements:
    return SchedulingRequirements(
        positive(total(scale(each.amounts, each.count) for each in sets)),
        positive(total(scale(each.amounts, each.minimum) for each in sets)),
        ONE,
        pod_sets=sets,
        **parts,
    )


def job(name: str, shape: SchedulingRequirements, **parts) -> Workload:
    parts.setdefault("queue", QueueName("q"))
    gang = WorkloadDetails(gang=parts.pop("gang", None))
    return Workload(WorkloadUid(name), "ns", name, "Job", requirements=shape, details=gang, **parts)


def site(name: str, cpu: int, used: int = 0) -> Cluster:
    return Cluster(
        ClusterName(name),
        enablements=frozenset({VOLCANO_JOB}),
        allocatable={"cpu": cpu * 1000, "pods": 1_000_000},
        used={"cpu": used * 1000},
    )


class Play:
    """Engine whose queries the test answers."""

    def __init__(self, *clusters: Cluster, policy: Policy | None = None, **queue) -> None:
        self.now = START
        self.state = Engine(policy or Policy(node_estimates=True, startup_timeout_ms=None))
        self.state.queue_changed(Queue(QueueName("q"), ROOT, **queue))
        for each in clusters:
            self.state.cluster_changed(each, self.now)
        self.queries = []

    def add(self, *jobs: Workload):
        for each in jobs:
            self.state.workload_changed(each, self.now)
        return self

    def plan(self, after: int = 0) -> list[str]:
        """Return the admissions of one plan with their clusters, in order."""
        self.now += after
        plan = self.state.plan(self.now)
        self.queries += plan.queries
        self.last = plan
        return [f"{each.workload.name}@{each.clusters[0].name}" for each in plan.decisions if isinstance(each, Admit)]

    def answer(self, count: int | None, *, silent: bool = False) -> None:
        """Give the same answer to all open queries."""
        for query in self.queries:
            self.state.cluster_estimated(Estimate(query, count, silent), self.now)
        self.queries = []

    def asked(self) -> list[str]:
        return [query.cluster for query in self.queries]

    def run(self, name: str) -> None:
        before = self.state.workloads[WorkloadUid(name)]
        self.state.workload_changed(_running(before), self.now)


def _running(workload: Workload) -> Workload:
    return changed(workload, has_run=True)


def test_gang_is_admitted_after_a_sufficient_estimate():
    play = Play(site("m1", 32)).add(job("a", gang(pods(4, cpu=5))))

    assert play.plan() == []
    assert play.asked() == ["m1"]
    play.answer(6)

    assert play.plan() == ["a@m1"]


def test_gang_refused_by_the_estimator_is_queried_again():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(4)

    assert play.plan() == []
    refusal = play.state.refusal(WorkloadUid("a"))
    assert refusal is not None
    assert (refusal.reason, refusal.cluster) == (Reason.INSUFFICIENT_CAPACITY, "m1")
    assert "estimator" in (refusal.subject or "")
    assert play.asked() == []
    assert play.last.wake_at == START + ANSWER_TTL_MS

    play.plan(after=ANSWER_TTL_MS)
    assert play.asked() == ["m1"]
    play.answer(6)
    assert play.plan() == ["a@m1"]


def test_waiting_for_an_answer_publishes_no_reason():
    play = Play(site("m1", 32)).add(job("a", gang(pods(4, cpu=5))))

    play.plan()

    assert play.last.waits == ()
    assert play.state.refusal(WorkloadUid("a")) is None


def test_others_are_admitted_while_one_workload_is_estimated():
    play = Play(site("m1", 32)).add(job("a", gang(pods(4, cpu=5))))
    play.plan()
    play.add(job("b", gang(pods(1, cpu=1, claim=None))))

    assert play.plan(after=5) == ["b@m1"]


def test_fifo_head_blocks_its_queue_while_it_is_estimated():
    play = Play(site("m1", 32), fifo=True).add(
        job("a", gang(pods(4, cpu=5)), created_at=1), job("b", gang(pods(1, cpu=1, claim=None)), created_at=2)
    )

    assert play.plan() == []
    play.answer(4)
    assert play.plan() == ["a@m1", "b@m1"]


def test_without_an_answer_the_sum_decides():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(None, silent=True)

    assert play.plan() == ["a@m1"]


def test_workloads_do_not_wait_for_an_unresponsive_estimator():
    play = Play(site("m1", 32)).add(job("a", gang(pods(1, cpu=5))))
    play.plan()
    play.answer(None, silent=True)
    play.plan()
    play.add(job("b", gang(pods(2, cpu=5))))

    assert play.plan(after=1) == ["b@m1"]
    assert play.asked() == []
    play.add(job("c", gang(pods(3, cpu=5))))

    assert play.plan(after=ANSWER_TTL_MS) == ["c@m1"]
    assert play.asked() == ["m1"], "one question tells whether it answers again"


def test_query_without_an_answer_times_out():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()

    assert play.last.wake_at == START + QUERY_TIMEOUT_MS
    assert play.plan(after=QUERY_TIMEOUT_MS) == ["a@m1"]


def test_negative_count_is_no_answer():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(-1)

    assert play.plan() == ["a@m1"]


def test_huge_count_does_not_bypass_other_limits():
    play = Play(site("m1", 32)).add(job("a", gang(pods(8, cpu=5))))
    play.plan()
    play.answer(2**31 - 1)

    assert play.plan() == []


def test_answer_to_an_outdated_query_is_ignored():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    (query,) = play.queries

    play.state.cluster_estimated(Estimate(type(query)(ClusterName("m2"), query.pods, query.asked_at), 9), play.now)
    play.state.cluster_estimated(Estimate(type(query)(query.cluster, query.pods, query.asked_at - 1), 9), play.now)

    assert play.plan() == []


def test_unobserved_admissions_are_deducted_from_estimates():
    play = Play(site("m1", 100)).add(*(job(name, gang(pods(2, cpu=5)), created_at=ord(name)) for name in "abc"))
    play.plan()
    play.answer(4)

    assert play.plan() == ["a@m1", "b@m1"]
    assert play.state.refusal(WorkloadUid("c")).reason is Reason.INSUFFICIENT_CAPACITY

    play.plan(after=ANSWER_TTL_MS)
    play.answer(4)
    assert play.plan() == [], "their pods are still to come"

    play.run("a")
    play.run("b")
    play.plan(after=MIN_REFUSAL_MS)
    play.answer(2)
    assert play.plan() == ["c@m1"]


def test_workload_refused_by_one_estimator_uses_another_cluster():
    play = Play(site("m1", 40), site("m2", 90)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    assert play.asked() == ["m1"]
    play.answer(5)
    play.plan()
    assert play.asked() == ["m2"]
    play.answer(9)

    assert play.plan() == ["a@m2"]


def test_changed_cluster_summary_invalidates_its_estimates():
    play = Play(site("m1", 40)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(5)
    play.plan()
    play.now += MIN_REFUSAL_MS
    play.state.cluster_changed(site("m1", 40, used=1), play.now)
    play.plan()

    assert play.asked() == ["m1"]


def test_refused_workload_is_queried_at_a_bounded_rate():
    play = Play(site("m1", 400)).add(job("a", gang(pods(6, cpu=5))))
    count = 0
    for number in range(100):
        play.state.cluster_changed(site("m1", 400, used=number), play.now)
        play.plan(after=10)
        count += len(play.queries)
        play.answer(5)

    assert 3 <= count <= 1000 // MIN_REFUSAL_MS + 1


def test_idle_engine_makes_no_queries_and_wakes_once():
    play = Play(site("m1", 40)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(5)
    play.plan()
    play.state.workload_removed(WorkloadUid("a"), play.now)
    play.plan(after=ANSWER_TTL_MS)

    assert play.asked() == []
    assert play.last.wake_at is None


def test_no_queries_are_made_while_estimates_are_disabled():
    play = Play(site("m1", 32), policy=Policy(startup_timeout_ms=None)).add(job("a", gang(pods(6, cpu=5))))

    assert play.plan() == ["a@m1"]
    assert play.asked() == []


def test_disabling_estimates_admits_waiting_workloads():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.state.policy_changed(Policy(startup_timeout_ms=None))

    assert play.plan() == ["a@m1"]


def test_estimates_of_hyperjob_parts_deduct_one_another():
    group = HyperJobGang("h/1", 2, 2)
    play = Play(site("m1", 100)).add(*(job(name, gang(pods(2, cpu=5)), gang=group) for name in ("h-0", "h-1")))
    play.plan()
    play.answer(3)
    assert play.plan() == []

    play.plan(after=ANSWER_TTL_MS)
    play.answer(4)
    assert play.plan() == ["h-0@m1", "h-1@m1"]


def test_gang_with_different_pods_is_counted_in_whole_gangs():
    shape = gang(pods(1, cpu=2), pods(2, cpu=5))
    play = Play(site("m1", 100)).add(job("a", shape, created_at=1), job("b", shape, created_at=2))
    play.plan()
    play.answer(1)

    assert play.plan() == ["a@m1"]


def test_only_the_gang_minimum_must_fit_nodes():
    play = Play(site("m1", 100)).add(job("a", gang(pods(8, cpu=5, minimum=2))))
    play.plan()
    play.answer(2)

    assert play.plan() == ["a@m1"]


def test_large_pods_consume_several_units_of_an_estimate():
    small, large = pods(4, cpu=2), pods(3, cpu=5)

    assert units_consumed((small,), (large,)) == 9
    assert units_consumed((large,), (small,)) == 4
    assert units_consumed((small,), (small,)) == 4
    assert units_consumed((small, large), (small, large)) == 1


def test_refused_workload_stays_pending_after_its_query_expires():
    play = Play(site("m1", 32)).add(job("a", gang(pods(6, cpu=5))))
    play.plan()
    play.answer(0)
    play.plan()

    assert play.state.workloads[WorkloadUid("a")].state is WorkloadState.PENDING


def reclaiming(*clusters: Cluster) -> Play:
    """Return an engine in which queue r borrows while q is below its fair share."""
    policy = Policy(
        node_estimates=True, startup_timeout_ms=None, reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0)
    )
    play = Play(*clusters, policy=policy)
    play.state.queue_changed(Queue(QueueName("r"), ROOT))
    return play


def test_refused_workload_does_not_block_borrowing():
    play = reclaiming(site("m1", 40)).add(job("a", gang(pods(4, cpu=5))))
    play.plan()
    play.answer(3)
    play.plan()
    play.add(*(job(name, gang(pods(5, cpu=2, claim=None)), queue=QueueName("r"), created_at=2) for name in "bcd"))

    assert play.plan() == ["b@m1", "c@m1", "d@m1"]
