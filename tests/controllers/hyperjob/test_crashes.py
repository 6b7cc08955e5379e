"""F28: the process ends before and after each single write of a HyperJob's life, and a new one completes it.

Every scenario runs once for each of its writes, with a crash there. It must reach the same end, and at no revision of
the store may a part have a second Job, or a new Job after the end (I5).
"""

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from controller.api.keys import HYPERJOBS, JOBS, PROPAGATION_POLICIES
from controller.kube.errors import NotFound
from localup.controlplane import ControlPlane
from tests.controllers.hyperjob.harness import NOW, CrashError, Harness
from tests.controllers.hyperjob.objects import document, gpus, replicated, task
from tests.rig.history import followed, present
from tests.rig.hyperjob_invariant import HyperJobChecker

AUTO = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})


def copies(name: str, count: int = 2, **more: Any) -> dict[str, Any]:
    return document(replicated("t", task(replicas=4), replicas=count), name=name, **more)


async def submitted(harness: Harness, name: str, **more: Any) -> None:
    """Let a HyperJob of two copies be there, with all its objects."""
    await harness.submit(copies(name, **more))
    await harness.reconcile_until_stable(name)


async def changed(harness: Harness, hyperjob: str, /, **change: Any) -> None:
    await submitted(harness, hyperjob)
    await harness.change(hyperjob, {"replicatedJobs": [{**replicated("t", task(replicas=4), replicas=2), **change}]})


async def create(harness: Harness, name: str) -> None:
    await harness.submit(copies(name))


async def grow(harness: Harness, name: str) -> None:
    await changed(harness, name, replicas=3)


async def shrink(harness: Harness, name: str) -> None:
    await changed(harness, name, replicas=1)


async def nothing_left(harness: Harness, name: str) -> None:
    await changed(harness, name, replicas=0)


async def rename(harness: Harness, name: str) -> None:
    await changed(harness, name, name="u")


async def resize(harness: Harness, name: str) -> None:
    await changed(harness, name, templateSpec={"queue": "ml", "schedulerName": "volcano", "tasks": [task(replicas=6)]})


async def suspend(harness: Harness, name: str) -> None:
    await submitted(harness, name)
    await harness.change(name, {"suspend": True})


async def resume(harness: Harness, name: str) -> None:
    await submitted(harness, name, suspend=True)
    await harness.change(name, {"suspend": False})


async def retry(harness: Harness, name: str) -> None:
    await submitted(harness, name, failurePolicy={"maxRetries": 1})
    await harness.report(f"{name}-t-0", "Failed")


async def give_up(harness: Harness, name: str) -> None:
    await submitted(harness, name)
    await harness.report(f"{name}-t-0", "Failed")


async def roll_back(harness: Harness, name: str) -> None:
    await submitted(harness, name, failurePolicy={"maxRestarts": 1})
    await harness.report(f"{name}-t-0", "Failed")
    await harness.report(f"{name}-t-1", "Running")


async def finish(harness: Harness, name: str, **more: Any) -> None:
    await submitted(harness, name, **more)
    for part in range(2):
        await harness.report(f"{name}-t-{part}", "Completed", succeeded=4)


async def clean_up(harness: Harness, name: str) -> None:
    await finish(harness, name, cleanupPolicy="All")


async def vanish(harness: Harness, name: str) -> None:
    """Both parts are over, and the Job of one is deleted by its TTL."""
    await finish(harness, name)
    await harness.run(name)
    await harness.remove(f"{name}-t-0")


async def expire(harness: Harness, name: str) -> None:
    await finish(harness, name, ttlSecondsAfterFinished=60)
    await harness.reconcile_until_stable(name)
    harness.now = NOW + 60_000


async def move(harness: Harness, name: str) -> None:
    """A split that waits moves to where there is room now."""
    harness.capacity = gpus(a=40, b=40)
    await harness.submit(document(AUTO, name=name))
    await harness.reconcile_until_stable(name)
    harness.capacity = gpus(c=64)


async def foreign(harness: Harness, name: str) -> None:
    """Somebody else has a Job of the second part's name."""
    made = {
        "apiVersion": JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": f"{name}-t-1"},
        "spec": {"minAvailable": 1, "tasks": []},
    }
    await harness.admin.create(JOBS.item_path(harness.namespace, "").rstrip("/"), msgspec.json.encode(made))
    await harness.submit(copies(name))


Story = Callable[[Harness, str], Awaitable[None]]
STORIES: tuple[Story, ...] = (
    *(create, grow, shrink, nothing_left, rename, resize, suspend, resume, retry, give_up, roll_back),
    *(finish, clean_up, vanish, expire, move, foreign),
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@pytest.mark.parametrize("side", [pytest.param("crash_before", marks=pytest.mark.long), "crash_after"])
async def test_f28_crash_at_any_write_is_repaired(
    control_plane: ControlPlane, harness: Harness, story: Story, side: str
):
    async with judged(control_plane, is_whole=story is not foreign):
        expected = None
        for point in itertools.count(-1):
            name = f"try{point + 1}"
            harness.now = NOW
            await story(harness, name)
            crashed = await crash(harness, name, side, point)
            await harness.reconcile_until_stable(name)
            found = await picture(harness, name)
            assert found == (expected or found), point
            expected = found
            if point >= 0 and not crashed:
                return


@asynccontextmanager
async def judged(plane: ControlPlane, *, is_whole: bool) -> AsyncIterator[None]:
    """Read the store's history meanwhile, and see that I5 held at each revision."""
    families = HyperJobChecker()
    async with followed(plane.etcd.url, plane.prefix, since=await present(plane.etcd.url)) as history:
        yield
        await history.reached(await present(plane.etcd.url))
    assert [each for change in history.changes for each in families.apply(change)] == []
    assert list(families.unlike_their_split()) == [] or not is_whole


async def crash(harness: Harness, name: str, side: str, point: int) -> bool:
    """Make one pass that ends at the write with this number; say whether it came so far."""
    harness.api.writes = []
    setattr(harness.api, side, point if point >= 0 else None)
    try:
        await harness.run(name)
    except CrashError:
        return True
    finally:
        setattr(harness.api, side, None)
    return False


async def picture(harness: Harness, name: str) -> tuple[list[str], str]:
    """Return what a HyperJob has become, whatever its own name is."""
    found = [
        json.dumps([item["metadata"]["name"], item["spec"]], sort_keys=True).replace(name, "it")
        for resource in (JOBS, PROPAGATION_POLICIES)
        for item in await harness.items(resource)
        if item["metadata"].get("labels", {}).get("volcano.sh/hyperjob-name") == name
    ]
    try:
        status = await harness.status(name)
    except NotFound:
        return [], "gone"
    parts = [[part["name"].replace(name, "it"), part["phase"]] for part in status.get("split", {}).get("parts", ())]
    return sorted(found), json.dumps([status["phase"], status["conditions"][0]["reason"], parts])


@pytest.mark.parametrize("deleted", ["Orphan", "Background"])
async def test_f28_deletion_follows_its_propagation_policy(harness: Harness, deleted: str):
    await submitted(harness, "llm")
    body = msgspec.json.encode({"propagationPolicy": deleted})
    await harness.admin.delete(HYPERJOBS.item_path(harness.namespace, "llm"), body)
    for _ in range(200):
        if not await harness.names(HYPERJOBS) and (deleted == "Orphan" or not await harness.names()):
            break
    assert await harness.names() == (["llm-t-0", "llm-t-1"] if deleted == "Orphan" else [])
