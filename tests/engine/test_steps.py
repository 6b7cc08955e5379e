"""Number of steps and parts of a plan for the largest inputs that tenants can create."""

from dataclasses import replace

import pytest

from controller.engine.engine import Engine
from controller.engine.fairness import pending_order
from controller.engine.plan import Admit
from controller.engine.policy import AdvanceReservation, EvictionPolicy, Policy
from controller.engine.preemption.attempt import PreemptionAttempt
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, Placement, Requirement, Term
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import HyperJobGang, SchedulingRequirements, WorkloadUid
from controller.engine.steps import finish
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.work import work_of

CLUSTERS = 20
LARGEST_PART = 600
"""Limit of the steps of one part of a plan, for any number of pending workloads."""


def numbered_cluster(number: int, cpus: int = 10_000) -> Cluster:
    return cluster(f"m{number:02}", cpu=cpus, memory=10**9)


def fleet(policy: Policy) -> Engine:
    engine = Engine(policy)
    for number in range(5):
        engine.queue_changed(Queue(QueueName(f"q{number}"), parent=ROOT))
    for number in range(CLUSTERS):
        engine.cluster_changed(numbered_cluster(number), 1)
    return engine


def submit(engine: Engine, number: int, shape: SchedulingRequirements, hold: Refusal | None = None) -> None:
    made = workload(f"j{number:05}", shape, queue=f"q{number % 5}", created_at=number, hold=hold)
    engine.workload_changed(made, 1)


def submit_shapes(engine: Engine, count: int) -> None:
    """Submit workloads with different requests, of which each cluster fits one."""
    for number in range(count):
        demand = {"pods": 1000, "cpu": 6000 + number % 3000, "memory": 10**6 + number}
        submit(engine, number, SchedulingRequirements(demand, demand, ONE_CLUSTER))


def measured(engine: Engine, now: int) -> tuple[int, int, int]:
    """Plan in parts; return the steps of all, those of the largest part, and the number of admissions."""
    work, parts = engine.plan_in_steps(now), []
    before = engine.feasibility_cache.total_steps
    while not engine.prepare(2000):
        pass
    parts.append(engine.feasibility_cache.total_steps - before)
    largest = 0
    while True:
        try:
            parts.append(next(work))
        except StopIteration as ended:
            plan = ended.value
            break
        largest = max(largest, parts[-1])
    return sum(parts), largest, sum(isinstance(decision, Admit) for decision in plan.decisions)


POLICIES = [
    pytest.param(Policy(), 200, id="priority first"),
    pytest.param(Policy(queue_order="FairShareFirst"), 200, id="fair share first"),
    pytest.param(Policy(reclaim=EvictionPolicy(enabled=True)), 250, id="reclaim"),
]


def check_many_shapes(policy: Policy, most: int, *, count: int) -> None:
    engine = fleet(policy)
    submit_shapes(engine, count)
    first, largest, admitted = measured(engine, 1000)
    assert admitted == CLUSTERS
    assert largest <= LARGEST_PART
    assert first <= most * count
    engine.cluster_changed(numbered_cluster(3, 30_000), 2000)
    changed, largest, admitted = measured(engine, 2000)
    assert admitted > 0
    assert largest <= LARGEST_PART
    assert changed <= most * count


@pytest.mark.parametrize(("policy", "most"), POLICIES)
def test_plan_steps_are_linear_in_requirements_and_bounded(policy, most):
    check_many_shapes(policy, most, count=300)


@pytest.mark.long
@pytest.mark.parametrize(("policy", "most"), POLICIES)
def test_plan_of_5000_requirements_takes_linear_bounded_steps(policy, most):
    check_many_shapes(policy, most, count=5000)


def test_no_cluster_is_searched_without_a_possible_victim():
    engine = fleet(Policy(reclaim=EvictionPolicy(enabled=True)))
    submit_shapes(engine, 300)
    measured(engine, 1000)
    submit(engine, 300, SchedulingRequirements({"cpu": 1}, {"cpu": 1}, ONE_CLUSTER))
    steps, _, admitted = measured(engine, 2000)
    assert admitted == 1
    assert steps <= 2 * 300


