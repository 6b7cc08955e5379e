"""Workloads that bindings are translated into: pending, admitted, finished or not managed."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controller.api.configuration import IntegrationRule, VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.assumed_writes import AssumedEviction
from controller.cache.objects import BindingCondition, CachedHyperJob
from controller.cache.store import Store
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ApiKind
from controller.engine.state.workloads import (
    Admission,
    ClusterCharge,
    HyperJobGang,
    Reservation,
    WorkloadDetails,
    WorkloadState,
)
from tests.cache.fake_event_handler import FakeEventHandler
from tests.cache.objects import CREATED_MS, admission_record, binding, job, priority_class, raw

DEPLOYMENTS = VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="apps/v1", kind="Deployment"),))
ADMITTED = admission_record(
    "rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",), admitted_at=datetime(2026, 1, 2, tzinfo=UTC)
)
EVICTED = admission_record("rb-j1", queue="a", evictions=1, waiting_since=datetime(2025, 1, 1, tzinfo=UTC))
ONE = {"cpu": 1000, "pods": 1000}


def heard(
    *bindings: bytes, jobs: tuple[bytes, ...] = (job("j1"),), configuration: VolcanoGlobalConfiguration | None = None
):
    """Return the only workload of these objects, or ``None``, and its binding's conditions."""
    store, ear = Store(configuration), FakeEventHandler()
    store.bindings.replace([store.bindings.decode(each) for each in bindings])
    store.jobs.replace([store.jobs.decode(each) for each in jobs])
    store.sync_to(ear, 0)
    remarks = frozenset().union(*store.conditions.values())
    return next(iter(ear.workloads.values()), None), remarks


def annotated(record: str) -> dict:
    return {"annotations": {ADMISSION_ANNOTATION: record}}


def deployment(name: str = "web", **template) -> bytes:
    return raw({"metadata": {"name": name, "namespace": "ml", "uid": f"job-{name}", **template}, "spec": {}})


def deployment_binding(**more) -> bytes:
    spec = {"replicas": 4, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}, **more.pop("spec", {})}
    return binding("web", kind="Deployment", api_version="apps/v1", spec=spec, **more)


def heard_deployment(template: bytes, *bindings: bytes):
    store, ear = Store(DEPLOYMENTS), FakeEventHandler()
    store.bindings.replace([store.bindings.decode(each) for each in bindings or (deployment_binding(),)])
    sink = store.templates(ApiKind("apps/v1", "Deployment"))
    sink.replace([sink.decode(template)])
    store.sync_to(ear, 0)
    return ear.workloads.get("rb-web"), store.conditions.get("rb-web", frozenset())


def test_suspended_binding_is_pending():
    workload, remarks = heard(binding("j1"))
    assert (workload.state, workload.hold, workload.admission) == (WorkloadState.PENDING, None, None)
    assert workload.path == "Job ml/j1"
    assert (workload.queue, workload.created_at, workload.requirements.requests) == ("a", CREATED_MS, ONE)
    assert not remarks


GONE = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
UNMATCHED = {"labels": {}, **annotated(ADMITTED)}
FIVE, TWO_PODS = {"cpu": 5000, "pods": 5000}, {"cpu": 3000, "pods": 2000}


def admitted(*clusters: str, **more) -> bytes:
    """Return a binding that was admitted and is not suspended."""
    return binding("j1", paused=False, clusters=[*clusters], **{"record": ADMITTED, **more})


