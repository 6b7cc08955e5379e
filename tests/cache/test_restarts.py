"""Admitted, leaving and recently finished workloads after a restart."""

import pytest

from controller.api.configuration import load_configuration
from controller.cache.store import Store
from controller.engine.engine import Engine
from tests.cache.fake_event_handler import upsert
from tests.cache.objects import CREATED, CREATED_MS, admission_record, binding, cluster, job, priority_class, queue

RECORD = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))


def restarted(now: int, *, phases: dict[str, str], since: str = CREATED, record: str | None = RECORD, asks: str = "4"):
    """Return an engine that starts at *now*: of a cluster's 4 CPUs the summary still shows 1 in use."""
    store, engine = Store(), Engine()
    four = cluster("m1", cpu="4", pods="9", used={"cpu": "1", "pods": "1"})
    before = binding("j1", paused=False, clusters=["m1"], phases=phases, since=since, record=record)
    waiting = job("j2", requests={"cpu": asks})
    upsert(store, ("queues", queue("a")), ("clusters", four), ("jobs", job("j1")), ("jobs", waiting))
    upsert(store, ("bindings", before), ("bindings", binding("j2")))
    store.sync_to(engine, now)
    return engine


@pytest.mark.parametrize("record", [RECORD, None])
def test_usage_freed_before_restart_is_not_external_usage(record):
    state = restarted(CREATED_MS + 2_000, phases={"m1": "Completed"}, record=record)
    assert [decision.workload.uid for decision in state.plan(CREATED_MS + 2_000).decisions] == ["rb-j2"]


@pytest.mark.parametrize(
    ("since", "now"),
    [(CREATED, CREATED_MS + 30_000), (CREATED, CREATED_MS + 3_600_000), ("yesterday", CREATED_MS)],
    ids=["after-the-settle-period", "long-ago", "unreadable-time"],
)
def test_usage_freed_long_ago_is_external_usage(since, now):
    state = restarted(now, phases={"m1": "Completed"}, since=since)
    assert state.plan(now).decisions == ()
    assert state.cluster_usage.cluster_state("m1").external_usage == {"cpu": 1000, "pods": 1000}


def test_recently_freed_usage_expires_after_settle_period():
    state = restarted(CREATED_MS + 2_000, phases={"m1": "Failed"}, asks="5")
    assert state.plan(CREATED_MS + 2_000).wake_at == CREATED_MS + 30_000
    assert state.cluster_usage.cluster_state("m1").external_usage == {}
    state.plan(CREATED_MS + 30_000)
    assert state.cluster_usage.cluster_state("m1").external_usage == {"cpu": 1000, "pods": 1000}


def test_finish_time_in_the_future_counts_as_now():
    state = restarted(CREATED_MS - 5_000, phases={"m1": "Completed"})
    assert state.plan(CREATED_MS - 5_000).decisions
    assert state.cluster_usage.cluster_state("m1").recently_freed.earliest == CREATED_MS - 5_000


HALF = {"cpu": "4", "pods": "1"}
EVICTED = {"record": admission_record("rb-victim", queue="a", evictions=1)}
LEAVING = {**EVICTED, "phases": {"m1": "Running"}, "spec": {"gracefulEvictionTasks": [{"fromCluster": "m1"}]}}
DELETED = {"deletionTimestamp": CREATED}


def preempting(*, cpus: int = 8, used: int = 8) -> tuple[Store, Engine]:
    """Return what a controller knows after a restart, while a victim leaves for a nominated workload."""
    store, engine = Store(load_configuration("preemption: {enabled: true, minRuntime: 0s}")), Engine()
    running = {"record": admission_record("rb-other", queue="a", charge=HALF, clusters=("m1",), admitted_at=CREATED)}
    nominated = admission_record(
        "rb-preemptor",
        queue="a",
        nominated_cluster="m1",
        nominated_at=CREATED,
        nomination_rank=0,
        nominated_requests=HALF,
    )
    upsert(
        store,
        ("queues", queue("a")),
        ("clusters", cluster("m1", cpu=str(cpus), pods="9", used={"cpu": str(used), "pods": "2"})),
        ("priority_classes", priority_class("high", 100)),
        ("jobs", job("victim", requests={"cpu": "4"})),
        ("jobs", job("other", requests={"cpu": "4"})),
        ("jobs", job("preemptor", requests={"cpu": "4"}, priority="high")),
        ("bindings", binding("victim", **LEAVING)),
        ("bindings", binding("other", paused=False, clusters=["m1"], phases={"m1": "Running"}, **running)),
        ("bindings", binding("preemptor", record=nominated)),
    )
    store.sync_to(engine, CREATED_MS)
    return store, engine


def test_restart_during_a_preemption_evicts_no_other_workload():
    _, engine = preempting()
    for now in (CREATED_MS, CREATED_MS + 31_000, CREATED_MS + 62_000):
        plan = engine.plan(now)
        assert (plan.decisions, plan.record_updates) == ((), ())
    assert engine.cluster_usage.cluster_state("m1").external_usage == {}


def test_external_usage_stays_where_a_summary_precedes_an_end():
    """The victim's pods have ended; that its binding has left the cluster is observed later."""
    store, engine = preempting(cpus=16, used=12)
    engine.plan(CREATED_MS)
    assert engine.cluster_usage.cluster_state("m1").external_usage["cpu"] == 4000
    later = CREATED_MS + 40_000
    upsert(store, ("clusters", cluster("m1", cpu="16", pods="9", used={"cpu": "8", "pods": "1"})))
    store.sync_to(engine, later)
    engine.plan(later)
    assert engine.cluster_usage.cluster_state("m1").external_usage["cpu"] == 4000


def test_deletion_of_a_leaving_victim_evicts_no_other_workload():
    store, engine = preempting()
    upsert(store, ("jobs", job("victim", requests={"cpu": "4"}, meta=DELETED)))
    store.sync_to(engine, CREATED_MS + 61_000)
    plan = engine.plan(CREATED_MS + 61_000)
    assert (plan.decisions, plan.record_updates) == ((), ())
    upsert(store, ("bindings", binding("victim", **EVICTED)))
    store.sync_to(engine, CREATED_MS + 62_000)
    assert [decision.workload.uid for decision in engine.plan(CREATED_MS + 62_000).decisions] == ["rb-preemptor"]
    assert "rb-victim" not in engine.workloads


@pytest.mark.parametrize(
    ("evicted_seconds_ago", "is_charged"),
    [pytest.param(100, True, id="lately"), pytest.param(86_400, False, id="long-ago")],
)
def test_workload_evicted_unplaced_long_ago_holds_nothing(evicted_seconds_ago, is_charged):
    """Karmada can place it no more, also for a new process, such as the command line tool."""
    store, engine = Store(), Engine()
    now = CREATED_MS + evicted_seconds_ago * 1000
    evicted = admission_record("rb-j1", queue="a", clusters=("m1",), evictions=1, aborted=True, evicted_at=CREATED)
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")), ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", record=evicted)))
    store.sync_to(engine, now)
    assert engine.workloads["rb-j1"].is_being_evicted is is_charged


def test_victim_deleted_before_its_placement_is_not_admitted():
    store, engine = Store(), Engine()
    unplaced = admission_record("rb-j1", queue="a", clusters=("m1",), evictions=1)
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")), ("jobs", job("j1", meta=DELETED)))
    upsert(store, ("bindings", binding("j1", record=unplaced)))
    store.sync_to(engine, CREATED_MS)
    assert engine.workloads["rb-j1"].is_being_evicted
    assert [*engine.plan(CREATED_MS).decisions, *engine.plan(CREATED_MS + 331_000).decisions] == []
