"""What tests of HyperJobs do with them: submit, read, and wait."""

import asyncio
import json
from typing import Any

import msgspec

from controller.api.keys import CLUSTERS, HYPERJOBS, Resource
from tests.e2e.environment import ALLOCATABLE, RUNTIME, Environment
from tests.hyperjob.objects import document, replicated, task
from tests.waiting import LIMIT_SECONDS

_WORKS = "/apis/work.karmada.io/v1alpha1/works"


async def submit(
    arena: Environment, found: dict[str, Any], resource: Resource = HYPERJOBS, *, runtime: str = "1s"
) -> None:
    annotations = {RUNTIME: runtime, **found["metadata"].get("annotations", {})}
    head = {"name": found["metadata"]["name"], "annotations": annotations}
    path = resource.item_path(arena.namespace, "").rstrip("/")
    await arena._create(path, {**found, "metadata": head})


async def read(arena: Environment, name: str, resource: Resource = HYPERJOBS) -> dict[str, Any]:
    return msgspec.json.decode(await arena.api.get(resource.item_path(arena.namespace, name)))


async def until(
    arena: Environment, name: str, phase: str, *, resource: Resource = HYPERJOBS, seconds: float = LIMIT_SECONDS
) -> Any:
    """Wait until the HyperJob is in *phase*, and return its status."""
    status: dict[str, Any] = {}
    for _ in range(int(seconds / 0.1)):
        status = (await read(arena, name, resource)).get("status", {})
        if status.get("phase") == phase:
            return status
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} is not {phase} within {seconds} s: {status}")


async def names(arena: Environment, resource: Resource) -> list[str]:
    raw = await arena.api.get(resource.item_path(arena.namespace, "").rstrip("/"))
    return sorted(item["metadata"]["name"] for item in msgspec.json.decode(raw)["items"])


async def gone(arena: Environment, resource: Resource, *, seconds: float = LIMIT_SECONDS) -> None:
    for _ in range(int(seconds / 0.1)):
        if not await names(arena, resource):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{resource.plural} are still there: {await names(arena, resource)}")


def auto(replicas: int, **more: Any) -> dict[str, Any]:
    return document(replicated("t", task(replicas=replicas), splitPolicy={"mode": "auto"}), **more)


async def grow(arena: Environment, cluster: str, **capacity: str) -> None:
    """Let a member cluster have other amounts from now on."""
    amounts = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in capacity.items()}
    told = json.dumps({"memory": "1Ti", "pods": "1000", "cpu": "1000", **amounts})
    body = {"metadata": {"annotations": {ALLOCATABLE: told}}}
    await arena.api.patch(f"{CLUSTERS.path}/{cluster}", msgspec.json.encode(body), kind="merge")


async def works(arena: Environment) -> list[str]:
    """Return what members were sent of this arena, but for its namespace, which every member has."""
    found = msgspec.json.decode(await arena.api.get(_WORKS))["items"]
    names = ((each["metadata"]["name"], str(each["metadata"].get("annotations"))) for each in found)
    return [name for name, annotations in names if arena.namespace in annotations]