def test_large_affinities_are_compared_with_changed_clusters():
    engine, terms = fleet(Policy()), 100
    for job in range(50):
        named = [Requirement("zone", "In", (f"{job}-{number}",)) for number in range(terms)]
        affinities = tuple(
            Term(f"a{number}", Affinity(labels=(requirement,))) for number, requirement in enumerate(named)
        )
        submit(engine, job, SchedulingRequirements({"cpu": 1}, {"cpu": 1}, Placement(terms=affinities)))
    first, largest, _ = measured(engine, 1000)
    assert first >= 50 * terms * CLUSTERS
    engine.cluster_changed(replace(numbered_cluster(3), labels={"zone": "a"}), 2000)
    changed, _, _ = measured(engine, 2000)
    assert changed <= 2 * 50 * terms + 50 * 3 * CLUSTERS
    assert largest <= LARGEST_PART


def test_pods_are_steps_where_clusters_have_models():
    """A job of 1,000 tasks takes 100 times as long to compare with a cluster as one of equal pods."""
    engine, pods = fleet(Policy()), tuple({"cpu": number} for number in range(1000))
    for number in range(CLUSTERS):
        engine.cluster_changed(replace(numbered_cluster(number), grades=({"cpu": 2000},)), 1)
    for job in range(10):
        submit(engine, job, SchedulingRequirements({"cpu": 9000 + job}, {"cpu": 9000 + job}, ONE_CLUSTER, pods=pods))
    steps, largest, admitted = measured(engine, 1000)
    assert admitted == 10
    assert steps >= 10 * CLUSTERS // 2 * 100
    assert largest <= 2 * CLUSTERS * 100


def test_fair_shares_of_many_queues_are_divided_in_parts():
    """Between the parts, queries see queues without a fair share."""
    engine = Engine()
    for number in range(300):
        engine.queue_changed(Queue(QueueName(f"q{number}"), parent=ROOT))
    engine.cluster_changed(numbered_cluster(0), 1)
    for number in range(2):
        submit(engine, number, SchedulingRequirements({"pods": 1000, "cpu": 6_000, "memory": 1}))
    finish(engine.plan_in_steps(1000))
    engine.cluster_changed(numbered_cluster(0, 15_000), 2000)
    due, parts = [], 0
    for steps in engine.plan_in_steps(3000):
        parts += steps >= 300
        due.append(engine.queue_shares.fair_shares[ROOT].get("cpu"))
    assert parts == 3  # the quota, cpu, memory
    assert due[0] == 10_000
    assert due[-1] == 15_000
    assert None in due


def test_positions_of_held_workloads_compare_each_once(monkeypatch):
    engine, compared = fleet(Policy()), []
    of_workload = pending_order.order_key
    monkeypatch.setattr(pending_order, "order_key", lambda workload: compared.append(workload) or of_workload(workload))
    hold = Refusal(Reason.REQUESTS_UNKNOWN)
    for number in range(100):
        submit(engine, number, SchedulingRequirements(), hold=hold)

    waits = finish(engine.plan_in_steps(1)).waits

    assert sorted(wait.position for wait in waits) == sorted(list(range(1, 21)) * 5)
    assert len(compared) == len(waits)


def test_head_of_a_fifo_queue_is_searched_once_for_all_reasons(monkeypatch):
    engine, searched = Engine(), []
    engine.queue_changed(Queue(QueueName("a"), fifo=True))
    engine.cluster_changed(cluster("m", cpu=100), 1)
    engine.workload_changed(workload("r", {"cpu": 100}, queue="a", on="m", admitted_at=1), 1)
    for number in range(30):
        engine.workload_changed(workload(f"p-{number}", {"cpu": 1 + number}, queue="a", created_at=number), 1)
    order = engine.context.order
    blocking_head = order.blocking_head
    monkeypatch.setattr(order, "blocking_head", lambda queue: searched.append(queue) or blocking_head(queue))

    waits = finish(engine.plan_in_steps(1000)).waits

    assert len(waits) == 30
    assert len(searched) <= 3


def test_head_of_a_fifo_queue_is_searched_once_for_all_hyperjobs(monkeypatch):
    engine, searched = Engine(), []
    engine.queue_changed(Queue(QueueName("a"), fifo=True))
    engine.queue_changed(Queue(QueueName("b")))
    engine.cluster_changed(cluster("m", cpu=100), 1)
    engine.workload_changed(workload("r", {"cpu": 1}, queue="b", on="m", admitted_at=1), 1)
    engine.workload_changed(workload("head", {"cpu": 100}, queue="a", priority=9), 1)
    for number in range(30):
        gang = HyperJobGang(f"h-{number}/1", 2, 2)
        for queue in ("a", "b"):
            engine.workload_changed(workload(f"{queue}-{number}", {"cpu": 1}, queue=queue, gang=gang), 1)
    order = engine.context.order
    blocking_head = order.blocking_head
    monkeypatch.setattr(order, "blocking_head", lambda queue: searched.append(queue) or blocking_head(queue))

    assert not finish(engine.plan_in_steps(1000)).decisions
    assert searched.count("a") <= 6


