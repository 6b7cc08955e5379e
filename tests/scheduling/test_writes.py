"""The writes of decisions, repairs and records."""

import json

import pytest

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingCondition,
    BindingDetails,
    CachedBinding,
    ClusterProgress,
    Suspension,
    TemplateKey,
    WorkloadPhase,
)
from controller.cache.record import AdmissionRecord, read_record
from controller.engine.plan import Admit, Evict, RecordUpdate, StartupBackoff
from controller.engine.reasons import EvictionReason
from controller.engine.state.clusters import ApiKind, Assignment, ClusterName, Placement
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
from controller.scheduling.writes import confirmation_write, decision_write, nomination_write, repair_write
from tests.workloads import changed

M1 = ClusterName("m1")
CHARGE = {"cpu": 2000, "memory": 2**30, "pods": 1000}


def facts(*, paused: bool = True, uid: str = "u1", **more) -> CachedBinding:
    return CachedBinding(
        **{
            "uid": WorkloadUid(uid),
            "resource_version": 7,
            "namespace": "ml",
            "name": "j-job",
            "generation": 1,
            "created_at": 0,
            "api": ApiKind("batch.volcano.sh/v1alpha1", "Job"),
            "template": TemplateKey(VOLCANO_JOB, "ml", "j"),
            "template_uid": "t1",
            "placement": Placement(),
            "suspension": Suspension(scheduling=paused),
            "details": BindingDetails(has_annotations=True),
        }
        | more
    )


WORKLOAD = Workload(WorkloadUid("u1"), "ml", "j", "Job", QueueName("a"), SchedulingRequirements(), created_at=1_000)
ADMIT = Admit(WORKLOAD, (Assignment(M1),), Admission(CHARGE, (ClusterCharge(M1, CHARGE),), admitted_at=61_000))


def values(patch: bytes) -> dict[str, object]:
    return {operation["path"]: operation.get("value") for operation in json.loads(patch)}


def values_of_annotation(patch: bytes) -> dict[str, str]:
    return {ADMISSION_ANNOTATION: str(values(patch)["/metadata/annotations/volcano-global.io~1admission"])}


def test_admission_record_continues_counters():
    made = decision_write(ADMIT, facts(record=AdmissionRecord(QueueName("a"), evictions=2, attempts=1)))
    assert made.path == "/apis/work.karmada.io/v1alpha2/namespaces/ml/resourcebindings/j-job"
    assert (made.effect, made.resource_version, made.workload, made.clusters, made.wait_seconds) == (
        "admit",
        7,
        "Job ml/j",
        ("m1",),
        60,
    )
    record = json.loads(values(made.patch)["/metadata/annotations/volcano-global.io~1admission"])
    assert record["charge"] == {"cpu": "2", "memory": "1Gi", "pods": "1"}
    assert (record["uid"], record["queue"], record["clusters"]) == ("u1", "a", ["m1"])
    assert (record["admittedAt"], record["waitingSince"]) == ("1970-01-01T00:01:01Z", "1970-01-01T00:00:01Z")
    assert (record["evictions"], record["attempts"]) == (2, 1)


def test_eviction_keeps_creation_time_and_clears_charge():
    before = AdmissionRecord(QueueName("a"), charge=CHARGE, evictions=2)
    decided = Evict(WORKLOAD, EvictionReason.RECLAIMED)
    runs = (ClusterProgress(M1, WorkloadPhase.RUNNING),)
    made = decision_write(decided, facts(paused=False, record=before, clusters=(Assignment(M1),), progress=runs))
    record = json.loads(values(made.patch)["/metadata/annotations/volcano-global.io~1admission"])
    assert (record["charge"], record["clusters"], record["evictions"]) == ({}, [], 3)
    assert record["waitingSince"] == "1970-01-01T00:00:01Z"
    assert (made.effect, made.reason) == ("evict", "Reclaimed")


