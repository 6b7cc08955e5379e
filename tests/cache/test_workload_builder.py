"""Workloads that bindings are translated into: pending, admitted, finished or not managed."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controller.api.configuration import Finished, IntegrationRule, VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.assumed_writes import AssumedEviction
from controller.cache.objects import BindingCondition as Condition
from controller.cache.objects import CachedHyperJob
from controller.cache.store import Store
from controller.cache.translate.bindings import MAX_TERMS
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ApiKind
from controller.engine.state.workloads import ClusterCharge, HyperJobGang, Reservation, WorkloadState
from tests.cache.fake_event_handler import received, upsert
from tests.cache.objects import (
    CREATED_MS,
    DEPLOYMENT,
    DEPLOYMENTS,
    admission_record,
    binding,
    deployment,
    deployment_binding,
    job,
    priority_class,
    raw,
)

ADMITTED = admission_record(
    "rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",), admitted_at=datetime(2026, 1, 2, tzinfo=UTC)
)
EVICTED = admission_record("rb-j1", queue="a", evictions=1, waiting_since=datetime(2025, 1, 1, tzinfo=UTC))
ONE = {"cpu": 1000, "pods": 1000}
UNREADABLE = {Condition.UNREADABLE}
NOT_RECORDED = {Condition.QUEUE_NOT_RECORDED}


def workload_and_conditions(
    *bindings: bytes, jobs: tuple[bytes, ...] = (job("j1"),), configuration: VolcanoGlobalConfiguration | None = None
):
    """Return the only workload of these objects, or ``None``, and its binding's conditions."""
    store = Store(configuration)
    objects = (*(("bindings", raw_binding) for raw_binding in bindings), *(("jobs", raw_job) for raw_job in jobs))
    workloads = received(store, *objects).workloads
    return next(iter(workloads.values()), None), frozenset().union(*store.conditions.values())


def annotated(record: str) -> dict:
    return {"annotations": {ADMISSION_ANNOTATION: record}}


def workload_of_deployment(template: bytes, raw_binding: bytes):
    store = Store(DEPLOYMENTS)
    handler = received(store, ("bindings", raw_binding), (DEPLOYMENT, template))
    return handler.workloads.get("rb-web"), store.conditions.get("rb-web", frozenset())


def test_suspended_binding_is_pending():
    workload, remarks = workload_and_conditions(binding("j1"))
    assert (workload.state, workload.hold, workload.admission) == (WorkloadState.PENDING, None, None)
    assert workload.path == "Job ml/j1"
    assert (workload.queue, workload.created_at, workload.requirements.requests) == ("a", CREATED_MS, ONE)
    assert not remarks


GONE = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
UNMATCHED = {"labels": {}, **annotated(ADMITTED)}
RECORD_OF_TWO_PODS = admission_record("rb-j1", queue="a", charge={"cpu": "3", "pods": "2"}, clusters=("m1",))
RECORD_OF_ANOTHER = admission_record("another", queue="b", charge={"cpu": "100"}, clusters=("m1",))
TAMPERED_RECORD = '{"uid":"rb-j1","charge":{"cpu":"-8"}}'
FIVE, TWO_PODS = {"cpu": 5000, "pods": 5000}, {"cpu": 3000, "pods": 2000}


def admitted(*clusters: str, **more) -> bytes:
    """Return a binding that was admitted and is not suspended."""
    return binding("j1", paused=False, clusters=[*clusters], **{"record": ADMITTED, **more})


@pytest.mark.parametrize(
    ("raw_binding", "clusters", "conditions"),
    [
        pytest.param(admitted("m1"), ["m1"], set(), id="placed"),
        pytest.param(admitted(), ["m1"], set(), id="not-yet-placed"),
        pytest.param(admitted("m2"), ["m2"], {Condition.MOVED}, id="moved-by-karmada"),
        pytest.param(admitted("m1", "m2"), ["m1", "m2"], {Condition.RESIZED, Condition.MOVED}, id="duplicated"),
        pytest.param(
            admitted("m1", record=RECORD_OF_ANOTHER),
            ["m1"],
            {Condition.ADOPTED, Condition.INVALID_RECORD},
            id="record-of-another-uid",
        ),
        pytest.param(
            admitted("m1", record=TAMPERED_RECORD),
            ["m1"],
            {Condition.ADOPTED, Condition.INVALID_RECORD},
            id="tampered-record",
        ),
        pytest.param(
            binding("j1", paused=None, clusters=["m1", "m2"]), ["m1", "m2"], {Condition.ADOPTED}, id="without-record"
        ),
        pytest.param(
            admitted("m1", "m2", phases={"m1": "Completed"}, record=None),
            ["m1", "m2"],
            {Condition.ADOPTED},
            id="finished-in-one-of-its-clusters",
        ),
        pytest.param(
            admitted("m2", phases={"m1": "Failed"}), ["m2"], {Condition.MOVED}, id="failed-in-a-cluster-that-it-left"
        ),
        pytest.param(
            admitted("m1", phases={"m1": "Aborted"}, record=None), ["m1"], {Condition.ADOPTED}, id="adopted-and-aborted"
        ),
        pytest.param(
            binding("j1", clusters=["m1"], record=ADMITTED),
            ["m1"],
            {Condition.RESUSPENDED_AFTER_ADMISSION},
            id="suspended-by-others",
        ),
        pytest.param(
            admitted("m1", record=EVICTED),
            ["m1"],
            {Condition.RESUMED_BY_OTHERS},
            id="evicted-and-resumed-by-others",
        ),
        pytest.param(admitted("m1", meta={**GONE, **annotated(ADMITTED)}), ["m1"], set(), id="being-deleted"),
        pytest.param(admitted("m1", meta=UNMATCHED), ["m1"], set(), id="without-policy"),
    ],
)
def test_admitted_workload_is_charged_where_it_may_run(raw_binding, clusters, conditions):
    workload, remarks = workload_and_conditions(raw_binding)
    assert (workload.state, workload.hold) == (WorkloadState.ADMITTED, None)
    assert charged(workload) == dict.fromkeys(clusters, ONE)
    assert workload.has_moved == (Condition.MOVED in conditions)
    without_record = {Condition.ADOPTED, Condition.RESUMED_BY_OTHERS}
    assert workload.admission.adopted == bool(conditions & without_record)
    assert remarks == conditions