def test_positions_of_held_workloads_follow_changes():
    engine, queue = Engine(), QueueName("a")
    engine.queue_changed(Queue(queue, parent=ROOT))
    for number in range(600):
        hold = Refusal(Reason.REQUESTS_UNKNOWN) if number % 6 else None
        engine.workload_changed(workload(f"w-{number}", {"cpu": 1}, queue="a", created_at=number, hold=hold), 1)
    finish(engine.plan_in_steps(1))
    changes = [
        lambda: engine.workload_changed(workload("late", {"cpu": 1}, queue="a", created_at=300, hold=hold), 2),
        lambda: engine.workload_removed(WorkloadUid("w-7"), 2),
        lambda: engine.workload_changed(workload("w-8", {"cpu": 1}, queue="a", created_at=8), 2),
    ]
    for change in changes:
        change()
        expected = engine.pending_workloads(queue)
        assert [engine.position(pending) for pending in expected] == list(range(1, len(expected) + 1))
    assert work_of(lambda: engine.position(expected[-1])) < 300


EVICTING = EvictionPolicy(enabled=True, min_runtime_ms=0)


def gang_next_to(policy: Policy, parts: int, *, more: int) -> Engine:
    """Return a cluster full of borrowing workloads, and a pending gang of which each part requests other amounts."""
    engine, gang = Engine(policy), HyperJobGang("h/1", parts, parts)
    for name in ("a", "b"):
        engine.queue_changed(Queue(QueueName(name), parent=ROOT))
    engine.cluster_changed(cluster("m", cpu=4000 * parts), 1)
    for number in range(parts):
        for queue in ("a", "b"):
            name = f"{queue}-{number:04}"
            engine.workload_changed(workload(name, {"cpu": 1900, "pods": 1000}, queue=queue, on="m", admitted_at=1), 1)
        requests = {"cpu": 100 + more - number, "pods": 1000}
        engine.workload_changed(workload(f"p-{number:04}", requests, queue="a", priority=5, gang=gang), 1)
    return engine


def work_of_next_plan(engine: Engine) -> int:
    """Return the work of the first plan after an event that concerns no other workload."""
    finish(engine.plan_in_steps(1000))
    engine.workload_changed(workload("other", {"cpu": 1, "pods": 1000}, queue="b"), 1001)
    return work_of(lambda: finish(engine.plan_in_steps(1001)))


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Policy(), id="priority-first"),
        pytest.param(Policy(queue_order="FairShareFirst"), id="fair-share-first"),
        pytest.param(Policy(reclaim=EVICTING), id="reclaim"),
        pytest.param(Policy(preemption=EVICTING), id="preemption"),
    ],
)
def test_blocked_gang_of_different_parts_takes_linear_work(policy):
    few, many = (work_of_next_plan(gang_next_to(policy, parts, more=4000)) for parts in (30, 90))
    assert many < 4 * few


@pytest.mark.parametrize("fairness", ["Namespace", "NamespaceFirst"])
def test_different_requests_of_namespaces_take_linear_work(fairness):
    def work(count: int) -> int:
        engine = Engine(Policy(tenant_fairness=fairness))
        engine.queue_changed(Queue(QueueName("a"), parent=ROOT))
        engine.cluster_changed(cluster("m", cpu=count**2 * 10), 1)
        for number in range(count):
            made = workload(f"p-{number}", {"cpu": 1 + number}, queue="a", namespace=f"ns-{number % 2}")
            engine.workload_changed(made, 1)
        return work_of(lambda: finish(engine.plan_in_steps(1000)))

    few, many = (work(count) for count in (30, 120))
    assert many < 5 * few