@pytest.mark.parametrize(
    ("found", "charges", "conditions"),
    [
        pytest.param(admitted("m1"), {"m1": ONE}, set(), id="placed"),
        pytest.param(binding("j1", paused=False, record=ADMITTED), {"m1": ONE}, set(), id="not-yet-placed"),
        pytest.param(
            admitted(
                "m1", record=admission_record("rb-j1", queue="a", charge={"cpu": "3", "pods": "2"}, clusters=("m1",))
            ),
            {"m1": TWO_PODS},
            set(),
            id="its-record-says-more-than-its-template",
        ),
        pytest.param(admitted("m2"), {"m2": ONE}, {BindingCondition.MOVED}, id="moved-by-karmada"),
        pytest.param(
            admitted("m1", "m2"),
            {"m1": ONE, "m2": ONE},
            {BindingCondition.RESIZED, BindingCondition.MOVED},
            id="duplicated",
        ),
        pytest.param(
            admitted("m1", record=admission_record("another", queue="b", charge={"cpu": "100"}, clusters=("m1",))),
            {"m1": ONE},
            {BindingCondition.ADOPTED, BindingCondition.INVALID_RECORD},
            id="record-of-another-uid",
        ),
        *(
            pytest.param(
                admitted("m1", record=text),
                {"m1": ONE},
                {BindingCondition.ADOPTED, BindingCondition.INVALID_RECORD},
                id=f"tampered-record-{number}",
            )
            for number, text in enumerate(
                ('{"uid":"rb-j1","charge":{"cpu":"-8"}}', '{"uid":"rb-j1","charge":{"cpu":"x"}}', "?")
            )
        ),
        pytest.param(
            binding("j1", paused=None, clusters=["m1", "m2"]),
            {"m1": ONE, "m2": ONE},
            {BindingCondition.ADOPTED},
            id="running-without-a-record",
        ),
        pytest.param(
            admitted("m1", "m2", phases={"m1": "Completed", "m2": "Running"}, record=None),
            {"m1": ONE, "m2": ONE},
            {BindingCondition.ADOPTED},
            id="finished-in-one-of-its-clusters",
        ),
        pytest.param(
            admitted("m2", phases={"m1": "Completed"}),
            {"m2": ONE},
            {BindingCondition.MOVED},
            id="finished-in-a-cluster-that-it-left",
        ),
        pytest.param(
            admitted("m1", phases={"m1": "Aborted"}, record=None),
            {"m1": ONE},
            {BindingCondition.ADOPTED},
            id="adopted-and-aborted",
        ),
        pytest.param(
            binding("j1", clusters=["m1"], record=ADMITTED),
            {"m1": ONE},
            {BindingCondition.RESUSPENDED_AFTER_ADMISSION},
            id="suspended-by-others",
        ),
        pytest.param(
            admitted("m1", record=EVICTED),
            {"m1": ONE},
            {BindingCondition.PLACED_WITHOUT_ADMISSION},
            id="evicted-and-resumed-by-others",
        ),
        pytest.param(admitted("m1", meta={**GONE, **annotated(ADMITTED)}), {"m1": ONE}, set(), id="being-deleted"),
        pytest.param(admitted("m1", meta=UNMATCHED), {"m1": ONE}, set(), id="without-policy"),
    ],
)
def test_admitted_workload_is_charged_where_it_may_run(found, charges, conditions):
    workload, remarks = heard(found)
    assert (workload.state, workload.hold) == (WorkloadState.ADMITTED, None)
    assert charged(workload) == charges
    without_record = {BindingCondition.ADOPTED, BindingCondition.PLACED_WITHOUT_ADMISSION}
    assert workload.admission.adopted == bool(conditions & without_record)
    assert remarks == conditions


@pytest.mark.parametrize(
    ("jobs", "charge", "conditions"),
    [
        pytest.param((job("j1", replicas=5),), FIVE, {BindingCondition.RESIZED}, id="more-pods"),
        pytest.param((), ONE, set(), id="deleted"),
    ],
)
def test_charge_of_admitted_workload_follows_its_template(jobs, charge, conditions):
    workload, remarks = heard(admitted("m1"), jobs=jobs)
    assert (workload.queue, charged(workload), remarks) == ("a", {"m1": charge}, conditions)


def test_aborted_workload_is_charged_until_it_is_evicted():
    workload, _ = heard(admitted("m1", phases={"m1": "Aborted"}))
    assert (workload.state, workload.hold.reason) == (WorkloadState.ADMITTED, Reason.ABORTED)


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_finished_workload_is_not_charged(phase):
    workload, _ = heard(admitted("m1", phases={"m1": phase}))
    assert (workload.state, workload.admission) == (WorkloadState.FINISHED, None)


