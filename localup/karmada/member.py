"""Simulates a member cluster: its nodes and the workloads on them.

A state machine without I/O and clock. A job stays pending until every pod of its gang fits on a node (first fit),
then runs for its run time; other pods start as capacity permits. As with Volcano, a pending job has no pods, so the
summary does not include it (facts, §2).
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from typing import Final, Generic, TypeVar

from controller.api.quantity import parse_quantity
from controller.engine.state.resources import EMPTY, PODS, Resources, add, positive, scale, subtract, total
from localup.karmada.objects import Object
from localup.karmada.workloads import IdenticalPods, Workload

_UNBOUNDED: Final = str(2**63 - 1)

_CPU: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", _UNBOUNDED)

_MEMORY: Final = ("0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti", _UNBOUNDED)


def default_models() -> list[Object]:
    """Return the grades that Karmada's API server sets in new Clusters; the CRD has the same defaults."""
    return [
        {
            "grade": grade,
            "ranges": [
                {"name": name, "min": ends[grade], "max": ends[grade + 1]}
                for name, ends in (("cpu", _CPU), ("memory", _MEMORY))
            ],
        }
        for grade in range(len(_CPU) - 1)
    ]


@dataclass(frozen=True, slots=True)
class Node:
    """Allocatable resources of a node and the usage of its pods."""

    allocatable: Resources
    used: Resources = EMPTY


def allocatable_modelings(models: Sequence[Object], nodes: Iterable[Node]) -> list[Object]:
    """Return the number of nodes per grade by their free resources.

    As in Karmada, counting stops at the first node without a free pod slot, and nodes with negative free resources
    are skipped.
    """
    graded = [item["name"] for item in models[0]["ranges"]] if models else []
    lows = {name: [parse_quantity(name, _range(model, name)["min"]) for model in models] for name in graded}
    counts = [0] * len(models)
    for node in nodes:
        free = subtract(node.allocatable, node.used)
        if node.used and free.get(PODS, 0) <= 0:
            break
        grade = min((bisect_right(low, free.get(name, 0)) - 1 for name, low in lows.items()), default=-1)
        if grade >= 0:
            counts[grade] += 1
    return [{"grade": model["grade"], "count": count} for model, count in zip(models, counts, strict=True)]


def _range(model: Object, name: str) -> Object:
    found: Object = next(item for item in model["ranges"] if item["name"] == name)
    return found


Counts = tuple[int, ...]

"""Number of pods of each task."""

PodPlacement = tuple[tuple[int, ...], ...]

"""By task, the number of its pods on each node."""