@pytest.mark.parametrize(
    ("jobs", "record", "charge", "conditions"),
    [
        pytest.param((job("j1", replicas=5),), ADMITTED, FIVE, {Condition.RESIZED}, id="template-with-more-pods"),
        pytest.param((job("j1"),), RECORD_OF_TWO_PODS, TWO_PODS, set(), id="record-with-more-pods"),
        pytest.param((), ADMITTED, ONE, set(), id="deleted-template"),
    ],
)
def test_charge_is_the_larger_of_record_and_template(jobs, record, charge, conditions):
    workload, remarks = workload_and_conditions(admitted("m1", record=record), jobs=jobs)
    assert (workload.queue, charged(workload), remarks) == ("a", {"m1": charge}, conditions)


LEAVING_M1 = {"gracefulEvictionTasks": [{"fromCluster": "m1"}]}
PLACED_WITHOUT_ADMISSION = {Condition.PLACED_WITHOUT_ADMISSION}


@pytest.mark.parametrize(
    ("raw_binding", "conditions"),
    [
        pytest.param(binding("j1", record=EVICTED, phases={"m1": "Running"}), set(), id="evicted-and-in-its-status"),
        pytest.param(binding("j1", record=EVICTED, spec=LEAVING_M1), set(), id="evicted-with-an-eviction-task"),
        pytest.param(
            binding("j1", clusters=[], record=ADMITTED),
            {Condition.EVICTED_BY_OTHERS},
            id="evicted-by-others-and-perhaps-placed-again",
        ),
        pytest.param(binding("j1", clusters=["m1"]), PLACED_WITHOUT_ADMISSION, id="placed-without-a-record"),
        pytest.param(
            binding("j1", clusters=["m1"], record=EVICTED), PLACED_WITHOUT_ADMISSION, id="placed-after-its-eviction"
        ),
    ],
)
def test_pending_workload_is_charged_until_it_has_stopped(raw_binding, conditions):
    workload, remarks = workload_and_conditions(raw_binding)
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, Reason.PREEMPTION_IN_PROGRESS)
    assert charged(workload) == {"m1": ONE}
    assert remarks == conditions


@pytest.mark.parametrize("still_there", [{"phases": {"m1": "Running"}}, {"spec": LEAVING_M1}], ids=["reported", "task"])
def test_workload_without_policy_is_charged_until_it_stopped(still_there):
    workload, remarks = workload_and_conditions(admitted(meta=UNMATCHED, **still_there))
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, Reason.NO_MATCHING_POLICY)
    assert charged(workload) == {"m1": ONE}
    assert remarks == {Condition.ADMITTED_WITHOUT_POLICY}


@pytest.mark.parametrize(
    ("raw_binding", "reason", "conditions"),
    [
        pytest.param(
            binding("j1", record=admission_record("rb-j1", queue="a", aborted=True)),
            Reason.ABORTED,
            set(),
            id="aborted",
        ),
        pytest.param(
            binding("j1", meta={"labels": {"propagationpolicy.karmada.io/permanent-id": ""}}),
            Reason.NO_MATCHING_POLICY,
            set(),
            id="without-policy",
        ),
        pytest.param(
            admitted(meta=UNMATCHED),
            Reason.NO_MATCHING_POLICY,
            {Condition.ADMITTED_WITHOUT_POLICY},
            id="admitted-without-policy-and-clusters",
        ),
    ],
)
def test_workload_that_cannot_be_placed_is_not_charged(raw_binding, reason, conditions):
    workload, remarks = workload_and_conditions(raw_binding)
    assert (workload.state, workload.hold.reason, charged(workload)) == (WorkloadState.PENDING, reason, {})
    assert remarks == conditions


@pytest.mark.parametrize(
    ("spec", "jobs", "says", "conditions"),
    [
        pytest.param({}, (), "Job ml/j1 does not exist", set(), id="no-template"),
        pytest.param({}, (job("j1", uid="another"),), "Job ml/j1 does not exist", set(), id="template-of-another-uid"),
        pytest.param({}, (job("j1", requests={"cpu": "many"}),), "'many' is not a quantity", UNREADABLE, id="template"),
        pytest.param(
            {"placement": {"clusterAffinity": {"clusterNames": 7}}},
            (job("j1"),),
            "",
            {*UNREADABLE, Condition.PLACED_ON_ALL_CLUSTERS},
            id="placement",
        ),
        pytest.param(
            {"placement": {"clusterAffinities": [{"affinityName": f"a{number}"} for number in range(MAX_TERMS + 1)]}},
            (job("j1"),),
            f"use at most {MAX_TERMS}",
            {*UNREADABLE, Condition.PLACED_ON_ALL_CLUSTERS},
            id="too-large-placement",
        ),
        pytest.param({"suspension": {"scheduling": "yes"}}, (job("j1"),), "", UNREADABLE, id="suspension"),
        pytest.param({"suspension": 7, "clusters": "m1"}, (job("j1"),), "", UNREADABLE, id="two-fields"),
    ],
)
def test_requests_are_unknown_without_readable_objects(spec, jobs, says, conditions):
    workload, remarks = workload_and_conditions(binding("j1", spec=spec), jobs=jobs)
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, Reason.REQUESTS_UNKNOWN)
    assert says in (workload.hold.subject or "")
    assert remarks == conditions