@pytest.mark.parametrize(
    ("found", "reason", "charges", "conditions"),
    [
        pytest.param(
            binding("j1", record=admission_record("rb-j1", queue="a", aborted=True)),
            Reason.ABORTED,
            {},
            set(),
            id="aborted",
        ),
        pytest.param(
            binding("j1", record=EVICTED, phases={"m1": "Running"}),
            Reason.PREEMPTION_IN_PROGRESS,
            {"m1": ONE},
            set(),
            id="evicted-and-still-in-its-status",
        ),
        pytest.param(
            binding("j1", record=EVICTED, spec={"gracefulEvictionTasks": [{"fromCluster": "m1"}]}),
            Reason.PREEMPTION_IN_PROGRESS,
            {"m1": ONE},
            set(),
            id="evicted-with-an-eviction-task",
        ),
        pytest.param(
            binding("j1", clusters=[], record=ADMITTED),
            Reason.PREEMPTION_IN_PROGRESS,
            {"m1": ONE},
            {BindingCondition.EVICTED_BY_OTHERS},
            id="evicted-by-others-and-perhaps-placed-again",
        ),
        *(
            pytest.param(
                binding("j1", clusters=["m1"], record=record),
                Reason.PREEMPTION_IN_PROGRESS,
                {"m1": ONE},
                {BindingCondition.PLACED_WITHOUT_ADMISSION},
                id=f"placed-without-admission-{name}",
            )
            for name, record in (("no-record", None), ("evicted", EVICTED))
        ),
        pytest.param(
            binding("j1", meta={"labels": {"propagationpolicy.karmada.io/permanent-id": ""}}),
            Reason.NO_MATCHING_POLICY,
            {},
            set(),
            id="without-policy",
        ),
        pytest.param(
            binding("j1", paused=False, record=ADMITTED, meta=UNMATCHED),
            Reason.NO_MATCHING_POLICY,
            {},
            set(),
            id="admitted-without-policy-and-clusters",
        ),
    ],
)
def test_pending_workload_is_charged_until_it_has_stopped(found, reason, charges, conditions):
    workload, remarks = heard(found)
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, reason)
    assert charged(workload) == charges
    assert remarks == conditions


