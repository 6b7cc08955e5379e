"""Reads and awaits Kubernetes events of an object."""

import asyncio
import json
from typing import Any

from controller.api.keys import EVENTS
from tests.rig.harness import Harness
from tests.waiting import LIMIT_SECONDS

Events = list[dict[str, Any]]


async def events_of(harness: Harness, kind: str, name: str, *, namespace: str | None = None) -> Events:
    """Return the events of one object."""
    folder = EVENTS.item_path(namespace or harness.karmada.namespace, "").rstrip("/")
    items = json.loads(await harness.karmada.api.get(folder))["items"]
    # The API server itself may record events without a regarding object.
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
    """Wait for an event with this reason; return the newest."""
    found: Events = []
    try:
        async with asyncio.timeout(seconds):
            while not any(item["reason"] == reason for item in found):
                found = await events_of(harness, kind, name, **where)
                found = [item for item in found if action in {item["action"], ""}]
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        recorded = [(item["reason"], item["note"]) for item in found]
        log = harness.controller.part.output[-3000:]
        raise AssertionError(f"{kind} {name} has no event {reason}; its events are {recorded}\n{log}") from error
    return next(item for item in reversed(found) if item["reason"] == reason)
