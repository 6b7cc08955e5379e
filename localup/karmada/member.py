"""Simulates a member cluster: its nodes and the workloads on them.

A state machine without I/O and clock. A job stays pending until every pod of its gang fits on a node (first fit),
then runs for its run time; other pods start as capacity permits. As with Volcano, a pending job has no pods, so the
summary does not include it (facts, §2).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from controller.api.quantity import parse_quantity
from controller.engine.state.resources import EMPTY, PODS, Resources, add, positive, scale, subtract, total
from localup.karmada.objects import Object
from localup.karmada.workloads import IdenticalPods, Workload


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
    resource_range: Object = next(item for item in model["ranges"] if item["name"] == name)
    return resource_range


Placement = list[list[int]]
"""By task, the node number of each of its running pods."""


class Packing:
    """Free resources of each node while pods are placed."""

    def __init__(self, nodes: Sequence[Resources]) -> None:
        self.free = list(nodes)

    def place_gang(self, tasks: Sequence[IdenticalPods]) -> Placement | None:
        """Place the gang minimums of all *tasks*, or nothing."""
        before = list(self.free)
        rows = [self.place(task.pod, task.gang_minimum) for task in tasks]
        if all(len(row) == task.gang_minimum for row, task in zip(rows, tasks, strict=True)):
            return rows
        self.free = before
        return None

    def occupy(self, pod: Resources, nodes: Sequence[int]) -> None:
        """Subtract the requests of pods on *nodes*, even if they do not fit."""
        for number, count in Counter(nodes).items():
            self.free[number] = subtract(self.free[number], scale(pod, count))

    def place(self, pod: Resources, count: int) -> list[int]:
        """Place up to *count* pods on the first nodes with free resources and return the node of each."""
        nodes: list[int] = []
        for number, free in enumerate(self.free):
            fitting = (max(free.get(name, 0), 0) // asked for name, asked in pod.items() if asked > 0)
            taken = min([count - len(nodes), *fitting])
            if taken:
                self.free[number] = subtract(free, scale(pod, taken))
                nodes += [number] * taken
        return nodes


def spread(amounts: Resources, nodes: Sequence[Resources]) -> list[Resources]:
    """Divide *amounts* over *nodes* by filling one after the other; the last node takes the excess."""
    left, parts = dict(amounts), list[Resources]()
    for node in nodes[:-1]:
        part = {name: min(amount, max(node.get(name, 0), 0)) for name, amount in left.items()}
        left = {name: amount - part[name] for name, amount in left.items()}
        parts.append({name: amount for name, amount in part.items() if amount})
    return [*parts, {name: amount for name, amount in left.items() if amount}]


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
        lasts = self.workload.run_seconds
        return None if self.phase is not Phase.RUNNING or lasts is None else self.since + lasts

    @property
    def used(self) -> Resources:
        """Return the requests of its running pods."""
        return EMPTY if self.phase.is_final else total(scale(task.pod, count) for task, count in self._counted())

    @property
    def pending_requests(self) -> Resources:
        """Return the requests of its pods without a node."""
        if self.phase is not Phase.RUNNING:
            return EMPTY
        return total(scale(task.pod, task.count - count) for task, count in self._counted())

    def _counted(self) -> Iterator[tuple[IdenticalPods, int]]:
        return zip(self.workload.tasks, self.pods, strict=True)


@dataclass(slots=True)
class Member(Generic[K]):
    """Jobs of a cluster by key in order of arrival; finished ones use no resources."""

    allocatable: Resources = EMPTY
    external_usage: Resources = EMPTY
    """Usage of pods outside of the simulation."""
    node_sizes: tuple[Resources, ...] = ()
    """Allocatable resources of each node; if empty, one node has all allocatable resources."""
    runs: dict[K, Run] = field(default_factory=dict)
    _active: dict[K, None] = field(default_factory=dict)
    _placements: dict[K, Placement] = field(default_factory=dict)

    def submit(self, key: K, workload: Workload, now: float) -> None:
        """Add a job, or resize an existing one."""
        run = self.runs.get(key)
        if run is None:
            self.adopt(key, Run(workload, Phase.PENDING, now, (0,) * len(workload.tasks)))
        elif run.workload != workload and not run.phase.is_final:
            remaining = [*run.pods, *([0] * len(workload.tasks))]
            pods = tuple(min(count, task.count) for count, task in zip(remaining, workload.tasks, strict=False))
            is_resumed = run.workload.run_seconds is None
            self.runs[key] = replace(run, workload=workload, pods=pods, since=now if is_resumed else run.since)

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
        before = {key: self.runs[key] for key in self._active}
        for key in before:
            self._finish(key, now)
        packing = self._pack()
        for key in self._active:
            self._start_pods(key, packing, now)
        return {key for key, run in before.items() if self.runs[key] != run}

    def next_change(self) -> float | None:
        """Return when the next job ends."""
        return min((at for key in self._active if (at := self.runs[key].ends) is not None), default=None)

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
        free = self._pack().free
        return [Node(size, positive(subtract(size, left))) for size, left in zip(self._sizes, free, strict=True)]

    def nodes_of(self, key: K) -> Placement:
        """Return the node number of each running pod, by task."""
        self._pack()
        return self._placements.get(key, [])

    @property
    def _sizes(self) -> tuple[Resources, ...]:
        return self.node_sizes or (self.allocatable,)

    def _pack(self) -> Packing:
        """Return what is free on each node; pods stay on their node while it exists, others are placed first fit.

        Pods that fit nowhere are placed on the last node.
        """
        sizes = self._sizes
        packing = Packing([subtract(*item) for item in zip(sizes, spread(self.external_usage, sizes), strict=True)])
        before, self._placements = self._placements, {}
        for key in self._active:
            run, rows = self.runs[key], before.get(key, [])
            rows = [*rows, *([] for _ in run.pods[len(rows) :])]
            present = [[node for node in row if node < len(sizes)] for row in rows]
            self._placements[key] = [row[:count] for row, count in zip(present, run.pods, strict=False)]
            for task, row in zip(run.workload.tasks, self._placements[key], strict=True):
                packing.occupy(task.pod, row)
        for key, rows in self._placements.items():
            for task, row, count in zip(self.runs[key].workload.tasks, rows, self.runs[key].pods, strict=True):
                row.extend(packing.place(task.pod, count - len(row)))
                forced = [len(sizes) - 1] * (count - len(row))
                packing.occupy(task.pod, forced)
                row.extend(forced)
        return packing

    def _finish(self, key: K, now: float) -> None:
        run = self.runs[key]
        if run.ends is not None and run.ends <= now:
            phase = Phase.FAILED if run.workload.fails else Phase.COMPLETED
            self.runs[key] = replace(run, phase=phase, since=run.ends)
            del self._active[key]

    def _start_pods(self, key: K, packing: Packing, now: float) -> None:
        """Start the gang of a pending job if it fits, and as many more pods as fit."""
        run, rows = self.runs[key], self._placements[key]
        if run.phase is Phase.PENDING:
            gang = packing.place_gang(run.workload.tasks)
            if gang is None:
                return
            run, rows = replace(run, phase=Phase.RUNNING, since=now), gang
        for task, row in zip(run.workload.tasks, rows, strict=True):
            row.extend(packing.place(task.pod, task.count - len(row)))
        self.runs[key] = replace(run, pods=tuple(map(len, rows)))
        self._placements[key] = rows