@pytest.mark.parametrize(
    ("found", "jobs", "says", "conditions"),
    [
        pytest.param(binding("j1"), (), "Job ml/j1 does not exist", set(), id="no-template"),
        pytest.param(
            binding("j1"), (job("j1", uid="another"),), "Job ml/j1 does not exist", set(), id="template-of-another-uid"
        ),
        pytest.param(
            binding("j1"),
            (job("j1", requests={"cpu": "many"}),),
            "'many' is not a quantity",
            {BindingCondition.UNREADABLE},
            id="unreadable-template",
        ),
        pytest.param(
            binding("j1", spec={"placement": {"clusterAffinity": {"clusterNames": 7}}}),
            (job("j1"),),
            "",
            {BindingCondition.UNREADABLE, BindingCondition.PLACED_ON_ALL_CLUSTERS},
            id="unreadable-placement",
        ),
        *(
            pytest.param(
                binding("j1", spec=spec), (job("j1"),), "", {BindingCondition.UNREADABLE}, id=f"unreadable-{name}"
            )
            for name, spec in (
                ("suspension", {"suspension": {"scheduling": "yes"}}),
                ("clusters", {"clusters": "m1"}),
                ("two", {"suspension": 7, "resource": {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1"}}),
            )
        ),
    ],
)
def test_requests_are_unknown_without_readable_objects(found, jobs, says, conditions):
    workload, remarks = heard(found, jobs=jobs)
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, Reason.REQUESTS_UNKNOWN)
    assert says in (workload.hold.subject or "")
    assert remarks == conditions


EXEMPT = VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"}))


@pytest.mark.parametrize(
    ("found", "template", "configuration", "conditions"),
    [
        pytest.param(binding("j1", meta=GONE), job("j1"), None, set(), id="being-deleted"),
        pytest.param(binding("j1"), job("j1", meta=GONE), None, set(), id="its-template-is-being-deleted"),
        pytest.param(binding("j1", paused=None), job("j1"), None, {BindingCondition.NOT_SUSPENDED}, id="not-suspended"),
        pytest.param(binding("j1", api_version="batch/v1"), job("j1"), None, set(), id="a-batch-job-of-its-name"),
        pytest.param(deployment_binding(), job("j1"), None, set(), id="a-kind-that-is-not-managed"),
        pytest.param(binding("j1"), job("j1"), EXEMPT, set(), id="in-an-exempt-namespace"),
    ],
)
def test_binding_is_no_workload(found, template, configuration, conditions):
    assert heard(found, jobs=(template,), configuration=configuration) == (None, conditions)


def charged(workload) -> dict[str, dict[str, int]]:
    """Return the charge of a workload by cluster."""
    return {item.cluster: item.charge for item in workload.admission.cluster_charges} if workload.admission else {}


@pytest.mark.parametrize("phase", ["Running", "Pending", "Restarting", "Completing", "Aborting", "Terminating", ""])
def test_every_unfinished_phase_is_charged(phase):
    workload, _ = heard(binding("j1", paused=False, clusters=["m1"], phases={"m1": phase}, record=ADMITTED))
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission.charge == ONE
    assert workload.admission.reported == (phase == "Running")


def test_the_finished_phases_are_configurable():
    rule = IntegrationRule.model_validate(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "finished": {"path": "state.phase", "values": ["Running"]},
        }
    )
    only = VolcanoGlobalConfiguration(integrations=(rule,))
    running = binding("j1", paused=False, clusters=["m1"], phases={"m1": "Running"}, record=ADMITTED)
    workload, _ = heard(running, configuration=only)
    assert workload.state is WorkloadState.FINISHED


def test_evicted_workload_keeps_its_queueing_time():
    workload, remarks = heard(binding("j1", record=EVICTED))
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
    workload, _ = heard(binding("j1", record=record), jobs=(job("j1", queue=queue),))
    assert workload.queue == expected


def test_dependency_is_no_workload():
    dependency = binding("j1", meta={"labels": {}}, spec={"requiredBy": [{"name": "other"}]})
    assert heard(dependency) == (None, {BindingCondition.SUSPENDED_BUT_NOT_MANAGED})
    running = binding("j1", paused=False, meta={"labels": {}}, spec={"requiredBy": [{"name": "other"}]})
    assert heard(running) == (None, frozenset())


def test_binding_with_record_is_resumed_once_unmanaged():
    exempt = VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"}))
    waiting = admission_record("rb-j1", queue="a")
    assert heard(binding("j1", record=waiting), configuration=exempt) == (
        None,
        {BindingCondition.SUSPENDED_BUT_NOT_MANAGED},
    )
    assert heard(binding("j1", paused=False, record=ADMITTED), configuration=exempt) == (None, frozenset())


def test_queue_from_label_is_recorded_while_pending():
    template = deployment(labels={"volcano.sh/queue-name": "a"})
    assert heard_deployment(template)[1] == {BindingCondition.QUEUE_NOT_RECORDED}
    assert (
        heard_deployment(template, deployment_binding(record=admission_record("rb-web", queue="a")))[1] == frozenset()
    )
    assert BindingCondition.QUEUE_NOT_RECORDED not in heard_deployment(template, deployment_binding(paused=False))[1]


def test_larger_of_karmada_and_template_requests_is_charged():
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "m", "resources": {"limits": {"cpu": "2"}}}]}}}
    template = raw(json.loads(deployment(labels={"volcano.sh/queue-name": "a"})) | {"spec": spec})
    workload, _ = heard_deployment(template)
    assert (workload.requirements.replicas, workload.requirements.requests["cpu"]) == (4, 8000)


@pytest.mark.parametrize(
    ("meta", "spec", "expected"),
    [
        pytest.param({"annotations": {"volcano.sh/queue-name": "b"}}, {}, "b", id="annotation"),
        pytest.param({"labels": {"scheduling.volcano.sh/queue-name": "c"}}, {}, "c", id="label"),
        pytest.param(
            {},
            {"template": {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "d"}}}},
            "d",
            id="pod-template",
        ),
        pytest.param(
            {"annotations": {"volcano.sh/queue-name": "b"}, "labels": {"scheduling.volcano.sh/queue-name": "c"}},
            {"template": {"metadata": {"labels": {"volcano.sh/queue-name": "d"}}}},
            "b",
            id="annotation-before-label-before-pod-template",
        ),
    ],
)
def test_queue_of_a_configured_kind(meta, spec, expected):
    document = {"metadata": {"name": "web", "namespace": "ml", "uid": "job-web", **meta}, "spec": spec}
    workload, _ = heard_deployment(raw(document))
    assert workload.queue == expected


def test_configured_kind_without_queue_is_resumed():
    assert heard_deployment(deployment()) == (None, {BindingCondition.SUSPENDED_BUT_NOT_MANAGED})


def test_running_configured_kind_without_queue_is_not_managed():
    running = deployment_binding(paused=None, clusters=["m1"])
    assert heard_deployment(deployment(), running) == (None, frozenset())


