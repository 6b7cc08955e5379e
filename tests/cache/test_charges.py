"""Charges beyond template and record: what member clusters report, and clusters that a workload has not left."""

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.api.configuration import IntegrationRule, VolcanoGlobalConfiguration
from controller.cache import charges
from controller.cache.objects import WorkloadRequests
from controller.cache.record import AdmissionRecord
from controller.cache.store import Store
from controller.engine.reasons import Reason
from controller.engine.state.clusters import ApiKind, Assignment
from controller.engine.state.workloads import ClusterCharge, WorkloadState
from tests.cache.fake_event_handler import FakeEventHandler
from tests.cache.objects import admission_record, binding, job, raw

DEPLOYMENTS = VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="apps/v1", kind="Deployment"),))
ONE = {"cpu": 1000, "pods": 1000}
SMALL = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))


def heard(reported=None, *, template=None, record=SMALL, clusters=("m1",), paused=False, spec=None):
    """Return the workload of an admitted binding, with the status *reported* by each cluster."""
    store, ear = Store(), FakeEventHandler()
    body = json.loads(binding("j1", record=record, paused=paused, clusters=list(clusters)))
    body["spec"] |= spec or {}
    told = {"state": {"phase": "Running"}}
    body["status"] = {
        "aggregatedStatus": [
            {"clusterName": name, "status": {**told, **status}} for name, status in (reported or {}).items()
        ]
    }
    store.bindings.replace([store.bindings.decode(raw(body))])
    store.jobs.replace([store.jobs.decode(template or job("j1"))])
    store.sync_to(ear, 0)
    return ear.workloads["rb-j1"]


def counted(**phases):
    return {"taskStatusCount": {"worker": {"phase": phases}}}


SUSPENDED = {"suspension": {"scheduling": False, "dispatching": True}}


@pytest.mark.parametrize("spec", [SUSPENDED, {}], ids=["dispatching-suspended", "not-dispatched-yet"])
def test_shrunk_job_is_charged_for_the_reported_pods(spec):
    workload = heard({"m1": counted(Running=10, Pending=8)}, spec=spec)
    assert workload.admission.charge == {"cpu": 18000, "pods": 18000}
    assert workload.admission.cluster_charges == (ClusterCharge("m1", {"cpu": 18000, "pods": 18000}),)
    assert workload.has_resized


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(counted(Running=1), id="as-many-as-asked-for"),
        pytest.param(counted(Running=1, Succeeded=18, Failed=18), id="ended-pods"),
        pytest.param({"taskStatusCount": None}, id="null"),
        pytest.param({"taskStatusCount": [1]}, id="list"),
        pytest.param({"taskStatusCount": {"worker": 5}}, id="task-without-phases"),
        pytest.param({"taskStatusCount": {"worker": {"phase": "Running"}}}, id="phases-are-text"),
        pytest.param(counted(Running="18"), id="text"),
        pytest.param(counted(Running=-18), id="negative"),
        pytest.param(counted(Running=18.5), id="fraction"),
        pytest.param(counted(Running=None), id="no-number"),
        pytest.param(counted(), id="nothing"),
    ],
)
def test_report_of_no_more_pods_changes_nothing(status):
    workload = heard({"m1": status})
    assert workload.admission.charge == ONE
    assert not workload.has_resized


def test_reported_pods_are_bounded():
    workload = heard({"m1": counted(Running=10**30)})
    assert workload.admission.charge["pods"] == 1000 * 10**6


def test_pods_of_unknown_task_are_charged_as_the_largest():
    workload = heard({"m1": {"taskStatusCount": {"removed": {"phase": {"Running": 2}}}}})
    assert workload.admission.charge == {"cpu": 3000, "pods": 3000}


def test_task_named_in_the_cluster_is_not_charged_twice():
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    unnamed = job("j1", spec={"tasks": [{"replicas": 1, "template": pod}]})
    status = {"taskStatusCount": {"default0": {"phase": {"Running": 1}}}}
    assert heard({"m1": status}, template=unnamed).admission.charge == ONE


def test_evicted_job_is_charged_for_its_running_pods():
    gone = admission_record("rb-j1", queue="a", evictions=1)
    workload = heard({"m1": counted(Running=18)}, record=gone, clusters=(), paused=True)
    assert workload.state is WorkloadState.PENDING
    assert workload.admission.charge == {"cpu": 18000, "pods": 18000}


def test_adopted_job_is_charged_for_its_running_pods():
    workload = heard({"m1": counted(Running=3)}, record=None)
    assert workload.admission.adopted
    assert workload.admission.charge == {"cpu": 3000, "pods": 3000}


def test_failover_is_charged_on_both_clusters_until_task_ends():
    task = {"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"}
    moving = heard(clusters=["m2"], spec={"gracefulEvictionTasks": [task]})
    assert moving.admission.cluster_charges == (ClusterCharge("m2", ONE), ClusterCharge("m1", ONE))
    assert moving.admission.charge == {"cpu": 2000, "pods": 2000}
    assert not moving.has_resized, "its tenant asks for no more"
    assert heard(clusters=["m2"]).admission.cluster_charges == (ClusterCharge("m2", ONE),)