EXEMPT = VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"}))
DEPENDENCY = {"meta": {"labels": {}}, "spec": {"requiredBy": [{"name": "other"}]}}
TO_BE_RESUMED = {Condition.SUSPENDED_BUT_NOT_MANAGED}


@pytest.mark.parametrize(
    ("raw_binding", "template", "configuration", "conditions"),
    [
        pytest.param(binding("j1", meta=GONE), job("j1"), None, set(), id="being-deleted"),
        pytest.param(binding("j1"), job("j1", meta=GONE), None, set(), id="its-template-is-being-deleted"),
        pytest.param(binding("j1", paused=None), job("j1"), None, {Condition.NOT_SUSPENDED}, id="not-suspended"),
        pytest.param(binding("j1", api_version="batch/v1"), job("j1"), None, set(), id="a-batch-job-of-its-name"),
        pytest.param(deployment_binding(), job("j1"), None, set(), id="a-kind-that-is-not-managed"),
        pytest.param(binding("j1", **DEPENDENCY), job("j1"), None, TO_BE_RESUMED, id="dependency"),
        pytest.param(binding("j1", paused=False, **DEPENDENCY), job("j1"), None, set(), id="running-dependency"),
        pytest.param(binding("j1"), job("j1"), EXEMPT, set(), id="in-an-exempt-namespace"),
        pytest.param(binding("j1", record=EVICTED), job("j1"), EXEMPT, TO_BE_RESUMED, id="pending-before-exemption"),
        pytest.param(admitted(), job("j1"), EXEMPT, set(), id="admitted-before-exemption"),
    ],
)
def test_binding_is_no_workload(raw_binding, template, configuration, conditions):
    assert workload_and_conditions(raw_binding, jobs=(template,), configuration=configuration) == (None, conditions)


def charged(workload) -> dict[str, dict[str, int]]:
    """Return the charge of a workload by cluster."""
    return {item.cluster: item.charge for item in workload.admission.cluster_charges} if workload.admission else {}


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        *((phase, WorkloadState.FINISHED) for phase in ("Completed", "Failed", "Terminated")),
        *((phase, WorkloadState.ADMITTED) for phase in ("Running", "Pending", "Restarting", "Completing", "Aborting")),
        *((phase, WorkloadState.ADMITTED) for phase in ("Terminating", "Aborted", "")),
    ],
)
def test_every_unfinished_phase_is_charged(phase, state):
    workload, _ = workload_and_conditions(admitted("m1", phases={"m1": phase}))
    assert workload.state is state
    assert charged(workload) == ({"m1": ONE} if state is WorkloadState.ADMITTED else {})
    assert (workload.admission is not None and workload.admission.reported) == (phase == "Running")
    assert (workload.hold and workload.hold.reason) == (Reason.ABORTED if phase == "Aborted" else None)


def test_cluster_without_replicas_has_nothing_to_finish():
    placed = admitted({"name": "m1", "replicas": 1}, {"name": "m2"}, phases={"m1": "Completed"})
    workload, _ = workload_and_conditions(placed)
    assert workload.state is WorkloadState.FINISHED


def test_the_finished_phases_are_configurable():
    rule = IntegrationRule.model_validate(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "finished": {"path": "state.phase", "values": ["Running"]},
        }
    )
    only = VolcanoGlobalConfiguration(integrations=(rule,))
    workload, _ = workload_and_conditions(admitted("m1", phases={"m1": "Running"}), configuration=only)
    assert workload.state is WorkloadState.FINISHED


def test_evicted_workload_keeps_its_queueing_time():
    workload, remarks = workload_and_conditions(binding("j1", record=EVICTED))
    assert (workload.state, workload.hold, workload.admission) == (WorkloadState.PENDING, None, None)
    assert workload.created_at == int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert not remarks


@pytest.mark.parametrize(
    ("queue", "record", "expected"),
    [
        pytest.param("b", None, "b", id="named"),
        pytest.param("", None, "default", id="the-default-queue"),
        pytest.param("", admission_record("rb-j1", queue="a"), "a", id="fixed-by-the-record"),
        pytest.param("b", admission_record("rb-j1", queue="a"), "b", id="its-own-field-first"),
    ],
)
def test_queue_of_a_volcano_job(queue, record, expected):
    workload, _ = workload_and_conditions(binding("j1", record=record), jobs=(job("j1", queue=queue),))
    assert workload.queue == expected


def test_admitted_job_keeps_its_queue_when_it_is_created_again():
    """Without its owner reference, Karmada gives the binding to the next Job of the same name."""
    workload, _ = workload_and_conditions(
        admitted("m1", template_uid="job-2"), jobs=(job("j1", uid="job-2", queue="another"),)
    )
    assert (workload.state, workload.queue) == (WorkloadState.ADMITTED, "a")


IN_QUEUE_A = {"labels": {"volcano.sh/queue-name": "a"}}
TEMPLATE_D = {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "d"}}}}