def test_recorded_queue_counts_after_label_is_removed():
    workload, _ = heard_deployment(deployment(), deployment_binding(record=admission_record("rb-web", queue="b")))
    assert workload.queue == "b"


def test_divisible_kind_requests_its_replicas():
    workload, _ = heard_deployment(deployment(annotations={"volcano.sh/queue-name": "a"}))
    assert workload.requirements.requests == workload.requirements.gang_requests == {"cpu": 2000, "pods": 4000}
    assert workload.requirements.replicas == 4
    assert workload.requirements.replica_requests == {"cpu": 500, "pods": 1000}


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
    workload, _ = heard_deployment(deployment(), deployment_binding(record=record))
    assert workload.reservation == Reservation(int(since.timestamp() * 1000), rooms, {"cpu": 2000})


def test_divided_workload_is_charged_where_its_replicas_are():
    clusters = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
    placed = deployment_binding(paused=None, clusters=clusters)
    workload, _ = heard_deployment(deployment(annotations={"volcano.sh/queue-name": "a"}), placed)
    assert {booking.cluster: booking.charge for booking in workload.admission.cluster_charges} == {
        "m1": {"cpu": 1500, "pods": 3000},
        "m2": {"cpu": 500, "pods": 1000},
    }


def test_moved_divided_workload_keeps_its_recorded_total():
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1", "m2"))
    moved = deployment_binding(paused=False, clusters=[{"name": "m3", "replicas": 4}], record=record)
    workload, remarks = heard_deployment(deployment(), moved)
    assert workload.admission.charge == {"cpu": 2000, "pods": 4000}
    assert remarks == {BindingCondition.MOVED}


def test_components_are_counted_where_karmada_reports_them():
    spec = {
        "components": [
            {"name": "head", "replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}},
            {"name": "worker", "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "2"}}},
        ]
    }
    annotated_template = deployment(annotations={"volcano.sh/queue-name": "a"})
    workload, _ = heard_deployment(annotated_template, deployment_binding(spec=spec))
    assert workload.requirements.requests == {"cpu": 5000, "pods": 3000}
    assert workload.requirements.replicas == 0


def test_components_of_a_volcano_job_are_ignored():
    spec = {"components": [{"name": "worker", "replicas": 100}]}
    workload, _ = heard(binding("j1", spec=spec))
    assert workload.requirements.requests == ONE


def test_batch_job_is_finished_by_its_condition():
    rule = VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="batch/v1", kind="Job"),))
    store, ear = Store(rule), FakeEventHandler()
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    done = binding("j1", api_version="batch/v1", paused=False, clusters=["m1"], record=ADMITTED)
    document = json.loads(done)
    document["status"] = {"aggregatedStatus": [{"clusterName": "m1", "status": status}]}
    store.bindings.upsert(store.bindings.decode(raw(document)))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].state is WorkloadState.FINISHED


HYPERJOB = {
    "apiVersion": "training.volcano.sh/v1alpha1",
    "kind": "HyperJob",
    "name": "h",
    "uid": "hyper",
    "controller": True,
}
SAID = CachedHyperJob("ml", created_at=1_767_225_600_000, split="s1", parts=frozenset({"j1", "j2", "j3"}), minimum=2)
CLAIMED = {"uid": "hyper", "split": "s1"}
UNLISTED = "its HyperJob does not list it as a part"


def part(owner=HYPERJOB, claim=CLAIMED, **notes):
    annotations = {"volcano-global.io/group": json.dumps(claim)} | notes
    return job("j1", meta={"ownerReferences": [owner], "annotations": annotations})


def heard_part(template, said=SAID):
    """Return what a job amounts to while a HyperJob says *said*."""
    store, ear = Store(), FakeEventHandler()
    store.expect_hyperjobs()
    if said is not None:
        store.hyperjob_changed("hyper", said)
    store.bindings.upsert(store.bindings.decode(binding("j1")))
    store.jobs.upsert(store.jobs.decode(template))
    store.sync_to(ear, 0)
    return ear.workloads["rb-j1"]


