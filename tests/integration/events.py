"""Reads and awaits Kubernetes events of an object."""

from typing import Any

from controller.api.keys import EVENTS
from tests.rig.harness import Harness
from tests.waiting import LIMIT_SECONDS, poll

Events = list[dict[str, Any]]


async def events_of(harness: Harness, kind: str, name: str, *, namespace: str | None = None) -> Events:
    """Return the events of one object."""
    folder = EVENTS.item_path(namespace or harness.karmada.namespace, "").rstrip("/")
    items = (await harness.karmada.read(folder))["items"]
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

    def matching(listed: Events) -> Events:
        return [item for item in listed if item["reason"] == reason and action in {item["action"], ""}]

    what = f"event {reason} of {kind} {name}"
    listed = await poll(
        lambda: events_of(harness, kind, name, **where),
        what,
        until=matching,
        seconds=seconds,
        log=harness.controller.log,
    )
    return matching(listed)[-1]
