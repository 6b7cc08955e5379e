"""Charges beyond template and record: what member clusters report, and clusters that a workload has not left."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.cache import charges
from controller.cache.objects import WorkloadRequests
from controller.cache.record import AdmissionRecord
from controller.cache.store import Store
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Assignment
from controller.engine.state.workloads import ClusterCharge, WorkloadState
from tests.cache.fake_event_handler import received, remove
from tests.cache.objects import (
    DEPLOYMENT,
    DEPLOYMENTS,
    admission_record,
    binding,
    deployment,
    deployment_binding,
    job,
)

ONE = {"cpu": 1000, "pods": 1000}
SMALL = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))


def workload_of(reported=None, *, template=None, record=SMALL, clusters=("m1",), paused=False, spec=None):
    """Return the workload of an admitted binding, with the status *reported* by each cluster."""
    statuses = {name: {"state": {"phase": "Running"}, **status} for name, status in (reported or {}).items()}
    bound = binding("j1", record=record, paused=paused, clusters=list(clusters), spec=spec, statuses=statuses)
    return received(Store(), ("bindings", bound), ("jobs", template or job("j1"))).workloads["rb-j1"]


def phases_of(task, **phases):
    return {"taskStatusCount": {task: {"phase": phases}}}


def counted(**phases):
    return phases_of("worker", **phases)


@pytest.mark.parametrize("reported", [{}, {"m1": counted(Running=2)}], ids=["not-reported", "resized"])
def test_recorded_raise_of_priority_is_read(reported):
    record = admission_record("rb-j1", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",), raisedBy=25)
    assert workload_of(reported, record=record).admission.raised_by == 25


SUSPENDED = {"suspension": {"scheduling": False, "dispatching": True}}


@pytest.mark.parametrize("spec", [SUSPENDED, {}], ids=["dispatching-suspended", "not-dispatched-yet"])
def test_shrunk_job_is_charged_for_the_reported_pods(spec):
    workload = workload_of({"m1": counted(Running=10, Pending=8)}, spec=spec)
    assert workload.admission.charge == {"cpu": 18000, "pods": 18000}
    assert workload.admission.cluster_charges == (ClusterCharge("m1", {"cpu": 18000, "pods": 18000}),)
    assert workload.has_resized


def test_resized_workload_names_the_increased_resources():
    small = admission_record("rb-j1", queue="a", charge={"cpu": "500m", "pods": "1"}, clusters=("m1",))
    assert workload_of(record=small).admission.increased == {"cpu"}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(counted(Running=1, Succeeded=18, Failed=18), id="ended-pods"),
        pytest.param({"taskStatusCount": None}, id="null"),
        pytest.param({"taskStatusCount": [1]}, id="list"),
        pytest.param({"taskStatusCount": {"worker": 5}}, id="task-without-phases"),
        pytest.param({"taskStatusCount": {"worker": {"phase": "Running"}}}, id="phases-are-text"),
        pytest.param(counted(Running="18"), id="text"),
        pytest.param(counted(Running=-18), id="negative"),
        pytest.param(counted(Running=18.5), id="fraction"),
    ],
)
def test_report_of_no_more_pods_changes_nothing(status):
    workload = workload_of({"m1": status})
    assert workload.admission.charge == ONE
    assert not workload.has_resized


POD = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
UNNAMED_TASK = job("j1", spec={"tasks": [{"replicas": 1, "template": POD}]})
EVICTED = admission_record("rb-j1", queue="a", evictions=1)


@pytest.mark.parametrize(
    ("status", "given", "pods", "state"),
    [
        pytest.param(counted(Running=10**30), {}, 10**6, WorkloadState.ADMITTED, id="bounded"),
        pytest.param(phases_of("removed", Running=2), {}, 3, WorkloadState.ADMITTED, id="unknown-task-as-the-largest"),
        pytest.param(
            phases_of("default0", Running=1),
            {"template": UNNAMED_TASK},
            1,
            WorkloadState.ADMITTED,
            id="task-named-in-the-cluster",
        ),
        pytest.param(
            phases_of("default0", Running=18),
            {"template": UNNAMED_TASK},
            18,
            WorkloadState.ADMITTED,
            id="more-pods-of-a-task-named-in-the-cluster",
        ),
        pytest.param(
            counted(Running=18),
            {"record": EVICTED, "clusters": (), "paused": True},
            18,
            WorkloadState.PENDING,
            id="evicted",
        ),
        pytest.param(counted(Running=3), {"record": None}, 3, WorkloadState.ADMITTED, id="adopted"),
        pytest.param({}, {"spec": SUSPENDED}, 1, WorkloadState.ADMITTED, id="dispatching-suspended-and-no-report"),
    ],
)
def test_reported_pods_are_charged(status, given, pods, state):
    workload = workload_of({"m1": status}, **given)
    assert (workload.state, workload.admission.charge) == (state, {"cpu": pods * 1000, "pods": pods * 1000})


@pytest.mark.parametrize(
    ("template", "pods"),
    [
        pytest.param(job("j1"), 1, id="as-admitted"),
        pytest.param(job("j1", replicas=1), 2, id="scaled-down"),
        pytest.param(job("another"), 1, id="deleted-template"),
    ],
)
def test_failover_is_charged_on_both_clusters_until_task_ends(template, pods):
    """The copy in the cluster that it leaves is charged as before, so a record of both has twice the charge."""
    task = {"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"}
    each = {"cpu": 1000 * pods, "pods": 1000 * pods}
    record = admission_record("rb-j1", queue="a", charge={"cpu": str(pods), "pods": str(pods)}, clusters=("m1",))
    more = {"clusters": ["m2"], "template": template, "record": record}
    moving = workload_of(spec={"gracefulEvictionTasks": [task]}, **more)
    assert moving.admission.cluster_charges == (ClusterCharge("m2", each), ClusterCharge("m1", each))
    assert moving.admission.charge == {"cpu": 2000 * pods, "pods": 2000 * pods}
    assert not moving.has_resized, "its tenant asks for no more"
    assert workload_of(**more).admission.cluster_charges == (ClusterCharge("m2", each),)


def test_refused_resize_stays_charged_without_its_template():
    """Otherwise the queue of a grown job would be freed by the deletion of the job alone (``--cascade=orphan``)."""
    store, grown = Store(), job("j1", replicas=6)
    bound = binding("j1", record=SMALL, paused=False, clusters=["m1"])
    received(store, ("bindings", bound), ("jobs", grown))
    remove(store, "jobs", grown)
    workload = received(store).workloads["rb-j1"]
    assert (workload.has_resized, workload.admission.charge) == (True, {"cpu": 6000, "pods": 6000})


@pytest.mark.parametrize("change", ["deleted", "scaled-down"])
def test_job_that_leaves_during_a_restart_keeps_its_charge(change):
    """P5: a changed HyperJob deletes its Jobs while the clusters that they are leaving still run them."""
    store, template = Store(), job("j1", replicas=6)
    evicted = admission_record("rb-j1", evictions=1)
    bound = binding("j1", record=evicted, paused=True, clusters=[], phases={"m1": "Running"})
    received(store, ("bindings", bound), ("jobs", template))
    if change == "deleted":
        remove(store, "jobs", template)
    changes = [("jobs", job("j1", replicas=1))] if change == "scaled-down" else []
    leaving = received(store, *changes).workloads["rb-j1"]
    assert leaving.admission.charge == {"cpu": 6000, "pods": 6000}


def test_leaving_job_of_unknown_requests_is_charged_as_recorded():
    """D6: its template was deleted, or claims devices that are not mapped, and the controller restarted since."""
    store, running = Store(), {"m1": "Running"}
    admitted = received(store, ("bindings", binding("j1", record=SMALL, paused=False, clusters=["m1"], phases=running)))
    evicted = binding("j1", record=admission_record("rb-j1", evictions=1), paused=True, clusters=[], phases=running)
    leaving = received(store, ("bindings", evicted))
    charges = [seen.workloads["rb-j1"].admission.cluster_charges for seen in (admitted, leaving)]
    assert charges[0] == charges[1] != ()


@pytest.mark.parametrize("record", [SMALL, None], ids=["recorded", "adopted"])
def test_failed_job_is_charged_only_where_it_runs_again(record):
    """With ``purgeMode: Never`` the eviction task stays for as long as the failed job does."""
    task = {"fromCluster": "m1", "suppressDeletion": True, "reason": "ApplicationFailure", "producer": "failover"}
    reported = {"m1": {"state": {"phase": "Failed"}}, "m2": {}}
    workload = workload_of(reported, record=record, clusters=["m2"], spec={"gracefulEvictionTasks": [task]})
    assert workload.admission.cluster_charges == (ClusterCharge("m2", ONE),)


@pytest.mark.parametrize(
    ("left", "charged"),
    [
        pytest.param({"state": {"phase": "Running"}}, (ClusterCharge("m1", ONE),), id="runs-there"),
        pytest.param(counted(Running=3), (ClusterCharge("m1", {"cpu": 3000, "pods": 3000}),), id="runs-more-pods"),
        pytest.param({"state": {"phase": "Failed"}}, (), id="ended-there-too"),
        pytest.param(None, (), id="left-it"),
    ],
)
def test_finished_job_is_charged_where_it_is_still_being_evicted(left, charged):
    """It fails at once in the cluster of the failover, while the pods in the other one run until the grace ends."""
    task = {"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"}
    reported = {"m2": {"state": {"phase": "Failed"}}, **({"m1": left} if left else {})}
    workload = workload_of(reported, clusters=["m2"], spec={"gracefulEvictionTasks": [task]})
    assert workload.state is WorkloadState.FINISHED
    assert (workload.admission.cluster_charges if workload.admission else ()) == charged
    admission = workload.admission
    assert admission is None or admission.reported or admission.still_running, "its pods are not external usage"


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_evicted_job_is_not_charged_where_it_has_finished(phase):
    """A tainted cluster keeps the eviction tasks of its finished jobs for minutes."""
    task = {"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "TaintManager"}
    evicted = admission_record("rb-j1", queue="a", evictions=1)
    reported = {"m1": {"state": {"phase": phase}}}
    workload = workload_of(reported, record=evicted, clusters=[], paused=True, spec={"gracefulEvictionTasks": [task]})
    assert workload.admission.cluster_charges == (ClusterCharge("m1", ONE if phase == "Running" else {}),)
    assert (workload.state, workload.hold.reason) == (WorkloadState.PENDING, Reason.PREEMPTION_IN_PROGRESS)


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
    workload = workload_of(record=record, clusters=["m2"], spec={"gracefulEvictionTasks": tasks})
    assert workload.admission.moved is moved


def test_workload_with_suspended_dispatching_stays_pending():
    workload = workload_of(
        record=None, clusters=(), paused=True, spec={"suspension": {"scheduling": True, "dispatching": True}}
    )
    assert workload.state is WorkloadState.PENDING
    assert workload.hold.reason is Reason.SUSPENDED


def charged_deployment(store, placed, *, paused=False, template=None, **more):
    """Return the admission of a Deployment whose replicas were divided in this way."""
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",))
    clusters = [{"name": name, "replicas": count} for name, count in placed.items()]
    bound = deployment_binding(paused=paused, record=record, clusters=clusters, **more)
    template = template or deployment(spec={"replicas": 4})
    return received(store, (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]


def test_replicas_added_by_an_autoscaler_are_charged():
    reported = {"m1": {"replicas": 10, "readyReplicas": 10}}
    workload = charged_deployment(Store(DEPLOYMENTS), {"m1": 4}, statuses=reported)
    assert workload.admission.charge == {"cpu": 5000, "pods": 10000}
    assert not workload.has_resized


@pytest.mark.parametrize("cpu", ["1e101", "x"])
def test_admitted_deployment_with_invalid_amounts_is_resized(cpu):
    """With a paused rollout, a thousand replicas of its earlier pod template run."""
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    template = deployment(spec={"replicas": 1000, "paused": True, "template": {"spec": pod}})
    more = {"cpu": cpu, "spec": {"replicas": 1000}, "statuses": {"m1": {"replicas": 1000}}}
    workload = charged_deployment(Store(DEPLOYMENTS), {"m1": 1000}, template=template, **more)
    assert workload.has_resized
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN


@pytest.mark.parametrize(
    ("spec", "is_resized"),
    [
        pytest.param({"tasks": [{"replicas": -1}]}, True, id="negative-replicas"),
        pytest.param({"queue": 1}, False, id="other-field"),
    ],
)
def test_admitted_job_is_resized_by_invalid_amounts_only(spec, is_resized):
    workload = workload_of(template=job("j1", spec=spec))
    assert (workload.has_resized, workload.admission.charge) == (is_resized, ONE)


def test_replicas_of_eviction_task_are_charged_on_their_cluster():
    task = {"fromCluster": "m1", "reason": "r", "producer": "p", "replicas": 3}
    more = {"statuses": {"m1": {"replicas": 3}}, "spec": {"gracefulEvictionTasks": [task]}}
    workload = charged_deployment(Store(DEPLOYMENTS), {"m2": 4}, **more)
    assert workload.admission.cluster_charges == (
        ClusterCharge("m2", {"cpu": 2000, "pods": 4000}),
        ClusterCharge("m1", {"cpu": 1500, "pods": 3000}),
    )


@pytest.mark.parametrize("suspended", [{"dispatching": True}, {"dispatchingOnClusters": {"clusterNames": ["m1"]}}])
@pytest.mark.parametrize(
    # The replicas, their CPUs, and whether dispatching is suspended; the charge after each step.
    ("steps", "charges"),
    [
        pytest.param(
            [(4, 1, False), (4, 5, False), (4, 5, True), (4, 1, True), (4, 1, False)],
            [4, 20, 20, 20, 4],
            id="smaller-pods-while-suspended",
        ),
        pytest.param([(4, 1, True), (4, 3, True), (4, 2, True)], [4, 12, 12], id="resized-while-suspended"),
        pytest.param(
            [(4, 1, False), (10, 1, False), (10, 1, True), (1, 1, True)],
            [4, 10, 10, 10],
            id="fewer-replicas-while-suspended",
        ),
    ],
)
def test_dispatched_requests_are_charged_while_suspended(steps, charges, suspended):
    store, seen = Store(DEPLOYMENTS), []
    elsewhere = {"dispatchingOnClusters": {"clusterNames": ["m2"]}}
    for replicas, cpu, is_suspended in steps:
        spec = {"replicas": replicas, "suspension": suspended if is_suspended else elsewhere}
        workload = charged_deployment(store, {"m1": replicas}, cpu=cpu, paused=None, spec=spec)
        seen.append(workload.admission.charge["cpu"] // 1000)
    assert seen == charges


def test_replicas_that_were_never_placed_were_not_dispatched():
    """Karmada leaves its division as it is where more replicas do not fit."""
    store = Store(DEPLOYMENTS)
    for suspension in ({}, {"dispatching": True}):
        spec = {"replicas": 40, "suspension": {"scheduling": False, **suspension}}
        workload = charged_deployment(store, {"m1": 4}, paused=None, spec=spec)
        assert (workload.admission.charge["cpu"], workload.has_resized) == (2000, False)


@pytest.mark.parametrize(
    # The generation of the template, replicas, CPUs of each, and what the cluster reports; the charge after each step.
    ("steps", "charges"),
    [
        pytest.param(
            [
                (1, 4, 2, (1, 4, 4)),
                (2, 4, 1, (1, 4, 4)),
                (2, 4, 1, (2, 4, 0)),
                (2, 4, 1, (2, 4, 3)),
                (2, 4, 1, (2, 4, 4)),
            ],
            [8, 8, 8, 5, 4],
            id="rollout-of-smaller-pods",
        ),
        pytest.param(
            [(1, 4, 2, (1, 4, 4)), (2, 40, 1, (1, 4, 4)), (2, 40, 1, (2, 40, 0)), (2, 40, 1, (2, 40, 10))],
            [8, 44, 80, 70],
            id="paused-and-scaled-up",
        ),
        pytest.param(
            [
                (1, 4, 2, None),
                (2, 40, 1, None),
                (2, 40, 1, (2, 40, 0)),
                (3, 40, 1, (3, 40, 40)),
                (4, 40, 1, (4, 40, 0)),
            ],
            [8, 40, 80, 40, 40],
            id="paused-before-the-first-report",
        ),
        pytest.param(
            [(1, 4, 2, (1, 4, 4)), (2, 0, 2, (2, 0, 0)), (3, 0, 1, (3, 0, 0)), (4, 40, 1, (4, 40, 0))],
            [8, 2, 2, 80],
            id="paused-and-scaled-up-from-zero",
        ),
        pytest.param([(1, 4, 1, (1, 4, 4)), (2, 4, 2, (2, 4, 0))], [4, 8], id="rollout-of-larger-pods"),
    ],
)
def test_replicas_of_an_earlier_template_are_charged_as_such(steps, charges):
    """D7: a paused rollout, a partition or OnDelete retains them, also while they are scaled up."""
    store, seen = Store(DEPLOYMENTS), []
    for generation, replicas, cpu, reported in steps:
        statuses = {}
        if reported is not None:
            names = ("resourceTemplateGeneration", "replicas", "updatedReplicas")
            statuses = {"m1": {name: count for name, count in zip(names, reported, strict=True) if count}}
        template = deployment(spec={"replicas": replicas}, generation=generation)
        spec = {"replicas": replicas}
        workload = charged_deployment(
            store, {"m1": replicas}, cpu=str(cpu), template=template, spec=spec, statuses=statuses
        )
        seen.append(workload.admission.charge["cpu"] // 1000)
    assert seen == charges


def test_outdated_replicas_on_a_left_cluster_are_charged_there():
    """They do not count once more on the cluster of the failover, where all replicas have the template."""
    store = Store(DEPLOYMENTS)
    status = {"resourceTemplateGeneration": 1, "replicas": 4, "updatedReplicas": 4}
    charged_deployment(store, {"m1": 4}, cpu="2", template=deployment(spec={"replicas": 4}, generation=1))
    template = deployment(spec={"replicas": 4}, generation=2)
    tasks = [{"fromCluster": "m1", "replicas": 4}]
    spec = {"replicas": 4, "gracefulEvictionTasks": tasks, "placement": {"replicaScheduling": {}}}
    statuses = {"m1": status, "m2": status | {"resourceTemplateGeneration": 2}}
    workload = charged_deployment(store, {"m2": 4}, cpu="1", template=template, spec=spec, statuses=statuses)
    charges = {booking.cluster: booking.charge["cpu"] for booking in workload.admission.cluster_charges}
    assert charges == {"m2": 4000, "m1": 4000}


def test_unplaced_deployment_is_charged_where_it_was_leaving():
    """Its record names the cluster that it is leaving, and the other one of which Karmada has taken it."""
    record = admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m2", "m1"))
    tasks = [{"fromCluster": "m1", "replicas": 4}]
    spec = {"replicas": 4, "gracefulEvictionTasks": tasks, "placement": {"replicaScheduling": {}}}
    bound = deployment_binding(paused=False, record=record, spec=spec)
    template = deployment(spec={"replicas": 4})
    workload = received(Store(DEPLOYMENTS), (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]
    charges = {booking.cluster: booking.charge["cpu"] for booking in workload.admission.cluster_charges}
    assert charges == {"m2": 2000, "m1": 2000}


def test_replicas_of_an_earlier_template_count_while_suspended():
    """R1: what others have suspended in its clusters stays charged, and is resumed."""
    store, seen = Store(DEPLOYMENTS), []
    for generation, replicas, cpu, paused in ((1, 4, "2", False), (2, 40, "1", False), (2, 40, "1", True)):
        status = {"resourceTemplateGeneration": generation, "replicas": replicas}
        statuses = {"m1": status | ({"updatedReplicas": replicas} if generation == 1 else {})}
        template, spec = deployment(spec={"replicas": replicas}, generation=generation), {"replicas": replicas}
        more = {"template": template, "spec": spec, "statuses": statuses, "paused": paused}
        seen.append(charged_deployment(store, {"m1": replicas}, cpu=cpu, **more).admission.charge["cpu"] // 1000)
    assert seen == [8, 80, 80]


@pytest.mark.parametrize(
    ("replicas", "placed", "charged"),
    [
        pytest.param(4, {"m1": 4, "m2": None}, {"m1": 4000}, id="one-cluster-has-none"),
        pytest.param(
            0, {"m1": None, "m2": None, "m3": None}, {"m1": 1334, "m2": 1333, "m3": 1333}, id="scaled-to-zero"
        ),
        pytest.param(5, {"m1": None, "m2": None, "m3": None}, {"m1": 1667, "m2": 1667, "m3": 1666}, id="up-from-zero"),
    ],
)
def test_charge_of_a_divided_workload_adds_up(replicas, placed, charged):
    """Karmada may name clusters without replicas: all candidates of a workload that is scaled to zero."""
    template, placement = deployment(spec={"replicas": replicas}), {"replicaScheduling": {}}
    spec = {"replicas": replicas or None, "placement": placement, **({} if replicas else {"replicaRequirements": None})}
    workload = charged_deployment(Store(DEPLOYMENTS), placed, template=template, spec=spec)
    pods = {booking.cluster: booking.charge["pods"] for booking in workload.admission.cluster_charges}
    assert pods == charged
    assert workload.admission.charge["pods"] == sum(charged.values())


def test_fewer_smaller_replicas_are_charged_before_division():
    """The cluster still has ten replicas, each with the earlier template."""
    store = Store(DEPLOYMENTS)
    running = {"m1": {"resourceTemplateGeneration": 1, "replicas": 10, "updatedReplicas": 10}}
    for replicas, cpu, charged in ((10, "2", 20), (1, "1", 20)):
        template = deployment(spec={"replicas": replicas}, generation=1 if replicas == 10 else 2)
        spec = {"replicas": replicas}
        workload = charged_deployment(store, {"m1": 10}, cpu=cpu, template=template, spec=spec, statuses=running)
        assert workload.admission.charge == {"cpu": charged * 1000, "pods": 10_000}


def test_fewer_replicas_are_charged_until_they_are_dispatched():
    store, seen = Store(DEPLOYMENTS), []
    for replicas, placed, dispatching in ((10, 10, False), (1, 10, True), (1, 1, True), (1, 1, False)):
        spec = {"replicas": replicas, "suspension": {"dispatching": dispatching}}
        workload = charged_deployment(store, {"m1": placed}, cpu="1", paused=None, spec=spec)
        seen.append(workload.admission.charge["cpu"] // 1000)
    assert seen == [10, 10, 10, 2], "the record has 2"


def test_replicas_of_an_earlier_template_count_in_each_copy():
    store, seen = Store(DEPLOYMENTS), []
    record = admission_record("rb-web", queue="a", charge={"cpu": "16", "pods": "8"}, clusters=("m1", "m2"))
    clusters = [{"name": name, "replicas": 4} for name in ("m1", "m2")]
    placement = {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}
    for generation, cpu, updated in ((1, "2", 4), (2, "1", 0), (2, "1", 4)):
        status = {"resourceTemplateGeneration": generation, "replicas": 4, "updatedReplicas": updated}
        statuses = {"m1": status, "m2": status}
        spec = {"replicas": 4, "placement": placement}
        bound = deployment_binding(
            cpu=cpu, paused=False, record=record, clusters=clusters, statuses=statuses, spec=spec
        )
        template = deployment(spec={"replicas": 4}, generation=generation)
        workload = received(store, (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]
        seen.append((workload.admission.charge["cpu"] // 1000, workload.has_resized))
    assert seen == [(16, False)] * 3


@pytest.mark.parametrize(
    ("replicas", "cpu"),
    [
        pytest.param(4, "500m", id="unchanged"),
        pytest.param(1, "500m", id="scaled-down"),
        pytest.param(0, "500m", id="scaled-to-zero"),
        pytest.param(40, "500m", id="scaled-up"),
        pytest.param(4, "1m", id="smaller-pods"),
    ],
)
def test_leaving_deployment_is_charged_for_what_its_clusters_run(replicas, cpu):
    """P5: Karmada dispatches no change of the template to a cluster that the workload is leaving."""
    store, running = Store(DEPLOYMENTS), {name: {"replicas": 2, "readyReplicas": 2} for name in ("m1", "m2")}
    charged_deployment(store, {"m1": 2, "m2": 2}, statuses=running)
    evicted = admission_record("rb-web", queue="a", evictions=1)
    task = {"fromCluster": "m2", "reason": "Preempted", "producer": "volcano-global"}
    spec = {"replicas": replicas or None, "gracefulEvictionTasks": [task]}
    template = deployment(spec={"replicas": replicas})
    bound = deployment_binding(cpu=cpu, paused=True, record=evicted, clusters=[], spec=spec, statuses=running)
    leaving = received(store, (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]
    two = {"cpu": 1000, "pods": 2000}
    assert leaving.admission.cluster_charges == (ClusterCharge("m2", two), ClusterCharge("m1", two))
    bound = deployment_binding(cpu=cpu, paused=True, record=evicted, clusters=[], spec={"replicas": replicas or None})
    left = received(store, (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]
    assert left.admission is None


def test_leaving_deployment_is_charged_once_on_all_clusters():
    """Karmada lists clusters without replicas, too, which report none, as do those that have not started any yet."""
    placement = {"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}
    record = admission_record("rb-web", queue="a", evictions=1)

    def charges_of(**replicas):
        statuses = {name: {"replicas": count} if count else {} for name, count in replicas.items()}
        bound = deployment_binding(paused=True, record=record, clusters=[], spec=placement, statuses=statuses)
        workload = received(Store(DEPLOYMENTS), (DEPLOYMENT, deployment()), ("bindings", bound)).workloads["rb-web"]
        return [booking.charge["pods"] // 1000 for booking in workload.admission.cluster_charges]

    assert charges_of(m1=4, m2=0, m3=0) == [4, 0, 0]
    assert charges_of(m1=2, m2=0, m3=0) == [2, 1, 1]
    assert charges_of(m2=0, m3=0) == [2, 2]
    assert charges_of(m1=5, m2=0) == [5, 0]


def test_deployment_evicted_after_scaling_to_zero_is_charged():
    """The cluster still stops its replicas, or has stopped them."""
    store, running = Store(DEPLOYMENTS), {"m1": {"replicas": 4, "readyReplicas": 4}}
    template, zero = deployment(spec={"replicas": 0}), {"replicas": None}
    charged_deployment(store, {"m1": 4}, statuses=running)
    charged_deployment(store, {"m1": 4}, statuses=running, template=template, spec=zero)
    evicted = admission_record("rb-web", queue="a", evictions=1)
    bound = deployment_binding(paused=True, record=evicted, clusters=[], spec=zero, statuses=running)
    leaving = received(store, ("bindings", bound)).workloads["rb-web"]
    assert leaving.admission.charge == {"cpu": 2000, "pods": 4000}
    charged_deployment(store, {"m1": 4}, statuses={"m1": {}}, template=template, spec=zero)
    bound = deployment_binding(paused=True, record=evicted, clusters=[], spec=zero, statuses={"m1": {}})
    assert received(store, ("bindings", bound)).workloads["rb-web"].admission.charge == {}


@pytest.mark.parametrize(("kind", "pods"), [("Divided", 2000), ("Duplicated", 4000)])
@pytest.mark.parametrize("state", ["evicted", "scaled-up-from-zero"])
def test_charge_of_a_deployment_that_karmada_has_not_divided(kind, pods, state):
    """All clusters together have one copy of a divided one, also while Karmada may still place it (P5)."""
    spec = {"replicas": 4, "placement": {"replicaScheduling": {"replicaSchedulingType": kind}}}
    template = deployment(spec={"replicas": 4})
    if state == "evicted":
        record = admission_record("rb-web", queue="a", evictions=1, clusters=("m1", "m2"))
        bound = deployment_binding(paused=True, record=record, spec=spec)
    else:
        record = admission_record("rb-web", queue="a", charge={"pods": "0"}, clusters=("m1", "m2"))
        bound = deployment_binding(paused=False, record=record, clusters=["m1", "m2"], spec=spec)
    workload = received(Store(DEPLOYMENTS), (DEPLOYMENT, template), ("bindings", bound)).workloads["rb-web"]
    assert [booking.charge["pods"] for booking in workload.admission.cluster_charges] == [pods, pods]
    assert workload.admission.charge["pods"] == 2 * pods


def test_leaving_job_is_charged_for_its_earlier_tasks():
    """Its status names no pods, and its template is smaller now."""
    store, evicted = Store(), admission_record("rb-j1", queue="a", evictions=1)
    running = {"m1": {"state": {"phase": "Running"}}}
    bound = binding("j1", record=SMALL, paused=False, clusters=["m1"], statuses=running)
    assert received(store, ("bindings", bound), ("jobs", job("j1", replicas=3))).workloads["rb-j1"].has_resized
    bound = binding("j1", record=evicted, paused=True, clusters=[], statuses=running)
    leaving = received(store, ("bindings", bound), ("jobs", job("j1", replicas=1))).workloads["rb-j1"]
    assert leaving.admission.charge == {"cpu": 3000, "pods": 3000}
    assert leaving.requirements.requests == ONE


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
