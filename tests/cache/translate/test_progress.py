"""Progress of a workload, from the status that its cluster reports."""

import json

import msgspec
import pytest

from controller.api.configuration import IntegrationRule, VolcanoGlobalConfiguration
from controller.cache.integrations import Integrations
from controller.cache.objects import VOLCANO_JOB, GroupKind, WorkloadPhase
from controller.cache.translate.progress import read_progress

GATES = Integrations(
    VolcanoGlobalConfiguration(
        integrations=tuple(
            IntegrationRule(api_version=version, kind=kind)
            for version, kind in (("batch/v1", "Job"), ("apps/v1", "Deployment"))
        )
    )
)


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
        pytest.param(
            VOLCANO_JOB, {"conditions": [{"type": "Complete", "status": "True"}]}, WorkloadPhase.WAITING, id="not-batch"
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [{"type": "Complete", "status": "True"}]},
            WorkloadPhase.FINISHED,
            id="complete",
        ),
        pytest.param(
            GroupKind("Job.batch"),
            {"conditions": [{"type": "Failed", "status": "False"}]},
            WorkloadPhase.WAITING,
            id="not-failed",
        ),
        pytest.param(GroupKind("Job.batch"), {"active": 2}, WorkloadPhase.RUNNING, id="active"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": 3}, WorkloadPhase.RUNNING, id="ready"),
        pytest.param(GroupKind("Deployment.apps"), {"readyReplicas": "3"}, WorkloadPhase.WAITING, id="ready-is-a-text"),
        pytest.param(
            GroupKind("Deployment.apps"),
            {"conditions": [{"type": "Complete", "status": "True"}]},
            WorkloadPhase.WAITING,
            id="never",
        ),
    ],
)
def test_phase_is_read_from_the_status(kind, status, expected):
    assert read_progress(msgspec.Raw(json.dumps(status).encode()), GATES.finished_rule(kind)).phase is expected


def test_too_deeply_nested_status_has_no_progress():
    deep = msgspec.Raw(b"[" * 100_000 + b"]" * 100_000)
    assert read_progress(deep, GATES.finished_rule(VOLCANO_JOB)).phase is WorkloadPhase.WAITING
