"""Those for whom others leave: let in as soon as they fit, before anybody else, the oldest first (P5).

What is held lapses after a while, and when it has become useless. How it came
about is ``exchanges``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from controller.engine.clusters import ClusterName
from controller.engine.exchange import settled_room
from controller.engine.fit import Room, choose
from controller.engine.ledger import Site, earliest
from controller.engine.plan import Note
from controller.engine.resources import EMPTY, Resources, add, requested, subtract
from controller.engine.serving import Service
from controller.engine.workloads import Choice, Held, Workload

if TYPE_CHECKING:
    from controller.engine.world import World


def in_order(world: "World") -> list[tuple[Workload, Held]]:
    """Return those for whom something is held, the oldest first, and within a plan in the order of the exchanges."""
    found = [(each, each.held) for each in world.holders.values() if each.held is not None]
    return sorted(found, key=lambda pair: (pair[1].since, pair[1].rank, pair[0].namespace, pair[0].name, pair[0].uid))


def lapse(world: "World", now: int) -> list[Note]:
    """Hold nothing any more for those for whom it is too late or of no use, the youngest first."""
    notes = []
    for workload, held in reversed(in_order(world)):
        if _has_lapsed(world, workload, held, now) or _is_in_vain(world, workload, held, now):
            notes.append(Note(workload, None))
            world.hold(workload, None, now)
    return notes


def lapses_at(world: "World", now: int) -> int | None:
    """Return when the next hold lapses by itself, or is found to be in vain."""
    holds = [held for _, held in in_order(world)]
    quiet = (at for at in (_quiet_at(world, held) for held in holds) if at > now)
    return earliest((*(held.since + world.policy.reservation.max_ms for held in holds), *quiet))


def serve(service: Service) -> None:
    """Let those in who fit now; what is free on a cluster is kept for older ones that do not fit yet."""
    world, kept = service.world, dict[ClusterName, Resources]()
    for workload, held in in_order(world):
        # It is judged beside what is held for others only.
        world.accounts.close(workload, service.now)
        choice = _choice(service, workload, held, kept)
        world.accounts.open(workload, service.now)
        if choice is not None:
            service.admit(workload, choice)
        else:
            kept[held.cluster] = add(kept.get(held.cluster, EMPTY), held.demand)


def _choice(service: Service, workload: Workload, held: Held, kept: Mapping[ClusterName, Resources]) -> Choice | None:
    """Return where a workload goes for which others leave: to the cluster held for it, else to any that takes it."""
    books, prospect = service.world.books, service.world.books.prospects.of(workload.shape)
    quotas = [service.quota, *filter(None, [books.present()])]
    if any(quota.refusal(quota.tree.nodes[workload.queue], held.demand) is not None for quota in quotas):
        return None
    rooms = [_room(service.world.ledger.site(name), kept.get(name, EMPTY)) for name in prospect.outlook.names]
    for candidates in ([room for room in rooms if room.name == held.cluster], rooms):
        choice = choose(workload.shape, candidates, prospect.outlook.copies)
        if isinstance(choice, Choice):
            return choice
    return None


def _room(site: Site, kept: Resources) -> Room:
    """Return what is left now without what is *kept*, and once the evictions under way are done."""
    now, then = subtract(site.headroom, kept), site.settled
    headroom = {name: min(now.get(name, 0), then.get(name, 0)) for name in {**now, **then}}
    return Room(site, headroom, site.allocatable, then if site.held else None)


def _is_in_vain(world: "World", workload: Workload, held: Held, now: int) -> bool:
    """Say whether it would not fit even when all who leave are gone: somebody has stayed after all.

    That is asked when the cluster has been quiet for a while; until then its
    summary may show pods of those who have gone.
    """
    if _quiet_at(world, held) > now:
        return False
    world.accounts.close(workload, now)
    quota, prospect = world.books.quota(), world.books.prospects.of(workload.shape)
    sites = (world.ledger.site(name) for name in prospect.outlook.names)
    fits = quota.refusal(quota.tree.nodes[workload.queue], held.demand) is None and any(
        settled_room(site).takes(workload.shape) for site in sites
    )
    world.accounts.open(workload, now)
    return not fits


def _quiet_at(world: "World", held: Held) -> int:
    changed_at = world.ledger.site(held.cluster).changed_at
    return max(held.since, changed_at or 0) + world.policy.settle_ms


def _has_lapsed(world: "World", workload: Workload, held: Held, now: int) -> bool:
    if workload.uid not in world.backlog or world.backlog.lane(workload.uid).hopeless is not None:
        return True
    prospect = world.books.prospects.of(workload.shape)
    return (
        held.since + world.policy.reservation.max_ms <= now
        or requested(prospect.charge) != requested(held.demand)
        or held.cluster not in prospect.names
    )
