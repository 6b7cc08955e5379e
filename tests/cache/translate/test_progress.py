"""How far a workload is, as its cluster's status tells."""

import json

import msgspec
import pytest

from controller.api.configuration import AdmissionConfiguration, WorkloadRule
from controller.cache.facts import VOLCANO_JOB, GroupKind, Phase
from controller.cache.gates import Gates
from controller.cache.translate.progress import phase

GATES = Gates(
    AdmissionConfiguration(
        workloads=tuple(
            WorkloadRule(api_version=version, kind=kind)
            for version, kind in (("batch/v1", "Job"), ("apps/v1", "Deployment"))
        )
    )
)


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Completed"}}, Phase.FINISHED, id="completed"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Running"}}, Phase.RUNNING, id="running"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Aborted"}}, Phase.ABORTED, id="aborted"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": "Aborting"}}, Phase.WAITING, id="aborting"),
        pytest.param(VOLCANO_JOB, {"state": {"phase": 7}}, Phase.WAITING, id="phase-is-a-number"),
        pytest.param(VOLCANO_JOB, {"state": "Completed"}, Phase.WAITING, id="state-is-a-text"),
        pytest.param(VOLCANO_JOB, [], Phase.WAITING, id="a-list"),
        pytest.param(VOLCANO_JOB, None, Phase.WAITING, id="null"),
        pytest.param(
            VOLCANO_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, Phase.WAITING, id="not-batch"
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [{"type": "Complete", "status": "True"}]},
            Phase.FINISHED,
            id="complete",
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [{"type": "Failed", "status": "False"}]},
            Phase.WAITING,
            id="not-failed",
        ),
        pytest.param(GroupKind("Job.batch"), {"active": 2}, Phase.RUNNING, id="active"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": 3}, Phase.RUNNING, id="ready"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": "3"}, Phase.WAITING, id="ready-is-a-text"),
        pytest.param(
            GroupKind("Deployment.apps"),
            {"conditions": [{"type": "Complete", "status": "True"}]},
            Phase.WAITING,
            id="never",
        ),
    ],
)
def test_a_phase_is_told_from_the_status(kind, status, expected):
    assert phase(msgspec.Raw(json.dumps(status).encode()), GATES.ending(kind)) is expected


def test_a_status_too_deep_to_be_read_tells_nothing():
    assert phase(msgspec.Raw(b"[" * 100_000 + b"]" * 100_000), GATES.ending(VOLCANO_JOB)) is Phase.WAITING
