"""The HyperJob controller: it waits for the CRDs, and an error of one HyperJob does not block the others."""

import asyncio
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import msgspec
import pytest

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PART_ANNOTATION
from controller.cache.objects import ObjectKey
from controller.cache.store import Store
from controller.controllers.hyperjob.controller import HyperJobController, HyperJobDependencies
from controller.controllers.hyperjob.observed import AppliedRevision, decode_part_job
from controller.controllers.hyperjob.split import CapacitySnapshot
from controller.kube.client import Api
from controller.kube.errors import NotFound, error_for
from controller.kube.informer import Informer, WatchOptions
from localup.apply import apply_files
from localup.controlplane import OUR_CRDS
from tests.cache.objects import binding
from tests.controllers.hyperjob.objects import document, gpus, replicated, task
from tests.virtual_time import virtual_time
from tests.waiting import poll

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "default"
AUTO = replicated("t", task(replicas=4), splitPolicy={"mode": "auto"})


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    return fresh_control_plane()


@asynccontextmanager
async def running_controller(plane, *, capacity=CapacitySnapshot, may_write=lambda: True, placed=lambda key: None):
    """Run a controller with its own RBAC rights; yield it and an administrator."""
    async with Api.connect(plane.kubeconfig("volcano-global-hyperjobs")) as ours:
        around = HyperJobDependencies(may_write, capacity, placed, lambda uid: None)
        controller = HyperJobController(ours, around, watch_options=WatchOptions())
        controller.discovery_interval_seconds = 0.1
        task = asyncio.create_task(controller.run())
        async with Api.connect(plane.kubeconfig("admin")) as admin:
            yield controller, admin
            assert not task.done(), task
            for resource in (HYPERJOBS, BATCH_HYPERJOBS):
                with suppress(NotFound):
                    await admin.delete(resource.item_path(NAMESPACE, "").rstrip("/"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.05)


async def submit(admin, manifest):
    body = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}
    await admin.create(HYPERJOBS.item_path(NAMESPACE, "").rstrip("/"), msgspec.json.encode(body))


async def find(admin, name):
    """Return the Job of this name, or ``None``."""
    with suppress(NotFound):
        return await admin.get(JOBS.item_path(NAMESPACE, name))
    return None


def binding_on(cluster, template_uid="", phase="Completed", *, paused=False):
    """Return the binding of the part ``llm-t-0``."""
    on_cluster = {"clusters": [cluster], "phases": {cluster: phase}}
    manifest = binding("llm-t-0", namespace=NAMESPACE, paused=paused, template_uid=template_uid, **on_cluster)
    return Store().bindings.decode(manifest)


def observed(manifest, *, namespace=NAMESPACE, uid, **metadata):
    """Return an object as the API server stores it."""
    metadata = {**manifest["metadata"], "namespace": namespace, "uid": uid, "resourceVersion": "1", **metadata}
    return msgspec.json.encode({**manifest, "metadata": metadata})


def part(uid, *, namespace=NAMESPACE):
    """Return the Job of the part ``llm-t-0``, or a copy of it in another namespace."""
    owner = {"apiVersion": HYPERJOBS.api_version, "kind": "HyperJob", "name": "llm", "uid": "uid-1", "controller": True}
    labels = {"volcano.sh/hyperjob-name": "llm"}
    job = {"metadata": {"name": "llm-t-0"}, "status": {"state": {"phase": "Failed"}}}
    return observed(job, namespace=namespace, uid=uid, labels=labels, ownerReferences=[owner])


def unstarted(placed=lambda key: None):
    """Return a controller that knows the HyperJob ``llm`` and sends nothing."""
    around = HyperJobDependencies(lambda: True, CapacitySnapshot, placed, lambda uid: None)
    controller = HyperJobController(None, around, watch_options=WatchOptions())
    controller.update(HYPERJOBS, observed(document(), uid="uid-1"))
    return controller


