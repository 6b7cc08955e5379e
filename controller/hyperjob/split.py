"""Splits a HyperJob into parts: how many pods of which task go into how many Volcano Jobs, and where to.

Pure: the HyperJob and what the clusters can hold go in, parts come out. Nothing
here knows what became of an earlier split; that is ``course``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from controller.api import placements as wire
from controller.api.hyperjobrules import sized, static_parts
from controller.api.hyperjobs import HyperJob, ReplicatedJob, SplitPolicy, Strategy
from controller.api.hyperjobstatus import PartStatus
from controller.api.quantity import format_quantity
from controller.api.volcanojobs import JobSpec
from controller.cache.translate.placements import PlacementError, placement
from controller.engine.candidates import candidates
from controller.engine.clusters import Cluster, Placement
from controller.engine.fit import Room
from controller.engine.reasons import Reason
from controller.engine.resources import Resources, add, fits, subtract
from controller.engine.workloads import Shape
from controller.hyperjob.counting import SplitError, demand, pod_requests
from controller.hyperjob.lineup import Pods, cut, equal, units, weighted
from controller.hyperjob.packing import Bin, Load, Shares, fill, pack

UNLIMITED = 10_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something waits: the engine's code, and a sentence."""

    reason: str
    message: str


#: Says why a queue would not take so much more now, or ``None``.
Quota = Callable[[str, Resources], Trouble | None]


def _no_quota(_: str, __: Resources) -> Trouble | None:
    return None


