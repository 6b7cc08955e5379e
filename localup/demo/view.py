"""All that the demo sees of the control plane, and what follows from it for whoever looks on. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.api.keys import RESOURCE_BINDINGS
from localup.demo.books import Books, Limits
from localup.demo.cast import Role
from localup.demo.reckoning import WATCHED, Objects, entitlements
from localup.demo.sighting import binding_of, sighted
from localup.demo.story import Line, Story
from localup.demo.usage import Standing, Usage
from localup.watch import Event

WORKS: Final = "/apis/work.karmada.io/v1alpha1/works"
PATHS: Final = (*WATCHED, WORKS)


class View:
    """Takes events one by one, and knows how far everything is.

    Args:
        roles: The jobs that come, by name.
        limits: What may be held at most.
        queues: The queues that are shown, in this order.
    """

    def __init__(self, roles: Mapping[str, Role], limits: Limits, queues: Sequence[str]) -> None:
        self.story = Story()
        self.usage = Usage()
        self.books = Books(roles, limits)
        self._queues = queues
        self._objects: dict[str, dict[tuple[str, str], Any]] = {path: {} for path in PATHS}

    def take(self, event: Event, at: float) -> list[Line]:
        """Take an event and return what it tells about jobs."""
        if event.change == "DELETED":
            self._objects[event.path].pop(event.key, None)
        else:
            self._objects[event.path][event.key] = event.object
        if event.path == WORKS and event.change == "ADDED":
            self.books.see_work(binding_of(event.object), int(event.object["metadata"]["resourceVersion"]))
        if event.path != RESOURCE_BINDINGS.path:
            return []
        sighting = sighted(event.object)
        if event.change == "DELETED":
            self.books.forget(sighting.job)
            return []
        self.books.see(sighting)
        return self.story.saw(sighting, at)

    def reckon(self, at: float) -> Sequence[Standing]:
        """Return, and note, how the queues stand at this moment."""
        objects: Objects = {path: list(found.values()) for path, found in self._objects.items()}
        entitled = entitlements(objects)
        standings = []
        for queue in self._queues:
            admitted, waiting = self.books.count(queue)
            standings.append(Standing(queue, self.books.used(queue), entitled.get(queue, {}), admitted, waiting))
        self.usage.note(at, standings)
        return standings