class Packing:
    """Free resources of each node while pods are placed."""

    def __init__(self, nodes: Sequence[Resources]) -> None:
        self.free = list(nodes)

    def place_gang(self, tasks: Sequence[IdenticalPods]) -> PodPlacement | None:
        """Place the gang minimums of all *tasks*, or nothing."""
        before = list(self.free)
        places = tuple(self._place(task.pod, task.gang_minimum) for task in tasks)
        if all(sum(row) == task.gang_minimum for row, task in zip(places, tasks, strict=True)):
            return places
        self.free = before
        return None

    def place_remaining(self, tasks: Sequence[IdenticalPods], places: PodPlacement) -> PodPlacement:
        """Place as many missing pods as fit, in task order."""
        added = (self._place(task.pod, task.count - sum(row)) for task, row in zip(tasks, places, strict=True))
        return tuple(tuple(map(sum, zip(row, more, strict=True))) for row, more in zip(places, added, strict=True))

    def place_running(self, tasks: Sequence[IdenticalPods], counts: Counts, before: PodPlacement) -> PodPlacement:
        """Keep running pods on their previous nodes as far as task and node still exist."""
        rows = []
        for number, count in enumerate(counts):
            row = before[number] if number < len(before) else ()
            rows.append(_at_most(row, count) if len(row) == len(self.free) else (0,) * len(self.free))
        self._occupy(tasks, tuple(rows))
        return tuple(rows)

    def restore(self, tasks: Sequence[IdenticalPods], counts: Counts, remaining: PodPlacement) -> PodPlacement:
        """Place other running pods: first fit, otherwise on the last node even if they do not fit."""
        rows = []
        for task, count, row in zip(tasks, counts, remaining, strict=True):
            added = self._place(task.pod, count - sum(row))
            forced = (0,) * (len(row) - 1) + (count - sum(row) - sum(added),)
            self._occupy((task,), (forced,))
            rows.append(tuple(map(sum, zip(row, added, forced, strict=True))))
        return tuple(rows)

    def _occupy(self, tasks: Sequence[IdenticalPods], places: PodPlacement) -> None:
        """Subtract the requests of the pods in *places* from the free resources."""
        for task, row in zip(tasks, places, strict=True):
            for number, count in enumerate(row):
                if count:
                    self.free[number] = subtract(self.free[number], scale(task.pod, count))

    def _place(self, pod: Resources, count: int) -> tuple[int, ...]:
        """Place up to *count* pods and return the number per node."""
        row = []
        for number, free in enumerate(self.free):
            taken = min([count, *(max(free.get(name, 0), 0) // asked for name, asked in pod.items() if asked > 0)])
            if taken:
                self.free[number] = subtract(free, scale(pod, taken))
            row.append(taken)
            count -= taken
        return tuple(row)


def spread(amounts: Resources, nodes: Sequence[Resources]) -> list[Resources]:
    """Divide *amounts* over *nodes* by filling one after the other; the last node takes the excess."""
    left, parts = dict(amounts), list[Resources]()
    for node in nodes[:-1]:
        part = {name: min(amount, max(node.get(name, 0), 0)) for name, amount in left.items()}
        left = {name: amount - part[name] for name, amount in left.items()}
        parts.append({name: amount for name, amount in part.items() if amount})
    return [*parts, {name: amount for name, amount in left.items() if amount}]


def _at_most(row: Sequence[int], count: int) -> tuple[int, ...]:
    """Return *row* with at most *count* pods, the first ones."""
    before = accumulate(row, initial=0)
    return tuple(min(item, max(count - taken, 0)) for item, taken in zip(row, before, strict=False))


K = TypeVar("K", bound=Hashable)


class Phase(StrEnum):
    """Phase of a job in Volcano's terms."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Return whether the phase is final."""
        return self in {Phase.COMPLETED, Phase.FAILED}


@dataclass(frozen=True, slots=True)
class Run:
    """Current state of a workload."""

    workload: Workload
    phase: Phase
    since: float
    pods: tuple[int, ...]
    """Number of pods of each task that run, or ran if it is finished."""

    @property
    def running(self) -> int:
        """Return the number of pods that run, or ran if it is finished."""
        return sum(self.pods)

    @property
    def waiting(self) -> int:
        """Return the number of existing pods without a node."""
        return sum(task.count for task in self.workload.tasks) - self.running if self.phase is Phase.RUNNING else 0

    @property
    def ends(self) -> float | None:
        """Return the end time if known."""
        return (
            None
            if self.phase is not Phase.RUNNING or self.workload.run_seconds is None
            else self.since + self.workload.run_seconds
        )

    @property
    def used(self) -> Resources:
        """Return the requests of its running pods."""
        return EMPTY if self.phase.is_final else total(scale(each.pod, count) for each, count in self._counted())

    @property
    def pending_requests(self) -> Resources:
        """Return the requests of its pods without a node."""
        if self.phase is not Phase.RUNNING:
            return EMPTY
        return total(scale(each.pod, each.count - count) for each, count in self._counted())

    def _counted(self) -> Iterator[tuple[IdenticalPods, int]]:
        return zip(self.workload.tasks, self.pods, strict=True)


@dataclass(slots=True)
class Member(Generic[K]):
    """Jobs of a cluster by key in order of arrival; finished ones use no resources."""

    allocatable: Resources = EMPTY
    external_usage: Resources = EMPTY
    """Usage of pods outside of the simulation."""
    pods_late: float = 0
    """Seconds until a fitting job has pods."""
    node_sizes: tuple[Resources, ...] = ()
    """Allocatable resources of each node; if empty, one node has all allocatable resources."""
    runs: dict[K, Run] = field(default_factory=dict)
    _active: dict[K, None] = field(default_factory=dict)
    _placements: dict[K, PodPlacement] = field(default_factory=dict)
    """Pods per node of active jobs at the last advance."""
    _advanced_at: float = 0
    """Time of the last advance."""

    def submit(self, key: K, workload: Workload, now: float) -> None:
        """Add a job, or resize an existing one."""
        run = self.runs.get(key)
        if run is None:
            self.adopt(key, Run(workload, Phase.PENDING, now, (0,) * len(workload.tasks)))
        elif run.workload != workload and not run.phase.is_final:
            remaining = [*run.pods, *([0] * len(workload.tasks))]
            pods = tuple(min(count, task.count) for count, task in zip(remaining, workload.tasks, strict=False))
            self.runs[key] = replace(run, workload=workload, pods=pods)

    def adopt(self, key: K, run: Run) -> None:
        """Add a job in an earlier state, whether or not it fits."""
        self.runs[key] = run
        if not run.phase.is_final:
            self._active[key] = None

    def remove(self, key: K) -> None:
        """Remove a job with its pods."""
        self.runs.pop(key, None)
        self._active.pop(key, None)
        self._placements.pop(key, None)

    def advance(self, now: float) -> set[K]:
        """Process everything due by *now* and return the changed jobs."""
        self._advanced_at = now
        before = {key: self.runs[key] for key in self._active}
        for key in before:
            self._finish(key, now)
        packing, self._placements = self._packed()
        for key in self._active:
            if self._is_early(key, now):
                continue
            self.runs[key], self._placements[key] = _start_pods(self.runs[key], self._placements[key], packing, now)
        return {key for key, run in before.items() if self.runs[key] != run}

    def next_change(self) -> float | None:
        """Return when the next job ends or its pod delay ends."""
        return min((at for key in self._active if (at := self._changes(key)) is not None), default=None)

    @property
    def used(self) -> Resources:
        """Requests of the pods of jobs."""
        return total(self.runs[key].used for key in self._active)

    @property
    def allocated(self) -> Resources:
        """Requests of all pods with a node, including external usage."""
        return positive(add(self.used, self.external_usage))

    @property
    def allocating(self) -> Resources:
        """Requests of pods without a node."""
        return positive(total(self.runs[key].pending_requests for key in self._active))

    @property
    def nodes(self) -> list[Node]:
        """Return all nodes with the usage of their pods."""
        free = self._packed()[0].free
        return [Node(size, positive(subtract(size, left))) for size, left in zip(self._sizes, free, strict=True)]

    def nodes_of(self, key: K) -> list[list[int]]:
        """Return the node number of each running pod, by task."""
        rows = self._packed()[1].get(key, ())
        return [[number for number, count in enumerate(row) for _ in range(count)] for row in rows]

    @property
    def _sizes(self) -> tuple[Resources, ...]:
        return self.node_sizes or (self.allocatable,)

    def _packed(self) -> tuple[Packing, dict[K, PodPlacement]]:
        """Return what is free on each node, and where pods run: they stay where they are, while that node is there."""
        foreign = spread(self.external_usage, self._sizes)
        packing = Packing([subtract(*item) for item in zip(self._sizes, foreign, strict=True)])
        runs = {key: self.runs[key] for key in self._active}
        remaining = {
            key: packing.place_running(run.workload.tasks, run.pods, self._placements.get(key, ()))
            for key, run in runs.items()
        }
        return packing, {
            key: packing.restore(run.workload.tasks, run.pods, remaining[key]) for key, run in runs.items()
        }

    def _is_early(self, key: K, now: float) -> bool:
        """Return whether a pending job is within its pod delay."""
        run = self.runs[key]
        return run.phase is Phase.PENDING and now < run.since + self.pods_late

    def _changes(self, key: K) -> float | None:
        """Return when a job may change on its own; ``None`` for pending jobs after their pod delay."""
        run = self.runs[key]
        if run.phase is not Phase.PENDING:
            return run.ends
        due = run.since + self.pods_late
        return due if due > self._advanced_at else None

    def _finish(self, key: K, now: float) -> None:
        run = self.runs[key]
        if run.ends is not None and run.ends <= now:
            phase = Phase.FAILED if run.workload.fails else Phase.COMPLETED
            self.runs[key] = replace(run, phase=phase, since=run.ends)
            del self._active[key]


def _start_pods(run: Run, places: PodPlacement, packing: Packing, now: float) -> tuple[Run, PodPlacement]:
    """Return *run* with its gang started if it is pending and fits, and with as many more pods as fit."""
    if run.phase is Phase.PENDING:
        gang = packing.place_gang(run.workload.tasks)
        if gang is None:
            return run, places
        run, places = replace(run, phase=Phase.RUNNING, since=now), gang
    if run.phase is Phase.RUNNING:
        places = packing.place_remaining(run.workload.tasks, places)
    pods = tuple(map(sum, places))
    return (run if pods == run.pods else replace(run, pods=pods)), places