def test_listed_parts_of_a_hyperjob_are_one_gang():
    workload = heard_part(part(**{"volcano-global.io/preferred-clusters": '["m2"]'}))
    assert workload.gang == HyperJobGang("hyper/s1", parts=3, minimum=2)
    assert workload.created_at == 1_767_225_600_000
    assert workload.requirements.preferred_clusters == ("m2",)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        pytest.param(part(), None, id="no-such-hyperjob"),
        pytest.param(part(), replace(SAID, parts=frozenset({"j2"})), id="not-listed"),
        pytest.param(part(), replace(SAID, namespace="other"), id="of-another-namespace"),
        pytest.param(part(), replace(SAID, split="s2"), id="made-for-an-earlier-split"),
    ],
)
def test_unlisted_part_is_pending_with_its_own_age(template, said):
    workload = heard_part(template, said)
    assert workload.gang is None
    assert (workload.hold.reason, workload.hold.subject) == (Reason.HYPERJOB_INCOMPLETE, UNLISTED)
    assert workload.created_at > SAID.created_at


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param({**HYPERJOB, "apiVersion": "batch/v1", "kind": "CronJob"}, id="another-kind"),
        pytest.param({**HYPERJOB, "uid": "other"}, id="another-hyperjob"),
        pytest.param({**HYPERJOB, "controller": False}, id="an-owner-that-does-not-control-it"),
    ],
)
def test_group_annotation_without_controlling_owner_is_ignored(owner):
    workload = heard_part(part(owner))
    assert (workload.gang, workload.hold) == (None, None)
    assert workload.created_at > SAID.created_at


@pytest.mark.parametrize("since", ["1970-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_group_annotation_cannot_set_the_age(since):
    """A forged age once came before all others, and the year 1 failed every cycle."""
    forged = {**CLAIMED, "parts": 1, "minAvailable": 1, "since": since}
    assert heard_part(part(hyperjob=forged)).created_at == SAID.created_at
    plain, _ = heard(binding("j1"), jobs=(part(hyperjob=forged),))
    assert plain.created_at > SAID.created_at


def test_part_is_updated_when_its_hyperjob_lists_it():
    store, ear = Store(), FakeEventHandler()
    store.expect_hyperjobs()
    store.bindings.upsert(store.bindings.decode(binding("j1")))
    store.jobs.upsert(store.jobs.decode(part()))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].hold is not None
    store.hyperjob_changed("hyper", SAID)
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].gang is not None
    store.hyperjob_changed("hyper", None)
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].gang is None


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param("high", (100, False), id="known"),
        pytest.param("", (7, False), id="none-is-the-default"),
        pytest.param("gone", (7, True), id="unknown-is-the-default-and-said"),
    ],
)
def test_priority_is_that_of_the_priority_class(named, expected):
    store, ear = Store(), FakeEventHandler()
    classes = (priority_class("high", 100), priority_class("usual", 7, default=True))
    store.priority_classes.replace([store.priority_classes.decode(each) for each in classes])
    store.bindings.upsert(store.bindings.decode(binding("j1")))
    store.jobs.upsert(store.jobs.decode(job("j1", priority=named)))
    store.sync_to(ear, 0)
    workload = ear.workloads["rb-j1"]
    assert (workload.priority, workload.details.unknown_class) == expected


def test_workload_moved_by_others_is_reported_as_not_run_there():
    moved = binding("j1", paused=False, clusters=["m2"], phases={"m1": "Running", "m2": "Pending"}, record=ADMITTED)
    workload, remarks = heard(moved)
    assert workload.has_moved
    assert not workload.has_run
    assert remarks == {BindingCondition.MOVED}


def test_replicas_redivided_by_karmada_are_recorded():
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",))
    spec = {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}
    divided = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
    found = deployment_binding(paused=False, clusters=divided, record=record, spec=spec)
    workload, remarks = heard_deployment(deployment(labels={"volcano.sh/queue-name": "a"}), found)
    assert workload.has_moved
    assert remarks == {BindingCondition.REPLICAS_REDIVIDED}


