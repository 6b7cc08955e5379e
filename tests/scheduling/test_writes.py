"""The writes of decisions, repairs and records."""

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingCondition,
    BindingDetails,
    CachedBinding,
    CachedTemplate,
    ClusterProgress,
    Suspension,
    TemplateKey,
    WorkloadPhase,
)
from controller.cache.record import AdmissionRecord, read_record
from controller.engine.plan import Admit, Evict, RecordUpdate, StartupBackoff
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import Affinity, ApiKind, Assignment, ClusterName, Placement, Term
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import (
    Admission,
    ClusterCharge,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadUid,
)
from controller.scheduling.writes import Write, confirmation_write, decision_write, record_update_write, repair_write
from tests.workloads import changed

M1 = ClusterName("m1")
CHARGE = {"cpu": 2000, "memory": 2**30, "pods": 1000}


def facts(*, paused: bool = True, uid: str = "u1", namespace: str = "ml", **more) -> CachedBinding:
    return CachedBinding(
        uid=WorkloadUid(uid),
        resource_version=7,
        namespace=namespace,
        name="j-job",
        generation=1,
        created_at=0,
        api=ApiKind("batch.volcano.sh/v1alpha1", "Job"),
        template=TemplateKey(VOLCANO_JOB, "ml", "j"),
        template_uid="t1",
        **{
            "placement": Placement(),
            "suspension": Suspension(scheduling=paused),
            "details": BindingDetails(has_annotations=True),
            **more,
        },
    )


WORKLOAD = Workload(WorkloadUid("u1"), "ml", "j", "Job", QueueName("a"), SchedulingRequirements(), created_at=1_000)
ADMIT = Admit(WORKLOAD, (Assignment(M1),), Admission(CHARGE, (ClusterCharge(M1, CHARGE),), admitted_at=61_000))


RECORD = AdmissionRecord(
    QueueName("a"), charge=CHARGE, clusters=(M1,), admitted_at=61_000, waiting_since=1_000, evictions=2, attempts=1
)
ON_M1 = (Assignment(M1),)
RUNS = (ClusterProgress(M1, WorkloadPhase.RUNNING),)
RECLAIM = Evict(WORKLOAD, EvictionReason.RECLAIMED)


def values(made: Write) -> dict[str, object]:
    return {operation["path"]: operation.get("value") for operation in json.loads(made.patch)}


def fields(made: Write) -> dict[str, Any]:
    """Return the written record as JSON."""
    return json.loads(values(made)["/metadata/annotations/volcano-global.io~1admission"])


def record_of(made: Write) -> AdmissionRecord:
    """Return the written record as it is read back."""
    record, error = read_record({ADMISSION_ANNOTATION: json.dumps(fields(made))}, "u1")
    assert error == ""
    return record


def test_admission_record_continues_counters():
    before = AdmissionRecord(
        QueueName("a"),
        evictions=2,
        attempts=1,
        startup_failed_at=1000,
        back_off_until=2000,
        excluded_clusters={M1: "old"},
    )
    made = decision_write(ADMIT, facts(record=before), excluded_clusters={M1: "mark"})
    assert made.path == "/apis/work.karmada.io/v1alpha2/namespaces/ml/resourcebindings/j-job"
    assert (made.effect, made.resource_version, made.workload) == ("admit", 7, "Job ml/j")
    assert (made.clusters, made.wait_seconds) == (("m1",), 60)
    written, record = fields(made), record_of(made)
    assert written["charge"] == {"cpu": "2", "memory": "1Gi", "pods": "1"}
    assert (written["uid"], written["queue"], written["clusters"]) == ("u1", "a", ["m1"])
    assert (written["admittedAt"], written["waitingSince"]) == ("1970-01-01T00:01:01Z", "1970-01-01T00:00:01Z")
    assert (record.evictions, record.attempts, record.excluded_clusters) == (2, 1, {M1: "mark"})
    assert (record.startup_failed_at, record.back_off_until) == (None, None)
    cluster_scoped = decision_write(ADMIT, facts(namespace=""))
    assert cluster_scoped.path == "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/j-job"


