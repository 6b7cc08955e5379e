"""Progress of a workload, from the status that its cluster reports."""

import json

import msgspec
import pytest

from controller.api.configuration import Finished, IntegrationRule, VolcanoGlobalConfiguration
from controller.cache.integrations import Integrations
from controller.cache.objects import BATCH_JOB, VOLCANO_JOB, ClusterProgress, GroupKind, WorkloadPhase
from controller.cache.translate.progress import read_progress
from controller.engine.state.clusters import ClusterName

DONE = Finished(path="phase", values=("Succeeded",))
DONE_OR_COMPLETE = Finished(path="phase", values=("Succeeded",), conditions=("Complete",))
GATES = Integrations(
    VolcanoGlobalConfiguration(
        integrations=(
            IntegrationRule(api_version="batch/v1", kind="Job"),
            IntegrationRule(api_version="apps/v1", kind="Deployment"),
            IntegrationRule(api_version="v1", kind="Pod"),
            IntegrationRule(api_version="argoproj.io/v1alpha1", kind="Workflow", finished=DONE),
            IntegrationRule(api_version="example.io/v1", kind="Task", finished=DONE_OR_COMPLETE),
        )
    )
)
WORKFLOW, POD, TASK = GroupKind("Workflow.argoproj.io"), GroupKind("Pod."), GroupKind("Task.example.io")
COMPLETE = {"type": "Complete", "status": "True"}
PYTORCH_JOB, RAY_CLUSTER = GroupKind("PyTorchJob.kubeflow.org"), GroupKind("RayCluster.ray.io")


def progress_of(kind: GroupKind, status: object) -> ClusterProgress:
    raw = msgspec.Raw(json.dumps(status).encode())
    return read_progress(ClusterName("m1"), raw, kind, GATES.finished_rule(kind))[0]


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Completed"}}, WorkloadPhase.FINISHED, id="completed"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Running"}}, WorkloadPhase.RUNNING, id="running"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Aborted"}}, WorkloadPhase.ABORTED, id="aborted"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Aborting"}}, WorkloadPhase.WAITING, id="aborting"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": 7}}, WorkloadPhase.WAITING, id="phase-is-a-number"),
        pytest.param(VOLCANO_JOB, {"state": "Completed"}, WorkloadPhase.WAITING, id="state-is-a-text"),
        pytest.param(VOLCANO_JOB, [], WorkloadPhase.WAITING, id="a-list"),
        pytest.param(VOLCANO_JOB, None, WorkloadPhase.WAITING, id="null"),
        pytest.param(VOLCANO_JOB, {"conditions": [COMPLETE]}, WorkloadPhase.WAITING, id="not-batch"),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [COMPLETE]},
            WorkloadPhase.FINISHED,
            id="complete",
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [{"type": "Failed", "status": "False"}]},
            WorkloadPhase.WAITING,
            id="not-failed",
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [COMPLETE, {"type": [], "status": "True"}]},
            WorkloadPhase.FINISHED,
            id="condition-type-is-a-list",
        ),
        pytest.param(TASK, {"phase": [], "conditions": [COMPLETE]}, WorkloadPhase.FINISHED, id="phase-is-a-list"),
        pytest.param(GroupKind("Job.batch"), {"active": 2}, WorkloadPhase.RUNNING, id="active"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": 3}, WorkloadPhase.RUNNING, id="ready"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": "3"}, WorkloadPhase.WAITING, id="ready-is-a-text"),
        pytest.param(
            GroupKind("Deployment.apps"),
            {"conditions": [COMPLETE]},
            WorkloadPhase.WAITING,
            id="never",
        ),
        pytest.param(
            PYTORCH_JOB,
            {"replicaStatuses": {"Master": {}, "Worker": {"active": 2}}},
            WorkloadPhase.RUNNING,
            id="active-replicas",
        ),
        pytest.param(PYTORCH_JOB, {"replicaStatuses": [{"active": 2}]}, WorkloadPhase.WAITING, id="replicas-in-a-list"),
        pytest.param(WORKFLOW, {"phase": "RUNNING"}, WorkloadPhase.RUNNING, id="running-in-capitals"),
        pytest.param(POD, {"phase": "Running"}, WorkloadPhase.RUNNING, id="pod-runs"),
        pytest.param(POD, {"phase": "Succeeded"}, WorkloadPhase.FINISHED, id="pod-succeeded"),
    ],
)
def test_phase_is_read_from_the_status(kind, status, expected):
    assert progress_of(kind, status).phase is expected


@pytest.mark.parametrize(
    ("kind", "status", "has_run"),
    [
        pytest.param(WORKFLOW, {"phase": "Pending"}, False, id="pending"),
        pytest.param(WORKFLOW, {"phase": "Submitted"}, True, id="unknown-phase"),
        pytest.param(PYTORCH_JOB, {"replicaStatuses": {"Worker": {}}}, False, id="no-active-replica"),
        pytest.param(RAY_CLUSTER, {"state": "ready"}, True, id="no-path"),
        pytest.param(RAY_CLUSTER, {"replicas": 3}, False, id="no-ready-replica"),
        pytest.param(RAY_CLUSTER, {}, False, id="no-status"),
        pytest.param(GroupKind("Deployment.apps"), {"observedGeneration": 1}, False, id="deployment-without-pods"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Inqueue"}}, False, id="volcano-job"),
    ],
)
def test_status_of_unknown_form_counts_as_started(kind, status, has_run):
    assert progress_of(kind, status).has_run is has_run


@pytest.mark.parametrize(
    ("status", "has_run"),
    [
        pytest.param({}, False, id="no-pods"),
        pytest.param({"failed": 2}, True, id="between-two-retries"),
        pytest.param({"succeeded": 1}, True, id="before-the-next-completion"),
    ],
)
def test_kubernetes_job_with_ended_pods_has_run(status, has_run):
    """It is not taken back after a restart of the controller either (R1)."""
    assert progress_of(BATCH_JOB, status).has_run is has_run


def test_too_deeply_nested_status_has_no_progress():
    deep = msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)
    assert (
        read_progress(ClusterName("m1"), deep, VOLCANO_JOB, GATES.finished_rule(VOLCANO_JOB))[0].phase
        is WorkloadPhase.WAITING
    )