@dataclass(frozen=True, slots=True)
class Prospects:
    """What the clusters can hold: now, and if they held nothing of ours."""

    rooms: Sequence[Room] = ()
    empty: Sequence[Room] = ()
    quota: Quota = _no_quota

    @property
    def clusters(self) -> list[Cluster]:
        """Return the clusters that take new admissions."""
        return [room.site.cluster for room in self.rooms if room.site.cluster and room.site.is_usable]


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a HyperJob; *trouble* says why they cannot all start now, as far as the split knows."""

    parts: tuple[PartStatus, ...] = ()
    trouble: Trouble | None = None

    @property
    def fits(self) -> bool:
        """Say whether nothing speaks against starting now."""
        return self.trouble is None


@dataclass(slots=True)
class _Books:
    """What the parts laid out so far take, and on which clusters they are."""

    rooms: Sequence[Room]
    names: frozenset[str]
    """The candidates."""
    most: int
    taken: dict[str, Resources] = field(default_factory=dict)

    def headroom(self, room: Room) -> Resources:
        return subtract(room.headroom, self.taken.get(room.name, {}))

    def take(self, name: str, amounts: Resources) -> None:
        self.taken[name] = add(self.taken.get(name, {}), amounts)


def split(hyperjob: HyperJob, prospects: Prospects) -> Layout:
    """Return the parts of *hyperjob*: as there is room now, else as there would be if the clusters were empty.

    Parts that cannot start now take their place in the queue all the same. No
    parts where not even empty clusters would hold them.
    """
    now = _lay_out(hyperjob, prospects, prospects.rooms)
    if now.fits:
        refusal = _refused(hyperjob, prospects.quota) if now.parts and is_automatic(hyperjob) else None
        return Layout(now.parts, refusal)
    waiting = _lay_out(hyperjob, prospects, prospects.empty)
    if waiting.trouble is None:
        return Layout(waiting.parts, now.trouble)
    if waiting.trouble.reason == Reason.NO_ROOM:
        return Layout(trouble=Trouble(Reason.FITS_NOWHERE, f"even while empty, {waiting.trouble.message}"))
    return waiting


def is_automatic(hyperjob: HyperJob) -> bool:
    """Say whether where its parts go depends on the room there is."""
    return any(
        job.split_policy is not None and job.split_policy.chosen in _BY_ROOM for job in hyperjob.spec.replicated_jobs
    )


def choice(hyperjob: HyperJob) -> Placement:
    """Return which clusters may take parts; raises `SplitError`."""
    asked = {"clusterAffinity": hyperjob.spec.cluster_affinity, "clusterTolerations": hyperjob.spec.cluster_tolerations}
    try:
        return placement(msgspec.convert(asked, wire.Placement, strict=False))
    except (msgspec.ValidationError, PlacementError) as error:
        raise SplitError(f"spec.clusterAffinity or spec.clusterTolerations: {error}") from error


def part_demands(hyperjob: HyperJob, parts: Iterable[PartStatus]) -> list[Resources]:
    """Return what each of *parts* asks for."""
    requests = {job.name: pod_requests(job.template_spec) for job in hyperjob.spec.replicated_jobs}
    return [demand(requests[part.replicated_job], part.pods) for part in parts]


def _lay_out(hyperjob: HyperJob, prospects: Prospects, rooms: Sequence[Room]) -> Layout:
    names = frozenset(candidates(Shape(placement=choice(hyperjob)), prospects.clusters).names)
    books = _Books([room for room in rooms if room.name in names], names, hyperjob.spec.max_domains or UNLIMITED)
    parts: list[PartStatus] = []
    for job in hyperjob.spec.replicated_jobs:
        layout = _of_job(job, books)
        if not layout.fits:
            return layout
        parts.extend(
            part.model_copy(update={"name": hyperjob.name_of(job, part.index), "replicated_job": job.name})
            for part in layout.parts
        )
    return Layout(tuple(parts))


def _of_job(job: ReplicatedJob, books: _Books) -> Layout:
    template = sized(job)
    policy = job.split_policy
    if policy is None:
        whole = tuple(max(task.replicas, 0) for task in template.tasks)
        copies = range(max(job.replicas, 0))
        return Layout(tuple(_part(index, whole, reason="copy of the template") for index in copies))
    if policy.chosen in _BY_ROOM:
        return _by_room(job, policy, template, books)
    counts, names = _COUNTS[policy.chosen](job, policy, template)
    pods = cut(template, counts)
    if not all(map(any, pods)):
        raise SplitError(
            f"job {job.name!r}: a part would have no pods, for partitions are never cut; ask for fewer parts"
        )
    reason = _REASONS[policy.chosen]
    return Layout(
        tuple(
            _part(index, each, name, reason=reason) for index, (each, name) in enumerate(zip(pods, names, strict=True))
        )
    )


def _part(index: int, pods: Pods, cluster: str = "", *, reason: str) -> PartStatus:
    return PartStatus(name="", index=index, pods=pods, cluster=cluster, reason=reason, phase="Pending")


# -- counts that the user gives -----------------------------------------------


def _by_cluster(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    shares = [(share.replicas or 0, share.name) for share in policy.clusters if share.replicas]
    counts, names = [count for count, _ in shares], [name for _, name in shares]
    # Counts may include the roles that exist once; those are with the first part.
    counts[0] -= sum(counts) - template.pods
    return counts, names


def _by_replicas(_: ReplicatedJob, policy: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    if not policy.clusters:
        parts = policy.parts or 1
        return equal(template.pods, parts), [""] * parts
    shares = weighted(template.pods, [share.weight or 1 for share in policy.clusters])
    return shares, [share.name for share in policy.clusters]


def _static(job: ReplicatedJob, _: SplitPolicy, template: JobSpec) -> tuple[list[int], list[str]]:
    parts = static_parts(job)
    return equal(template.pods, parts), [""] * parts


_COUNTS: Mapping[Strategy, Callable[[ReplicatedJob, SplitPolicy, JobSpec], tuple[list[int], list[str]]]] = {
    "ByCluster": _by_cluster,
    "ByReplicas": _by_replicas,
    "Static": _static,
}
_REASONS: Mapping[Strategy, str] = {
    "ByCluster": "the split policy names cluster and replicas",
    "ByReplicas": "the split policy's share of the replicas",
    "Static": "an equal share of the static split",
    "ByResources": "filled before the clusters after it in the order",
    "Auto": "fewest parts; preferred clusters first, then the largest",
}


# -- counts by the room there is ----------------------------------------------


@dataclass(frozen=True, slots=True)
class _Need:
    """What one unit of a template asks for, and what exists once beside it."""

    unit: Resources
    singles: Resources
    pods: tuple[Resources, ...]


def _need(template: JobSpec) -> _Need:
    requests = pod_requests(template)
    stretches = units(template)
    once = tuple(task.replicas if template.is_single(task) else 0 for task in template.tasks)
    unit = tuple(0 if template.is_single(task) else task.replicas // stretches for task in template.tasks)
    asked = tuple(request for request, task in zip(requests, template.tasks, strict=True) if task.replicas > 0)
    return _Need(demand(requests, unit), demand(requests, once), asked)


def _by_room(job: ReplicatedJob, policy: SplitPolicy, template: JobSpec, books: _Books) -> Layout:
    need, stretches = _need(template), units(template)
    size = template.pods // stretches
    bins = [_bin(room, need, books) for room in books.rooms if room.has_nodes_for(need.pods)]
    least = -(-(policy.min_replicas or 1) // size)
    preferred = [share.name for share in policy.clusters] or job.cluster_names
    packed = _packed(policy, bins, Load(stretches, books.most, least), preferred=preferred, books=books)
    if packed is None:
        return Layout(trouble=_shortage(need, bins, stretches, books=books))
    pods = cut(template, [count * size for _, count in packed])
    requests = pod_requests(template)
    for (name, _), each in zip(packed, pods, strict=True):
        books.take(name, demand(requests, each))
    reason = _REASONS[policy.chosen]
    return Layout(
        tuple(
            _part(index, each, name, reason=reason)
            for index, (each, (name, _)) in enumerate(zip(pods, packed, strict=True))
        )
    )


def _packed(
    policy: SplitPolicy, bins: Sequence[Bin], load: Load, *, preferred: Sequence[str], books: _Books
) -> Shares | None:
    """Pack onto the clusters in use where that is possible, else onto as many more as `maxDomains` allows."""
    if policy.chosen == "ByResources" and preferred:
        bins = [each for each in bins if each.name in preferred]
    way = fill if policy.chosen == "ByResources" else pack
    in_use = [each for each in bins if each.name in books.taken]
    again = way(in_use, load, preferred) if in_use else None
    if again is not None or len(books.taken) >= load.most:
        return again
    return way(bins, Load(load.units, load.most - len(books.taken), load.least), preferred)


def _bin(room: Room, need: _Need, books: _Books) -> Bin:
    headroom = books.headroom(room)
    plain = _times(need.unit, headroom)
    if not need.singles:
        return Bin(room.name, plain, plain)
    hosting = _times(need.unit, subtract(headroom, need.singles)) if fits(need.singles, headroom) else -1
    return Bin(room.name, plain, hosting)


def _times(unit: Resources, headroom: Resources) -> int:
    """Return how often *unit* fits into *headroom*."""
    return max(min((headroom.get(name, 0) // amount for name, amount in unit.items() if amount > 0), default=0), 0)


def _shortage(need: _Need, bins: Sequence[Bin], stretches: int, *, books: _Books) -> Trouble:
    """Return why there is no way, by the resource that is shortest."""
    if not books.names:
        message = "its placement and the clusters exclude each other, or none takes new workloads"
        return Trouble(Reason.NO_CANDIDATE_CLUSTER, message)
    if not bins:
        return Trouble(Reason.NO_ROOM, "no candidate cluster has a node for each of its pods")
    asked = {name: amount * stretches + need.singles.get(name, 0) for name, amount in need.unit.items() if amount > 0}
    free = {name: sum(max(books.headroom(room).get(name, 0), 0) for room in books.rooms) for name in asked}
    short = min(sorted(asked), key=lambda name: Fraction(free[name], asked[name]), default=None)
    if short is not None and free[short] < asked[short]:
        amounts = f"{format_quantity(short, free[short])} {short} of {format_quantity(short, asked[short])}"
        return Trouble(Reason.NO_ROOM, f"its candidate clusters have {amounts} free")
    most = f" on at most {books.most} clusters" if books.most < UNLIMITED else ""
    return Trouble(Reason.NO_ROOM, f"its candidate clusters have room, but not in parts that fit{most}")


def _refused(hyperjob: HyperJob, quota: Quota) -> Trouble | None:
    for job in hyperjob.spec.replicated_jobs:
        template = sized(job)
        whole = demand(pod_requests(template), tuple(max(task.replicas, 0) for task in template.tasks))
        refusal = quota(template.queue, whole)
        if refusal:
            return refusal
    return None


_BY_ROOM = frozenset({"ByResources", "Auto"})
