"""The store: events in any order, assumed writes, and updates of changed objects only."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.cache.assumed_writes import AssumedRecordUpdate
from controller.cache.objects import BindingCondition
from controller.cache.store import Store
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import Admission, ClusterCharge, Nomination, WorkloadState
from tests.cache.fake_event_handler import FakeEventHandler, received, remove, replace, upsert
from tests.cache.objects import (
    DEPLOYMENT,
    DEPLOYMENTS,
    admission_record,
    binding,
    cluster,
    deployment,
    deployment_binding,
    job,
    priority_class,
    queue,
)
from tests.draws import draws

ONE = {"cpu": 1000, "pods": 1000}
ADMISSION_M1 = Admission(ONE, (ClusterCharge("m1", ONE),), admitted_at=5)
RECORD = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))
DELETING = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
HELD = Nomination("m1", 5, 0, ONE)
STARTUP_BACKOFF = Refusal(Reason.STARTUP_BACKOFF, subject="denied", until=1000)


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
    ("upsert", "priority_classes", priority_class("former", 8, default=True, version=6)),
    ("remove", "priority_classes", priority_class("former", 8, default=True, version=7)),
    ("upsert", "jobs", job("j2", version=9, priority="former")),
    ("upsert", "jobs", job("j3", version=10, priority="unheard")),
    ("upsert", "bindings", binding("j1", version=9)),
    ("upsert", "bindings", binding("j1", version=12, paused=False, clusters=["m1"], record=RECORD)),
    ("upsert", "bindings", binding("j2", version=13)),
    ("upsert", "bindings", binding("j3", version=14)),
    ("upsert", "bindings", binding("j4", version=15)),
    ("remove", "bindings", binding("j4", version=16)),
    ("upsert", "bindings", binding("j5", version=17, uid="older")),
    ("remove", "bindings", binding("j5", version=17, uid="older")),
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
    whole = received(expected)

    store, handler = Store(), FakeEventHandler()
    for step, place in enumerate(order):
        apply(store, NEWS[place])
        if step in pauses:
            store.sync_to(handler, 0)
    store.sync_to(handler, 0)

    assert (handler.policy, handler.queues, handler.clusters, handler.workloads) == (
        whole.policy,
        whole.queues,
        whole.clusters,
        whole.workloads,
    )


def test_all_events_leave_the_newest_state_of_each_workload():
    store = Store()
    for news in NEWS:
        apply(store, news)
    handler = received(store)
    assert {uid: (item.state, item.priority_class) for uid, item in handler.workloads.items()} == {
        "newer": (WorkloadState.PENDING, "usual"),
        "rb-j1": (WorkloadState.ADMITTED, "high"),
        "rb-j2": (WorkloadState.PENDING, "former"),
        "rb-j3": (WorkloadState.PENDING, "unheard"),
    }
    assert [uid for uid, item in handler.workloads.items() if item.details.unknown_class] == ["rb-j2", "rb-j3"]
    assert handler.queues["a"].weight == 3


def test_only_changes_are_sent():
    store = Store()
    upsert(store, *(("bindings", binding(f"j{number}")) for number in range(10)))
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("jobs", job("j3")))
    assert received(store).events == ["workload rb-j3"]
    assert received(store).events == []


@pytest.mark.parametrize(
    ("changed", "updated"),
    [
        pytest.param(priority_class("high", 200), ["rb-j1"], id="class"),
        pytest.param(priority_class("usual", 7, default=True), ["rb-j2", "rb-j3"], id="default-class"),
    ],
)
def test_priority_class_change_updates_its_workloads_only(changed, updated):
    store = Store()
    upsert(store, ("priority_classes", priority_class("high", 100, version=1)))
    upsert(store, ("jobs", job("j1", priority="high")), ("jobs", job("j2", priority="low")), ("jobs", job("j3")))
    upsert(store, *(("bindings", binding(f"j{number}")) for number in (1, 2, 3)))
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("priority_classes", changed))
    assert received(store).events == [f"workload {uid}" for uid in updated]


def test_workloads_are_sent_before_clusters():
    store = Store()
    upsert(store, ("clusters", cluster("m1")), ("bindings", binding("j1")), ("queues", queue("a")))
    assert received(store).events == ["queue a", "workload rb-j1", "cluster m1"]


def test_every_change_wakes_the_loop():
    woken: list[int] = []
    store = Store()
    store.on_change.append(lambda: woken.append(1))
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")), ("queues", queue("a")), ("clusters", cluster("m1")))
    assert len(woken) == 4


def test_complete_list_removes_missing_objects():
    store, handler = Store(), FakeEventHandler()
    upsert(store, *(("bindings", binding(f"j{number}")) for number in (1, 2)))
    upsert(store, ("queues", queue("a")), ("clusters", cluster("m1")))
    store.sync_to(handler, 0)
    replace(store, "cluster_bindings")
    replace(store, "bindings", binding("j2"))
    replace(store, "queues")
    replace(store, "clusters")
    store.sync_to(handler, 0)
    assert list(handler.workloads) == ["rb-j2"]
    assert not handler.queues
    assert not handler.clusters
    assert store.binding("rb-j1") is None


def test_the_store_is_complete_when_every_kind_was_listed():
    store = Store()
    for kind in ("bindings", "cluster_bindings", "jobs", "queues", "clusters"):
        replace(store, kind)
        assert not store.is_complete
    replace(store, "priority_classes")
    assert store.is_complete


def test_changed_configuration_updates_policy_and_default_queue():
    store, handler = Store(), FakeEventHandler()
    upsert(store, ("jobs", job("j1", queue="")), ("bindings", binding("j1")))
    store.sync_to(handler, 0)
    must_list = store.configure(VolcanoGlobalConfiguration(default_queue="research", tenant_fairness="Namespace"))
    store.sync_to(handler, 0)
    assert not must_list
    assert handler.policy is not None
    assert handler.policy.tenant_fairness == "Namespace"
    assert handler.workloads["rb-j1"].queue == "research"
    assert store.configure(VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"})))
    store.sync_to(handler, 0)
    assert (handler.workloads, handler.released) == ({}, ["rb-j1"])


@pytest.mark.parametrize(
    ("change", "released"),
    [
        pytest.param(lambda store: store.templates(DEPLOYMENT).replace([]), [], id="deleted"),
        pytest.param(lambda store: upsert(store, (DEPLOYMENT, deployment())), ["rb-web"], id="queue-removed"),
        pytest.param(lambda store: store.forget_templates(DEPLOYMENT), ["rb-web"], id="kind-not-served-any-more"),
    ],
)
def test_adopted_workload_is_released_unless_it_was_deleted(change, released):
    store, handler = Store(DEPLOYMENTS), FakeEventHandler()
    template = deployment(annotations={"scheduling.volcano.sh/queue-name": "a"})
    upsert(store, (DEPLOYMENT, template), ("bindings", deployment_binding(paused=False, clusters=["m1"])))
    store.sync_to(handler, 0)
    assert handler.workloads["rb-web"].admission.adopted
    change(store)
    store.sync_to(handler, 0)
    assert (handler.workloads, handler.released) == ({}, released)


def test_shorter_startup_timeout_ends_longer_backoffs():
    backing_off = admission_record("rb-j1", queue="a", backOffUntil="1970-01-01T02:00:00Z", attempts=1)
    store, handler = Store(load_configuration("startupTimeout: 4h")), FakeEventHandler()
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1", record=backing_off)))
    store.sync_to(handler, 0)
    assert handler.workloads["rb-j1"].hold.reason is Reason.STARTUP_BACKOFF
    store.configure(load_configuration("startupTimeout: 30m"))
    store.sync_to(handler, 0)
    assert handler.workloads["rb-j1"].hold is None


EXEMPT = VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"}))
LAST_DELAY_MS = 299_999


@pytest.mark.parametrize(
    ("before", "after", "bound", "at"),
    [
        pytest.param(None, EXEMPT, binding("j1"), 0, id="pending-in-a-namespace-that-becomes-exempt"),
        pytest.param(DEPLOYMENTS, None, deployment_binding(), 0, id="pending-of-a-kind-that-is-removed"),
        pytest.param(None, EXEMPT, binding("j1"), LAST_DELAY_MS, id="gated-later-by-an-outdated-webhook"),
    ],
)
def test_binding_is_resumed_when_it_is_not_gated_any_more(before, after, bound, at):
    store = Store(before)
    if not at:
        upsert(store, ("bindings", bound))
    store.sync_to(FakeEventHandler(), 0)
    store.configure(after or VolcanoGlobalConfiguration())
    store.sync_to(FakeEventHandler(), 0)
    if at:
        upsert(store, ("bindings", bound))
    handler = FakeEventHandler()
    store.sync_to(handler, at)
    assert not handler.workloads
    assert list(store.repairable) == list(store.conditions)
    assert [*store.conditions.values()] == [{BindingCondition.SUSPENDED_BUT_NOT_MANAGED}]


def test_binding_is_resumed_however_late_the_write_succeeds():
    store = Store()
    upsert(store, ("bindings", binding("j1")))
    store.configure(EXEMPT)
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("bindings", binding("j1")))
    store.sync_to(FakeEventHandler(), LAST_DELAY_MS + 1)
    assert [*store.conditions.values()] == [{BindingCondition.SUSPENDED_BUT_NOT_MANAGED}]
    upsert(store, ("bindings", binding("j1", paused=False)))
    store.sync_to(FakeEventHandler(), LAST_DELAY_MS + 1)
    upsert(store, ("bindings", binding("j1")))
    store.sync_to(FakeEventHandler(), LAST_DELAY_MS + 1)
    assert not store.conditions


def test_binding_that_a_former_process_gated_is_resumed():
    store = Store(EXEMPT)
    upsert(store, ("bindings", binding("j1")))
    store.sync_to(FakeEventHandler(), 0)
    assert not store.conditions
    store.note_former_configuration(VolcanoGlobalConfiguration())
    store.sync_to(FakeEventHandler(), 0)
    assert [*store.conditions.values()] == [{BindingCondition.SUSPENDED_BUT_NOT_MANAGED}]


def test_binding_that_others_suspend_later_stays_suspended():
    store = Store()
    store.configure(EXEMPT)
    store.sync_to(FakeEventHandler(), 0)
    upsert(store, ("bindings", binding("j1")))
    store.sync_to(FakeEventHandler(), LAST_DELAY_MS + 1)
    assert not store.conditions


# -- observations and writes of one pending workload ----------------------------

Step = Callable[[Store], None]
ADMITTED = {"paused": False, "clusters": ["m1"], "record": RECORD}
ENDLESS_BACKOFF = Refusal(Reason.STARTUP_BACKOFF)


def observe(version: int, **more: Any) -> Step:
    return lambda store: upsert(store, ("bindings", binding("j1", version=version, **more)))


def relist(*versions: int) -> Step:
    return lambda store: replace(store, "bindings", *(binding("j1", version=version) for version in versions))


def delete(version: int) -> Step:
    return lambda store: remove(store, "bindings", binding("j1", version=version))


def delete_job(store: Store) -> None:
    remove(store, "jobs", job("j1", version=30))


def assume(store: Store) -> None:
    store.assume("rb-j1", ADMISSION_M1)


def confirm(version: int) -> Step:
    return lambda store: store.confirm("rb-j1", version)


def roll_back(refusal: Refusal | None = None) -> Step:
    return lambda store: store.roll_back("rb-j1", refusal)


def back_off(refusal: Refusal) -> Step:
    return lambda store: store.back_off("rb-j1", refusal)


def pending() -> tuple[Store, FakeEventHandler]:
    """Return a store with one pending workload, and a handler that has received it."""
    store, handler = Store(), FakeEventHandler()
    upsert(store, ("bindings", binding("j1", version=10)), ("jobs", job("j1")))
    store.sync_to(handler, 0)
    return store, handler


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        pytest.param([observe(20, **ADMITTED), relist(19)], WorkloadState.ADMITTED, id="list-older-than-a-response"),
        pytest.param([observe(20, **ADMITTED), relist(), relist(9)], WorkloadState.PENDING, id="empty-list-clears"),
        pytest.param([assume, observe(11)], WorkloadState.ADMITTED, id="old-event-before-the-response"),
        pytest.param([assume, confirm(20), observe(19)], WorkloadState.ADMITTED, id="old-event-after-the-response"),
        pytest.param([assume, confirm(20), observe(20, **ADMITTED)], WorkloadState.ADMITTED, id="event-of-the-write"),
        pytest.param([assume, confirm(20), observe(21)], WorkloadState.PENDING, id="newer-event"),
        pytest.param([assume, observe(21)], WorkloadState.ADMITTED, id="newer-event-before-the-response"),
        pytest.param([assume, observe(21), confirm(20)], WorkloadState.PENDING, id="response-after-a-newer-event"),
        pytest.param([assume, roll_back()], WorkloadState.PENDING, id="failed-write"),
        pytest.param([assume, observe(11, meta=DELETING)], WorkloadState.ADMITTED, id="deletion-begins-meanwhile"),
        pytest.param([assume, delete(12)], None, id="deleted-meanwhile"),
        pytest.param([assume, delete(12), confirm(11)], None, id="response-after-the-deletion"),
        pytest.param([assume, delete(12), roll_back(STARTUP_BACKOFF)], None, id="failed-after-the-deletion"),
    ],
)
def test_charge_follows_observations_and_writes(steps, state):
    store, handler = pending()
    for step in steps:
        step(store)
        store.sync_to(handler, 0)
    workload = handler.workloads.get("rb-j1")
    assert (workload and workload.state) == state
    if state is WorkloadState.ADMITTED:
        assert workload.admission.cluster_charges == ADMISSION_M1.cluster_charges
    if state is WorkloadState.PENDING:
        assert (workload.admission, workload.hold) == (None, None)


def test_binding_recreated_during_a_write_inherits_nothing():
    store, handler = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=20, uid="second")))
    store.confirm("rb-j1", 19)
    store.sync_to(handler, 0)
    assert [(uid, workload.state) for uid, workload in handler.workloads.items()] == [("second", WorkloadState.PENDING)]


def test_assumed_admission_is_sent_only_when_it_failed():
    store, handler = pending()
    handler.events.clear()
    store.assume("rb-j1", ADMISSION_M1)
    store.sync_to(handler, 0)
    assert handler.events == []
    store.roll_back("rb-j1", None)
    store.sync_to(handler, 0)
    assert handler.events == ["workload rb-j1"]


@pytest.mark.parametrize(
    ("steps", "now", "reason"),
    [
        pytest.param([assume, roll_back(STARTUP_BACKOFF), observe(30)], 999, Reason.STARTUP_BACKOFF, id="before-end"),
        pytest.param([assume, roll_back(STARTUP_BACKOFF), observe(30)], 1000, None, id="at-its-end"),
        # The end of the backoff would admit a workload with unknown requests.
        pytest.param([roll_back(STARTUP_BACKOFF), delete_job], 0, Reason.REQUESTS_UNKNOWN, id="reason-without-an-end"),
        pytest.param([roll_back(ENDLESS_BACKOFF)], 10**12, Reason.STARTUP_BACKOFF, id="endless"),
        pytest.param([roll_back(ENDLESS_BACKOFF), observe(30)], 0, None, id="endless-until-the-binding-changes"),
        pytest.param([back_off(ENDLESS_BACKOFF)], 0, Reason.STARTUP_BACKOFF, id="endless-before-a-write"),
        pytest.param([back_off(ENDLESS_BACKOFF), roll_back()], 0, None, id="endless-until-the-last-write"),
    ],
)
def test_rejected_workload_backs_off(steps, now, reason):
    store, handler = pending()
    for step in steps:
        step(store)
        store.sync_to(handler, now)
    hold = handler.workloads["rb-j1"].hold
    assert (hold and hold.reason) == reason


def test_backoff_before_a_write_keeps_assumed_writes():
    store, handler = pending()
    store.assume("rb-j1", AssumedRecordUpdate(HELD))
    store.back_off("rb-j1", Refusal(Reason.STARTUP_BACKOFF))
    store.sync_to(handler, 0)
    assert handler.workloads["rb-j1"].nomination == HELD


def test_write_response_after_newer_event_calls_on_change():
    """The assumption that replaced the event no longer counts."""
    store, handler = pending()
    store.assume("rb-j1", ADMISSION_M1)
    upsert(store, ("bindings", binding("j1", version=21)))
    told = []
    store.on_change.append(lambda: store.sync_to(handler, 0))
    store.on_change.append(lambda: told.append(handler.workloads["rb-j1"].state))
    upsert(store, ("bindings", binding("j1", version=20, paused=False)))
    assert told == []
    store.confirm("rb-j1", 20)
    assert told == [WorkloadState.PENDING]


def test_name_collision_ends_with_its_job():
    store = Store()
    upsert(store, ("bindings", binding("j1", uid="other", api_version="batch/v1")), ("jobs", job("j1")))
    assert len(store.name_collisions) == 1
    remove(store, "jobs", job("j1"))
    assert not store.name_collisions
    assert not list(store._name_collisions)


def test_name_collision_ends_with_the_other_binding():
    store = Store()
    other = binding("j1", uid="other", api_version="batch/v1", template_uid="batch-job")
    upsert(store, ("jobs", job("j1")), ("bindings", other))
    assert [(colliding.key.name, taken.uid) for colliding, taken in store.name_collisions] == [("j1", "other")]
    remove(store, "bindings", other)
    upsert(store, ("bindings", binding("j1")))
    assert not store.name_collisions


def evicted(generation: int, **more: Any) -> bytes:
    """Return an evicted binding that a cluster still reports."""
    record = admission_record("rb-j1", queue="a", evictions=1)
    more = {"phases": {"m1": "Running"}, **more}
    return binding("j1", version=generation, meta={"generation": generation}, record=record, **more)


def repairable_at(store: Store, now: int) -> bool:
    """Say whether the binding is to be changed at *now* so that Karmada processes it again."""
    received(store, now=now)
    return BindingCondition.WORK_NOT_REMOVED in store.conditions.get("rb-j1", ())


def test_evicted_workload_that_still_runs_is_processed_again():
    """Karmada misses a Work that it created just before the binding lost its clusters, and the job runs on."""
    store = Store()
    upsert(store, ("clusters", cluster("m1")), ("jobs", job("j1")), ("bindings", evicted(5)))
    assert not repairable_at(store, 0)
    assert store.next_retry_at == 60_000
    assert repairable_at(store, 60_000)
    assert tuple(store.repairable) == ("rb-j1",)
    upsert(store, ("bindings", evicted(6, clusters=[])))
    assert not repairable_at(store, 61_000)
    assert store.next_retry_at == 181_000, "twice as long after each change"
    assert repairable_at(store, 181_000)
    upsert(store, ("bindings", evicted(7, phases={})))
    assert not repairable_at(store, 182_000)
    assert not repairable_at(store, 10**9)
    upsert(store, ("bindings", evicted(8)))
    assert not repairable_at(store, 10**9)
    assert repairable_at(store, 10**9 + 60_000)


def test_changes_of_clusters_in_succession_prolong_no_wait():
    """Karmada may place, lose and change the clusters several times within a second."""
    store = Store()
    upsert(store, ("clusters", cluster("m1")), ("jobs", job("j1")))
    for generation in range(5, 12):
        upsert(store, ("bindings", evicted(generation)))
        assert not repairable_at(store, 10 * generation)
    assert repairable_at(store, 60_110)


def moved(phase: str, *, generation: int = 5, **more: Any) -> bytes:
    """Return an admitted binding on ``m2`` that ``m1`` reports too."""
    record = admission_record("rb-j1", queue="a", clusters=["m2"], charge={"cpu": "1", "pods": "1"})
    placed = {"paused": False, "clusters": ["m2"], "phases": {"m1": "Running", "m2": phase}}
    return binding("j1", version=generation, meta={"generation": generation}, record=record, **placed | more)


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_moved_workload_that_still_runs_is_processed_again(phase):
    """Otherwise it would run on both clusters, and the copy that Karmada missed would not be charged."""
    store = Store()
    clusters = (("clusters", cluster(name)) for name in ("m1", "m2"))
    upsert(store, *clusters, ("jobs", job("j1")), ("bindings", moved(phase)))
    assert not repairable_at(store, 0)
    assert repairable_at(store, 60_000)
    upsert(store, ("bindings", moved(phase, generation=6, phases={"m2": phase})))
    assert not any(repairable_at(store, now) for now in range(60_000, 10_000_000, 60_000))


@pytest.mark.parametrize(
    ("seen", "ready"),
    [
        pytest.param(evicted(5), "False", id="unreachable-cluster"),
        pytest.param(evicted(5, clusters=["m1"], paused=False), "True", id="placed"),
        pytest.param(evicted(5, spec={"requiredBy": [{"namespace": "ns", "name": "rb"}]}), "True", id="dependency"),
        pytest.param(evicted(5, spec={"gracefulEvictionTasks": [{"fromCluster": "m1"}]}), "True", id="grace-period"),
    ],
)
def test_binding_that_karmada_still_processes_is_not_changed(seen, ready):
    store = Store()
    upsert(store, ("clusters", cluster("m1", ready=ready)), ("jobs", job("j1")), ("bindings", seen))
    assert not any(repairable_at(store, now) for now in range(0, 10_000_000, 60_000))


def test_unreachable_cluster_is_checked_again_when_it_is_back():
    store = Store()
    upsert(store, ("clusters", cluster("m1", ready="False", version=1)), ("jobs", job("j1")), ("bindings", evicted(5)))
    assert not any(repairable_at(store, now) for now in (0, 60_000))
    upsert(store, ("clusters", cluster("m1", version=2)))
    assert repairable_at(store, 180_000)


@pytest.mark.parametrize(("uid", "resumed"), [("", True), ("job-j1", True), ("of-a-deleted-job", False)])
def test_resume_excludes_another_job_of_the_same_name(uid, resumed):
    store = Store()
    upsert(store, ("bindings", binding("j1", record=admission_record("rb-j1", queue="a", aborted=True))))
    stored = next(iter(store.bindings))
    assert store.resume(stored.template, uid) is resumed


ABORTED = admission_record("rb-j1", queue="a", aborted=True)
ADMITTED = binding("j1", paused=False, clusters=["m1"], record=RECORD)
ABORT_REQUESTED = {BindingCondition.ABORT_REQUESTED}


@pytest.mark.parametrize(
    ("stored", "conditions"),
    [
        pytest.param(ADMITTED, set(), id="admitted"),
        pytest.param(binding("j1"), ABORT_REQUESTED, id="pending"),
        pytest.param(binding("j1", record=admission_record("rb-j1", queue="a")), ABORT_REQUESTED, id="evicted"),
    ],
)
def test_abort_holds_a_workload_until_it_is_recorded(stored, conditions):
    store = Store()
    upsert(store, ("jobs", job("j1")), ("bindings", stored))
    assert store.abort(next(iter(store.bindings)).template, "job-j1")
    workload = received(store).workloads["rb-j1"]
    assert (workload.hold.reason, store.conditions.get("rb-j1", frozenset())) == (Reason.ABORTED, conditions)
    workload = received(store, ("bindings", binding("j1", record=ABORTED))).workloads["rb-j1"]
    assert (workload.hold.reason, "rb-j1" in store.conditions) == (Reason.ABORTED, False)
    workload = received(store, ("bindings", binding("j1"))).workloads["rb-j1"]
    assert workload.hold is None, "the request was for one run"


@pytest.mark.parametrize(
    ("stored", "uid"),
    [
        pytest.param(binding("j1", record=ABORTED), "", id="aborted-already"),
        pytest.param(binding("j1", paused=None, clusters=["m1"]), "", id="from-before-the-installation"),
        pytest.param(
            binding("j1", paused=False, clusters=["m1"], record=RECORD, phases={"m1": "Failed"}), "", id="finished"
        ),
        pytest.param(ADMITTED, "of-a-deleted-job", id="another-job-of-its-name"),
    ],
)
def test_job_that_cannot_be_aborted_stays_as_it_is(stored, uid):
    store = Store()
    upsert(store, ("jobs", job("j1")), ("bindings", stored))
    template = next(iter(store.bindings)).template
    before = received(store).workloads.get("rb-j1")
    assert not store.abort(template, uid)
    assert received(store).workloads.get("rb-j1", before) == before


def test_abort_of_a_binding_in_an_exempt_namespace_is_refused():
    store = Store(EXEMPT)
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")))
    assert not store.abort(next(iter(store.bindings)).template)


def test_requests_of_commands_are_forgotten_with_the_leadership():
    store = Store()
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")))
    assert store.abort(next(iter(store.bindings)).template)
    received(store)
    store.forget_commands()
    assert received(store).workloads["rb-j1"].hold is None


def test_resume_cancels_an_abort_that_is_not_recorded():
    store = Store()
    upsert(store, ("jobs", job("j1")), ("bindings", binding("j1")))
    template = next(iter(store.bindings)).template
    assert store.abort(template)
    assert store.resume(template)
    assert received(store).workloads["rb-j1"].hold is None