def test_eviction_creates_tasks_with_grace_period():
    decided = Evict(WORKLOAD, EvictionReason.PREEMPTED, grace_ms=30_000)
    targets, runs = (Assignment(M1), Assignment(ClusterName("m2"))), (ClusterProgress(M1, WorkloadPhase.RUNNING),)
    made = decision_write(decided, facts(paused=False, clusters=targets, progress=runs))
    [task] = values(made.patch)["/spec/gracefulEvictionTasks"]
    assert (task["fromCluster"], task["reason"], task["gracePeriodSeconds"]) == ("m1", "Preempted", 30)


def test_eviction_before_placement_records_clusters():
    before = AdmissionRecord(QueueName("a"), charge=CHARGE, clusters=(M1,))
    made = decision_write(Evict(WORKLOAD, EvictionReason.RECLAIMED), facts(record=before, clusters=(Assignment(M1),)))
    record = json.loads(values(made.patch)["/metadata/annotations/volcano-global.io~1admission"])
    assert (record["charge"], record["clusters"]) == ({}, ["m1"])


def test_failed_start_records_backoff_and_cluster():
    back_off = StartupBackoff(since=61_000, until=121_000, excluded_clusters=(M1,))
    decided = Evict(WORKLOAD, EvictionReason.STARTUP_TIMEOUT, back_off=back_off)
    before = AdmissionRecord(QueueName("a"), charge=CHARGE, evictions=2, attempts=1)
    made = decision_write(decided, facts(record=before, clusters=(Assignment(M1),)), excluded_clusters={M1: "mark"})
    record, _ = read_record(values_of_annotation(made.patch), "u1")
    assert record is not None
    assert (record.evictions, record.attempts) == (2, 2)
    assert (record.startup_failed_at, record.back_off_until, record.excluded_clusters) == (
        61_000,
        121_000,
        {M1: "mark"},
    )
    assert made.message == "it did not start on m1 in time"


def test_gang_eviction_resets_failed_starts():
    back_off = StartupBackoff(since=61_000, until=121_000, caused_failure=False)
    decided = Evict(changed(WORKLOAD, has_run=True), EvictionReason.STARTUP_TIMEOUT, back_off=back_off)
    made = decision_write(
        decided, facts(record=AdmissionRecord(QueueName("a"), charge=CHARGE, evictions=2, attempts=1))
    )
    record, _ = read_record(values_of_annotation(made.patch), "u1")
    assert record is not None
    assert (record.evictions, record.attempts) == (3, 0)
    assert (record.startup_failed_at, record.back_off_until, record.excluded_clusters) == (None, 121_000, {})


def test_admission_ends_backoff_and_keeps_exclusions():
    before = AdmissionRecord(
        QueueName("a"), attempts=1, startup_failed_at=1000, back_off_until=2000, excluded_clusters={M1: "old"}
    )
    made = decision_write(ADMIT, facts(record=before), excluded_clusters={M1: "mark"})
    record, _ = read_record(values_of_annotation(made.patch), "u1")
    assert record is not None
    assert (record.attempts, record.startup_failed_at, record.back_off_until) == (1, None, None)
    assert record.excluded_clusters == {M1: "mark"}


def test_pending_record_update_keeps_exclusions():
    before = AdmissionRecord(QueueName("a"), attempts=1, excluded_clusters={M1: "mark"})
    made = nomination_write(RecordUpdate(WORKLOAD, None), facts(record=before))
    record, _ = read_record(values_of_annotation(made.patch), "u1")
    assert record is not None
    assert (record.attempts, record.excluded_clusters) == (1, {M1: "mark"})


def test_old_record_has_no_failed_starts():
    text = '{"uid": "u1", "queue": "a", "charge": {}, "clusters": [], "evictions": 1, "attempts": 2, "plan": ""}'
    record, flaw = read_record({ADMISSION_ANNOTATION: text}, "u1")
    assert record is not None
    assert (flaw, record.attempts) == ("", 2)
    assert (record.startup_failed_at, record.back_off_until, record.excluded_clusters) == (None, None, {})


