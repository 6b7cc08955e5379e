"""One cycle: the World as it is, turned into a Plan, in numbered steps.

Nobody else decides who is admitted. Its work is proportional to what has
changed: of those who wait, only lanes that something was freed for are tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from controller.engine import gangs, nominations, reservations, resize, startup
from controller.engine.active_reservations import active_reservations
from controller.engine.backlog import Lane, place
from controller.engine.ledger import earliest
from controller.engine.lending import Lending
from controller.engine.ordering import Standing
from controller.engine.plan import Evict, Note, Plan
from controller.engine.preemption_pass import admit_with_preemption
from controller.engine.queues import QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.serving import Service, stage
from controller.engine.steps import Steps, finish
from controller.engine.workloads import Choice

if TYPE_CHECKING:
    from controller.engine.feasibility_cache import Stage
    from controller.engine.world import World


def run(world: "World", now: int, *, most: int | None = None) -> Plan:
    """Decide at *now*, book what is decided in *world*, and return what changed; end early after *most* decisions."""
    return finish(steps(world, now, most=most))


def steps(world: "World", now: int, *, most: int | None = None) -> Steps[Plan]:
    """Do the same in parts, between which nothing may be told to *world*."""
    is_restless = _is_restless(world)
    world.planned_at = now
    # What was worked out for those who asked in between, clusters and queues may have made untrue since.
    world.lending = world.kept = None
    # 1. Take back who was aborted; learn what the clusters have left for us; take back who was moved where it does
    #    not fit, who outgrew its charge, and who never starts.
    evicted = list(_take_back(world, now))
    world.ledger.learn(now, world.policy.settle_ms)
    world.accounts.release_orphans()
    world.estimating.expire(now)
    evicted += startup.evict_moved(world, now)
    evicted += resize.evict_rejected(world, now)
    late, requeues = startup.check_timeouts(world, now)
    evicted += late
    # 2. Set aside who waits for another reason than room, and give up what is held in vain.
    held_back = partial(_incomplete, world)
    suspects = dict.fromkeys((yield from world.books.sort_out(_regrouped(world), held_back)))
    lapsed = [*nominations.expire(world, now), *reservations.expire(world, now), *reservations.complete(world, now)]
    suspects |= dict.fromkeys((yield from world.books.sort_out(_regrouped(world), held_back)))
    # 3. Divide what there is among the queues, as far as demands have changed.
    changed = {*world.backlog.changed}
    service = Service(world, world.books.stand(), now, most=most)
    # What reservations keep depends on what queues are due.
    world.kept = None
    # 4. Let those in for whom others have left; then serve one head after the other, with exchanges for the blocked.
    nominations.admit_nominated(service)
    exchanges = yield from admit_with_preemption(service)
    agreed = _served_at_once(service, exchanges.notes)
    # 5. Keep room for those who have been passed over for long.
    world.patience.look(world, _to_look_at(world, changed, suspects), now)
    reserved = reservations.grant(world, service.standing, now)
    if world.backlog.unjudged:
        suspects |= dict.fromkeys((yield from world.books.sort_out(_regrouped(world), held_back)))
    # 6. Tell those whose reason has changed, and say when to look again unasked.
    suspects |= dict.fromkeys([*service.refused, *world.backlog.news, *(yield from _moved(world, service.quota))])
    suspects |= dict.fromkeys(_near_reservations(world, has_changed=bool(lapsed or reserved)))
    suspects |= dict.fromkeys(_beside(world, service, {*changed, *(lane.queue for lane in suspects)}))
    if is_restless or _is_restless(world):
        suspects |= dict.fromkeys(world.backlog.lanes())
    world.telling.doubt(suspects)
    waits = yield from world.telling.news()
    world.lending = None
    world.admitted_so_far = frozenset(service.admitted if service.is_full else ())
    return Plan(
        decisions=(*evicted, *service.decisions),
        waits=waits,
        notes=(*lapsed, *agreed, *reserved),
        requeues=tuple(requeues),
        wake_at=_wake_at(world, now, exchanges.retry_at),
        queries=world.estimating.take_queries(),
        is_cut=service.is_full,
    )


def _served_at_once(service: Service, notes: Sequence[Note]) -> list[Note]:
    """Let those in who fit even beside the ones that leave for them; return the *notes* of those who do not yet."""
    if notes:
        nominations.admit_nominated(service)
    return [note for note in notes if note.workload.uid not in service.admitted]


def _to_look_at(world: "World", changed: Iterable[QueueName], judged: Iterable[Lane]) -> set[QueueName]:
    """Return the queues in which another one may be the best blocked one now."""
    if world.policy.is_by_tenant:
        return {*world.backlog.queues, *world.patience.blocked}
    return {*changed, *world.backlog.changed, *(lane.queue for lane in judged)}


def _near_reservations(world: "World", *, has_changed: bool) -> list[Lane]:
    """Return the lanes for which there is room that may be kept for others, all when what is kept has changed."""
    if has_changed:
        return list(world.backlog.lanes())
    stages = world.books.prospects.stages if world.reserved else {}
    near = (lane for key, found in stages.items() if all(found) for lane in world.backlog.shapes.get(key, ()))
    return [lane for lane in near if lane.told is not Reason.BEHIND_RESERVATION or reason(world, lane) is not lane.told]


def _is_restless(world: "World") -> bool:
    """Say whether reasons depend on more than ceilings and clusters: on what others are entitled to, or who leaves."""
    return world.policy.reclaim.enabled or world.books.is_moving


def _take_back(world: "World", now: int) -> Iterator[Evict]:
    """Evict every admitted workload that was aborted where it ran (D8): nothing of it runs, and nothing will."""
    for workload in sorted((world.workloads[uid] for uid in world.aborted), key=place):
        if workload.stays_until <= now:
            world.evict(workload, now)
            yield Evict(workload, EvictionReason.ABORTED)


def refusal(world: "World", lane: Lane) -> Refusal | None:
    """Return why the first of *lane* does not get in as things stand; ``None`` where it would."""
    standing = world.standing
    if lane.hopeless is not None or standing is None:
        return lane.hopeless
    if not lane.is_waiting:
        return Refusal(Reason.EVICTION_IN_PROGRESS, cluster=lane.held)
    if lane.group is not None and gangs.is_all_or_nothing(world, lane):
        return gangs.try_gang(world, lane.group, _lending(world, standing)).refusal
    over = standing.quota.refusal(standing.quota.tree.nodes[lane.queue], lane.charge)
    if over is None and (present := world.books.present()) is not None:
        over = present.refusal(present.tree.nodes[lane.queue], lane.charge)
    over = over or world.books.prospects.refusal(world.books.prospects.of(lane.shape))
    return over or _behind(world, lane) or _not_lent(world, standing, lane)


def _behind(world: "World", lane: Lane) -> Refusal | None:
    """Return the reservation that keeps from the first of *lane* what there is room for (O6)."""
    kept = active_reservations(world)
    if kept is None:
        return None
    prospect = world.books.prospects.of(lane.shape)
    choice = world.books.prospects.choice(prospect)
    verdict = kept.verdict(lane.head, prospect, choice) if isinstance(choice, Choice) else None
    return verdict if isinstance(verdict, Refusal) else None


def _not_lent(world: "World", standing: Standing, lane: Lane) -> Refusal | None:
    lending = _lending(world, standing)
    return lending.refusal(standing.quota.tree.nodes[lane.queue], lane) if lending else None


def _lending(world: "World", standing: Standing) -> Lending | None:
    """Return who may borrow as things stand, ``None`` where everybody may."""
    if world.lending is None and world.policy.reclaim.enabled:
        world.lending = Lending(world, standing, world.planned_at)
    return world.lending


def _regrouped(world: "World") -> list[Lane]:
    """Return the lanes of groups of which a part came, went or started."""
    changed, world.groups.changed = world.groups.changed, set()
    uids = (uid for group in sorted(changed, key=lambda group: group.key) for uid in world.groups.parts(group))
    return [world.backlog.lane(uid) for uid in uids if uid in world.backlog]


def _incomplete(world: "World", lane: Lane) -> Refusal | None:
    return gangs.incomplete_refusal(world, lane.group) if lane.group is not None else None


def reason(world: "World", lane: Lane) -> Reason | None:
    """Return the code of ``refusal`` alone, which costs less where nothing but ceilings and clusters decides."""
    standing = world.standing
    if lane.hopeless is not None or standing is None or _is_restless(world) or gangs.is_all_or_nothing(world, lane):
        why = refusal(world, lane)
        return why.reason if why else None
    over = standing.quota.refusal(standing.quota.tree.nodes[lane.queue], lane.charge)
    if over is not None:
        return over.reason
    prospects = world.books.prospects
    if not prospects.has_room(prospects.of(lane.shape)):
        return Reason.NO_ROOM
    kept = active_reservations(world)
    return Reason.BEHIND_RESERVATION if kept is not None and kept.blocks(lane) else None


def _moved(world: "World", quota: Quota) -> Steps[list[Lane]]:
    """Return the lanes whose shape comes further now than in the last cycle, or less far."""
    before = world.books.prospects.stages
    after: dict[int, Stage] = {}
    found: list[Lane] = []
    for key, lanes in world.backlog.shapes.items():
        after[key] = stage(world, quota, world.books.prospects.of(lanes[0].shape))
        if before.get(key, after[key]) != after[key]:
            found += lanes
        yield 1
    world.books.prospects.stages = after
    world.books.prospects.keep(after, len(after))
    return found


def _beside(world: "World", service: Service, queues: Iterable[QueueName]) -> list[Lane]:
    """Return the lanes whose queue holds more now; in a fifo queue, also those that may stand behind another head."""
    fuller = {decision.workload.queue for decision in service.decisions}
    fifo = {name for name in queues if name in world.queues and world.queues[name].fifo}
    return [lane for name in sorted(fuller | fifo) for lane in world.backlog.queues.get(name, ())]


def _wake_at(world: "World", now: int, retry_at: int | None) -> int | None:
    """Return when something may change by itself: foreign use settles, a hold ends, somebody may be evicted."""
    settles_at = world.ledger.settles_at(world.policy.settle_ms)
    lapses_at = earliest((nominations.next_expiry(world, now), reservations.next_expiry(world)))
    aborted_until = earliest(world.workloads[uid].stays_until for uid in world.aborted)
    patience_ends_at = world.patience.ends_at(world, now)
    evicts_at = earliest((retry_at, aborted_until, resize.next_eviction_at(world), startup.next_check_at(world)))
    own = settles_at, world.release_at(), world.estimating.ends_at()
    wake_at = earliest((*own, lapses_at, patience_ends_at, evicts_at))
    return None if wake_at is None else max(wake_at, now + 1)
