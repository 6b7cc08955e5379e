"""Reads Kubernetes events of tenants' objects."""

import asyncio
import json
from typing import Any

from controller.api.keys import EVENTS
from tests.rig.harness import Harness
from tests.waiting import LIMIT_SECONDS

Told = list[dict[str, Any]]


async def events_of(harness: Harness, kind: str, name: str, *, namespace: str | None = None) -> Told:
    """Return the events of an object."""
    folder = EVENTS.item_path(namespace or harness.karmada.namespace, "").rstrip("/")
    items = json.loads(await harness.karmada.api.get(folder))["items"]
    # The API server has told of nothing by name where a slow start kept it from making its own service range.
    return [item for item in items if (item["regarding"].get("kind"), item["regarding"].get("name")) == (kind, name)]


async def wait_for_event(
    harness: Harness,
    reason: str,
    kind: str,
    name: str,
    *,
    action: str = "",
    seconds: float = LIMIT_SECONDS,
    **where: Any,
) -> dict[str, Any]:
    """Wait for an event with *reason* and return the newest."""
    found: Told = []
    try:
        async with asyncio.timeout(seconds):
            while not any(item["reason"] == reason for item in found):
                found = await events_of(harness, kind, name, **where)
                found = [item for item in found if action in {item["action"], ""}]
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        heard = [(item["reason"], item["note"]) for item in found]
        said = harness.controller.part.output[-3000:]
        raise AssertionError(f"{kind} {name} was not told {reason}; it was told {heard}\n{said}") from error
    return next(item for item in reversed(found) if item["reason"] == reason)