@pytest.mark.parametrize(
    ("meta", "spec", "fields", "queue", "conditions"),
    [
        pytest.param({"annotations": {"volcano.sh/queue-name": "b"}}, {}, {}, "b", NOT_RECORDED, id="annotation"),
        pytest.param({"labels": {"scheduling.volcano.sh/queue-name": "c"}}, {}, {}, "c", NOT_RECORDED, id="label"),
        pytest.param({}, TEMPLATE_D, {}, "d", NOT_RECORDED, id="pod-template"),
        pytest.param(
            {"annotations": {"volcano.sh/queue-name": "b"}, **IN_QUEUE_A},
            TEMPLATE_D,
            {},
            "b",
            NOT_RECORDED,
            id="annotation-before-label-before-pod-template",
        ),
        pytest.param(IN_QUEUE_A, {}, {"record": admission_record("rb-web", queue="a")}, "a", set(), id="recorded"),
        pytest.param({}, {}, {"record": admission_record("rb-web", queue="b")}, "b", set(), id="label-removed"),
        pytest.param({}, {}, {}, None, {Condition.SUSPENDED_BUT_NOT_MANAGED}, id="none"),
        pytest.param({}, {}, {"paused": None, "clusters": ["m1"]}, None, set(), id="running-without-queue"),
    ],
)
def test_queue_of_a_configured_kind(meta, spec, fields, queue, conditions):
    workload, remarks = workload_of_deployment(deployment(spec=spec, **meta), deployment_binding(**fields))
    assert (workload and workload.queue) == queue
    assert remarks == conditions


def test_divisible_kind_requests_more_of_replicas_and_template():
    workload, _ = workload_of_deployment(deployment(**IN_QUEUE_A), deployment_binding())
    assert workload.requirements.requests == workload.requirements.gang_requests == {"cpu": 2000, "pods": 4000}
    assert workload.requirements.replicas == 4
    assert workload.requirements.replica_requests == {"cpu": 500, "pods": 1000}
    pod = {"spec": {"containers": [{"name": "m", "resources": {"limits": {"cpu": "2"}}}]}}
    template = deployment(spec={"replicas": 2, "template": pod}, **IN_QUEUE_A)
    larger, _ = workload_of_deployment(template, deployment_binding())
    assert (larger.requirements.replicas, larger.requirements.requests["cpu"]) == (4, 8000)
    not_counted, _ = workload_of_deployment(template, binding("web", kind="Deployment", api_version="apps/v1"))
    assert not_counted.requirements.requests == {"cpu": 4000, "pods": 2000}


OF_FOUR = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",))
ON_THREE = admission_record("rb-web", queue="a", charge={"cpu": "6", "pods": "12"}, clusters=("m1", "m2", "m3"))
DIVIDED = {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}
THREE_AND_ONE = {"m1": {"cpu": 1500, "pods": 3000}, "m2": {"cpu": 500, "pods": 1000}}


@pytest.mark.parametrize(
    ("placed", "record", "spec", "charges", "conditions"),
    [
        pytest.param({"m1": 3, "m2": 1}, None, {}, THREE_AND_ONE, {Condition.ADOPTED}, id="adopted"),
        pytest.param({"m3": 4}, OF_FOUR, {}, {"m3": {"cpu": 2000, "pods": 4000}}, {Condition.MOVED}, id="moved"),
        pytest.param(
            {"m1": 3, "m2": 1},
            OF_FOUR,
            DIVIDED,
            THREE_AND_ONE,
            {Condition.REPLICAS_REDIVIDED},
            id="redivided-by-karmada",
        ),
        pytest.param(
            {"m1": None, "m2": None},
            OF_FOUR,
            {**DIVIDED, "replicas": None},
            {"m1": {"cpu": 1000, "pods": 2000}, "m2": {"cpu": 1000, "pods": 2000}},
            {Condition.REPLICAS_REDIVIDED},
            id="scaled-to-zero",
        ),
        pytest.param(
            {"m1": 4, "m2": 4},
            ON_THREE,
            {"placement": {}},
            {"m1": {"cpu": 2000, "pods": 4000}, "m2": {"cpu": 2000, "pods": 4000}},
            {Condition.MOVED},
            id="copied-to-fewer-clusters",
        ),
    ],
)
def test_divisible_kind_is_charged_where_its_replicas_are(placed, record, spec, charges, conditions):
    clusters = [{"name": name, "replicas": count} for name, count in placed.items()]
    raw_binding = deployment_binding(paused=False, clusters=clusters, record=record, spec=spec)
    workload, remarks = workload_of_deployment(deployment(**IN_QUEUE_A), raw_binding)
    assert charged(workload) == charges
    assert remarks == conditions
    assert workload.has_moved == (record is not None)


@pytest.mark.parametrize("recorded", [("m1",), ("m1", "m2")], ids=["as-recorded", "emptied-since"])
def test_cluster_without_its_number_of_replicas_runs_none(recorded):
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=recorded)
    clusters = [{"name": "m1", "replicas": 4}, {"name": "m2"}]
    statuses = {"m1": {"replicas": 4, "readyReplicas": 4}, "m2": {}}
    raw_binding = deployment_binding(paused=False, clusters=clusters, record=record, spec=DIVIDED, statuses=statuses)
    workload, remarks = workload_of_deployment(deployment(**IN_QUEUE_A), raw_binding)
    assert charged(workload) == {"m1": {"cpu": 2000, "pods": 4000}}
    assert workload.admission.reported
    assert remarks == (frozenset() if recorded == ("m1",) else {Condition.REPLICAS_REDIVIDED})