def test_binding_placed_after_external_eviction_is_not_admitted():
    store, ear = Store(), FakeEventHandler()
    store.jobs.replace([store.jobs.decode(job("j1"))])
    remarks = []
    for version, clusters in ((1, None), (2, ["m1"]), (3, None)):
        store.bindings.upsert(store.bindings.decode(binding("j1", version=version, clusters=clusters, record=ADMITTED)))
        store.sync_to(ear, 0)
        assert ear.workloads["rb-j1"].state is WorkloadState.PENDING
        remarks.append(set(store.conditions["rb-j1"]))
    assert remarks == [
        {BindingCondition.EVICTED_BY_OTHERS},
        {BindingCondition.PLACED_WITHOUT_ADMISSION},
        {BindingCondition.EVICTED_BY_OTHERS},
    ]
    store.bindings.upsert(store.bindings.decode(binding("j1", version=4, clusters=["m1"], record=EVICTED)))
    store.sync_to(ear, 0)
    store.bindings.upsert(store.bindings.decode(binding("j1", version=5, clusters=["m1"], record=ADMITTED)))
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].state is WorkloadState.ADMITTED


@pytest.mark.parametrize(
    ("spec", "is_warned"),
    [
        pytest.param(
            {"propagateDeps": True, "failover": {"application": {"purgeMode": "Graciously"}}}, True, id="both"
        ),
        pytest.param({"failover": {"application": {}}}, False, id="without-dependencies"),
        pytest.param({"propagateDeps": True, "failover": {"cluster": {}}}, False, id="of-clusters"),
        pytest.param({"propagateDeps": True, "failover": None}, False, id="none"),
    ],
)
def test_application_failover_of_a_job_is_reported(spec, is_warned):
    _, remarks = heard(binding("j1", spec=spec))
    assert remarks == ({BindingCondition.APPLICATION_FAILOVER} if is_warned else set())


def test_failed_job_recreated_by_karmada_is_charged_again():
    store, ear = Store(), FakeEventHandler()
    store.jobs.replace([store.jobs.decode(job("j1"))])
    states = []
    for version, clusters, phases in ((1, ["m1"], {"m1": "Failed"}), (2, ["m2"], {"m1": "Failed"})):
        found = binding("j1", version=version, paused=False, clusters=clusters, phases=phases, record=ADMITTED)
        store.bindings.upsert(store.bindings.decode(found))
        store.sync_to(ear, 0)
        states.append(ear.workloads["rb-j1"])
    assert [each.state for each in states] == [WorkloadState.FINISHED, WorkloadState.ADMITTED]
    assert states[1].admission is not None
    assert [each.cluster for each in states[1].admission.cluster_charges] == ["m2"]
    assert states[1].has_moved


@pytest.mark.parametrize(
    ("has_run", "taken_back", "counts"),
    [
        pytest.param(True, False, (1, 0), id="preempted"),
        pytest.param(False, True, (0, 1), id="failed-start"),
        pytest.param(True, True, (1, 0), id="taken-back-after-a-run"),
    ],
)
def test_eviction_in_progress_counts_at_once(has_run, taken_back, counts):
    store, ear = Store(), FakeEventHandler()
    store.bindings.replace([store.bindings.decode(binding("j1", paused=False, clusters=["m1"], record=ADMITTED))])
    store.jobs.replace([store.jobs.decode(job("j1"))])
    back_off = Refusal(Reason.STARTUP_BACKOFF, until=5) if taken_back else None
    store.assume("rb-j1", AssumedEviction(back_off, has_run=has_run))
    store.mark_changed(["rb-j1"])
    store.sync_to(ear, 0)
    workload = ear.workloads["rb-j1"]
    assert workload.state is WorkloadState.PENDING
    assert (workload.evictions, workload.details.failed_starts) == counts
    assert workload.hold.reason is (Reason.STARTUP_BACKOFF if taken_back else Reason.PREEMPTION_IN_PROGRESS)


def test_workloads_share_equal_details_without_amounts():
    finished = Admission(ONE, (ClusterCharge("m1", ONE),))
    assert WorkloadDetails(evictions=7).shared() is WorkloadDetails(evictions=7).shared()
    assert WorkloadDetails(last_admission=finished).shared().last_admission is finished
    assert WorkloadDetails(reservation=Reservation(1, finished.cluster_charges)).shared().reservation is not None


def test_jobs_of_one_class_share_their_details():
    store, ear = Store(), FakeEventHandler()
    store.bindings.replace([store.bindings.decode(binding(name)) for name in ("j1", "j2")])
    store.jobs.replace([store.jobs.decode(job(name, priority="high")) for name in ("j1", "j2")])
    store.sync_to(ear, 0)
    assert ear.workloads["rb-j1"].details is ear.workloads["rb-j2"].details
