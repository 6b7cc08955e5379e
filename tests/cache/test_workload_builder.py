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
from controller.engine.state.workloads import ClusterCharge, HyperJobGang, Reservation, WorkloadState
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
    assert workload is not None
    assert (workload.state, workload.hold, workload.admission) == (WorkloadState.PENDING, None, None)
    assert workload.path == "Job ml/j1"
    assert (workload.queue, workload.created_at, workload.requirements.requests) == ("a", CREATED_MS, ONE)
    assert not remarks


def test_admitted_workload_is_charged_from_its_record():
    record = admission_record("rb-j1", queue="a", charge={"cpu": "3", "pods": "2"}, clusters=("m1",))
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1"], record=record))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission is not None
    assert workload.admission.charge == {"cpu": 3000, "pods": 2000}
    assert not workload.admission.adopted
    assert not remarks


def test_admitted_workload_is_charged_before_it_is_placed():
    workload, _ = heard(binding("j1", paused=False, record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission is not None
    assert [booking.cluster for booking in workload.admission.cluster_charges] == ["m1"]


def test_charge_follows_a_move_by_karmada():
    workload, _ = heard(binding("j1", paused=False, clusters=["m2"], record=ADMITTED))
    assert workload is not None
    assert workload.admission is not None
    assert [(booking.cluster, booking.charge) for booking in workload.admission.cluster_charges] == [("m2", ONE)]


def test_duplicated_workload_is_charged_on_each_cluster():
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1", "m2"], record=ADMITTED))
    assert workload is not None
    assert workload.admission is not None
    assert workload.admission.charge == {"cpu": 2000, "pods": 2000}
    assert remarks == {BindingCondition.RESIZED, BindingCondition.MOVED}


def test_charge_is_at_least_the_template_requests():
    workload, remarks = heard(
        binding("j1", paused=False, clusters=["m1"], record=ADMITTED), jobs=(job("j1", replicas=5),)
    )
    assert workload is not None
    assert workload.admission is not None
    assert workload.admission.charge == {"cpu": 5000, "pods": 5000}
    assert remarks == {BindingCondition.RESIZED}


def test_recorded_charge_stays_after_template_deletion():
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1"], record=ADMITTED), jobs=())
    assert workload is not None
    assert workload.queue == "a"
    assert workload.admission is not None
    assert workload.admission.charge == ONE
    assert not remarks


def test_record_of_another_uid_is_invalid():
    record = admission_record("another", queue="b", charge={"cpu": "100"}, clusters=("m1",))
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1"], record=record))
    assert workload is not None
    assert workload.admission is not None
    assert workload.admission.charge == ONE
    assert workload.admission.adopted
    assert remarks == {BindingCondition.ADOPTED, BindingCondition.INVALID_RECORD}


@pytest.mark.parametrize("text", ['{"uid":"rb-j1","charge":{"cpu":"-8"}}', '{"uid":"rb-j1","charge":{"cpu":"x"}}', "?"])
def test_tampered_record_is_charged_from_the_template(text):
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1"], record=text))
    assert workload is not None
    assert workload.admission is not None
    assert workload.admission.charge == ONE
    assert BindingCondition.INVALID_RECORD in remarks


def test_running_workload_without_record_is_adopted():
    workload, remarks = heard(binding("j1", paused=None, clusters=["m1", "m2"]))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission is not None
    assert workload.admission.adopted
    assert workload.admission.charge == {"cpu": 2000, "pods": 2000}
    assert remarks == {BindingCondition.ADOPTED}


def test_unsuspended_binding_is_reported_and_is_no_workload():
    assert heard(binding("j1", paused=None)) == (None, {BindingCondition.NOT_SUSPENDED})


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_finished_workload_is_not_charged(phase):
    workload, _ = heard(binding("j1", paused=False, clusters=["m1"], phases={"m1": phase}, record=ADMITTED))
    assert workload is not None
    assert (workload.state, workload.admission) == (WorkloadState.FINISHED, None)


@pytest.mark.parametrize("phase", ["Running", "Pending", "Restarting", "Completing", "Aborting", "Terminating", ""])
def test_every_unfinished_phase_is_charged(phase):
    workload, _ = heard(binding("j1", paused=False, clusters=["m1"], phases={"m1": phase}, record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission is not None
    assert workload.admission.charge == ONE
    assert workload.admission.reported == (phase == "Running")


def test_workload_is_finished_when_all_its_clusters_are():
    phases = {"m1": "Completed", "m2": "Running"}
    workload, _ = heard(binding("j1", paused=False, clusters=["m1", "m2"], phases=phases))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED


def test_status_of_a_left_cluster_does_not_finish_workload():
    workload, _ = heard(binding("j1", paused=False, clusters=["m2"], phases={"m1": "Completed"}, record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED


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
    assert workload is not None
    assert workload.state is WorkloadState.FINISHED


def test_aborted_workload_has_abort_reason():
    workload, _ = heard(binding("j1", paused=False, clusters=["m1"], phases={"m1": "Aborted"}, record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.hold is not None
    assert workload.hold.reason is Reason.ABORTED


def test_aborted_adopted_workload_has_no_abort_reason():
    workload, _ = heard(binding("j1", paused=False, clusters=["m1"], phases={"m1": "Aborted"}))
    assert workload is not None
    assert (workload.state, workload.hold) == (WorkloadState.ADMITTED, None)


def test_evicted_workload_keeps_its_queueing_time():
    workload, remarks = heard(binding("j1", record=EVICTED))
    assert workload is not None
    assert (workload.state, workload.hold, workload.admission) == (WorkloadState.PENDING, None, None)
    assert workload.created_at == int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert not remarks


def test_workload_with_aborted_record_is_not_admitted():
    workload, _ = heard(binding("j1", record=admission_record("rb-j1", queue="a", aborted=True)))
    assert workload is not None
    assert workload.hold is not None
    assert workload.hold.reason is Reason.ABORTED


@pytest.mark.parametrize(
    "left",
    [
        pytest.param({"phases": {"m1": "Running"}}, id="its-status-lists-a-cluster"),
        pytest.param({"spec": {"gracefulEvictionTasks": [{"fromCluster": "m1"}]}}, id="an-eviction-task"),
    ],
)
def test_evicted_workload_is_charged_until_it_has_stopped(left):
    workload, remarks = heard(binding("j1", record=EVICTED, **left))
    assert workload is not None
    assert workload.state is WorkloadState.PENDING
    assert workload.admission is not None
    assert [(booking.cluster, booking.charge) for booking in workload.admission.cluster_charges] == [("m1", ONE)]
    assert workload.hold is not None
    assert workload.hold.reason is Reason.PREEMPTION_IN_PROGRESS
    assert not remarks


@pytest.mark.parametrize("record", [pytest.param(None, id="no-record"), pytest.param(EVICTED, id="evicted")])
def test_clusters_without_admission_are_charged_and_reported(record):
    workload, remarks = heard(binding("j1", clusters=["m1"], record=record))
    assert workload is not None
    assert workload.state is WorkloadState.PENDING
    assert workload.admission is not None
    assert workload.admission.charge == ONE
    assert workload.hold is not None
    assert remarks == {BindingCondition.PLACED_WITHOUT_ADMISSION}


def test_admitted_workload_suspended_by_others_stays_admitted():
    workload, remarks = heard(binding("j1", clusters=["m1"], record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert remarks == {BindingCondition.RESUSPENDED_AFTER_ADMISSION}


def test_evicted_binding_resumed_by_others_is_charged():
    workload, remarks = heard(binding("j1", paused=False, clusters=["m1"], record=EVICTED))
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert remarks == {BindingCondition.PLACED_WITHOUT_ADMISSION}


def test_deleted_pending_binding_is_no_workload():
    workload, _ = heard(binding("j1", meta={"deletionTimestamp": "2026-01-02T03:04:05Z"}))
    assert workload is None


def test_deleted_admitted_binding_is_charged_until_removed():
    gone = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    workload, _ = heard(
        binding("j1", paused=False, clusters=["m1"], record=ADMITTED, meta={**gone, **annotated(ADMITTED)})
    )
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED
    assert workload.admission is not None
    assert workload.admission.charge == ONE


def test_pending_binding_with_deleted_template_is_no_workload():
    workload, _ = heard(binding("j1"), jobs=(job("j1", meta={"deletionTimestamp": "2026-01-02T03:04:05Z"}),))
    assert workload is None


def test_requests_are_unknown_without_template():
    workload, _ = heard(binding("j1"), jobs=())
    assert workload is not None
    assert workload.hold is not None
    assert (workload.hold.reason, workload.hold.subject) == (Reason.REQUESTS_UNKNOWN, "Job ml/j1 does not exist")


def test_job_with_same_name_and_other_uid_is_not_its_template():
    workload, _ = heard(binding("j1"), jobs=(job("j1", uid="another"),))
    assert workload is not None
    assert workload.hold is not None
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN


def test_unreadable_template_has_unknown_requests_with_reason():
    workload, remarks = heard(binding("j1"), jobs=(job("j1", requests={"cpu": "many"}),))
    assert workload is not None
    assert workload.hold is not None
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN
    assert "'many' is not a quantity" in (workload.hold.subject or "")
    assert remarks == {BindingCondition.UNREADABLE}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"suspension": {"scheduling": "yes"}}, id="suspension"),
        pytest.param({"clusters": "m1"}, id="clusters"),
        pytest.param({"placement": {"clusterAffinity": {"clusterNames": 7}}}, id="placement"),
        pytest.param(
            {"suspension": 7, "resource": {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1"}}, id="two"
        ),
    ],
)
def test_unreadable_binding_is_pending(spec):
    workload, remarks = heard(binding("j1", spec=spec))
    assert workload is not None
    assert workload.state is WorkloadState.PENDING
    assert workload.hold is not None
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN
    assert BindingCondition.UNREADABLE in remarks


def test_binding_without_policy_has_no_matching_policy():
    workload, _ = heard(binding("j1", meta={"labels": {"propagationpolicy.karmada.io/permanent-id": ""}}))
    assert workload is not None
    assert workload.hold is not None
    assert workload.hold.reason is Reason.NO_MATCHING_POLICY


def test_binding_without_policy_and_clusters_is_not_charged():
    workload, _ = heard(binding("j1", paused=False, record=ADMITTED, meta={"labels": {}, **annotated(ADMITTED)}))
    assert workload is not None
    assert (workload.state, workload.admission) == (WorkloadState.PENDING, None)
    assert workload.hold is not None
    assert workload.hold.reason is Reason.NO_MATCHING_POLICY


def test_binding_without_policy_with_clusters_is_charged():
    workload, _ = heard(
        binding("j1", paused=False, clusters=["m1"], record=ADMITTED, meta={"labels": {}, **annotated(ADMITTED)})
    )
    assert workload is not None
    assert workload.state is WorkloadState.ADMITTED


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
    assert workload is not None
    assert workload.queue == expected


def test_binding_in_exempt_namespace_is_not_managed():
    exempt = VolcanoGlobalConfiguration(exempt_namespaces=frozenset({"ml"}))
    assert heard(binding("j1"), configuration=exempt) == (None, frozenset())


def test_unmanaged_kind_is_no_workload():
    assert heard(deployment_binding()) == (None, frozenset())


def test_batch_job_with_same_name_is_not_a_volcano_job():
    workload, _ = heard(binding("j1", api_version="batch/v1"))
    assert workload is None


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
    assert workload is not None
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
    assert workload is not None
    assert workload.queue == expected


def test_configured_kind_without_queue_is_resumed():
    assert heard_deployment(deployment()) == (None, {BindingCondition.SUSPENDED_BUT_NOT_MANAGED})


def test_running_configured_kind_without_queue_is_not_managed():
    running = deployment_binding(paused=None, clusters=["m1"])
    assert heard_deployment(deployment(), running) == (None, frozenset())


def test_recorded_queue_counts_after_label_is_removed():
    workload, _ = heard_deployment(deployment(), deployment_binding(record=admission_record("rb-web", queue="b")))
    assert workload is not None
    assert workload.queue == "b"


def test_divisible_kind_requests_its_replicas():
    workload, _ = heard_deployment(deployment(annotations={"volcano.sh/queue-name": "a"}))
    assert workload is not None
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
    assert workload is not None
    assert workload.reservation == Reservation(int(since.timestamp() * 1000), rooms, {"cpu": 2000})


def test_divided_workload_is_charged_where_its_replicas_are():
    clusters = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
    placed = deployment_binding(paused=None, clusters=clusters)
    workload, _ = heard_deployment(deployment(annotations={"volcano.sh/queue-name": "a"}), placed)
    assert workload is not None
    assert workload.admission is not None
    assert {booking.cluster: booking.charge for booking in workload.admission.cluster_charges} == {
        "m1": {"cpu": 1500, "pods": 3000},
        "m2": {"cpu": 500, "pods": 1000},
    }


def test_moved_divided_workload_keeps_its_recorded_total():
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1", "m2"))
    moved = deployment_binding(paused=False, clusters=[{"name": "m3", "replicas": 4}], record=record)
    workload, remarks = heard_deployment(deployment(), moved)
    assert workload is not None
    assert workload.admission is not None
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
    assert workload is not None
    assert workload.requirements.requests == {"cpu": 5000, "pods": 3000}
    assert workload.requirements.replicas == 0


def test_components_of_a_volcano_job_are_ignored():
    spec = {"components": [{"name": "worker", "replicas": 100}]}
    workload, _ = heard(binding("j1", spec=spec))
    assert workload is not None
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
    assert (workload.priority, workload.unknown_class) == expected


def test_workload_moved_by_others_is_reported_as_not_run_there():
    moved = binding("j1", paused=False, clusters=["m2"], phases={"m1": "Running", "m2": "Pending"}, record=ADMITTED)
    workload, remarks = heard(moved)
    assert workload is not None
    assert workload.has_moved
    assert not workload.has_run
    assert remarks == {BindingCondition.MOVED}


def test_replicas_redivided_by_karmada_are_recorded():
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",))
    spec = {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}
    divided = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
    found = deployment_binding(paused=False, clusters=divided, record=record, spec=spec)
    workload, remarks = heard_deployment(deployment(labels={"volcano.sh/queue-name": "a"}), found)
    assert workload is not None
    assert workload.has_moved
    assert remarks == {BindingCondition.REPLICAS_REDIVIDED}


def test_admitted_workload_evicted_by_others_is_pending_again():
    workload, remarks = heard(binding("j1", clusters=[], record=ADMITTED))
    assert workload is not None
    assert workload.state is WorkloadState.PENDING
    assert remarks == {BindingCondition.EVICTED_BY_OTHERS}
    assert workload.admission is not None
    assert [booking.cluster for booking in workload.admission.cluster_charges] == ["m1"], "Karmada may still place it"
    assert workload.admission.ends_at == 330_000


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
    assert (workload.evictions, workload.failed_starts) == counts
    assert workload.hold.reason is (Reason.STARTUP_BACKOFF if taken_back else Reason.PREEMPTION_IN_PROGRESS)