@pytest.mark.parametrize(("replicas", "names_clusters"), [(2, False), (0, True)], ids=["replicas", "a-whole-job"])
def test_karmada_divides_replicas_where_a_policy_has_overflow(replicas, names_clusters):
    placement = Placement(terms=(Term("own", Affinity((M1,)), overflow=(Affinity(),)),), divided=True)
    divisible = replace(WORKLOAD, requirements=SchedulingRequirements(replicas=replicas))
    made = decision_write(replace(ADMIT, workload=divisible), facts(placement=placement))
    assert ("/spec/clusters" in values(made)) == names_clusters
    assert (made.clusters, fields(made)["clusters"]) == (("m1",), ["m1"])


def test_eviction_keeps_creation_time_and_clears_charge():
    made = decision_write(RECLAIM, facts(paused=False, record=RECORD, clusters=ON_M1, progress=RUNS), now=90_000)
    record = record_of(made)
    assert (record.charge, record.clusters, record.evictions, record.waiting_since) == ({}, (), 3, 1_000)
    assert (made.effect, made.reason) == ("evict", "Reclaimed")
    assert record.evicted_at is None
    not_placed_yet = record_of(decision_write(RECLAIM, facts(record=RECORD, clusters=ON_M1), now=90_000))
    assert (not_placed_yet.charge, not_placed_yet.clusters, not_placed_yet.evicted_at) == ({}, ("m1",), 90_000)


@pytest.mark.parametrize("reason", [reason for reason in EvictionReason if reason.is_self_caused])
def test_only_the_first_self_caused_eviction_counts(reason):
    decided, observed = Evict(WORKLOAD, reason), facts(paused=False, record=RECORD, clusters=ON_M1)
    assert record_of(decision_write(decided, observed)).evictions == 2
    never_evicted = structs.replace(observed, record=structs.replace(RECORD, evictions=0))
    assert record_of(decision_write(decided, never_evicted)).evictions == 1


def test_eviction_creates_tasks_with_grace_period():
    decided = Evict(WORKLOAD, EvictionReason.PREEMPTED, grace_ms=30_000)
    targets = (*ON_M1, Assignment(ClusterName("m2")))
    [task] = values(decision_write(decided, facts(paused=False, clusters=targets, progress=RUNS)))[
        "/spec/gracefulEvictionTasks"
    ]
    assert (task["fromCluster"], task["reason"], task["gracePeriodSeconds"]) == ("m1", "Preempted", 30)


@pytest.mark.parametrize(
    ("reason", "back_off", "has_run", "expected", "message"),
    [
        pytest.param(
            EvictionReason.STARTUP_TIMEOUT,
            StartupBackoff(since=61_000, until=121_000, excluded_clusters=(M1,)),
            False,
            (2, 2, 61_000, 121_000),
            "it did not start on m1 in time",
            id="failed-start",
        ),
        pytest.param(
            EvictionReason.STARTUP_TIMEOUT,
            StartupBackoff(since=61_000, until=121_000, caused_failure=False),
            True,
            (3, 0, None, 121_000),
            "a part that its HyperJob needs did not start in time",
            id="running-part-of-a-gang",
        ),
        pytest.param(
            EvictionReason.STARTUP_TIMEOUT,
            StartupBackoff(since=61_000, until=121_000, caused_failure=False, has_gang_run=False),
            True,
            (2, 2, None, 121_000),
            "a part that its HyperJob needs did not start in time",
            id="running-part-of-a-gang-that-has-not-run",
        ),
        pytest.param(
            EvictionReason.CLUSTER_CHANGED,
            StartupBackoff(120_000, 120_000, moved_to=(M1,)),
            False,
            (2, 2, 120_000, 120_000),
            "it was moved to m1, where it does not fit",
            id="moved",
        ),
    ],
)
def test_eviction_after_failed_start_records_backoff(reason, back_off, has_run, expected, message):
    decided = Evict(changed(WORKLOAD, has_run=has_run), reason, back_off=back_off)
    observed = facts(paused=False, record=RECORD, clusters=ON_M1)
    made = decision_write(decided, observed, excluded_clusters=dict.fromkeys(back_off.excluded_clusters, "mark"))
    record = record_of(made)
    assert (record.evictions, record.attempts, record.startup_failed_at, record.back_off_until) == expected
    assert record.excluded_clusters == dict.fromkeys(back_off.excluded_clusters, "mark")
    assert made.unless_run is back_off.caused_failure
    assert record.clusters == (() if back_off.moved_to else (M1,)), "it is not placed again where it was moved to"
    assert made.message == message