@pytest.mark.parametrize(
    ("uid", "spec", "reverses_ties"),
    [
        pytest.param("a", DIVIDED, False, id="even-hash"),
        pytest.param("b", DIVIDED, True, id="odd-hash"),
        pytest.param("", DIVIDED, False, id="no-uid"),
        pytest.param("b", {"placement": {}}, False, id="not-divided"),
    ],
)
def test_ties_of_static_weights_depend_on_the_template(uid, spec, reverses_ties):
    workload, _ = workload_of_deployment(
        deployment(**(IN_QUEUE_A | {"uid": uid})), deployment_binding(template_uid=uid, spec=spec)
    )
    assert workload.requirements.reverses_ties is reverses_ties


ADMITTED_ON_M1 = {"uid": "rb-web", "queue": "a", "clusters": ("m1",), "admitted_at": datetime(2026, 1, 2, tzinfo=UTC)}


@pytest.mark.parametrize(("replicas", "awaits_start"), [(0, False), (4, True)])
def test_deployment_without_replicas_awaits_no_start(replicas, awaits_start):
    record = admission_record(charge={"cpu": "2", "pods": "4"}, **ADMITTED_ON_M1)
    raw_binding = deployment_binding(
        paused=False, clusters=[{"name": "m1"}], record=record, statuses={"m1": {}}, spec={"replicas": replicas}
    )
    workload, _ = workload_of_deployment(deployment(**IN_QUEUE_A), raw_binding)
    assert workload.awaits_start is awaits_start


BATCH_JOB = ApiKind("batch/v1", "Job")
BATCH_JOBS = VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="batch/v1", kind="Job"),))