@pytest.mark.parametrize(
    ("recorded", "leaving", "moved"),
    [
        pytest.param(("m1",), True, True, id="before-it-is-recorded"),
        pytest.param(("m1", "m2"), True, False, id="recorded"),
        pytest.param(("m1", "m2"), False, True, id="the-old-cluster-is-left"),
        pytest.param(("m2",), False, False, id="over"),
    ],
)
def test_move_is_recorded_again_when_eviction_task_ends(recorded, leaving, moved):
    tasks = [{"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"}] if leaving else []
    record = admission_record("rb-j1", queue="a", charge={"cpu": "2", "pods": "2"}, clusters=recorded)
    workload = heard(record=record, clusters=["m2"], spec={"gracefulEvictionTasks": tasks})
    assert workload.admission.moved is moved


def test_pending_workload_with_suspended_dispatching():
    workload = heard(
        record=None, clusters=(), paused=True, spec={"suspension": {"scheduling": True, "dispatching": True}}
    )
    assert workload.state is WorkloadState.PENDING
    assert workload.hold.reason is Reason.SUSPENDED


def test_admitted_workload_with_suspended_dispatching_is_charged():
    workload = heard(spec=SUSPENDED)
    assert workload.state is WorkloadState.ADMITTED
    assert workload.hold is None
    assert workload.admission.charge == ONE


def heard_deployment(status, **spec):
    store, ear = Store(DEPLOYMENTS), FakeEventHandler()
    spec = {"replicas": 4, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}, **spec}
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",))
    clusters = spec.pop("clusters", [{"name": "m1", "replicas": 4}])
    made = binding(
        "web", kind="Deployment", api_version="apps/v1", paused=False, record=record, clusters=clusters, spec=spec
    )
    body = json.loads(made)
    body["status"] = {"aggregatedStatus": [{"clusterName": "m1", "status": status}]}
    store.bindings.replace([store.bindings.decode(raw(body))])
    sink = store.templates(ApiKind("apps/v1", "Deployment"))
    meta = {"name": "web", "namespace": "ml", "uid": "job-web"}
    sink.replace([sink.decode(raw({"metadata": meta, "spec": {"replicas": 4}}))])
    store.sync_to(ear, 0)
    return ear.workloads["rb-web"]


def test_replicas_added_by_an_autoscaler_are_charged():
    workload = heard_deployment({"replicas": 10, "readyReplicas": 10})
    assert workload.admission.charge == {"cpu": 5000, "pods": 10000}
    assert not workload.has_resized


def test_replicas_of_eviction_task_are_charged_on_their_cluster():
    task = {"fromCluster": "m1", "reason": "r", "producer": "p", "replicas": 3}
    clusters = [{"name": "m2", "replicas": 4}]
    workload = heard_deployment({"replicas": 3}, clusters=clusters, gracefulEvictionTasks=[task])
    assert workload.admission.cluster_charges == (
        ClusterCharge("m2", {"cpu": 2000, "pods": 4000}),
        ClusterCharge("m1", {"cpu": 1500, "pods": 3000}),
    )


def changing(*steps):
    """Return the charge after each of *steps*: the pods' CPUs, whether dispatching is suspended."""
    store, charges = Store(DEPLOYMENTS), []
    sink = store.templates(ApiKind("apps/v1", "Deployment"))
    meta = {"name": "web", "namespace": "ml", "uid": "job-web"}
    record = admission_record("rb-web", queue="a", charge={"cpu": "4", "pods": "4"}, clusters=("m1",))
    sink.replace([sink.decode(raw({"metadata": meta, "spec": {}}))])
    for replicas, cpu, is_suspended in steps:
        spec = {
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": cpu}},
            "suspension": {"dispatching": is_suspended},
        }
        clusters = [{"name": "m1", "replicas": replicas}]
        made = binding(
            "web", kind="Deployment", api_version="apps/v1", paused=None, record=record, clusters=clusters, spec=spec
        )
        store.bindings.upsert(store.bindings.decode(made))
        ear = FakeEventHandler()
        store.sync_to(ear, 0)
        charges.append(ear.workloads["rb-web"].admission.charge["cpu"] // 1000)
    return charges


def test_dispatched_requests_are_charged_while_suspended():
    """Increase the requests, suspend dispatching, decrease the requests."""
    assert changing((4, 1, False), (4, 5, False), (4, 5, True), (4, 1, True), (4, 1, False)) == [4, 20, 20, 20, 4]


def test_fewer_replicas_are_ignored_while_dispatch_is_suspended():
    assert changing((4, 1, False), (10, 1, False), (10, 1, True), (1, 1, True)) == [4, 10, 10, 10]


def test_resize_while_dispatching_is_suspended_is_charged():
    assert changing((4, 1, True), (4, 3, True), (4, 2, True)) == [4, 12, 12]


@given(
    total=st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 3)),
    charge=st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 3)),
    replicas=st.integers(0, 2),
    named=st.lists(st.sampled_from(["m1", "m2"]), unique=True),
    placed=st.lists(st.tuples(st.sampled_from(["m1", "m2"]), st.sampled_from([None, 0, 1, 2])), max_size=2),
)
def test_charge_of_a_whole_placement_equals_the_general_one(total, charge, replicas, named, placed):
    store = Store()
    cached = store.bindings.decode(binding("j1", record=SMALL, paused=False))
    cached = structs.replace(cached, clusters=tuple(Assignment(name, count) for name, count in placed))
    record = AdmissionRecord(charge=charge, clusters=tuple(named), admitted_at=5)
    requests = WorkloadRequests(total, pods=(total,), replicas=replicas)
    fast = charges.recorded(cached, requests, record)
    with mock.patch.object(charges, "_is_placed_as_a_whole", return_value=False):
        assert charges.recorded(cached, requests, record) == fast
