"""A workload of which the evaluation failed keeps its charge, and is neither admitted nor evicted for a while."""

from typing import Any

import pytest

from controller.cache.store import QUARANTINE_MS, Store
from controller.engine.engine import Engine
from controller.engine.reasons import Reason
from controller.engine.state.workloads import ClusterCharge, Workload, WorkloadState, WorkloadUid
from tests.cache.fake_event_handler import received, upsert
from tests.cache.objects import admission_record, binding, job

UID = WorkloadUid("rb-j1")
ONE = {"cpu": 1000, "pods": 1000}
RECORD = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))
EVICTED = admission_record("rb-j1", queue="a", evictions=1)
RUNS: dict[str, Any] = {"paused": False, "clusters": ["m1"], "phases": {"m1": "Running"}}


def quarantined(**bound: Any) -> Workload:
    """Return the workload of a binding while it is quarantined."""
    store = Store()
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1", **bound)))
    store.quarantine(UID, "ZeroDivisionError", QUARANTINE_MS)
    return received(store).workloads[UID]


@pytest.mark.parametrize(
    ("bound", "state"),
    [
        pytest.param({**RUNS, "record": RECORD}, WorkloadState.ADMITTED, id="admitted"),
        pytest.param(RUNS, WorkloadState.ADMITTED, id="from-before-the-installation"),
        pytest.param({"record": EVICTED, "phases": {"m1": "Running"}}, WorkloadState.PENDING, id="being-evicted"),
    ],
)
def test_quarantined_workload_stays_charged(bound, state):
    workload = quarantined(**bound)
    assert (workload.state, workload.hold.reason) == (state, Reason.INTERNAL_ERROR)
    assert workload.admission.cluster_charges == (ClusterCharge("m1", ONE),)


@pytest.mark.parametrize("is_built", [True, False], ids=["quarantined-by-the-loop", "cannot-be-built"])
def test_quarantined_workload_is_not_evicted(is_built, monkeypatch):
    if not is_built:
        monkeypatch.setattr("controller.cache.store.build_workload", _fail)
    workload = quarantined(**RUNS, record=RECORD)
    assert workload.admission.cluster_charges == (ClusterCharge("m1", ONE),)
    assert not workload.is_admitted_here


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_workload_that_cannot_be_built_is_tried_again(monkeypatch):
    store, engine, errors = Store(), Engine(), []
    store.on_error.append(lambda uid, error: errors.append((uid, type(error))))
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")))
    with monkeypatch.context() as broken:
        broken.setattr("controller.cache.store.build_workload", _fail)
        store.sync_to(engine, 0)
        assert (engine.workloads[UID].hold.reason, store.next_retry_at) == (Reason.INTERNAL_ERROR, QUARANTINE_MS)
    store.sync_to(engine, QUARANTINE_MS - 1)
    assert engine.workloads[UID].hold is not None
    store.sync_to(engine, QUARANTINE_MS)
    assert (engine.workloads[UID].hold, store.next_retry_at) == (None, None)
    assert errors == [(UID, ZeroDivisionError)]