HALF = {name: amount // 2 for name, amount in CHARGE.items()}
ON_TWO = (ClusterCharge(M1, HALF), ClusterCharge(ClusterName("m2"), HALF))


@pytest.mark.parametrize(
    ("nomination", "reservation", "expected"),
    [
        pytest.param(None, None, {}, id="nothing-any-more"),
        pytest.param(
            Nomination(M1, 61_000, 2, CHARGE),
            None,
            {"nominated_cluster": M1, "nominated_at": 61_000, "nomination_rank": 2, "nominated_requests": CHARGE},
            id="nomination",
        ),
        pytest.param(
            None,
            Reservation(61_000, (), CHARGE),
            {"reserved_since": 61_000, "nominated_requests": CHARGE},
            id="reservation-of-quota-alone",
        ),
        pytest.param(
            None,
            Reservation(61_000, ON_TWO, CHARGE, promised_start=121_000),
            {
                "reserved_since": 61_000,
                "reserved_clusters": {M1: HALF, "m2": HALF},
                "nominated_requests": CHARGE,
                "promised_start": 121_000,
            },
            id="reservation-on-two-clusters-with-a-promised-start",
        ),
    ],
)
def test_pending_record_is_written_once_and_read_back(nomination, reservation, expected):
    before = AdmissionRecord(QueueName("a"), evictions=2, attempts=1, excluded_clusters={M1: "mark"})
    made = record_update_write(
        RecordUpdate(changed(WORKLOAD, evictions=2), nomination, reservation), facts(record=before)
    )
    record = record_of(made)
    kept = structs.replace(before, waiting_since=record.waiting_since)
    assert record == structs.replace(kept, **expected)
    assert made.effect == "hold"
    assert set(values(made)) == {
        "/metadata/uid",
        "/spec/suspension/scheduling",
        "/metadata/annotations/volcano-global.io~1admission",
    }
    assert made.is_done(facts(record=record))
    assert made.is_done(facts()) == (not expected)


@pytest.mark.parametrize(
    ("decision", "seen", "is_done"),
    [
        pytest.param(ADMIT, facts(paused=False), True, id="resumed"),
        pytest.param(ADMIT, facts(suspension=None), True, id="not-suspended-at-all"),
        pytest.param(ADMIT, facts(), False, id="still-suspended"),
        pytest.param(ADMIT, facts(paused=False, uid="u2"), False, id="another-of-the-same-name"),
        pytest.param(RECLAIM, facts(), True, id="suspended-and-cleared"),
        pytest.param(RECLAIM, facts(clusters=ON_M1), False, id="still-placed"),
        pytest.param(RECLAIM, facts(paused=False), False, id="not-suspended"),
    ],
)
def test_write_is_done_when_its_effect_is_observed(decision, seen, is_done):
    assert decision_write(decision, facts()).is_done(seen) == is_done


@pytest.mark.parametrize(
    ("remarks", "effect"),
    [
        pytest.param({BindingCondition.PLACED_WITHOUT_ADMISSION}, "clear", id="leaked"),
        pytest.param({BindingCondition.WORK_NOT_REMOVED}, "touch", id="work-not-removed"),
        pytest.param({BindingCondition.RESUSPENDED_AFTER_ADMISSION}, "resume", id="paused-again"),
        pytest.param({BindingCondition.SUSPENDED_BUT_NOT_MANAGED}, "resume", id="needs-no-admission"),
        pytest.param({BindingCondition.MOVED, BindingCondition.RESIZED}, None, id="not-accepted-yet"),
        pytest.param(
            {
                BindingCondition.ADOPTED,
                BindingCondition.RESIZED,
                BindingCondition.NOT_SUSPENDED,
                BindingCondition.UNREADABLE,
            },
            None,
            id="only-reported",
        ),
    ],
)
def test_only_repairable_conditions_are_repaired(remarks, effect):
    made = repair_write(remarks, facts(clusters=ON_M1))
    assert (made.effect if made else None) == effect


def test_resume_requires_admitted_cluster():
    made = repair_write({BindingCondition.RESUSPENDED_AFTER_ADMISSION}, facts(clusters=ON_M1, record=RECORD))
    assert {"op": "test", "path": "/spec/clusters/0/name", "value": "m1"} in json.loads(made.patch)


def test_eviction_by_others_is_recorded_unless_placed_again():
    made = repair_write({BindingCondition.EVICTED_BY_OTHERS}, facts(record=RECORD), now=90_000)
    assert made.effect == "note"
    assert {"op": "test", "path": "/spec/clusters", "value": None} in json.loads(made.patch)
    record = record_of(made)
    assert (record.charge, record.clusters, record.evictions, record.evicted_at) == ({}, ("m1",), 3, 90_000)
    assert not made.is_done(facts(record=RECORD))
    assert made.is_done(facts(record=record))


def test_abort_of_a_pending_workload_is_recorded():
    before = AdmissionRecord(QueueName("a"), clusters=(M1,), evictions=2, nominated_cluster=M1, evicted_at=90_000)
    template = CachedTemplate("t1", 1, TemplateKey(VOLCANO_JOB, "ml", "j"), generation=4, created_at=0)
    made = repair_write({BindingCondition.ABORT_REQUESTED}, facts(record=before), WORKLOAD, template=template)
    record = record_of(made)
    assert (record.aborted, record.aborted_generation, record.clusters, record.evictions) == (True, 4, (M1,), 2)
    assert (record.nominated_cluster, record.evicted_at) == (None, 90_000)
    assert not made.is_done(facts(record=before))
    assert made.is_done(facts(record=record))


def test_retry_of_an_aborted_workload_is_recorded():
    """P5: Karmada may still place it where it was evicted before it was placed."""
    before = AdmissionRecord(QueueName("a"), clusters=(M1,), evictions=2, aborted=True, aborted_generation=4)
    record = record_of(repair_write({BindingCondition.RETRY_REQUESTED}, facts(record=before), WORKLOAD))
    assert (record.aborted, record.aborted_generation, record.clusters, record.evictions) == (False, None, (M1,), 2)


def test_abort_is_recorded_after_the_end_of_a_nomination():
    template = CachedTemplate("t1", 1, TemplateKey(VOLCANO_JOB, "ml", "j"), generation=4, created_at=0)
    nominated = changed(WORKLOAD, nomination=Nomination(M1, 1, 0, {}))
    conditions = {BindingCondition.ABORT_REQUESTED}
    assert repair_write(conditions, facts(record=RECORD), nominated, template=template) is None
    assert repair_write(conditions, facts(record=RECORD), WORKLOAD, template=template) is not None


def test_admission_ends_without_policy_and_clusters():
    made = repair_write({BindingCondition.ADMITTED_WITHOUT_POLICY}, facts(paused=False, record=RECORD))
    operations = json.loads(made.patch)
    assert {"op": "test", "path": "/spec/clusters", "value": None} in operations
    assert {"op": "add", "path": "/spec/suspension/scheduling", "value": True} in operations
    record = record_of(made)
    assert (record.charge, record.clusters, record.evictions) == ({}, (), 2)
    assert not made.is_done(facts(paused=False, record=RECORD))
    assert made.is_done(facts(record=record))


def test_phase_is_recorded_while_a_work_is_not_applied():
    refused = RUNS[0]._replace(apply_error="denied")
    seen = facts(paused=False, clusters=ON_M1, record=RECORD, progress=(refused,))
    made = repair_write({BindingCondition.PHASE_NOT_RECORDED}, seen, changed(WORKLOAD, has_run=True))
    record = record_of(made)
    assert record == structs.replace(RECORD, last_phase="Running")
    assert not made.is_done(seen)
    applied = facts(paused=False, clusters=ON_M1, record=record, progress=RUNS)
    assert made.is_done(applied)
    cleared = repair_write({BindingCondition.PHASE_NOT_RECORDED}, applied, changed(WORKLOAD, has_run=True))
    assert record_of(cleared) == RECORD


def test_raise_of_priority_at_the_admission_is_recorded():
    admit = replace(ADMIT, admission=replace(ADMIT.admission, raised_by=25))
    record = record_of(decision_write(admit, facts()))
    assert record.raised_by == 25
    moved = changed(WORKLOAD, admission=replace(admit.admission, moved=True), placed_at=90_000)
    assert record_of(confirmation_write(facts(paused=False, clusters=ON_M1, record=record), moved)).raised_by == 25


def test_accepted_move_and_resize_are_recorded():
    m2 = ClusterName("m2")
    larger = {**CHARGE, "cpu": 4000}
    admission = Admission(larger, (ClusterCharge(m2, larger),), admitted_at=61_000, moved=True, resized=True)
    workload = changed(WORKLOAD, admission=admission, placed_at=90_000)
    seen = facts(paused=False, clusters=(Assignment(m2),), record=RECORD)
    made = confirmation_write(seen, workload)
    record = record_of(made)
    assert (record.charge, record.clusters) == (larger, (m2,))
    assert (record.admitted_at, record.clusters_changed_at, record.evictions) == (61_000, 90_000, 2)
    assert not made.is_done(seen)
    assert made.is_done(facts(paused=False, record=record))
    assert confirmation_write(facts(record=RECORD), workload) is None, "one that is suspended is resumed first"


def test_resize_records_no_change_of_clusters_without_a_move():
    resized = changed(WORKLOAD, admission=replace(ADMIT.admission, resized=True))
    record = record_of(confirmation_write(facts(paused=False, clusters=ON_M1, record=RECORD), resized))
    assert record.clusters_changed_at is None


@pytest.mark.parametrize(
    # The CPUs of the record, the replicas on each target, and the CPUs charged on each cluster; the CPUs recorded.
    ("before", "targets", "charged", "expected"),
    [
        pytest.param(4, {"m2": 4}, {"m2": 4, "m1": 4}, 4, id="leaves-a-cluster"),
        pytest.param(4, {"m1": 2, "m2": 2}, {"m1": 4, "m2": 2}, 4, id="status-of-the-earlier-division"),
        pytest.param(2, {"m1": 2, "m2": 2}, {"m1": 4, "m2": 2}, 4, id="resized"),
        pytest.param(6, {"m1": 2, "m2": 2}, {"m1": 3, "m2": 3}, 6, id="scaled-down-before"),
        pytest.param(4, {"m1": 6}, {"m1": 4}, 4, id="resized-after-the-decision"),
        pytest.param(4, {"m1": None, "m2": None}, {"m1": 4, "m2": 2}, 4, id="replicas-unknown"),
        pytest.param(4, {}, {"m1": 4}, 4, id="without-targets"),
    ],
)
def test_record_of_divided_replicas_omits_status_only_charges(before, targets, charged, expected):
    """The record's charge is divided again with the replicas, so what only a status adds would stay charged."""
    requests = {"cpu": 4000, "pods": 4000}
    requirements = SchedulingRequirements(requests=requests, replicas=4, placement=Placement(divided=True))
    charges = {name: {"cpu": cpus * 1000, "pods": cpus * 1000} for name, cpus in charged.items()}
    bookings = tuple(ClusterCharge(ClusterName(name), charge) for name, charge in charges.items())
    whole = sum(charged.values()) * 1000
    admission = Admission({"cpu": whole, "pods": whole}, bookings, admitted_at=61_000, moved=True)
    workload = changed(replace(WORKLOAD, requirements=requirements), admission=admission, placed_at=90_000)
    record = structs.replace(RECORD, charge={"cpu": before * 1000, "pods": before * 1000})
    clusters = tuple(Assignment(ClusterName(name), count) for name, count in targets.items())
    written = record_of(confirmation_write(facts(paused=False, clusters=clusters, record=record), workload))
    assert written.charge == {"cpu": expected * 1000, "pods": expected * 1000}
    assert written.clusters == tuple(charged)


@pytest.mark.parametrize(
    # The CPUs of the record, which is of two copies, the replicas of a copy, and the CPUs recorded of three.
    ("before", "replicas", "expected"),
    [
        pytest.param(8, 4, 12, id="surge"),
        pytest.param(8, 5, 15, id="resized"),
        pytest.param(10, 2, 15, id="scaled-down-before"),
        pytest.param(8, 9, 18, id="resized-after-the-decision"),
    ],
)
def test_recorded_charge_of_duplicated_replicas(before, replicas, expected):
    """Each copy has the charge of its replicas, also on the cluster that it is leaving."""
    requirements = SchedulingRequirements(requests={"cpu": 4000}, replicas=4)
    charges = {"m1": {"cpu": 6000}, "m3": {"cpu": 5000}, "m2": {"cpu": 4000}}
    bookings = tuple(ClusterCharge(ClusterName(name), charge) for name, charge in charges.items())
    admission = Admission({"cpu": 15_000}, bookings, admitted_at=61_000, moved=True)
    workload = changed(replace(WORKLOAD, requirements=requirements), admission=admission, placed_at=90_000)
    record = structs.replace(RECORD, charge={"cpu": before * 1000}, clusters=(M1, ClusterName("m2")))
    clusters = tuple(Assignment(ClusterName(name), replicas) for name in ("m1", "m3"))
    written = record_of(confirmation_write(facts(paused=False, clusters=clusters, record=record), workload))
    assert written.charge == {"cpu": expected * 1000}
