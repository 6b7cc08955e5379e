"""One cycle: the World as it is, turned into a Plan, in numbered steps.

Nobody else decides who is admitted. The order of the steps is the order of
``semantics``: room and ceilings, who is held whatever room there is,
entitlements, then one head after the other.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from controller.engine.backlog import Lane
from controller.engine.entitlement import entitlements
from controller.engine.fit import choose, rooms
from controller.engine.ledger import earliest
from controller.engine.ordering import Head, Standing, Turns
from controller.engine.plan import Admit, Decision, Plan, Wait
from controller.engine.queues import QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import Refusal
from controller.engine.resources import Resources, add, scale
from controller.engine.tree import limits
from controller.engine.workloads import Admission, Choice, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.world import World

__all__ = ["Standing", "run"]

Lanes = Mapping[QueueName, list[Lane]]


def run(world: "World", now: int) -> Plan:
    """Decide at *now*, book what is admitted in *world*, and return what changed."""
    # 1. Learn what the clusters have left for us, and what the queues hold of it.
    world.ledger.learn(now, world.policy.settle_ms)
    quota = world.quota()
    # 2. Set aside who waits for another reason than room.
    lanes = _sort_out(world)
    # 3. Divide what there is among the queues.
    standing = Standing(quota, entitlements(quota, _wanted(world, lanes)), world.tenants)
    # 4. Serve one head after the other, until everybody was admitted or passed over.
    decisions = _serve(world, Turns(standing, world.policy, lanes), standing, now)
    # 5. Tell those whose reason has changed, and say when to look again unasked.
    world.standing = standing
    return Plan(tuple(decisions), tuple(_news(world)), _wake_at(world, now))


def _sort_out(world: "World") -> Lanes:
    """Return the lanes that only room can hold back, by queue; give the others their refusal."""
    tree = world.tree()
    potential = Quota(tree, limits(tree, world.ledger.potential()), {})
    lanes: dict[QueueName, list[Lane]] = {}
    for lane in world.backlog.lanes():
        lane.charge = world.outlook(lane).charge(lane.shape)
        lane.refusal = tree.refusal(lane.queue) or _hopeless(world, potential, lane)
        if lane.refusal is None:
            lanes.setdefault(lane.queue, []).append(lane)
    return lanes


def _hopeless(world: "World", potential: Quota, lane: Lane) -> Refusal | None:
    """Return why no room would ever help *lane*, or ``None`` (C5)."""
    exceeded = potential.exceeds(potential.tree.nodes[lane.queue], lane.charge)
    return exceeded or world.outlook(lane).refusal


def _wanted(world: "World", lanes: Lanes) -> dict[QueueName, Resources]:
    """Return every queue's demand: its charges and those of its lanes (Q4)."""
    wanted = dict(world.charged)
    for name, waiting in lanes.items():
        for lane in waiting:
            wanted[name] = add(wanted.get(name, {}), scale(lane.charge, len(lane.entries)))
    return wanted


def _serve(world: "World", turns: Turns, standing: Standing, now: int) -> list[Decision]:
    """Admit or pass over one head after the other (O1-O5)."""
    world.blocking.clear()
    decisions: list[Decision] = []
    outdated: list[Head] = []
    refused: list[Head] = []
    while (head := turns.next()) is not None:
        verdict = _judge(world, standing.quota, head)
        if isinstance(verdict, Refusal):
            head.lane.refusal = verdict
            refused.append(head)
            if head.leaf.queue.fifo:
                world.blocking[head.leaf.name] = head.workload
            turns.passed_over(head)
        else:
            decisions.append(_admit(world, standing.quota, head, verdict, now=now))
            outdated += refused
            refused.clear()
            turns.admitted(head)
    _refuse_anew(world, standing.quota, outdated)
    _mark_blocked(world)
    return decisions


def _refuse_anew(world: "World", quota: Quota, heads: Iterable[Head]) -> None:
    """Give those who were passed over before the last admission the reason that they wait for after it (W1)."""
    for head in heads:
        verdict = _judge(world, quota, head)
        if isinstance(verdict, Refusal):
            head.lane.refusal = verdict


def _judge(world: "World", quota: Quota, head: Head) -> Choice | Refusal:
    """Return where the head goes, or why it does not fit: ceilings first, then clusters."""
    over = quota.refusal(head.leaf, head.lane.charge)
    if over is not None:
        return over
    outlook = world.outlook(head.lane)
    candidates = rooms(world.ledger.site(name) for name in outlook.names)
    return choose(head.lane.shape, candidates, outlook.copies)


def _admit(world: "World", quota: Quota, head: Head, choice: Choice, *, now: int) -> Admit:
    admission = Admission(choice.charge, choice.bookings, admitted_at=now)
    world.admit(head.workload, admission, now)
    quota.book(head.leaf, admission.charge)
    return Admit(head.workload, choice.assignments, admission)


def _mark_blocked(world: "World") -> None:
    """Give the lanes behind a blocking head its refusal; each of their workloads is told that it stands behind."""
    for name, head in world.blocking.items():
        refusal = world.backlog.lane(head.uid).refusal
        for lane in world.backlog.queues[name]:
            lane.refusal = lane.refusal or refusal


def _news(world: "World") -> list[Wait]:
    """Return those whose reason code is not the one they were last told, by queue and position."""
    news: list[Wait] = []
    for name in world.waiting_queues():
        changed = _changed(world, name)
        if changed:
            news.extend(
                Wait(workload, refusal, position)
                for position, workload in enumerate(world.waiting(name), start=1)
                if workload.uid in changed and (refusal := world.refusal(workload.uid)) is not None
            )
    return news


def _changed(world: "World", queue: QueueName) -> set[WorkloadUid]:
    """Return who waits in *queue* for another reason than last told, and note that they are told now."""
    suspects: set[WorkloadUid] = set(world.held.get(queue, ()))
    for lane in world.backlog.queues.get(queue, ()):
        reason = lane.refusal.reason if lane.refusal else None
        if (
            reason != lane.told
            or queue in world.blocking
            or world.queues.get(queue) is None
            or world.queues[queue].fifo
        ):
            suspects.update(workload.uid for workload in lane)
        suspects |= lane.untold
        lane.told = reason
        lane.untold.clear()
    changed = set()
    for uid in suspects:
        refusal = world.refusal(uid)
        if refusal is not None and world.told.get(uid) is not refusal.reason:
            world.told[uid] = refusal.reason
            changed.add(uid)
    return changed


def _wake_at(world: "World", now: int) -> int | None:
    """Return when something may change by itself: foreign use that settles, a hold that ends."""
    wake_at = earliest((world.ledger.settles_at(world.policy.settle_ms), world.release_at()))
    return None if wake_at is None else max(wake_at, now + 1)
