"""What tenants can read: the events of a namespace, as the API server has them."""

import asyncio
import json
from typing import Any

from controller.api.keys import EVENTS
from tests.rig.harness import Harness
from tests.waiting import LIMIT_SECONDS

Told = list[dict[str, Any]]


async def events_of(stage: Harness, kind: str, name: str, *, namespace: str | None = None) -> Told:
    """Return the events of one object."""
    folder = EVENTS.item_path(namespace or stage.cast.namespace, "").rstrip("/")
    items = json.loads(await stage.cast.api.get(folder))["items"]
    # The API server has told of nothing by name where a slow start kept it from making its own service range.
    return [each for each in items if (each["regarding"].get("kind"), each["regarding"].get("name")) == (kind, name)]


async def wait_for_event(
    stage: Harness, reason: str, kind: str, name: str, *, action: str = "", seconds: float = LIMIT_SECONDS, **where: Any
) -> dict[str, Any]:
    """Wait for the event of that reason, and return the newest."""
    found: Told = []
    try:
        async with asyncio.timeout(seconds):
            while not any(each["reason"] == reason for each in found):
                found = await events_of(stage, kind, name, **where)
                found = [each for each in found if action in {each["action"], ""}]
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        heard = [(each["reason"], each["note"]) for each in found]
        said = stage.controller.part.output[-3000:]
        raise AssertionError(f"{kind} {name} was not told {reason}; it was told {heard}\n{said}") from error
    return next(each for each in reversed(found) if each["reason"] == reason)