@pytest.mark.parametrize(
    ("held", "written"),
    [
        pytest.param(None, (None, None, None, None), id="nothing-any-more"),
        pytest.param(
            Nomination(M1, 61_000, 2, CHARGE),
            ("m1", "1970-01-01T00:01:01Z", 2, {"cpu": "2", "memory": "1Gi", "pods": "1"}),
            id="a-cluster",
        ),
    ],
)
def test_nomination_is_recorded_and_counters_are_kept(held, written):
    waits = changed(WORKLOAD, evictions=2)
    made = nomination_write(
        RecordUpdate(waits, held), facts(record=AdmissionRecord(QueueName("a"), evictions=2, attempts=1))
    )
    record = json.loads(values(made.patch)["/metadata/annotations/volcano-global.io~1admission"])
    assert (
        tuple(record[key] for key in ("nominatedCluster", "nominatedAt", "nominationRank", "nominatedRequests"))
        == written
    )
    assert (record["evictions"], record["attempts"], record["charge"]) == (2, 1, {})
    assert (made.effect, made.is_done(facts()), set(values(made.patch))) == (
        "hold",
        held is None,
        {"/metadata/uid", "/spec/suspension/scheduling", "/metadata/annotations/volcano-global.io~1admission"},
    )


@pytest.mark.parametrize(
    ("reserved", "written"),
    [
        pytest.param(
            Reservation(61_000, (ClusterCharge(M1, CHARGE),), CHARGE), (None, None, "1970-01-01T00:01:01Z"), id="one"
        ),
        pytest.param(Reservation(61_000, (), CHARGE), (None, None, "1970-01-01T00:01:01Z"), id="quota-alone"),
    ],
)
def test_reservation_is_recorded_and_read_back(reserved, written):
    made = nomination_write(RecordUpdate(WORKLOAD, None, reserved), facts())
    text = values(made.patch)["/metadata/annotations/volcano-global.io~1admission"]
    record = json.loads(text)
    assert tuple(record.get(key) for key in ("nominatedCluster", "nominatedAt", "reservedSince")) == written
    seen, _ = read_record({"volcano-global.io/admission": text}, "u1")
    assert made.is_done(facts(record=seen))
    assert not made.is_done(facts())
    amounts = {each.cluster: each.charge for each in reserved.cluster_charges} or None
    assert (seen.reserved_since, seen.reserved_clusters, seen.nominated_requests) == (61_000, amounts, CHARGE)


def test_promised_start_is_recorded_once_and_read_back():
    promised = Reservation(61_000, (ClusterCharge(M1, CHARGE),), CHARGE, promised_start=121_000)
    made = nomination_write(RecordUpdate(WORKLOAD, None, promised), facts())
    text = values(made.patch)["/metadata/annotations/volcano-global.io~1admission"]
    assert json.loads(text)["promisedStart"] == "1970-01-01T00:02:01Z"
    assert read_record({"volcano-global.io/admission": text}, "u1")[0].promised_start == 121_000