def test_deletion_of_a_hyperjob_holds_its_parts():
    known = []
    around = HyperJobDependencies(
        lambda: True, CapacitySnapshot, lambda _: None, lambda _: None, lambda _, cached: known.append(cached)
    )
    controller = HyperJobController(None, around, watch_options=WatchOptions())
    status = {"split": {"parts": [{"name": "llm-t-0", "index": 0, "phase": "Pending"}]}}
    for version, deletion in (("1", {}), ("2", {"deletionTimestamp": "2026-01-01T00:00:00Z"})):
        controller.update(
            HYPERJOBS, observed({**document(), "status": status}, uid="uid-1", resourceVersion=version, **deletion)
        )
    assert [(cached.parts, cached.deleting) for cached in known] == [({"llm-t-0"}, False), ({"llm-t-0"}, True)]


async def test_controller_starts_after_crds_are_installed(plane):
    names = [f"hyperjobs.{resource.group}" for resource in (HYPERJOBS, BATCH_HYPERJOBS)]
    for name in names:
        await asyncio.to_thread(plane.admin.delete, f"{DEFINITIONS}/{name}")
    async with running_controller(plane) as (controller, admin):
        await asyncio.sleep(0.5)
        await asyncio.to_thread(apply_files, plane.admin, OUR_CRDS)
        await submit(admin, document(replicated("t"), name="late"))
        await poll(lambda: find(admin, "late-t-0"), "late-t-0")
        assert controller.caches.keys() == {*names}


async def test_writes_need_leadership_and_capacity(plane):
    allowed, rooms = asyncio.Event(), [gpus(a=1)]
    async with running_controller(plane, capacity=lambda: rooms[0], may_write=allowed.is_set) as (controller, admin):
        await submit(admin, document(replicated("t"), name="standby"))
        await submit(admin, document(AUTO, name="wide"))
        await asyncio.sleep(1)
        assert await find(admin, "standby-t-0") is None
        allowed.set()
        await poll(lambda: find(admin, "standby-t-0"), "standby-t-0")
        await asyncio.sleep(1)
        assert await find(admin, "wide-t-0") is None
        rooms[0] = gpus(a=4)
        controller.wake()
        await poll(lambda: find(admin, "wide-t-0"), "wide-t-0")


async def test_error_of_one_hyperjob_does_not_block_others(plane):
    """No schema checks the selector of this HyperJob, and nobody can read it."""
    affinity = {"labelSelector": {"matchExpressions": [{"operator": "Near"}]}}
    async with running_controller(plane, capacity=lambda: gpus(a=8)) as (_, admin):
        await submit(admin, document(AUTO, name="broken", clusterAffinity=affinity))
        await submit(admin, document(replicated("t"), name="sound"))
        await poll(lambda: find(admin, "sound-t-0"), "sound-t-0")
        status = msgspec.json.decode(await admin.get(HYPERJOBS.item_path(NAMESPACE, "broken")))["status"]
        assert "operator 'Near' is unknown" in status["message"]


@pytest.mark.parametrize(
    ("status", "is_synced"), [pytest.param(403, True, id="no-permission"), pytest.param(503, False, id="outage")]
)
@virtual_time
async def test_decisions_wait_for_hyperjobs_during_an_outage_only(status, is_synced):
    class Refusing:
        async def get(self, path):
            raise error_for(status)(f"GET {path}", status, "refused")

    controller = HyperJobController(Refusing(), unstarted()._dependencies, watch_options=WatchOptions())
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(60)
    running.cancel()
    assert controller.synced.is_set() == is_synced


def test_deeply_nested_revision_of_a_part_counts_as_none():
    revision = '{"x":' + '{"a":' * 5_000 + "1" + "}" * 5_001
    job = observed({"metadata": {"name": "llm-t-0"}}, uid="own", annotations={PART_ANNOTATION: revision})
    assert decode_part_job(job).revision == AppliedRevision()


def test_copy_of_a_part_in_another_namespace_is_ignored():
    """A backup was restored there, or a tenant knows the uid of a HyperJob of another one."""
    controller = unstarted()
    controller.update(JOBS, part("own"))
    controller.update(JOBS, part("copy", namespace="other"))
    assert {name: job.uid for name, job in controller.jobs("uid-1").items()} == {"llm-t-0": "own"}
    controller.forget(JOBS, ObjectKey("other", "llm-t-0"), "copy")
    assert {name: job.uid for name, job in controller.jobs("uid-1").items()} == {"llm-t-0": "own"}


