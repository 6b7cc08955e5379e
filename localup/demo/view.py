"""All that the demo sees of the control plane, and what follows from it for whoever looks on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.api.keys import BATCH_HYPERJOBS, CLUSTERS, HYPERJOB_KIND, HYPERJOBS, JOBS, RESOURCE_BINDINGS
from localup.demo.binding_status import BindingStatus, binding_of_work, parse_binding
from localup.demo.fair_shares import WATCHED, Objects, compute_fair_shares
from localup.demo.hyperjobs import HyperJobTracker
from localup.demo.invariants import InvariantChecker, Limits
from localup.demo.scenario import DemoHyperJob, DemoJob
from localup.demo.setup import has_summary
from localup.demo.timeline import Timeline, TimelineEntry
from localup.demo.usage import QueueUsage, UsageHistory
from localup.watch import Event

WORKS: Final = "/apis/work.karmada.io/v1alpha1/works"
_HYPERJOBS: Final = frozenset({HYPERJOBS.path, BATCH_HYPERJOBS.path})
PATHS: Final = (*WATCHED, *sorted(_HYPERJOBS), WORKS)


class View:
    """Takes events one by one, and knows how far everything is.

    Jobs that are not in the play are the parts of HyperJobs, or somebody at the
    keyboard has submitted them.

    Args:
        play: The jobs and the HyperJobs that come, by name.
        limits: What may be held at most.
        queues: The queues that are shown, in this order.
    """

    def __init__(
        self, play: tuple[Mapping[str, DemoJob], Mapping[str, DemoHyperJob]], limits: Limits, queues: Sequence[str]
    ) -> None:
        self._play, self._roles = play[0], dict(play[0])
        self.story = Timeline()
        self.families = HyperJobTracker(play[1])
        self.usage = UsageHistory()
        self.books = InvariantChecker(self._roles, limits)
        self._queues = queues
        self._objects: dict[str, dict[tuple[str, str], Any]] = {path: {} for path in PATHS}
        self._strangers: dict[str, list[BindingStatus]] = {}
        """What was seen of bindings before their jobs, which come by another watch."""

    def take(self, event: Event, at: float) -> list[TimelineEntry]:
        """Take an event and return what it tells about jobs."""
        is_gone = event.change == "DELETED"
        if is_gone:
            self._objects[event.path].pop(event.key, None)
        else:
            self._objects[event.path][event.key] = event.object
        if event.path == RESOURCE_BINDINGS.path:
            return self._bound(parse_binding(event.object), at, is_gone=is_gone)
        if event.path == JOBS.path:
            return self._submitted(event.object, at, is_gone=is_gone)
        if event.path in _HYPERJOBS and not is_gone:
            return self.families.take(event.object, at)
        if event.path in _HYPERJOBS:
            self.families.forget("/".join(event.key))
        elif event.path == WORKS and event.change == "ADDED" and (binding := binding_of_work(event.object)):
            self.books.see_work(binding, int(event.object["metadata"]["resourceVersion"]))
        return []

    @property
    def is_over(self) -> bool:
        """Say whether everyone is where he is to end."""
        return self.story.is_over and all(family.is_settled for family in self.families.all.values())

    @property
    def is_quiet(self) -> bool:
        """Say whether only HyperJobs are still on their way."""
        return self.story.is_quiet and self.families.have_waited

    def have_told(self, clusters: Iterable[str]) -> bool:
        """Say whether these member clusters are there and have told what they have."""
        here = self._objects[CLUSTERS.path]
        return all(("", name) in here and has_summary(here["", name]) for name in clusters)

    @property
    def broken(self) -> list[str]:
        """What was seen that should never be so; to be asked when everything was seen."""
        return [*self.books.broken, *self.books.unadmitted_works(), *self.families.broken]

    def _bound(self, sighting: BindingStatus, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        if is_gone:
            self.books.forget(sighting.job)
            self._strangers.pop(sighting.job, None)
            return []
        role = self._roles.get(sighting.job)
        if role is None:
            self._strangers.setdefault(sighting.job, []).append(sighting)
            return []
        self.books.see(sighting)
        self.families.saw(role, sighting)
        return self.story.saw(sighting, at)

    def _submitted(self, job: Any, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        """Take a job that is not in the play."""
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        if name in self._play:
            return []
        if is_gone:
            self._roles.pop(name, None)
            self.story.withdrawn(name)
            return []
        is_new = name not in self._roles
        self._roles[name] = role = self._role(job)
        if not is_new:
            return []
        self.story.submitted(role, at)
        before = self._strangers.pop(name, [])
        return [line for sighting in before for line in self._bound(sighting, at, is_gone=False)]

    def _role(self, job: Any) -> DemoJob:
        owners = job["metadata"].get("ownerReferences", ())
        owner = next((each["name"] for each in owners if each["kind"] == HYPERJOB_KIND), "")
        family = f"{job['metadata']['namespace']}/{owner}" if owner else ""
        known = self.families.all.get(family)
        is_guest = not owner or (known is not None and known.role is None)
        return DemoJob(job, family=family, is_guest=is_guest)

    def reckon(self, at: float) -> Sequence[QueueUsage]:
        """Return, and note, how the queues stand at this moment."""
        objects: Objects = {path: list(found.values()) for path, found in self._objects.items()}
        due = compute_fair_shares(objects)
        standings = []
        for queue in self._queues:
            admitted, waiting = self.books.count(queue)
            amounts = self.books.used(queue), due.entitled.get(queue, {}), due.ceilings.get(queue, {})
            standings.append(QueueUsage(queue, *amounts, admitted=admitted, waiting=waiting))
        self.usage.note(at, standings)
        return standings
