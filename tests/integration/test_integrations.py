"""Deployments, StatefulSets, batch Jobs and kinds given by a rule wait like Volcano Jobs, once they are switched on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.api.keys import ADMISSION_ANNOTATION
from tests.integration import gated_kinds
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness

DEPLOYMENT = ("apps/v1", "Deployment")
BATCH_JOB = ("batch/v1", "Job")


def flags(file: Path) -> tuple[str | Path, ...]:
    return "--admission-configuration", file, "--poll-seconds", "0.05"


async def begun(harness: Harness, *served: tuple[str, str], cpu: str = "4", **queue: Any) -> None:
    await harness.karmada.queue("q", **queue)
    await harness.karmada.cluster("m1", cpu=cpu)
    await gated_kinds.enable(harness, "m1", *served)
    await harness.controller.start()


def binding(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    return harness.history.now["resourcebindings"][harness.karmada.namespace, f"{name}-{kind}"]


def record(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    annotations = binding(harness, name, kind)["metadata"].get("annotations", {})
    return json.loads(annotations.get(ADMISSION_ANNOTATION, "{}"))


async def shown(harness: Harness, question: Callable[[], bool], what: str) -> None:
    """Wait until the answer is yes; the error shows what the controller said."""
    try:
        await harness.history.until(lambda _: question(), what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it said:\n{harness.controller.part.output[-3000:]}") from error


async def recorded(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    """Wait until our record is on a binding."""
    await shown(harness, lambda: bool(record(harness, name, kind)), f"a record on {name}")
    return record(harness, name, kind)


def is_let_go(harness: Harness, name: str, kind: str = "deployment") -> bool:
    return not binding(harness, name, kind)["spec"].get("suspension", {}).get("scheduling")


async def let_go(harness: Harness, name: str, kind: str = "deployment") -> None:
    await shown(harness, lambda: is_let_go(harness, name, kind), f"{name} resumed")


async def test_kind_enabled_at_run_time_is_gated(plane, tmp_path):
    """Its pods are counted as they will be, limits where requests are missing, whatever Karmada has counted."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.HEAD)
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, DEPLOYMENT, cpu="6")
        await gated_kinds.submit(harness, *DEPLOYMENT, "first", queue="q", replicas=2, cpu=2, under="limits")
        await gated_kinds.submit(harness, *DEPLOYMENT, "second", queue="q", replicas=2, cpu=2, under="limits")
        await harness.expect_no_writes(seconds=0.3)
        assert record(harness, "first") == record(harness, "second") == {}
        file.write_text(gated_kinds.configuration(DEPLOYMENT))
        await let_go(harness, "first")
        charge = record(harness, "first")["charge"]
        assert {name: charge[name] for name in ("cpu", "pods")} == {"cpu": "4", "pods": "2"}
        await wait_for_event(harness, "QueueLimitReached", "Deployment", "second")
        assert not is_let_go(harness, "second")
        assert await harness.controller.metric('volcano_global_cache_synced{resource="deployments.apps"}') == 1


async def test_q6_workload_without_queue_is_resumed_and_not_charged(plane, tmp_path):
    """Q6."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, DEPLOYMENT)
        await gated_kinds.submit(harness, *DEPLOYMENT, "free", replicas=50)
        await let_go(harness, "free")
        assert record(harness, "free") == {}


async def test_q6_queue_is_fixed_when_workload_is_first_observed(plane, tmp_path):
    """Q6: taking the label away does not release it, another label does not move it."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, DEPLOYMENT, capability={"cpu": "1"})
        await gated_kinds.submit(harness, *DEPLOYMENT, "big", queue="q", replicas=3)
        assert (await recorded(harness, "big"))["queue"] == "q"
        assert not record(harness, "big")["charge"]
        for label in (None, "elsewhere"):
            labels = {"metadata": {"labels": {"scheduling.volcano.sh/queue-name": label}}}
            await harness.karmada.merge(f"{gated_kinds.folder(harness, *DEPLOYMENT)}/big", labels)
            await harness.expect_no_writes(seconds=0.3)
            assert not is_let_go(harness, "big")
        await harness.karmada.merge(
            "/apis/scheduling.volcano.sh/v1beta1/queues/q", {"spec": {"capability": {"cpu": "3"}}}
        )
        await let_go(harness, "big")
        assert record(harness, "big")["queue"] == "q"


async def test_finished_batch_job_frees_its_quota(plane, tmp_path):
    """Its binding bears the name that a Volcano Job's would bear."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(BATCH_JOB))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, BATCH_JOB, capability={"cpu": "2"})
        for name in ("first", "second"):
            await gated_kinds.submit(harness, *BATCH_JOB, name, queue="q", replicas=2)
        await let_go(harness, "first", "job")
        await recorded(harness, "second", "job")
        told = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 2}
        status = {"aggregatedStatus": [{"clusterName": "m1", "applied": True, "status": told}]}
        await harness.karmada.merge(f"{gated_kinds.path(harness, 'first', 'Job')}/status", {"status": status})
        await let_go(harness, "second", "job")


@pytest.mark.parametrize("kind", ["StatefulSet", "ReplicaSet"])
async def test_kind_without_karmada_requests_is_charged_from_template(plane, tmp_path, kind):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(("apps/v1", kind)))
    plane.admin.apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/reads-replica-sets",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reads-replica-sets"},
            "rules": [{"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": ["list", "watch"]}],
        },
    )
    plane.admin.apply(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/reads-replica-sets",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reads-replica-sets"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-replica-sets"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "volcano-global-controller"}
            ],
        },
    )
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, ("apps/v1", kind))
        await gated_kinds.submit(harness, "apps/v1", kind, "set", queue="q", replicas=3, counted={})
        await let_go(harness, "set", kind.lower())
        assert record(harness, "set", kind.lower())["charge"]["cpu"] == "3"


async def test_workload_of_disabled_kind_is_resumed(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await begun(harness, DEPLOYMENT, capability={"cpu": "1"})
        await gated_kinds.submit(harness, *DEPLOYMENT, "held", queue="q", replicas=3)
        await recorded(harness, "held")
        file.write_text(gated_kinds.HEAD)
        await let_go(harness, "held")
        await harness.controller.wait_for_log("template watch stopped")
        await harness.karmada.job("after", "q")
        await harness.admitted("after")


async def test_unserved_or_forbidden_kind_does_not_delay_other_kinds(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(("example.com/v1", "Gizmo"), DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        harness.proxy.add(ErrorReply(lambda call: call.resource == "deployments", status=403))
        await begun(harness, DEPLOYMENT)
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await harness.controller.wait_for_log("it is not served")
        await gated_kinds.submit(harness, *DEPLOYMENT, "held", queue="q")
        event = await wait_for_event(harness, "QueueNotFound", "Deployment", "held")
        assert "whether the controller may read objects of its kind" in event["note"]