@pytest.mark.parametrize(("uid", "is_placed"), [("own", True), ("earlier", False)])
def test_binding_of_an_earlier_job_does_not_place_a_part(uid, is_placed):
    """Karmada cannot delete the binding while its cluster does not answer."""
    controller = unstarted(lambda key: binding_on("a", uid))
    controller.update(JOBS, part("own"))
    assert (controller.placement(NAMESPACE, "llm-t-0") is not None) == is_placed


def test_deleted_hyperjob_is_forgotten():
    """Up to a thousand of them, with annotations of 256 KiB each, would fill the memory."""
    controller = unstarted()
    reconciler = controller._reconciler
    reconciler.known["uid-1"] = reconciler.rejections["uid-1"] = None
    controller.update(HYPERJOBS, observed(document(), uid="uid-1", resourceVersion="2"))
    assert (len(reconciler.known), len(reconciler.rejections)) == (1, 1)
    controller.forget(HYPERJOBS, ObjectKey(NAMESPACE, "llm"), "uid-1")
    assert (len(reconciler.known), len(reconciler.rejections)) == (0, 0)


def test_deleted_hyperjob_is_not_queued_in_a_standby():
    """A standby processes no items, and tenants may create and delete HyperJobs for weeks."""
    controller = unstarted()
    assert len(controller._queue) == 1
    controller.forget(HYPERJOBS, ObjectKey(NAMESPACE, "llm"), "uid-1")
    assert not controller._queue


@pytest.mark.parametrize(
    ("phase", "reported"),
    [
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Terminated", "Failed"),
        ("Running", "Running"),
        ("Pending", "Admitted"),
        ("Aborted", "Admitted"),
        ("", "Admitted"),
    ],
)
def test_binding_says_the_phase_of_a_part(phase, reported):
    controller = unstarted(lambda key: binding_on("a", phase=phase))
    assert controller.placement(NAMESPACE, "llm-t-0").reported == reported


@pytest.mark.parametrize(
    ("phase", "clusters"),
    [pytest.param("Running", (), id="running"), pytest.param("Completed", ("m1",), id="finished")],
)
def test_suspended_part_is_placed_once_it_has_finished(phase, clusters):
    """It may finish before the controller resumes what others have suspended (R1)."""
    suspended = binding_on("m1", phase=phase, paused=True)
    assert unstarted(lambda key: suspended).placement(NAMESPACE, "llm-t-0").clusters == clusters


async def test_new_leader_waits_for_the_writes_of_the_former_one():
    """With the status before a retry it would delete the Job of the retry."""
    controller = unstarted()
    informer = controller._informers[HYPERJOBS] = Informer(None, HYPERJOBS.path, decode=bytes, sink=controller._jobs)
    informer.synced.set()
    controller.on_leading()
    waiting = asyncio.create_task(controller._until_synced())
    await asyncio.sleep(0)
    assert not waiting.done()
    informer.synced.set()
    await waiting


async def test_other_tasks_run_between_two_hyperjobs():
    """A pass over all HyperJobs, of which none has changed, may take seconds."""
    controller, ticks = unstarted(), []
    for number in range(9):
        controller.update(HYPERJOBS, observed(document(name=f"other-{number}"), uid=f"other-{number}"))
    controller._informers[HYPERJOBS] = None

    async def reconcile(*_):
        """Change nothing."""

    async def tick():
        while True:
            ticks.append(None)
            await asyncio.sleep(0)

    controller._reconciler = SimpleNamespace(reconcile=reconcile)
    ticking = asyncio.create_task(tick())
    while controller._queue:
        await controller._process_queue()
    ticking.cancel()
    assert len(ticks) >= 10


