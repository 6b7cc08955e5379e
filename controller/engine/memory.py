"""What a World remembers beside the present truth: its past, as far as a decision may depend on it.

Who is told the same queues and workloads, and remembers the same, decides the
same from then on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import EstimatesCheckpoint
from controller.engine.ledger import Site
from controller.engine.orphans import NO_ORPHANS, Orphans
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.reservations import BlockedHead
from controller.engine.resources import EMPTY, Resources
from controller.engine.workloads import Group, Workload, WorkloadUid
from controller.engine.world import World


@dataclass(frozen=True, slots=True)
class SiteMemory:
    """One cluster, and what was learned of it; what is booked there the workloads say."""

    name: ClusterName
    cluster: Cluster | None = None
    foreign: Resources = EMPTY
    ended: tuple[tuple[int, Resources], ...] = ()
    """What was freed lately, and when."""
    changed_at: int | None = None
    estimates: EstimatesCheckpoint | None = None
    """What its estimator was asked, and has answered."""
    orphans: Orphans = NO_ORPHANS
    """What queues are charged with for pods that deleted workloads have left running there."""


@dataclass(frozen=True, slots=True)
class Patient:
    """Who has been the best blocked one of a queue since when (O6)."""

    queue: QueueName
    uid: WorkloadUid
    since: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The past of a World."""

    sites: tuple[SiteMemory, ...] = ()
    blocked: tuple[Patient, ...] = ()
    outgrown: tuple[tuple[WorkloadUid, int], ...] = ()
    """Who does not fit any more, and since when (D7)."""
    requeued: tuple[tuple[WorkloadUid, int], ...] = ()
    """Whom Karmada was given again, because it does not run (R1)."""
    short: tuple[tuple[Group, int], ...] = ()
    """Which groups lack parts that they need, and since when (R1)."""
    turned_at: int | None = None
    """When a cluster last became usable or unusable."""
    has_begun: bool = False
    has_turned: bool = False
    overrun: tuple[tuple[WorkloadUid, int, int], ...] = ()
    """For how long workloads that shrank held more than fitted before, and until when (D7)."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a World at one moment; nothing in it changes any more."""

    policy: Policy
    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    memory: Memory


def whole(world: World) -> Whole:
    """Return all of *world* as it is now."""
    return Whole(world.policy, tuple(world.queues.values()), tuple(world.workloads.values()), _memory(world))


def _memory(world: World) -> Memory:
    ledger = world.ledger
    return Memory(
        sites=tuple(_site(site) for site in ledger),
        blocked=tuple(Patient(name, each.uid, each.since) for name, each in sorted(world.patience.blocked.items())),
        outgrown=tuple(sorted(world.outgrown.items())),
        overrun=tuple((uid, *world.overrun[uid]) for uid in sorted(world.overrun)),
        requeued=tuple(sorted(world.starts.requeued.items())),
        short=tuple(sorted(world.starts.short.items(), key=lambda each: each[0].key)),
        turned_at=ledger.turned_at,
        has_begun=ledger._has_begun,  # noqa: SLF001 - what it remembers is its own affair but for this
        has_turned=ledger._has_turned,  # noqa: SLF001 - the same
    )


def _site(site: Site) -> SiteMemory:
    ended = tuple(site.ended._charges)  # noqa: SLF001 - the same
    estimates = site.estimates.remember() if site.estimates is not None else None
    return SiteMemory(site.name, site.cluster, site.foreign, ended, site.changed_at, estimates, site.orphans)


def rebuild(policy: Policy, queues: Iterable[Queue], workloads: Iterable[Workload], memory: Memory, now: int) -> World:
    """Return a World that decides from *now* on as the one that all this was taken from."""
    world = World(policy)
    for workload in workloads:
        world.workload_changed(workload, now)
    for queue in queues:
        world.queue_changed(queue)
    for each in memory.sites:
        _recall(world, each)
    for patient in memory.blocked:
        world.patience.blocked[patient.queue] = BlockedHead(patient.uid, patient.since)
    world.outgrown.update(memory.outgrown)
    world.overrun.update({uid: (spent, ended) for uid, spent, ended in memory.overrun})
    world.starts.requeued.update(memory.requeued)
    world.starts.short.update(memory.short)
    world.starts.time_all(world.workloads.values(), policy.admission_timeout_ms)
    ledger = world.ledger
    ledger.turned_at = memory.turned_at
    ledger._has_begun = memory.has_begun  # noqa: SLF001 - it is being given back its own
    ledger._has_turned = memory.has_turned  # noqa: SLF001 - the same
    return world


def _recall(world: World, memory: SiteMemory) -> None:
    """Give one site its past back; what is not known of it any more may change with time."""
    if memory.cluster is not None:
        world.ledger.see(memory.cluster, 0, 0)
    site = world.ledger.site(memory.name)
    site.foreign = memory.foreign
    site.ended = type(site.ended)()
    for at, charge in memory.ended:
        site.ended.add(charge, at)
    site.changed_at = memory.changed_at
    site.orphans = memory.orphans
    world.accounts.recall_orphans(memory.orphans)
    if memory.estimates is not None:
        world.estimating.recall(memory.name, memory.estimates)