def workload_of_batch_job(template_spec: dict, *, bound: dict | None = None, **fields):
    template = raw({"metadata": {"name": "web", "namespace": "ml", **IN_QUEUE_A}, "spec": template_spec})
    spec = {"replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}, **(bound or {})}
    raw_binding = binding("web", api_version="batch/v1", spec=spec, **fields)
    return received(Store(BATCH_JOBS), ("bindings", raw_binding), (BATCH_JOB, template)).workloads["rb-web"]


@pytest.mark.parametrize(
    ("suspension", "hold"),
    [
        pytest.param({"suspend": True}, Refusal(Reason.SUSPENDED, subject="spec.suspend"), id="job"),
        pytest.param(
            {"runPolicy": {"suspend": True}}, Refusal(Reason.SUSPENDED, subject="spec.runPolicy.suspend"), id="kubeflow"
        ),
        pytest.param({"suspend": False}, None, id="resumed"),
        pytest.param({"suspend": "yes", "runPolicy": 7}, None, id="other-types"),
    ],
)
def test_workload_with_a_suspended_template_is_not_admitted(suspension, hold):
    assert workload_of_batch_job({"parallelism": 2, **suspension}).hold == hold


@pytest.mark.parametrize(
    ("template", "suspension", "hold"),
    [
        pytest.param({}, {}, None, id="none"),
        pytest.param({"suspend": True}, {}, Refusal(Reason.SUSPENDED, subject="spec.suspend"), id="template"),
        pytest.param({}, {"dispatching": True}, Refusal(Reason.SUSPENDED), id="dispatching"),
    ],
)
def test_suspended_admitted_workload_awaits_no_start(template, suspension, hold):
    """It has not run either: moved where it does not fit, it is evicted (R1)."""
    record = admission_record(charge={"cpu": "2", "pods": "2"}, **ADMITTED_ON_M1)
    workload = workload_of_batch_job(
        {"parallelism": 2, **template},
        bound={"suspension": {"scheduling": False, **suspension}},
        paused=None,
        clusters=[{"name": "m1", "replicas": 2}],
        record=record,
    )
    assert (workload.state, workload.hold, charged(workload)) == (
        WorkloadState.ADMITTED,
        hold,
        {"m1": {"cpu": 2000, "pods": 2000}},
    )
    assert (workload.awaits_start, workload.has_run) == (hold is None, False)


@pytest.mark.parametrize(
    ("written", "rooms"),
    [
        pytest.param({}, (), id="quota-alone"),
        pytest.param(
            {"reserved_clusters": {"m1": {"cpu": "2"}}}, (ClusterCharge("m1", {"cpu": 2000}),), id="one-cluster"
        ),
        pytest.param(
            {"reserved_clusters": {"m2": {"cpu": "500m"}, "m1": {"cpu": "1500m"}}},
            (ClusterCharge("m1", {"cpu": 1500}), ClusterCharge("m2", {"cpu": 500})),
            id="several",
        ),
    ],
)
def test_reservation_is_read_from_the_record(written, rooms):
    since = datetime(2025, 1, 1, tzinfo=UTC)
    record = admission_record("rb-web", queue="a", reserved_since=since, nominated_requests={"cpu": "2"}, **written)
    workload, _ = workload_of_deployment(deployment(), deployment_binding(record=record))
    assert workload.reservation == Reservation(int(since.timestamp() * 1000), rooms, {"cpu": 2000})


def test_reported_components_count_except_for_volcano_jobs():
    spec = {
        "components": [
            {"name": "head", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
            {"name": "worker", "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "2"}}},
        ]
    }
    workload, _ = workload_of_deployment(deployment(**IN_QUEUE_A), deployment_binding(spec=spec))
    assert workload.requirements.requests == {"cpu": 5000, "pods": 3000}
    assert workload.requirements.replicas == 0
    volcano_job, _ = workload_and_conditions(binding("j1", spec=spec))
    assert volcano_job.requirements.requests == ONE


PYTORCH_JOB = ApiKind("kubeflow.org/v1", "PyTorchJob")
PYTORCH_JOBS = VolcanoGlobalConfiguration(
    integrations=(
        IntegrationRule(
            api_version="kubeflow.org/v1",
            kind="PyTorchJob",
            pod_template="spec.pytorchReplicaSpecs.Worker.template",
        ),
    )
)


def replica_spec(cpu: str, **replicas: int) -> dict:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {**replicas, "template": {"spec": {"containers": [container]}}}


def workload_of_pytorch_job(specs: dict, **fields):
    template = raw(
        {"metadata": {"name": "web", "namespace": "ml", **IN_QUEUE_A}, "spec": {"pytorchReplicaSpecs": specs}}
    )
    raw_binding = binding("web", kind="PyTorchJob", api_version="kubeflow.org/v1", **fields)
    return received(Store(PYTORCH_JOBS), ("bindings", raw_binding), (PYTORCH_JOB, template)).workloads["rb-web"]


def test_object_of_a_kind_no_longer_configured_has_no_requests():
    store = Store(PYTORCH_JOBS)
    templates = store.templates(PYTORCH_JOB)
    store.configure(VolcanoGlobalConfiguration())
    specs = {"spec": {"pytorchReplicaSpecs": {"Worker": replica_spec("4")}}}
    template = templates.decode(raw({"metadata": {"name": "web", "namespace": "ml"}, **specs}))
    assert (template.requests, template.decode_error) == (None, "")


@pytest.mark.parametrize(
    ("specs", "requests"),
    [
        pytest.param({"Worker": replica_spec("4", replicas=16)}, {"cpu": 64000, "pods": 16000}, id="replicas"),
        pytest.param({"Worker": replica_spec("4")}, {"cpu": 4000, "pods": 1000}, id="one-by-default"),
        pytest.param(
            {"Master": replica_spec("1", replicas=1), "Worker": replica_spec("4", replicas=2)},
            {"cpu": 9000, "pods": 3000},
            id="all-types-of-replica",
        ),
        pytest.param({"Master": replica_spec("1")}, {"cpu": 1000, "pods": 1000}, id="no-worker"),
        pytest.param({"Master": None, "Worker": replica_spec("4")}, {"cpu": 4000, "pods": 1000}, id="null"),
    ],
)
def test_all_pods_that_karmada_does_not_count_are_counted(specs, requests):
    requirements = workload_of_pytorch_job(specs).requirements
    assert requirements.requests == requirements.gang_requests == requests


def test_larger_of_components_and_template_is_requested():
    pod = {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "4"}}}
    spec = {"components": [{"name": "worker", "replicas": 2, "replicaRequirements": {"resourceRequest": {}}}]}
    workload = workload_of_pytorch_job({"Worker": {"replicas": 2, "template": {"spec": pod}}}, spec=spec)
    assert workload.requirements.requests == {"cpu": 8000, "pods": 2000}


@pytest.mark.parametrize(
    ("seconds", "is_long"), [(None, False), (300, False), (301, True), (1 << 62, True), ("600", False)]
)
def test_long_grace_period_of_pods(seconds, is_long):
    pod = {"containers": [], "terminationGracePeriodSeconds": seconds}
    tasks = [{"name": "main", "replicas": 1, "template": {"spec": pod}}]
    assert (
        workload_and_conditions(binding("j1"), jobs=(job(spec={"tasks": tasks}),))[0].details.has_long_grace_period
        is is_long
    )
    assert workload_of_pytorch_job({"Worker": {"template": {"spec": pod}}}).details.has_long_grace_period is is_long
    web = deployment(**IN_QUEUE_A, spec={"template": {"spec": pod}})
    assert workload_of_deployment(web, deployment_binding())[0].details.has_long_grace_period is is_long


def test_pod_template_without_replicas_requests_nothing():
    spec = {"replicaRequirements": {"resourceRequest": {"cpu": "1"}}}
    workload = workload_of_pytorch_job({"Worker": {**replica_spec("1"), "size": 0}}, spec=spec)
    assert workload.requirements.requests == {}


def test_workload_that_karmada_does_not_count_is_not_divided():
    divided = {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}
    specs = {"Worker": replica_spec("1", replicas=4)}
    workload = workload_of_pytorch_job(specs, paused=False, clusters=["m1", "m2"], spec=divided)
    whole = {"cpu": 4000, "pods": 4000}
    assert workload.admission.cluster_charges == (ClusterCharge("m1", whole), ClusterCharge("m2", whole))
    assert not workload_of_pytorch_job(specs, spec=divided).requirements.replicas


@pytest.mark.parametrize(
    ("specs", "says"),
    [
        pytest.param(
            {"Worker": replica_spec("1", replicas=-1)},
            "spec.pytorchReplicaSpecs.Worker.template.spec: replicas is -1",
            id="negative",
        ),
        pytest.param(
            {"Worker": replica_spec("1"), "Master": replica_spec("x")},
            "spec.pytorchReplicaSpecs.Master.template.spec.containers[0]",
            id="no-quantity",
        ),
        pytest.param({}, "Karmada has not counted", id="no-template"),
    ],
)
def test_uncounted_pods_have_unknown_requests(specs, says):
    assert says in workload_of_pytorch_job(specs).hold.subject


HYPERJOB = {
    "apiVersion": "training.volcano.sh/v1alpha1",
    "kind": "HyperJob",
    "name": "h",
    "uid": "hyper",
    "controller": True,
}
OBSERVED_HYPERJOB = CachedHyperJob(
    "ml", created_at=1_767_225_600_000, split="s1", parts=frozenset({"j1", "j2", "j3"}), minimum=2
)
CLAIMED = {"uid": "hyper", "split": "s1"}
UNLISTED = "its HyperJob does not list it as a part"


def part(owner=HYPERJOB, claim=CLAIMED, **notes):
    annotations = {"volcano-global.io/group": json.dumps(claim)} | notes
    return job("j1", meta={"ownerReferences": [owner], "annotations": annotations})


def workload_of_part(template, hyperjob=OBSERVED_HYPERJOB):
    """Return the workload of a job while its HyperJob was observed as *hyperjob*."""
    store = Store()
    store.expect_hyperjobs()
    if hyperjob is not None:
        store.hyperjob_changed("hyper", hyperjob)
    return received(store, ("bindings", binding("j1")), ("jobs", template)).workloads["rb-j1"]


def test_listed_parts_of_a_hyperjob_are_one_gang():
    workload = workload_of_part(part(**{"volcano-global.io/preferred-clusters": '["m2"]'}))
    assert workload.gang == HyperJobGang("hyper/s1", parts=3, minimum=2)
    assert workload.created_at == 1_767_225_600_000
    assert workload.requirements.preferred_clusters == ("m2",)


@pytest.mark.parametrize(
    ("finished", "gang"),
    [
        pytest.param({"j2"}, HyperJobGang("hyper/s1", parts=2, minimum=1), id="one-of-two-has-started"),
        pytest.param({"j2", "j3"}, HyperJobGang("hyper/s1", parts=1, minimum=1), id="it-is-the-last"),
        pytest.param({"j1"}, None, id="finished-itself"),
    ],
)
def test_finished_parts_count_as_started_without_their_jobs(finished, gang):
    workload = workload_of_part(part(), replace(OBSERVED_HYPERJOB, finished=frozenset(finished)))
    assert (workload.gang, workload.hold, workload.created_at) == (gang, None, OBSERVED_HYPERJOB.created_at)


def test_part_of_a_hyperjob_that_is_being_deleted_is_pending():
    workload = workload_of_part(part(), replace(OBSERVED_HYPERJOB, deleting=True))
    assert workload.gang == HyperJobGang("hyper/s1", parts=3, minimum=2)
    assert (workload.hold.reason, workload.hold.subject) == (
        Reason.HYPERJOB_INCOMPLETE,
        "its HyperJob is being deleted",
    )


@pytest.mark.parametrize(
    ("template", "hyperjob"),
    [
        pytest.param(part(), None, id="no-such-hyperjob"),
        pytest.param(part(), replace(OBSERVED_HYPERJOB, parts=frozenset({"j2"})), id="not-listed"),
        pytest.param(part(), replace(OBSERVED_HYPERJOB, namespace="other"), id="of-another-namespace"),
        pytest.param(part(), replace(OBSERVED_HYPERJOB, split="s2"), id="made-for-an-earlier-split"),
    ],
)
def test_unlisted_part_is_pending_with_its_own_age(template, hyperjob):
    workload = workload_of_part(template, hyperjob)
    assert workload.gang is None
    assert (workload.hold.reason, workload.hold.subject) == (Reason.HYPERJOB_INCOMPLETE, UNLISTED)
    assert workload.created_at > OBSERVED_HYPERJOB.created_at


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param({**HYPERJOB, "apiVersion": "batch/v1", "kind": "CronJob"}, id="another-kind"),
        pytest.param({**HYPERJOB, "uid": "other"}, id="another-hyperjob"),
        pytest.param({**HYPERJOB, "controller": False}, id="an-owner-that-does-not-control-it"),
    ],
)
def test_group_annotation_without_controlling_owner_is_ignored(owner):
    workload = workload_of_part(part(owner))
    assert (workload.gang, workload.hold) == (None, None)
    assert workload.created_at > OBSERVED_HYPERJOB.created_at