@pytest.mark.parametrize("seconds", [2, 20])
@virtual_time
async def test_resyncs_take_a_third_of_the_time_at_most(seconds):
    """Every change of a binding of any tenant causes one."""
    controller, begun = unstarted(), []
    controller._informers[HYPERJOBS] = None

    async def reconcile(_):
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)

    async def run():
        while True:
            await controller._process_queue()
            await controller._wait()

    controller._reconcile = reconcile
    running = asyncio.create_task(run())
    await asyncio.sleep(seconds + 0.1)
    begun.clear()
    for _ in range(150 * seconds):
        controller.wake()
        await asyncio.sleep(0.1)
    assert [round(at / seconds) for at in begun] == [1, 4, 7, 10, 13]
    await asyncio.sleep(2 * seconds)
    begun.clear()
    controller.wake()
    controller.update(HYPERJOBS, observed(document(), uid="uid-1", resourceVersion="2"))
    await asyncio.sleep(0.1)
    assert len(begun) == 1, "its own changes are processed at once"
    running.cancel()


@pytest.mark.parametrize(("parts", "passes"), [(2, 100), (1000, 2)])
@virtual_time
async def test_passes_over_a_large_hyperjob_are_rare(parts, passes):
    """Each part that starts changes its status, which is written as a whole."""
    controller, begun = unstarted(), []
    controller._informers[HYPERJOBS] = None

    async def reconcile(*_):
        begun.append(asyncio.get_running_loop().time())

    async def run():
        while True:
            await controller._process_queue()
            await controller._wait()

    controller._reconciler = SimpleNamespace(reconcile=reconcile, forget=lambda uid: None)
    running = asyncio.create_task(run())
    for version in range(2, 102):
        status = {"phase": "Running", "splitCount": parts}
        controller.update(HYPERJOBS, observed({**document(), "status": status}, uid="uid-1", resourceVersion=version))
        await asyncio.sleep(0.1)
    assert len(begun) == passes
    await asyncio.sleep(6)
    assert begun[-1] > 9.5, "the last change is processed, too"
    running.cancel()


@pytest.mark.parametrize("is_resync", [False, True])
@virtual_time
async def test_hyperjobs_of_one_namespace_do_not_delay_others(is_resync):
    """A pass with 64 writes takes half a second, and a tenant may create hundreds of HyperJobs."""
    controller, begun = unstarted(), []
    controller._informers[HYPERJOBS] = None

    def submit(namespace, name):
        controller.update(HYPERJOBS, observed(document(name=name), namespace=namespace, uid=name))

    async def reconcile(_, key):
        begun.append(key.name)
        await asyncio.sleep(0.5)

    async def run():
        while True:
            await controller._process_queue()
            await controller._wait()

    controller._reconciler = SimpleNamespace(reconcile=reconcile, forget=lambda uid: None)
    many = {f"many-{number}" for number in range(200)}
    for name in sorted(many):
        submit("many", name)
    running = asyncio.create_task(run())
    await asyncio.sleep(5.1)
    for number in range(3):
        submit("few", f"few-{number}")
    if is_resync:
        controller.wake()
    await asyncio.sleep(4)
    assert [name for name in begun[11:] if name.startswith("few")] == ["few-0", "few-1", "few-2"]
    await asyncio.sleep(250)
    assert set(begun) == {"llm", "few-0", "few-1", "few-2"} | many
    if is_resync:
        assert len(begun) > 204, "those processed before are processed again"
    running.cancel()


async def test_moved_part_of_an_ended_hyperjob_is_deleted(plane):
    """Only its binding has changed: Karmada has placed it again, and would run it again."""
    clusters = ["a"]
    async with running_controller(plane, placed=lambda key: binding_on(clusters[0])) as (controller, admin):
        await submit(admin, document(replicated("t"), name="llm"))
        await poll(lambda: find(admin, "llm-t-0"), "llm-t-0")
        path = JOBS.item_path(NAMESPACE, "llm-t-0")
        ended = msgspec.json.encode({"status": {"state": {"phase": "Completed"}}})
        await admin.patch(f"{path}/status", ended, kind="merge")

        async def phase():
            stored = msgspec.json.decode(await admin.get(HYPERJOBS.item_path(NAMESPACE, "llm")))
            return stored.get("status", {}).get("phase")

        await poll(phase, "the end", until=lambda reached: reached == "Completed")
        clusters[0] = "b"
        controller.wake()
        await poll(lambda: find(admin, "llm-t-0"), "its deletion", until=lambda job: job is None)
        assert await phase() == "Completed"