@pytest.mark.parametrize("is_sufficient", [True, False])
def test_search_for_victims_visits_those_of_each_cluster(monkeypatch, is_sufficient):
    """Every second workload may not be evicted."""
    visited, per_cluster = [], 6
    may_select = PreemptionAttempt.may_select
    monkeypatch.setattr(
        PreemptionAttempt, "may_select", lambda attempt, victim: visited.append(victim) or may_select(attempt, victim)
    )

    def visits(count: int) -> int:
        engine = Engine(Policy(reclaim=EVICTING))
        for name in ("a", "b"):
            engine.queue_changed(Queue(QueueName(name), parent=ROOT))
        for number in range(count):
            name = f"m-{number:03}"
            engine.cluster_changed(cluster(name, cpu=per_cluster), 1)
            for other in range(per_cluster):
                fields = {"on": name, "admitted_at": 1, "preserved": other % 2 == 0}
                engine.workload_changed(workload(f"v-{number}-{other}", {"cpu": 1}, queue="b", **fields), 1)
        requests = {"cpu": per_cluster // 2 + (not is_sufficient)}
        engine.workload_changed(workload("p", requests, queue="a"), 1)
        visited.clear()
        assert bool(finish(engine.plan_in_steps(400_000)).decisions) == is_sufficient
        return len(visited)

    few, many = (visits(count) for count in (5, 20))
    assert 0 < many <= 4 * few


def test_nominated_gang_takes_linear_work():
    def nominated(parts: int) -> Engine:
        engine, gang = Engine(Policy(reclaim=EVICTING)), HyperJobGang("h/1", parts, parts)
        for name in ("a", "b"):
            engine.queue_changed(Queue(QueueName(name), parent=ROOT))
        engine.cluster_changed(cluster("m", cpu=2 * parts), 1)
        for number in range(2 * parts):
            victim = workload(f"v-{number}", {"cpu": 1, "pods": 1000}, queue="b", on="m", admitted_at=1)
            engine.workload_changed(victim, 1)
        for number in range(parts):
            engine.workload_changed(workload(f"p-{number}", {"cpu": 1, "pods": 1000}, queue="a", gang=gang), 1)
        finish(engine.plan_in_steps(400_000))
        assert len(engine.nominated) == parts
        return engine

    def work(engine: Engine) -> int:
        engine.workload_changed(workload("other", {"cpu": 1, "pods": 1000}, queue="b"), 500_000)
        return work_of(lambda: finish(engine.plan_in_steps(500_000)))

    few, many = (work(nominated(parts)) for parts in (30, 90))
    assert many < 4 * few


def test_gang_whose_victims_must_stay_takes_linear_work():
    """On each cluster one workload may be evicted, and a part needs two: each assignment excludes two clusters."""

    def work(clusters: int) -> int:
        engine, gang = Engine(Policy(reclaim=EVICTING)), HyperJobGang("h/1", 2, 2)
        engine.queue_changed(Queue(QueueName("a"), parent=ROOT, deserved={"cpu": 20}))
        for number in range(clusters):
            engine.queue_changed(Queue(QueueName(f"q-{number}"), parent=ROOT, deserved={"cpu": 10}))
            engine.cluster_changed(cluster(f"m-{number:03}", cpu=15), 1)
            for victim in range(3):
                fields = {"queue": f"q-{number}", "on": f"m-{number:03}", "admitted_at": 1 + number}
                engine.workload_changed(workload(f"v-{number}-{victim}", {"cpu": 5, "pods": 1000}, **fields), 1)
        for number in range(2):
            engine.workload_changed(workload(f"p-{number}", {"cpu": 9, "pods": 1000}, queue="a", gang=gang), 1)
        return work_of(lambda: finish(engine.plan_in_steps(400_000)))

    few, many = (work(clusters) for clusters in (12, 36))
    assert many < 3.5 * few


def test_victims_of_an_advance_reservation_take_bounded_work():
    def work(count: int) -> tuple[int, int]:
        clusters = (ClusterName("m"),)
        reserved = AdvanceReservation("r", clusters, 1000, 9000, QueueName("b"), amounts={"cpu": count}, evicts=True)
        engine = Engine(Policy(advance_reservations=(reserved,)))
        engine.queue_changed(Queue(QueueName("a"), parent=ROOT))
        engine.cluster_changed(cluster("m", cpu=count), 1)
        for number in range(count):
            running = workload(f"v-{number}", {"cpu": 1, "pods": 1000}, queue="a", on="m", admitted_at=1)
            engine.workload_changed(running, 1)
        parts = list[int]()
        return work_of(lambda: parts.extend(engine.plan_in_steps(2000))), len(parts)

    (few, _), (many, parts) = work(20), work(60)
    assert many < 5 * few
    assert parts >= 60, "the event loop serves others after each eviction"