@pytest.mark.parametrize("since", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_group_annotation_cannot_set_the_age(since):
    """A forged age once came before all others, and the year 1 failed every cycle."""
    forged = part(claim={**CLAIMED, "parts": 1, "minAvailable": 1, "since": since})
    assert workload_of_part(forged).created_at == OBSERVED_HYPERJOB.created_at
    plain, _ = workload_and_conditions(binding("j1"), jobs=(forged,))
    assert plain.created_at > OBSERVED_HYPERJOB.created_at


def test_part_is_updated_when_its_hyperjob_lists_it():
    store = Store()
    store.expect_hyperjobs()
    assert received(store, ("bindings", binding("j1")), ("jobs", part())).workloads["rb-j1"].hold is not None
    store.hyperjob_changed("hyper", OBSERVED_HYPERJOB)
    assert received(store).workloads["rb-j1"].gang is not None
    store.hyperjob_changed("hyper", None)
    assert received(store).workloads["rb-j1"].gang is None


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param("high", (100, False), id="known"),
        pytest.param("", (7, False), id="none-is-the-default"),
        pytest.param("gone", (7, True), id="unknown-is-the-default-and-reported"),
    ],
)
def test_priority_is_that_of_the_priority_class(named, expected):
    classes = (priority_class("high", 100), priority_class("usual", 7, default=True))
    objects = (("priority_classes", raw_class) for raw_class in classes)
    handler = received(Store(), *objects, ("bindings", binding("j1")), ("jobs", job("j1", priority=named)))
    workload = handler.workloads["rb-j1"]
    assert (workload.priority, workload.details.unknown_class) == expected


def test_classes_of_all_pods_of_a_configured_kind_are_known():
    pod = {"spec": {"priorityClassName": "high", "containers": []}}
    workload = workload_of_pytorch_job({"Master": {"template": pod}, "Worker": replica_spec("1")})
    assert workload.details.task_classes == ("high",)


