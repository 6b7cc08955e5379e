"""Workloads of which Karmada reports no status, because it cannot apply their Works."""

from datetime import UTC, datetime

import pytest

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.cache.objects import BindingCondition as Condition
from controller.cache.objects import WorkloadPhase
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.workloads import WorkloadState
from tests.cache.fake_event_handler import FakeEventHandler, upsert
from tests.cache.objects import CREATED_MS, admission_record, binding, cluster, job, queue

DENIED = {"m1": "Failed to apply all manifests (0/1): admission webhook denied the request: job updates may not change"}
HOUR = 3_600_000


def record(**more) -> str:
    charge = {"cpu": "1", "pods": "1"}
    at = more.pop("admitted_at", datetime(2026, 1, 2, tzinfo=UTC))
    return admission_record("rb-j1", queue="a", charge=charge, clusters=("m1",), admitted_at=at, **more)


def admitted(**more) -> bytes:
    return binding("j1", **{"paused": False, "clusters": ["m1"], "record": record(), **more})


def after(*bindings: bytes, template: bytes | None = None):
    """Return the workload after *bindings* were observed one after the other, and the conditions of its binding."""
    store, handler = Store(), FakeEventHandler()
    upsert(store, ("jobs", template or job("j1")))
    for raw_binding in bindings:
        upsert(store, ("bindings", raw_binding))
        store.sync_to(handler, CREATED_MS)
    return handler.workloads["rb-j1"], store.conditions.get("rb-j1", frozenset())


RUNNING, COMPLETED = ({"phases": {"m1": phase}} for phase in ("Running", "Completed"))
REFUSED = {"refused": DENIED}
NEW_WORK = {"statuses": {"m1": None}}
OTHER_ADMISSION = {"record": record(admitted_at=datetime(2026, 1, 3, tzinfo=UTC))}


@pytest.mark.parametrize(
    ("versions", "state", "has_run"),
    [
        pytest.param([COMPLETED, REFUSED], WorkloadState.FINISHED, False, id="finished-before"),
        pytest.param([COMPLETED, REFUSED, REFUSED], WorkloadState.FINISHED, False, id="refused-twice"),
        pytest.param([RUNNING, REFUSED], WorkloadState.ADMITTED, True, id="ran-before"),
        pytest.param([RUNNING, REFUSED, COMPLETED], WorkloadState.FINISHED, False, id="applied-after-the-end"),
        pytest.param([{}, REFUSED], WorkloadState.ADMITTED, False, id="never-applied"),
        pytest.param([NEW_WORK, REFUSED], WorkloadState.ADMITTED, False, id="not-tried-before"),
        pytest.param([REFUSED], WorkloadState.ADMITTED, True, id="unknown-after-a-restart"),
        pytest.param([COMPLETED, REFUSED | OTHER_ADMISSION], WorkloadState.ADMITTED, True, id="admitted-again"),
        pytest.param([COMPLETED, NEW_WORK], WorkloadState.ADMITTED, True, id="new-work"),
    ],
)
def test_progress_is_kept_where_a_work_is_not_applied(versions, state, has_run):
    workload, conditions = after(*(admitted(**version) for version in versions))
    assert (workload.state, workload.has_run) == (state, has_run)
    assert (Condition.WORK_NOT_APPLIED in conditions) == ("refused" in versions[-1])
    is_charged = workload.admission is not None and workload.admission.charge == {"cpu": 1000, "pods": 1000}
    assert is_charged == (state is WorkloadState.ADMITTED)


@pytest.mark.parametrize(
    ("last_phase", "state", "awaits_start"),
    [
        ("Finished", WorkloadState.FINISHED, False),
        ("Running", WorkloadState.ADMITTED, False),
        ("Waiting", WorkloadState.ADMITTED, True),
        ("", WorkloadState.ADMITTED, False),
        ("of a later version", WorkloadState.ADMITTED, False),
    ],
)
def test_recorded_phase_counts_after_a_restart(last_phase, state, awaits_start):
    workload, conditions = after(admitted(**REFUSED, record=record(last_phase=last_phase)))
    assert (workload.state, workload.awaits_start) == (state, awaits_start)
    assert (Condition.PHASE_NOT_RECORDED in conditions) == (last_phase == "of a later version")


@pytest.mark.parametrize(
    ("versions", "recorded", "is_repaired"),
    [
        pytest.param([COMPLETED, REFUSED], "", True, id="finished"),
        pytest.param([COMPLETED, REFUSED], "Finished", False, id="recorded"),
        pytest.param([RUNNING, REFUSED], "Waiting", True, id="has-run-since"),
        pytest.param([RUNNING], "Waiting", True, id="applied-again"),
        pytest.param([RUNNING], "", False, id="always-applied"),
        pytest.param([REFUSED], "", False, id="unknown"),
    ],
)
def test_record_contains_the_phase_while_not_applied(versions, recorded, is_repaired):
    states = [admitted(**version, record=record(last_phase=recorded)) for version in versions]
    assert (Condition.PHASE_NOT_RECORDED in after(*states)[1]) == is_repaired


def test_pods_stay_charged_while_a_work_is_not_applied():
    pods = {"state": {"phase": "Running"}, "taskStatusCount": {"worker": {"phase": {"Running": 100}}}}
    workload, _ = after(admitted(statuses={"m1": pods}), admitted(**REFUSED))
    assert workload.admission.charge == {"cpu": 100_000, "pods": 100_000}
    assert workload.admission.reported


def test_time_of_the_end_is_kept():
    store = Store()
    upsert(store, ("bindings", admitted(**COMPLETED)), ("bindings", admitted(**REFUSED)))
    (cached,) = store.bindings
    assert cached.details.ended_at == CREATED_MS


def test_message_of_a_cluster_is_bounded_and_printable():
    workload, _ = after(admitted(refused={"m1": "no\x1b[31m\n" + "é" * 5000}))
    store = Store()
    upsert(store, ("bindings", admitted(refused={"m1": "no\x1b[31m\n" + "é" * 5000})))
    (reported,) = next(iter(store.bindings)).progress
    assert reported.phase is WorkloadPhase.UNKNOWN
    assert reported.apply_error.startswith("no [31m é")
    assert reported.apply_error.isprintable()
    assert len(reported.apply_error) <= 600
    assert workload.state is WorkloadState.ADMITTED


def test_refused_change_of_a_finished_job_uses_no_capacity():
    store, engine = Store(VolcanoGlobalConfiguration()), Engine()
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1", cpu="1", pods="9")), ("jobs", job("j1")))
    upsert(store, ("bindings", admitted(**COMPLETED)))
    store.sync_to(engine, CREATED_MS)
    upsert(store, ("bindings", admitted(**REFUSED)), ("jobs", job("j2")), ("bindings", binding("j2")))
    store.sync_to(engine, CREATED_MS + HOUR)
    plan = engine.plan(CREATED_MS + HOUR)
    assert [(type(item).__name__, item.workload.uid) for item in plan.decisions] == [("Admit", "rb-j2")]
    assert engine.plan(CREATED_MS + 2 * HOUR).decisions == ()


def test_job_that_may_have_run_has_no_startup_timeout():
    store, engine = Store(VolcanoGlobalConfiguration.model_validate({"startupTimeout": "5m"})), Engine()
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")), ("jobs", job("j1")))
    upsert(store, ("bindings", admitted(**REFUSED)))
    for hours in (1, 2, 3):
        store.sync_to(engine, CREATED_MS + hours * HOUR)
        plan = engine.plan(CREATED_MS + hours * HOUR)
        assert (plan.decisions, plan.reschedules) == ((), ())
