"""Admission of Deployments, batch Jobs and other configured kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION, CLUSTERS
from tests.integration import gated_kinds
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness

DEPLOYMENT = ("apps/v1", "Deployment")
BATCH_JOB = ("batch/v1", "Job")


def flags(file: Path) -> tuple[str | Path, ...]:
    return "--admission-configuration", file, "--poll-seconds", "0.05"


async def start(harness: Harness, *served: tuple[str, str], cpu: str = "4", **queue: Any) -> None:
    await harness.karmada.queue("q", **queue)
    await harness.karmada.cluster("m1", cpu=cpu)
    kinds = [("batch.volcano.sh/v1alpha1", "Job"), *served]
    enabled = [
        {"groupVersion": version, "resources": [{"kind": kind, "name": gated_kinds.PLURALS[kind]}]}
        for version, kind in kinds
    ]
    await harness.karmada.merge(f"{CLUSTERS.path}/m1/status", {"status": {"apiEnablements": enabled}})
    await harness.controller.start()


async def submit(harness: Harness, version: str, kind: str, name: str, *, replicas: int = 1, **more: Any) -> None:
    """Submit an object with *replicas* pods of one CPU each, or with *resources*, to *queue*; and its binding."""
    container = {"name": "main", "image": "busybox", "resources": more.get("resources", {"requests": {"cpu": "1"}})}
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    if kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": replicas, "completions": replicas, "template": pod}
    else:
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    labels = {"scheduling.volcano.sh/queue-name": more["queue"]} if "queue" in more else {}
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec}
    made = await harness.karmada.create(gated_kinds.folder(harness, version, kind), manifest)
    await gated_kinds.bind(harness, version, kind, name, uid=made["metadata"]["uid"], replicas=replicas)


def binding(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    return harness.history.now["resourcebindings"][harness.karmada.namespace, f"{name}-{kind}"]


def record(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    annotations = binding(harness, name, kind)["metadata"].get("annotations", {})
    return json.loads(annotations.get(ADMISSION_ANNOTATION, "{}"))


async def wait_until(harness: Harness, question: Callable[[], bool], what: str) -> None:
    """Wait until *question* is true; the error shows the log of the controller."""
    try:
        await harness.history.until(lambda _: question(), what)
    except AssertionError as error:
        raise AssertionError(f"{error}; its log:\n{harness.controller.part.output[-3000:]}") from error


async def wait_for_record(harness: Harness, name: str, kind: str = "deployment") -> dict[str, Any]:
    """Wait until the binding has an admission record."""
    await wait_until(harness, lambda: bool(record(harness, name, kind)), f"a record on {name}")
    return record(harness, name, kind)


def is_resumed(harness: Harness, name: str, kind: str = "deployment") -> bool:
    return not binding(harness, name, kind)["spec"].get("suspension", {}).get("scheduling")


async def wait_until_resumed(harness: Harness, name: str, kind: str = "deployment") -> None:
    await wait_until(harness, lambda: is_resumed(harness, name, kind), f"{name} resumed")


async def test_kind_enabled_at_run_time_is_gated(plane, tmp_path):
    """Limits replace missing requests, whatever requirements Karmada computed."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.HEAD)
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await start(harness, DEPLOYMENT, cpu="6")
        await submit(harness, *DEPLOYMENT, "first", queue="q", replicas=2, resources={"limits": {"cpu": "2"}})
        await submit(harness, *DEPLOYMENT, "second", queue="q", replicas=2, resources={"limits": {"cpu": "2"}})
        await harness.expect_no_writes(seconds=0.3)
        assert record(harness, "first") == record(harness, "second") == {}
        file.write_text(gated_kinds.configuration(DEPLOYMENT))
        await wait_until_resumed(harness, "first")
        charge = record(harness, "first")["charge"]
        assert {name: charge[name] for name in ("cpu", "pods")} == {"cpu": "4", "pods": "2"}
        await wait_for_event(harness, "InsufficientCapacity", "Deployment", "second")
        assert not is_resumed(harness, "second")
        assert await harness.controller.metric('volcano_global_cache_synced{resource="deployments.apps"}') == 1


async def test_q6_queue_is_fixed_when_workload_is_first_observed(plane, tmp_path):
    """Q6: neither removing nor changing the label changes the queue; a workload without one is not gated."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await start(harness, DEPLOYMENT, capability={"cpu": "1"})
        await submit(harness, *DEPLOYMENT, "free", replicas=50)
        await wait_until_resumed(harness, "free")
        assert record(harness, "free") == {}
        await submit(harness, *DEPLOYMENT, "big", queue="q", replicas=3)
        assert (await wait_for_record(harness, "big"))["queue"] == "q"
        assert not record(harness, "big")["charge"]
        for label in (None, "elsewhere"):
            labels = {"metadata": {"labels": {"scheduling.volcano.sh/queue-name": label}}}
            await harness.karmada.merge(f"{gated_kinds.folder(harness, *DEPLOYMENT)}/big", labels)
            await harness.expect_no_writes(seconds=0.3)
            assert not is_resumed(harness, "big")
        await harness.karmada.merge(
            "/apis/scheduling.volcano.sh/v1beta1/queues/q", {"spec": {"capability": {"cpu": "3"}}}
        )
        await wait_until_resumed(harness, "big")
        assert record(harness, "big")["queue"] == "q"


async def test_finished_batch_job_frees_its_quota(plane, tmp_path):
    """Its binding has the name that the binding of a Volcano Job would have."""
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(BATCH_JOB))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await start(harness, BATCH_JOB, capability={"cpu": "2"})
        for name in ("first", "second"):
            await submit(harness, *BATCH_JOB, name, queue="q", replicas=2)
        await wait_until_resumed(harness, "first", "job")
        await wait_for_record(harness, "second", "job")
        job_status = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 2}
        status = {"aggregatedStatus": [{"clusterName": "m1", "applied": True, "status": job_status}]}
        await harness.karmada.merge(f"{harness.karmada.path('first')}/status", {"status": status})
        await wait_until_resumed(harness, "second", "job")


async def test_workload_of_disabled_kind_is_resumed(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        await start(harness, DEPLOYMENT, capability={"cpu": "1"})
        await submit(harness, *DEPLOYMENT, "gated", queue="q", replicas=3)
        await wait_for_record(harness, "gated")
        file.write_text(gated_kinds.HEAD)
        await wait_until_resumed(harness, "gated")
        await harness.controller.wait_for_log("template watch stopped")
        await harness.karmada.job("after", "q")
        await harness.admitted("after")


async def test_unserved_or_forbidden_kind_does_not_delay_other_kinds(plane, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(("example.com/v1", "Gizmo"), DEPLOYMENT))
    async with open_harness(plane, tmp_path, *flags(file), plays=False) as harness:
        harness.proxy.add(ErrorReply(lambda call: call.resource == "deployments", status=403))
        await start(harness, DEPLOYMENT)
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await harness.controller.wait_for_log("it is not served")
        await submit(harness, *DEPLOYMENT, "gated", queue="q")
        event = await wait_for_event(harness, "QueueNotFound", "Deployment", "gated")
        assert "check that the controller may read objects of its kind" in event["note"]
