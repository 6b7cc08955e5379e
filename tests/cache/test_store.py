"""The store: events in any order, assumed writes, and updates of changed objects only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.assumed_writes import AssumedRecordUpdate
from controller.cache.record import read_record, write_record
from controller.cache.store import Store
from controller.cache.translate.records import admitted_record
from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import Admission, ClusterCharge, Nomination, WorkloadState
from tests.cache.fake_event_handler import FakeEventHandler, remove, replace, upsert
from tests.cache.objects import admission_record, binding, cluster, job, priority_class, queue
from tests.draws import draws

ONE = {"cpu": 1000, "pods": 1000}
ADMISSION_M1 = Admission(ONE, (ClusterCharge("m1", ONE),), admitted_at=5)
RECORD = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))
HELD = Nomination("m1", 5, 0, ONE)
STARTUP_BACKOFF = Refusal(Reason.STARTUP_BACKOFF, subject="denied", until=1000)


def fed(store: Store, now: int = 0) -> FakeEventHandler:
    ear = FakeEventHandler()
    store.sync_to(ear, now)
    return ear


def pending() -> tuple[Store, FakeEventHandler]:
    """Return a store with one pending workload, and a handler that has received it."""
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("bindings", binding("j1", version=10)), ("jobs", job("j1")))
    store.sync_to(ear, 0)
    return store, ear


def state(store: Store, ear: FakeEventHandler, now: int = 0) -> WorkloadState | None:
    store.sync_to(ear, now)
    workload = ear.workloads.get("rb-j1")
    return workload.state if workload else None


# -- joining --------------------------------------------------------------

NEWS: list[tuple[str, str, bytes]] = [
    ("upsert", "queues", queue("a", version=1, weight=1)),
    ("upsert", "queues", queue("a", version=2, weight=3)),
    ("upsert", "clusters", cluster("m1", version=3)),
    ("upsert", "clusters", cluster("m1", version=4, cpu="16")),
    ("upsert", "priority_classes", priority_class("high", 100, version=5)),
    ("upsert", "priority_classes", priority_class("usual", 7, default=True, version=6)),
    ("upsert", "jobs", job("j1", version=7, priority="high")),
    ("upsert", "jobs", job("j1", version=8, priority="high", replicas=2)),
    ("upsert", "jobs", job("j2", version=9)),
    ("upsert", "jobs", job("j3", version=10, priority="unheard")),
    ("upsert", "bindings", binding("j1", version=11)),
    ("upsert", "bindings", binding("j1", version=12, paused=False, clusters=["m1"], record=RECORD)),
    ("upsert", "bindings", binding("j2", version=13)),
    ("upsert", "bindings", binding("j3", version=14)),
    ("upsert", "bindings", binding("j4", version=15)),
    ("remove", "bindings", binding("j4", version=16)),
    ("upsert", "bindings", binding("j5", version=17, uid="older")),
    ("upsert", "bindings", binding("j5", version=18, uid="newer")),
    ("upsert", "jobs", job("j5", version=19)),
    ("upsert", "jobs", job("j4", version=20)),
]


def apply(store: Store, news: tuple[str, str, bytes]) -> None:
    verb, kind, obj = news
    sink = getattr(store, kind)
    getattr(sink, verb)(sink.decode(obj))


@draws(200)
@given(order=st.permutations(range(len(NEWS))), pauses=st.sets(st.integers(0, len(NEWS))))
def test_any_order_of_events_gives_the_same_state(order, pauses):
    expected = Store()
    for news in NEWS:
        apply(expected, news)
    whole = fed(expected)

    store, ear = Store(), FakeEventHandler()
    for step, place in enumerate(order):
        apply(store, NEWS[place])
        if step in pauses:
            store.sync_to(ear, 0)
    store.sync_to(ear, 0)

    assert (ear.policy, ear.queues, ear.clusters, ear.workloads) == (
        whole.policy,
        whole.queues,
        whole.clusters,
        whole.workloads,
    )


def test_state_after_all_events():
    store = Store()
    for news in NEWS:
        apply(store, news)
    ear = fed(store)
    assert sorted(ear.workloads) == ["newer", "rb-j1", "rb-j2", "rb-j3"]
    assert ear.workloads["rb-j1"].state is WorkloadState.ADMITTED
    assert ear.workloads["rb-j3"].details.unknown_class
    assert ear.queues["a"].weight == 3


def test_only_changes_are_sent():
    store = Store()
    upsert(store, *(("bindings", binding(f"j{number}")) for number in range(10)))
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("jobs", job("j3")))
    assert fed(store).heard == ["workload rb-j3"]
    assert fed(store).heard == []


def test_priority_class_change_updates_its_workloads_only():
    store = Store()
    upsert(store, ("jobs", job("j1", priority="high")), ("jobs", job("j2", priority="low")), ("jobs", job("j3")))
    upsert(store, *(("bindings", binding(f"j{number}")) for number in (1, 2, 3)))
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("priority_classes", priority_class("high", 100)))
    assert fed(store).heard == ["workload rb-j1"]


def test_new_default_class_updates_workloads_of_unknown_class():
    store = Store()
    upsert(store, ("priority_classes", priority_class("high", 100)))
    upsert(store, ("jobs", job("j1", priority="high")), ("jobs", job("j2", priority="low")), ("jobs", job("j3")))
    upsert(store, *(("bindings", binding(f"j{number}")) for number in (1, 2, 3)))
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("priority_classes", priority_class("usual", 7, default=True)))
    assert fed(store).heard == ["workload rb-j2", "workload rb-j3"]


def test_workload_without_a_class_has_the_default_class():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("priority_classes", priority_class("usual", 7, default=True)))
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")))
    store.sync_to(ear, 0)
    assert (ear.workloads["rb-j1"].priority_class, ear.workloads["rb-j1"].details.unknown_class) == ("usual", False)
    remove(store, "priority_classes", priority_class("usual", 7, default=True))
    upsert(store, ("priority_classes", priority_class("other", 7, default=True)))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].priority_class == "other"


def test_workload_of_deleted_class_gets_the_default_class():
    store, ear = Store(), FakeEventHandler()
    high = priority_class("high", 100)
    upsert(store, ("priority_classes", high), ("jobs", job("j1", priority="high")), ("bindings", binding("j1")))
    store.sync_to(ear, 0)
    remove(store, "priority_classes", high)
    store.sync_to(ear, 0)
    assert (ear.workloads["rb-j1"].priority, ear.workloads["rb-j1"].details.unknown_class) == (0, True)


def test_workloads_are_sent_before_clusters():
    store = Store()
    upsert(store, ("clusters", cluster("m1")), ("bindings", binding("j1")), ("queues", queue("a")))
    assert fed(store).heard == ["queue a", "workload rb-j1", "cluster m1"]


def test_every_change_wakes_the_loop():
    woken: list[int] = []
    store = Store()
    store.on_change.append(lambda: woken.append(1))
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")), ("queues", queue("a")), ("clusters", cluster("m1")))
    assert len(woken) == 4


def test_complete_list_removes_missing_objects():
    store, ear = Store(), FakeEventHandler()
    upsert(store, *(("bindings", binding(f"j{number}")) for number in (1, 2)))
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")))
    store.sync_to(ear, 0)
    replace(store, "bindings", binding("j2"))
    replace(store, "queues")
    replace(store, "clusters")
    store.sync_to(ear, 0)
    assert list(ear.workloads) == ["rb-j2"]
    assert not ear.queues
    assert not ear.clusters
    assert store.binding("rb-j1") is None


def test_cluster_bindings_have_their_own_list():
    store = Store()
    upsert(store, ("bindings", binding("j1")))
    replace(store, "cluster_bindings")
    assert store.binding("rb-j1") is not None


def test_the_store_is_complete_when_every_kind_was_listed():
    store = Store()
    for kind in ("bindings", "cluster_bindings", "jobs", "queues", "clusters"):
        replace(store, kind)
        assert not store.is_complete
    replace(store, "priority_classes")
    assert store.is_complete


def test_changed_configuration_updates_policy_and_default_queue():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1", queue="")), ("bindings", binding("j1")))
    store.sync_to(ear, 0)
    must_list = store.configure(VolcanoGlobalConfiguration(default_queue="research", tenant_fairness="Namespace"))
    store.sync_to(ear, 0)
    assert not must_list
    assert ear.policy is not None
    assert ear.policy.tenant_fairness == "Namespace"
    assert ear.workloads["rb-j1"].queue == "research"


def test_newly_exempt_namespace_has_no_workloads():
    store, ear = pending()
    assert store.configure(VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"})))
    store.sync_to(ear, 0)
    assert not ear.workloads


# -- order of observations -------------------------------------------------


def test_older_observation_is_ignored():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=20, paused=False, clusters=["m1"], record=RECORD)))
    upsert(store, ("bindings", binding("j1", version=19)))
    assert state(store, ear) is WorkloadState.ADMITTED


def test_list_older_than_a_write_response_is_ignored():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=20, paused=False, clusters=["m1"], record=RECORD)))
    replace(store, "bindings", binding("j1", version=19))
    assert state(store, ear) is WorkloadState.ADMITTED


def test_empty_list_clears_newer_observations():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=20, paused=False, clusters=["m1"], record=RECORD)))
    replace(store, "bindings")
    replace(store, "bindings", binding("j1", version=9))
    assert state(store, ear) is WorkloadState.PENDING


def test_resource_versions_are_compared_as_numbers():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("bindings", binding("j1", version=9)))
    upsert(store, ("bindings", binding("j1", version=10, paused=False, clusters=["m1"], record=RECORD)))
    assert state(store, ear) is WorkloadState.ADMITTED


def test_late_write_response_does_not_restore_deleted_object():
    store, ear = pending()
    remove(store, "bindings", binding("j1", version=12))
    upsert(store, ("bindings", binding("j1", version=11, paused=False, clusters=["m1"], record=RECORD)))
    assert state(store, ear) is None


def test_binding_with_same_name_and_other_uid_is_new():
    store, ear = pending()
    upsert(store, ("bindings", binding("j1", version=20, uid="second")))
    store.sync_to(ear, 0)
    assert list(ear.workloads) == ["second"]


def test_deletion_of_first_binding_keeps_the_second():
    store, ear = pending()
    upsert(store, ("bindings", binding("j1", version=20, uid="second")))
    remove(store, "bindings", binding("j1", version=15))
    store.sync_to(ear, 0)
    assert list(ear.workloads) == ["second"]


def test_record_does_not_pass_to_a_recreated_binding():
    store, ear = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=20, uid="second", record=RECORD)))
    store.sync_to(ear, 0)
    assert ear.workloads["second"].state is WorkloadState.PENDING


# -- writes under way -------------------------------------------------------


def test_a_decision_is_charged_before_it_is_observed():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=11)))
    assert state(store, ear) is WorkloadState.ADMITTED
    assert ear.workloads["rb-j1"].admission == ADMISSION_M1


def test_assumed_admission_is_not_sent_back():
    store, ear = pending()
    ear.heard.clear()
    store.assume("rb-j1", ADMISSION_M1)
    store.sync_to(ear, 0)
    assert ear.heard == []


def test_assumed_admission_does_not_change_the_state():
    store, state = Store(), Engine()
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")), ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=10)))
    store.sync_to(state, 7)
    (decision,) = state.plan(7).decisions
    booked = state.workloads["rb-j1"]
    store.assume("rb-j1", decision.admission)
    upsert(store, ("bindings", binding("j1", version=10)))
    store.sync_to(state, 8)
    assert state.workloads["rb-j1"] == booked


@pytest.mark.parametrize(
    ("confirmed", "observed", "expected"),
    [
        pytest.param(None, 11, WorkloadState.ADMITTED, id="old-event-before-the-response"),
        pytest.param(20, 19, WorkloadState.ADMITTED, id="old-event-after-the-response"),
        pytest.param(20, 21, WorkloadState.PENDING, id="newer-event"),
    ],
)
def test_only_a_newer_event_frees_an_assumed_charge(confirmed, observed, expected):
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    if confirmed:
        store.confirm("rb-j1", confirmed)
    upsert(store, ("bindings", binding("j1", version=observed)))
    assert state(store, ear) is expected


def test_newer_observation_before_acknowledgement_counts():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=21)))
    assert state(store, ear) is WorkloadState.ADMITTED
    store.confirm("rb-j1", 20)
    assert state(store, ear) is WorkloadState.PENDING


def test_observed_write_does_not_change_the_charge():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    store.confirm("rb-j1", 20)
    upsert(store, ("bindings", binding("j1", version=20, paused=False, clusters=["m1"], record=RECORD)))
    assert state(store, ear) is WorkloadState.ADMITTED
    admission = ear.workloads["rb-j1"].admission
    assert admission is not None
    assert (admission.charge, admission.cluster_charges) == (ADMISSION_M1.charge, ADMISSION_M1.cluster_charges)


def test_failed_write_is_rolled_back():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    store.sync_to(ear, 0)
    store.roll_back("rb-j1", None)
    assert state(store, ear) is WorkloadState.PENDING
    assert ear.workloads["rb-j1"].hold is None


def test_failed_write_is_sent_without_other_changes():
    store, ear = pending()
    ear.heard.clear()
    store.assume("rb-j1", ADMISSION_M1)
    store.roll_back("rb-j1", None)
    store.sync_to(ear, 0)
    assert ear.heard == ["workload rb-j1"]


def test_rejected_write_backs_off_until_its_end():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    store.roll_back("rb-j1", STARTUP_BACKOFF)
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].hold == STARTUP_BACKOFF
    upsert(store, ("bindings", binding("j1", version=30)))
    store.sync_to(ear, 999)
    assert ear.workloads["rb-j1"].hold == STARTUP_BACKOFF
    upsert(store, ("bindings", binding("j1", version=31)))
    store.sync_to(ear, 1000)
    assert ear.workloads["rb-j1"].hold is None


def test_backoff_hides_no_reason_without_an_end():
    """The end of the backoff would admit a workload with unknown requests."""
    store, ear = pending()
    store.roll_back("rb-j1", STARTUP_BACKOFF)
    remove(store, "jobs", job("j1", version=30))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].hold.reason is Reason.REQUESTS_UNKNOWN


def test_backoff_without_end_lasts_until_the_binding_changes():
    store, ear = pending()
    store.roll_back("rb-j1", Refusal(Reason.STARTUP_BACKOFF))
    store.sync_to(ear, 10**12)
    assert ear.workloads["rb-j1"].hold is not None
    upsert(store, ("bindings", binding("j1", version=30)))
    store.sync_to(ear, 10**12)
    assert ear.workloads["rb-j1"].hold is None


def test_backoff_without_end_ends_with_the_last_write():
    store, ear = pending()
    store.back_off("rb-j1", Refusal(Reason.STARTUP_BACKOFF))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].hold is not None
    store.roll_back("rb-j1", None)
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].hold is None


def test_backoff_before_a_write_keeps_assumed_writes():
    store, ear = pending()
    store.assume("rb-j1", AssumedRecordUpdate(HELD))
    store.back_off("rb-j1", Refusal(Reason.STARTUP_BACKOFF))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].nomination == HELD


def test_write_response_after_newer_event_calls_on_change():
    """The assumption that replaced the event no longer counts."""
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=21)))
    told = []
    store.on_change.append(lambda: told.append(state(store, ear)))
    upsert(store, ("bindings", binding("j1", version=20, paused=False)))
    assert told == []
    store.confirm("rb-j1", 20)
    assert told == [WorkloadState.PENDING]


def test_binding_deleted_during_its_write_is_removed():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    remove(store, "bindings", binding("j1", version=12))
    assert state(store, ear) is None
    store.confirm("rb-j1", 11)
    assert state(store, ear) is None
    store.roll_back("rb-j1", STARTUP_BACKOFF)
    assert state(store, ear) is None


def test_binding_being_deleted_during_its_write_is_charged():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=11, meta={"deletionTimestamp": "2026-01-02T03:04:05Z"})))
    assert state(store, ear) is WorkloadState.ADMITTED


def test_binding_recreated_during_a_write_inherits_nothing():
    store, ear = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=20, uid="second")))
    store.confirm("rb-j1", 19)
    store.sync_to(ear, 0)
    assert [(uid, workload.state) for uid, workload in ear.workloads.items()] == [("second", WorkloadState.PENDING)]


# -- with the engine ---------------------------------------------------------


def test_written_admission_is_read_back_equal():
    store, state = Store(), Engine()
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")), ("jobs", job("j1")))
    upsert(store, ("bindings", binding("j1", version=10)))
    store.sync_to(state, 7)
    (decision,) = state.plan(7).decisions
    assert isinstance(decision, Admit)
    record = write_record("rb-j1", admitted_record(decision.workload, decision.admission))
    store.assume("rb-j1", decision.admission)
    store.confirm("rb-j1", 20)
    store.sync_to(state, 8)
    clusters = [{"name": assignment.name} for assignment in decision.clusters]
    upsert(store, ("bindings", binding("j1", version=20, paused=False, clusters=clusters, record=record)))
    store.sync_to(state, 9)
    assert state.workloads["rb-j1"].admission == decision.admission
    assert state.plan(9).decisions == ()


@given(
    charge=st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "hugepages-2Mi"]), st.integers(0, 10**18)
    )
)
def test_charge_is_written_and_read_exactly(charge):
    admission = Admission(charge, (ClusterCharge("m1", charge),), admitted_at=1_767_323_045_123)
    _, ear = pending()
    workload = ear.workloads["rb-j1"]
    text = write_record(workload.uid, admitted_record(workload, admission))
    record, flaw = read_record({ADMISSION_ANNOTATION: text}, "rb-j1")
    assert flaw == ""
    assert record is not None
    assert record.admits
    assert {name: amount for name, amount in record.charge.items() if amount} == {
        name: amount for name, amount in charge.items() if amount
    }
    assert (record.admitted_at, record.waiting_since) == (admission.admitted_at, workload.created_at)
