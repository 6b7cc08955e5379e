"""Who holds what, kept from the demo's own watch, and what should never be seen in it. Pure.

The controller has books of its own; these are here to catch it out. They count
a job's demand from its manifest, not from the controller's record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.api.quantity import format_quantity
from controller.engine.resources import Resources, total
from localup.demo.binding_status import BindingStatus
from localup.demo.scenario import DemoJob


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be held at most: by a queue, where it has a capability, and in a cluster."""

    queues: Mapping[str, Resources]
    clusters: Mapping[str, Resources]


@dataclass(slots=True)
class InvariantChecker:
    """The last sighting of every binding, and what was broken at any of them."""

    roles: Mapping[str, DemoJob]
    limits: Limits
    broken: list[str] = field(default_factory=list)
    last: dict[str, BindingStatus] = field(default_factory=dict)
    """By job."""
    seen: int = 0
    """How many sightings there were."""
    _admitted: dict[str, int] = field(default_factory=dict)
    """The version at which each binding was first seen admitted."""
    _works: dict[str, int] = field(default_factory=dict)
    """The version at which each binding's first Work was made."""

    def see(self, sighting: BindingStatus) -> None:
        """Take what is seen of a binding now, in the order of versions."""
        self.seen += 1
        before = self.last.get(sighting.job)
        self.last[sighting.job] = sighting
        role = self.roles.get(sighting.job)
        if role is None or role.is_guest:  # whoever tries a job of his own may let it grow, or copy it
            return
        was_admitted = sighting.binding in self._admitted
        self.broken.extend(_binding_violations(role, sighting, is_new=before is None, was_admitted=was_admitted))
        if sighting.is_admitted:
            self._admitted.setdefault(sighting.binding, sighting.version)
        if before is None or _is_charged(before) != _is_charged(sighting):
            self.broken.extend(self._overbooked(role.queue, sighting.clusters))

    def see_work(self, binding: str, version: int) -> None:
        """Take a Work that was made for *binding*."""
        self._works.setdefault(binding, version)

    def forget(self, job: str) -> None:
        """Take the binding of *job* as gone."""
        self.last.pop(job, None)

    def unadmitted_works(self) -> list[str]:
        """Return what was sent to a cluster before it was admitted; to be asked when everything was seen."""
        return [
            f"binding {binding} was sent to a cluster before it was admitted"
            for binding, version in sorted(self._works.items())
            if self._admitted.get(binding, version) >= version
        ]

    def used(self, queue: str) -> Resources:
        """Return what the admitted, unfinished jobs of *queue* ask for together."""
        return total(role.demand for role, _ in self._holders() if role.queue == queue)

    def count(self, queue: str) -> tuple[int, int]:
        """Return how many jobs of *queue* hold something, and how many wait."""
        mine = [each for job, each in self.last.items() if job in self.roles and self.roles[job].queue == queue]
        return sum(_is_charged(each) for each in mine), sum(each.paused for each in mine)

    def _holders(self) -> Iterable[tuple[DemoJob, BindingStatus]]:
        return [(self.roles[job], each) for job, each in self.last.items() if job in self.roles and _is_charged(each)]

    def _overbooked(self, queue: str, clusters: Iterable[str]) -> list[str]:
        found = [*_limit_violations(f"queue {queue}", self.used(queue), self.limits.queues.get(queue, {}))]
        for cluster in clusters:
            here = total(role.demand for role, each in self._holders() if cluster in each.clusters)
            found += _limit_violations(f"cluster {cluster}", here, self.limits.clusters.get(cluster, {}))
        return found


def _is_charged(sighting: BindingStatus) -> bool:
    return sighting.is_admitted and not sighting.is_over


def _binding_violations(role: DemoJob, sighting: BindingStatus, *, is_new: bool, was_admitted: bool) -> list[str]:
    """Return what is wrong with one sighting alone; of one that had to go, what was last said of it stands on."""
    name = role.name
    wrongs = {
        f"{name} was stored unpaused": is_new and not sighting.paused,
        f"{name} was resumed without a record of its admission": not sighting.paused and not sighting.recorded,
        f"{name} has clusters although it is paused": sighting.paused and bool(sighting.clusters),
        f"{name} runs although it was not admitted": sighting.has_started
        and not (sighting.is_admitted or was_admitted),
        f"{name} was given {len(sighting.clusters)} clusters": len(sighting.clusters) > 1,
        f"{name} started {sighting.pods} of the {role.gang} pods of its gang": sighting.has_started
        and sighting.pods < role.gang,
        f"{name} was admitted although it can never run": role.forever is not None and sighting.is_admitted,
    }
    return [text for text, is_so in wrongs.items() if is_so]


def _limit_violations(name: str, used: Resources, limit: Resources) -> list[str]:
    return [
        f"{name} held {format_quantity(resource, used[resource])} {resource} of {format_quantity(resource, most)}"
        for resource, most in limit.items()
        if used.get(resource, 0) > most
    ]
