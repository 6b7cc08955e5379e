"""One cycle: the World as it is, turned into a Plan, in numbered steps.

Nobody else decides who is admitted. Its work is proportional to what has
changed: of those who wait, only lanes that something was freed for are tried.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from controller.engine import groups
from controller.engine.backlog import Lane, Sleep
from controller.engine.ledger import earliest
from controller.engine.ordering import Entry, Head, Standing, Turns
from controller.engine.plan import Admit, Evict, Plan, Wait
from controller.engine.prospects import Prospect, Stage
from controller.engine.queues import ROOT, QueueName
from controller.engine.quota import Quota
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.tree import Node
from controller.engine.workloads import Admission, Choice, Workload, WorkloadUid

if TYPE_CHECKING:
    from controller.engine.world import World

#: From so many news in one queue on, positions are counted for all of it at once.
_MANY = 8


def run(world: "World", now: int, *, most: int | None = None) -> Plan:
    """Decide at *now*, book what is admitted in *world*, and return what changed; end early after *most* admissions."""
    # 0. Take back who was aborted; his room is free when he is seen to be gone.
    evicted = _take_back(world)
    # 1. Learn what the clusters have left for us.
    world.ledger.learn(now, world.policy.settle_ms)
    # 2. Set aside who waits for another reason than room.
    suspects = world.books.sort_out(_regrouped(world), partial(_incomplete, world))
    # 3. Divide what there is among the queues, as far as demands have changed.
    changed = {*world.backlog.changed}
    standing = world.books.stand()
    # 4. Wake those that something was freed for, and serve one head after the other.
    awake = _awake(world, standing.quota)
    served = _serve(world, standing, awake, now, most=most)
    # 5. Tell those whose reason has changed, and say when to look again unasked.
    suspects.update(served.refused, world.backlog.news, _moved(world, standing.quota))
    suspects.update(_beside(world, served, {*changed, *(lane.queue for lane in suspects)}))
    waits = tuple(_news(world, suspects))
    return Plan((*evicted, *served.decisions), waits, _wake_at(world, now), is_cut=_is_full(served, most))


def _take_back(world: "World") -> list[Evict]:
    """Evict every admitted workload that was aborted where it ran (D8)."""
    uids, world.aborted = sorted(world.aborted), set()
    return [Evict(world.workloads[uid], EvictionReason.ABORTED) for uid in uids]


def refusal(world: "World", lane: Lane) -> Refusal | None:
    """Return why the first of *lane* does not get in as things stand; ``None`` where it would."""
    standing = world.standing
    if lane.hopeless is not None or standing is None:
        return lane.hopeless
    if _is_whole(world, lane) and lane.group is not None:
        return groups.attempt(world, lane.group).refusal
    over = standing.quota.refusal(standing.quota.tree.nodes[lane.queue], lane.charge)
    return over or world.books.prospects.refusal(world.books.prospects.of(lane.shape))


def _is_whole(world: "World", lane: Lane) -> bool:
    """Say whether *lane* holds parts that are admitted together with others, or not at all."""
    return lane.group is not None and world.groups.missing(lane.group) > 1


def _regrouped(world: "World") -> list[Lane]:
    """Return the lanes of groups of which a part came, went or started."""
    changed, world.groups.changed = world.groups.changed, set()
    uids = (uid for group in changed for uid in world.groups.parts(group))
    return [world.backlog.lane(uid) for uid in uids if uid in world.backlog]


def _incomplete(world: "World", lane: Lane) -> Refusal | None:
    return groups.incomplete(world, lane.group) if lane.group is not None else None


def _reason(world: "World", lane: Lane) -> Reason | None:
    """Return the code of ``refusal`` alone, which costs less."""
    standing = world.standing
    if lane.hopeless is not None or standing is None or _is_whole(world, lane):
        why = refusal(world, lane)
        return why.reason if why else None
    over = standing.quota.refusal(standing.quota.tree.nodes[lane.queue], lane.charge)
    if over is not None:
        return over.reason
    prospects = world.books.prospects
    return None if prospects.has_room(prospects.of(lane.shape)) else Reason.NO_ROOM


def _awake(world: "World", quota: Quota) -> Mapping[QueueName, list[Entry]]:
    """Return, by queue, the lanes that may fit: room for their shape, and something freed since they were refused."""
    found: dict[QueueName, list[Entry]] = {}
    prospects = world.books.prospects
    for lanes in world.backlog.shapes.values():
        prospect = prospects.of(lanes[0].shape)
        has_free, is_unreserved, has_room = _stage(world, quota, prospect)
        if not (has_free and has_room):
            continue
        for lane in lanes:
            if lane.hopeless is None and _is_awake(lane, quota, is_unreserved=is_unreserved):
                found.setdefault(lane.queue, []).append(Entry(lane, prospect.asks))
    return _lined_up(world, found)


def _stage(world: "World", quota: Quota, prospect: Prospect) -> Stage:
    """Return how far a shape comes: ceiling and guarantees at the root, room on a cluster."""
    if prospect.outlook.refusal is not None:
        return False, False, False
    root = quota.tree.root
    return (
        quota.has_free(root, prospect.charge),
        quota.has_unreserved(root, prospect.charge),
        world.books.prospects.has_room(prospect),
    )


def _moved(world: "World", quota: Quota) -> list[Lane]:
    """Return the lanes whose shape comes further now than in the last cycle, or less far."""
    before = world.books.prospects.stages
    after: dict[int, Stage] = {}
    found: list[Lane] = []
    for key, lanes in world.backlog.shapes.items():
        after[key] = _stage(world, quota, world.books.prospects.of(lanes[0].shape))
        if before.get(key, after[key]) != after[key]:
            found += lanes
    world.books.prospects.stages = after
    return found


def _is_awake(lane: Lane, quota: Quota, *, is_unreserved: bool) -> bool:
    sleep = lane.sleep
    if sleep is None or sleep.epoch != quota.epoch or quota.freed[sleep.queue] != sleep.freed:
        return True
    return sleep.is_reserved and is_unreserved


def _lined_up(world: "World", found: dict[QueueName, list[Entry]]) -> Mapping[QueueName, list[Entry]]:
    """Let a fifo queue compete as a whole, and only if its first may be tried."""
    for queue in [name for name in found if world.queues[name].fifo]:
        first = world.blocking(queue)
        if any(entry.lane.head is first for entry in found.pop(queue)):
            lanes = (lane for lane in world.backlog.queues[queue] if lane.hopeless is None)
            found[queue] = [Entry(lane, world.books.prospects.of(lane.shape).asks) for lane in lanes]
    return found


@dataclass(frozen=True, slots=True)
class _Served:
    decisions: list[Admit]
    refused: list[Lane]


def _is_full(served: _Served, most: int | None) -> bool:
    return most is not None and len(served.decisions) >= most


def _serve(
    world: "World", standing: Standing, awake: Mapping[QueueName, list[Entry]], now: int, *, most: int | None
) -> _Served:
    """Admit or pass over one head after the other (O1-O5).

    When an admission has left most of the lanes without a chance, the others
    go on alone.
    """
    served = _Served([], [])
    fits = partial(_fits, world, standing.quota)
    while awake:
        turns = Turns(standing, world.policy, awake, fits=fits)
        alive = _Alive(world, standing.quota, awake)
        while (head := turns.next()) is not None:
            admitted = _try(world, standing.quota, head, now)
            if not admitted:
                turns.passed_over(head)
                continue
            served.decisions.extend(admitted)
            if len(admitted) > 1 or alive.are_few() or _is_full(served, most):
                break
            turns.admitted(head)
        served.refused.extend(turns.refused)
        awake = _awake(world, standing.quota) if head is not None and not _is_full(served, most) else {}
    return served


class _Alive:
    """The shapes among the awake lanes, and whether most lanes belong to such as have no chance any more."""

    def __init__(self, world: "World", quota: Quota, awake: Mapping[QueueName, list[Entry]]) -> None:
        self._world = world
        self._quota = quota
        self._lanes: Tally[int] = Tally(id(entry.lane.shape) for entries in awake.values() for entry in entries)
        self._shapes = {id(entry.lane.shape): entry.lane.shape for entries in awake.values() for entry in entries}
        self._most = sum(self._lanes.values())

    def are_few(self) -> bool:
        """Say whether going on alone would spare the others more than half of the turns."""
        for key, shape in list(self._shapes.items()):
            has_free, _, has_room = _stage(self._world, self._quota, self._world.books.prospects.of(shape))
            if not (has_free and has_room):
                del self._shapes[key], self._lanes[key]
        return 2 * sum(self._lanes.values()) < self._most


def _fits(world: "World", quota: Quota, head: Head) -> bool:
    if _is_whole(world, head.lane):
        return refusal(world, head.lane) is None
    return _judge(world, quota, head) is not None


def _try(world: "World", quota: Quota, head: Head, now: int) -> list[Admit]:
    """Admit the head, together with the other parts of its group; return nothing where it does not fit."""
    if head.lane.group is None or not _is_whole(world, head.lane):
        choice = _judge(world, quota, head)
        return [] if choice is None else [_admit(world, head.workload, choice, now)]
    trial = groups.attempt(world, head.lane.group)
    if trial.refusal is not None:
        return []
    plan = f"{head.lane.group.key}@{now}"
    return [_admit(world, part, choice, now, plan=plan) for part, _, choice in trial.chosen]


def _judge(world: "World", quota: Quota, head: Head) -> Choice | None:
    """Return where the head goes, or nothing: ceilings first, then clusters."""
    over = quota.refusal(head.leaf, head.lane.charge)
    if over is not None:
        head.lane.sleep = _sleep(over, head.leaf, quota)
        return None
    prospect = world.books.prospects.of(head.lane.shape)
    if not world.books.prospects.has_room(prospect):
        return None
    choice = world.books.prospects.choice(prospect)
    return choice if isinstance(choice, Choice) else None


def _sleep(over: Refusal, leaf: Node, quota: Quota) -> Sleep | None:
    """Return until when one who is over a ceiling need not be tried again.

    At the root everybody is asked for anew, shape by shape; what is reserved
    there also depends on the guarantees in the branch.
    """
    if over.queue is None or (over.queue == ROOT and over.reason is Reason.QUEUE_OVER_CEILING):
        return None
    is_reserved = over.queue == ROOT
    branch = next(node.name for node in leaf.path() if node.depth == 1) if is_reserved else QueueName(over.queue)
    return Sleep(branch, quota.freed[branch], quota.epoch, is_reserved=is_reserved)


def _admit(world: "World", workload: Workload, choice: Choice, now: int, *, plan: str = "") -> Admit:
    admission = Admission(choice.charge, choice.bookings, admitted_at=now)
    world.admit(workload, admission, now)
    return Admit(workload, choice.assignments, admission, plan)


def _beside(world: "World", served: _Served, queues: Iterable[QueueName]) -> set[Lane]:
    """Return the lanes whose queue holds more now; in a fifo queue, also those that may stand behind another head."""
    fuller = {decision.workload.queue for decision in served.decisions}
    fifo = {name for name in queues if name in world.queues and world.queues[name].fifo}
    return {lane for name in fuller | fifo for lane in world.backlog.queues.get(name, ())}


def _news(world: "World", suspects: Iterable[Lane]) -> list[Wait]:
    """Return those whose reason code is not the one they were last told, by queue and position."""
    changed: dict[QueueName, dict[WorkloadUid, tuple[Workload, Refusal]]] = {}
    for lane in suspects:
        if lane.entries:
            _ask(world, lane, changed.setdefault(lane.queue, {}))
    for uid in world.untold:
        workload = world.workloads[uid]
        _note(world, workload, world.refusal(uid), changed.setdefault(workload.queue, {}))
    world.untold.clear()
    world.backlog.news.clear()
    return [wait for name in sorted(changed) for wait in _placed(world, name, changed[name])]


def _ask(world: "World", lane: Lane, changed: dict[WorkloadUid, tuple[Workload, Refusal]]) -> None:
    """Note whose reason in *lane* is news: of all where the lane's has changed, else of the untold."""
    first = None if lane.hopeless else world.blocking(lane.queue)
    if first is None and not lane.untold and _reason(world, lane) is lane.told:
        return
    why = refusal(world, lane)
    is_new = why is not None and why.reason is not lane.told
    for workload in lane if is_new or first is not None else [world.workloads[uid] for uid in lane.untold]:
        own = why if first is None or first is workload else world.refusal(workload.uid)
        _note(world, workload, own, changed)
    lane.told = why.reason if why else None
    lane.untold.clear()


def _note(
    world: "World", workload: Workload, why: Refusal | None, changed: dict[WorkloadUid, tuple[Workload, Refusal]]
) -> None:
    if why is not None and world.told.get(workload.uid) is not why.reason:
        world.told[workload.uid] = why.reason
        changed[workload.uid] = workload, why


def _placed(world: "World", queue: QueueName, changed: Mapping[WorkloadUid, tuple[Workload, Refusal]]) -> list[Wait]:
    if len(changed) >= _MANY:
        everyone = enumerate(world.waiting(queue), start=1)
        return [Wait(*changed[each.uid], position) for position, each in everyone if each.uid in changed]
    waits = [Wait(workload, why, world.position(workload)) for workload, why in changed.values()]
    return sorted(waits, key=lambda wait: wait.position)


def _wake_at(world: "World", now: int) -> int | None:
    """Return when something may change by itself: foreign use that settles, a hold that ends."""
    wake_at = earliest((world.ledger.settles_at(world.policy.settle_ms), world.release_at()))
    return None if wake_at is None else max(wake_at, now + 1)