def test_priority_of_a_pod_is_that_of_its_own_class():
    api = ApiKind("v1", "Pod")
    store = Store(VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="v1", kind="Pod"),)))
    pod = {"metadata": {"name": "web", "namespace": "ml", **IN_QUEUE_A}, "spec": {"priorityClassName": "high"}}
    objects = (
        ("bindings", binding("web", api_version="v1", kind="Pod")),
        (api, raw(pod)),
        ("priority_classes", priority_class("high", 7)),
    )
    workload = received(store, *objects).workloads["rb-web"]
    assert (workload.priority, workload.priority_class) == (7, "high")


def test_workload_moved_by_others_is_reported_as_not_run_there():
    workload, _ = workload_and_conditions(admitted("m2", phases={"m1": "Running", "m2": "Pending"}))
    assert (workload.has_moved, workload.has_run) == (True, False)


def test_adopted_workload_that_others_suspend_is_resumed():
    """D10: it is never evicted, so its clusters are not removed as those of a binding that was never admitted."""
    store = Store()
    upsert(store, ("jobs", job("j1")))
    states = []
    placed = ["m1"]
    steps = ((None, placed), (True, placed), (True, placed), (True, None), (True, placed))
    for version, (paused, clusters) in enumerate(steps, start=1):
        raw_binding = binding("j1", version=version, paused=paused, clusters=clusters)
        handler = received(store, ("bindings", raw_binding))
        states.append((handler.workloads["rb-j1"].state, store.conditions.get("rb-j1", set())))
    assert states == [
        (WorkloadState.ADMITTED, {Condition.ADOPTED}),
        (WorkloadState.ADMITTED, {Condition.ADOPTED, Condition.RESUSPENDED_AFTER_ADMISSION}),
        (WorkloadState.ADMITTED, {Condition.ADOPTED, Condition.RESUSPENDED_AFTER_ADMISSION}),
        (WorkloadState.PENDING, set()),
        (WorkloadState.PENDING, {Condition.PLACED_WITHOUT_ADMISSION}),
    ]


def test_binding_placed_after_external_eviction_is_not_admitted():
    store = Store()
    upsert(store, ("jobs", job("j1")))
    states = []
    for version, clusters, record in (
        (1, None, ADMITTED),
        (2, ["m1"], ADMITTED),
        (3, None, ADMITTED),
        (4, ["m1"], EVICTED),
        (5, ["m1"], ADMITTED),
    ):
        handler = received(store, ("bindings", binding("j1", version=version, clusters=clusters, record=record)))
        states.append((handler.workloads["rb-j1"].state, *store.conditions["rb-j1"]))
    assert states == [
        (WorkloadState.PENDING, Condition.EVICTED_BY_OTHERS),
        (WorkloadState.PENDING, Condition.PLACED_WITHOUT_ADMISSION),
        (WorkloadState.PENDING, Condition.EVICTED_BY_OTHERS),
        (WorkloadState.PENDING, Condition.PLACED_WITHOUT_ADMISSION),
        (WorkloadState.ADMITTED, Condition.RESUSPENDED_AFTER_ADMISSION),
    ]


@pytest.mark.parametrize(
    ("spec", "is_warned"),
    [
        pytest.param(
            {"propagateDeps": True, "failover": {"application": {"purgeMode": "Graciously"}}}, True, id="both"
        ),
        pytest.param({"failover": {"application": {}}}, False, id="without-dependencies"),
        pytest.param({"propagateDeps": True, "failover": {"cluster": {}}}, False, id="of-clusters"),
    ],
)
def test_application_failover_of_a_job_is_reported(spec, is_warned):
    _, remarks = workload_and_conditions(binding("j1", spec=spec))
    assert remarks == ({Condition.APPLICATION_FAILOVER} if is_warned else set())


@pytest.mark.parametrize(
    ("api", "finished", "is_warned"),
    [
        pytest.param(PYTORCH_JOB, Finished(conditions=("Succeeded", "Failed")), True, id="kind-that-ends"),
        pytest.param(PYTORCH_JOB, None, False, id="kind-without-an-end"),
        pytest.param(BATCH_JOB, None, False, id="kind-without-health"),
    ],
)
def test_application_failover_concerns_kinds_that_end(api, finished, is_warned):
    """Karmada interprets the health of no Kubernetes Job, so its failover controller ignores one."""
    rule = IntegrationRule(api_version=api.group_version, kind=api.kind, finished=finished)
    store = Store(VolcanoGlobalConfiguration(integrations=(rule,)))
    template = raw({"metadata": {"name": "web", "namespace": "ml", **IN_QUEUE_A}, "spec": {}})
    spec = {"propagateDeps": True, "failover": {"application": {}}}
    received(
        store,
        ("bindings", binding("web", api_version=api.group_version, kind=api.kind, spec=spec)),
        (api, template),
    )
    assert (Condition.APPLICATION_FAILOVER in store.conditions["rb-web"]) is is_warned


@pytest.mark.parametrize(
    ("has_run", "taken_back", "counts"),
    [
        pytest.param(True, False, (1, 0), id="preempted"),
        pytest.param(False, True, (0, 1), id="failed-start"),
        pytest.param(True, True, (1, 0), id="taken-back-after-a-run"),
    ],
)
def test_eviction_in_progress_counts_at_once(has_run, taken_back, counts):
    store = Store()
    upsert(store, ("bindings", admitted("m1")), ("jobs", job("j1")))
    back_off = Refusal(Reason.STARTUP_BACKOFF, until=5) if taken_back else None
    store.assume("rb-j1", AssumedEviction(back_off, has_run=has_run))
    workload = received(store).workloads["rb-j1"]
    assert workload.state is WorkloadState.PENDING
    assert (workload.evictions, workload.details.failed_starts) == counts
    assert workload.hold.reason is (Reason.STARTUP_BACKOFF if taken_back else Reason.PREEMPTION_IN_PROGRESS)
