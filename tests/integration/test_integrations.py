"""Admission of Deployments, batch Jobs and other configured kinds."""

from typing import Any

from controller.api.keys import JOBS, Resource
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job")
UNSERVED = Resource("example.com", "v1", "gizmos", "Gizmo")


def gating(*kinds: Resource) -> dict[str, Any]:
    """Return the configuration that gates these kinds in addition to Volcano Jobs."""
    return {"integrations": [{"apiVersion": kind.api_version, "kind": kind.kind} for kind in kinds]}


async def start(harness: Harness, served: Resource, *, cpu: str = "4", **queue: Any) -> None:
    await harness.prepare(cpu=cpu, **queue)
    await harness.karmada.set_summary("m1", kinds=(JOBS, served), cpu=cpu)
    await harness.controller.start()


async def submit(harness: Harness, resource: Resource, name: str, *, replicas: int = 1, **more: Any) -> None:
    """Submit an object with *replicas* pods of one CPU each, or with *resources*, to *queue*; and its binding."""
    container = {"name": "main", "image": "busybox", "resources": more.get("resources", {"requests": {"cpu": "1"}})}
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    if resource is BATCH_JOBS:
        pod["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": replicas, "completions": replicas, "template": pod}
    else:
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}
    labels = {"scheduling.volcano.sh/queue-name": more["queue"]} if "queue" in more else {}
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, "labels": labels}}
    made = await harness.karmada.create(harness.karmada.folder(resource), {**head, "spec": spec})
    placement: dict[str, Any] = {"clusterAffinity": {}}
    uid = made["metadata"]["uid"]
    await harness.karmada.bind(name, uid, of=resource, placement=placement, replicas=replicas)


async def wait_for_record(harness: Harness, name: str) -> dict[str, Any]:
    """Wait until the binding of a workload has an admission record."""
    await harness.until(lambda seen: bool(seen[name].record), f"a record on {name}")
    return harness.record(name)


def is_resumed(harness: Harness, name: str) -> bool:
    return not harness.bindings()[name].suspended


async def wait_until_resumed(harness: Harness, name: str) -> None:
    await harness.until(lambda seen: not seen[name].suspended, f"{name} resumed")


async def test_kind_enabled_at_run_time_is_gated(plane, tmp_path):
    """Limits replace missing requests, whatever requirements Karmada computed."""
    async with open_harness(plane, tmp_path, configuration={}, plays=False) as harness:
        await start(harness, DEPLOYMENTS, cpu="6")
        await submit(harness, DEPLOYMENTS, "first", queue="q", replicas=2, resources={"limits": {"cpu": "2"}})
        await submit(harness, DEPLOYMENTS, "second", queue="q", replicas=2, resources={"limits": {"cpu": "2"}})
        await harness.expect_no_writes(seconds=0.3)
        assert harness.record("first") == harness.record("second") == {}
        harness.configure(**gating(DEPLOYMENTS))
        await wait_until_resumed(harness, "first")
        charge = harness.record("first")["charge"]
        assert {name: charge[name] for name in ("cpu", "pods")} == {"cpu": "4", "pods": "2"}
        await wait_for_event(harness, "InsufficientCapacity", "Deployment", "second")
        assert not is_resumed(harness, "second")
        assert await harness.controller.metric('volcano_global_cache_synced{resource="deployments.apps"}') == 1


async def test_q6_queue_is_fixed_when_workload_is_first_observed(plane, tmp_path):
    """Q6: neither removing nor changing the label changes the queue; a workload without one is not gated."""
    async with open_harness(plane, tmp_path, configuration=gating(DEPLOYMENTS), plays=False) as harness:
        await start(harness, DEPLOYMENTS, capability={"cpu": "1"})
        await submit(harness, DEPLOYMENTS, "free", replicas=50)
        await wait_until_resumed(harness, "free")
        assert harness.record("free") == {}
        await submit(harness, DEPLOYMENTS, "big", queue="q", replicas=3)
        assert (await wait_for_record(harness, "big"))["queue"] == "q"
        assert not harness.record("big")["charge"]
        for label in (None, "elsewhere"):
            labels = {"metadata": {"labels": {"scheduling.volcano.sh/queue-name": label}}}
            await harness.karmada.merge(f"{harness.karmada.folder(DEPLOYMENTS)}/big", labels)
            await harness.expect_no_writes(seconds=0.3)
            assert not is_resumed(harness, "big")
        await harness.karmada.merge(
            "/apis/scheduling.volcano.sh/v1beta1/queues/q", {"spec": {"capability": {"cpu": "3"}}}
        )
        await wait_until_resumed(harness, "big")
        assert harness.record("big")["queue"] == "q"


async def test_finished_batch_job_frees_its_quota(plane, tmp_path):
    """Its binding has the name that the binding of a Volcano Job would have."""
    async with open_harness(plane, tmp_path, configuration=gating(BATCH_JOBS), plays=False) as harness:
        await start(harness, BATCH_JOBS, capability={"cpu": "2"})
        for name in ("first", "second"):
            await submit(harness, BATCH_JOBS, name, queue="q", replicas=2)
        await wait_until_resumed(harness, "first")
        await wait_for_event(harness, "QueueLimitReached", "Job", "second")
        assert not is_resumed(harness, "second")
        await harness.karmada.report("first", conditions=[{"type": "Complete", "status": "True"}], succeeded=2)
        await wait_until_resumed(harness, "second")


async def test_workload_of_disabled_kind_is_resumed(plane, tmp_path):
    async with open_harness(plane, tmp_path, configuration=gating(DEPLOYMENTS), plays=False) as harness:
        await start(harness, DEPLOYMENTS, capability={"cpu": "1"})
        await submit(harness, DEPLOYMENTS, "gated", queue="q", replicas=3)
        await wait_for_record(harness, "gated")
        harness.configure()
        await wait_until_resumed(harness, "gated")
        await harness.controller.wait_for_log("template watch stopped")
        await harness.karmada.job("after", "q")
        await harness.admitted("after")


async def test_unserved_or_forbidden_kind_does_not_delay_other_kinds(plane, tmp_path):
    async with open_harness(plane, tmp_path, configuration=gating(UNSERVED, DEPLOYMENTS), plays=False) as harness:
        harness.proxy.add(ErrorReply(lambda call: call.resource == "deployments", status=403))
        await start(harness, DEPLOYMENTS)
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await harness.controller.wait_for_log("it is not served")
        await submit(harness, DEPLOYMENTS, "gated", queue="q")
        event = await wait_for_event(harness, "QueueNotFound", "Deployment", "gated")
        assert "check that the controller may read objects of its kind" in event["note"]


async def test_readyz_names_a_kind_whose_requests_fail(plane, tmp_path):
    """Nothing is decided until it is known which of its objects run."""
    async with open_harness(plane, tmp_path, configuration=gating(DEPLOYMENTS), plays=False) as harness:
        failing = ErrorReply(lambda call: call.resource == "deployments", status=503)
        harness.proxy.add(failing)
        await harness.prepare()
        await harness.controller.begin()
        await harness.karmada.job("waits", "q")
        await harness.controller.wait_for_log("discovery failed")
        assert await harness.controller.page("/readyz") == "managed-kinds not known yet"
        assert await harness.controller.metric('volcano_global_cache_synced{resource="managed-kinds"}') == 0
        failing.times = 0
        await harness.admitted("waits")
        assert await harness.controller.page("/readyz") == "ok"