def test_reservation_on_several_clusters_is_read_back():
    half = {name: amount // 2 for name, amount in CHARGE.items()}
    rooms = (ClusterCharge(M1, half), ClusterCharge(ClusterName("m2"), half))
    made = nomination_write(RecordUpdate(WORKLOAD, None, Reservation(61_000, rooms, CHARGE)), facts())
    text = values(made.patch)["/metadata/annotations/volcano-global.io~1admission"]
    record = json.loads(text)
    assert (record["nominatedCluster"], set(record["reservedClusters"])) == (None, {"m1", "m2"})
    seen, _ = read_record({"volcano-global.io/admission": text}, "u1")
    assert (seen.reserved_clusters, seen.nominated_requests) == ({"m1": half, "m2": half}, CHARGE)
    assert made.is_done(facts(record=seen))
    assert not made.is_done(facts())


def test_cluster_binding_is_written_at_its_path():
    made = decision_write(ADMIT, facts(namespace=""))
    assert made.path == "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/j-job"


@pytest.mark.parametrize(
    ("seen", "is_done"),
    [
        pytest.param(facts(paused=False), True, id="resumed"),
        pytest.param(facts(suspension=None), True, id="not-suspended-at-all"),
        pytest.param(facts(), False, id="still-paused"),
        pytest.param(facts(paused=False, uid="u2"), False, id="another-of-the-same-name"),
    ],
)
def test_admission_is_done_when_binding_is_resumed(seen, is_done):
    assert decision_write(ADMIT, facts()).is_done(seen) == is_done


@pytest.mark.parametrize(
    ("seen", "is_done"),
    [
        pytest.param(facts(), True, id="paused-and-cleared"),
        pytest.param(facts(clusters=(Assignment(M1),)), False, id="still-placed"),
        pytest.param(facts(paused=False), False, id="not-paused"),
    ],
)
def test_eviction_is_done_when_suspended_without_clusters(seen, is_done):
    assert decision_write(Evict(WORKLOAD, EvictionReason.RECLAIMED), facts()).is_done(seen) == is_done


@pytest.mark.parametrize(
    ("remarks", "effect"),
    [
        pytest.param({BindingCondition.PLACED_WITHOUT_ADMISSION}, "clear", id="leaked"),
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
    made = repair_write(remarks, facts(clusters=(Assignment(M1),)))
    assert (made.effect if made else None) == effect


RECORD = AdmissionRecord(
    QueueName("a"), charge=CHARGE, clusters=(M1,), admitted_at=61_000, waiting_since=1_000, evictions=1
)


def test_resume_requires_admitted_cluster():
    made = repair_write(
        {BindingCondition.RESUSPENDED_AFTER_ADMISSION}, facts(clusters=(Assignment(M1),), record=RECORD)
    )
    assert made is not None
    assert {"op": "test", "path": "/spec/clusters/0/name", "value": "m1"} in json.loads(made.patch)


def test_eviction_by_others_is_recorded_unless_placed_again():
    made = repair_write({BindingCondition.EVICTED_BY_OTHERS}, facts(record=RECORD))
    assert made is not None
    assert made.effect == "note"
    assert {"op": "test", "path": "/spec/clusters", "value": None} in json.loads(made.patch)
    record = read_record(values_of_annotation(made.patch), "u1")[0]
    assert record is not None
    assert (record.charge, record.clusters, record.evictions) == ({}, ("m1",), 2)
    after = read_record(values_of_annotation(made.patch), "u1")[0]
    assert not made.is_done(facts(record=RECORD))
    assert made.is_done(facts(record=after))


def test_accepted_move_and_resize_are_recorded():
    m2 = ClusterName("m2")
    larger = {**CHARGE, "cpu": 4000}
    admission = Admission(larger, (ClusterCharge(m2, larger),), admitted_at=61_000, moved=True, resized=True)
    workload = changed(WORKLOAD, admission=admission, placed_at=90_000)
    seen = facts(paused=False, clusters=(Assignment(m2),), record=RECORD)
    made = confirmation_write(seen, workload)
    assert made is not None
    record = read_record(values_of_annotation(made.patch), "u1")[0]
    assert record is not None
    assert (record.charge, record.clusters) == (larger, (m2,))
    assert (record.admitted_at, record.clusters_changed_at, record.evictions) == (61_000, 90_000, 1)
    assert not made.is_done(seen)
    assert made.is_done(facts(paused=False, record=record))
    assert confirmation_write(facts(record=RECORD), workload) is None, "one that is paused is resumed first"


def test_eviction_after_move_does_not_place_again():
    back_off = StartupBackoff(120_000, 120_000, moved_to=(M1,))
    decided = Evict(WORKLOAD, EvictionReason.CLUSTER_CHANGED, back_off=back_off)
    made = decision_write(decided, facts(paused=False, clusters=(Assignment(M1),), record=RECORD))
    record = read_record(values_of_annotation(made.patch), "u1")[0]
    assert record is not None
    assert (record.clusters, record.attempts, record.evictions) == ((), 1, 1)
    assert made.message == "it was moved to m1, where it does not fit"
