"""Helpers for HyperJob tests: submit, read, and wait."""

import asyncio
from typing import Any

import msgspec

from controller.api.keys import HYPERJOBS, Resource
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import RUNTIME, Environment
from tests.waiting import LIMIT_SECONDS

_WORKS = "/apis/work.karmada.io/v1alpha1/works"


async def submit(
    environment: Environment, found: dict[str, Any], resource: Resource = HYPERJOBS, *, runtime: str = "1s"
) -> None:
    annotations = {RUNTIME: runtime, **found["metadata"].get("annotations", {})}
    head = {"name": found["metadata"]["name"], "annotations": annotations}
    path = resource.item_path(environment.namespace, "").rstrip("/")
    await environment._create(path, {**found, "metadata": head})


async def read(environment: Environment, name: str, resource: Resource = HYPERJOBS) -> dict[str, Any]:
    return msgspec.json.decode(await environment.api.get(resource.item_path(environment.namespace, name)))


async def until(
    environment: Environment, name: str, phase: str, *, resource: Resource = HYPERJOBS, seconds: float = LIMIT_SECONDS
) -> Any:
    """Wait until the HyperJob is in *phase*, and return its status."""
    status: dict[str, Any] = {}
    for _ in range(int(seconds / 0.1)):
        status = (await read(environment, name, resource)).get("status", {})
        if status.get("phase") == phase:
            return status
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} is not {phase} within {seconds} s: {status}")


async def names(environment: Environment, resource: Resource) -> list[str]:
    raw = await environment.api.get(resource.item_path(environment.namespace, "").rstrip("/"))
    return sorted(item["metadata"]["name"] for item in msgspec.json.decode(raw)["items"])


async def gone(environment: Environment, resource: Resource, *, seconds: float = LIMIT_SECONDS) -> None:
    for _ in range(int(seconds / 0.1)):
        if not await names(environment, resource):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{resource.plural} are still there: {await names(environment, resource)}")


def auto(replicas: int, **more: Any) -> dict[str, Any]:
    return document(replicated("t", task(replicas=replicas), splitPolicy={"mode": "auto"}), **more)


async def works(environment: Environment) -> list[str]:
    """Return the works of this environment except those of its namespace."""
    found = msgspec.json.decode(await environment.api.get(_WORKS))["items"]
    names = ((item["metadata"]["name"], str(item["metadata"].get("annotations"))) for item in found)
    return [name for name, annotations in names if environment.namespace in annotations]
