"""A member cluster: its nodes, and what runs on them.

A state machine without I/O or clock. A job waits until each pod of its gang has
a place on a node, first fit, then runs for its time; what of it did not fit
follows when there is room. A job that waits has no pods yet, as with Volcano,
so that it is invisible in the summary (facts, §2).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from controller.engine.resources import EMPTY, Resources, add, positive, scale, subtract, total
from localup.karmada.modeling import Node
from localup.karmada.packing import Packing, PodPlacement, spread
from localup.karmada.workloads import Task, Workload

K = TypeVar("K", bound=Hashable)


class Phase(StrEnum):
    """Where a job stands, in the words of Volcano."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Say whether nothing comes after it."""
        return self in {Phase.COMPLETED, Phase.FAILED}


@dataclass(frozen=True, slots=True)
class Run:
    """What has become of a load so far."""

    workload: Workload
    phase: Phase
    since: float
    pods: tuple[int, ...]
    """How many pods of each task run, or have run when it is over."""

    @property
    def running(self) -> int:
        """How many pods run, or have run when it is over."""
        return sum(self.pods)

    @property
    def waiting(self) -> int:
        """How many pods exist that have found no room."""
        return sum(task.count for task in self.workload.tasks) - self.running if self.phase is Phase.RUNNING else 0

    @property
    def ends(self) -> float | None:
        """When it will be over, as far as that is known."""
        return (
            None
            if self.phase is not Phase.RUNNING or self.workload.run_seconds is None
            else self.since + self.workload.run_seconds
        )

    @property
    def used(self) -> Resources:
        """What its pods hold."""
        return EMPTY if self.phase.is_final else total(scale(each.pod, count) for each, count in self._counted())

    @property
    def pending_requests(self) -> Resources:
        """What its pods that have found no room ask for."""
        if self.phase is not Phase.RUNNING:
            return EMPTY
        return total(scale(each.pod, each.count - count) for each, count in self._counted())

    def _counted(self) -> Iterator[tuple[Task, int]]:
        return zip(self.workload.tasks, self.pods, strict=True)


@dataclass(slots=True)
class Member(Generic[K]):
    """One cluster's jobs by key, in the order in which they came; those that are over hold nothing."""

    allocatable: Resources = EMPTY
    external_usage: Resources = EMPTY
    """What pods that we did not cause hold."""
    pods_late: float = 0
    """For how many seconds a job that fits has no pods yet."""
    node_sizes: tuple[Resources, ...] = ()
    """What each node has; without any there is one node with all that is allocatable."""
    runs: dict[K, Run] = field(default_factory=dict)
    _active: dict[K, None] = field(default_factory=dict)
    _placements: dict[K, PodPlacement] = field(default_factory=dict)
    """Where the pods of active jobs were when time last passed."""
    _advanced_at: float = 0
    """The time of the last look."""

    def submit(self, key: K, workload: Workload, now: float) -> None:
        """Take a job, or the new size of one that is here."""
        run = self.runs.get(key)
        if run is None:
            self.adopt(key, Run(workload, Phase.PENDING, now, (0,) * len(workload.tasks)))
        elif run.workload != workload and not run.phase.is_final:
            remaining = [*run.pods, *([0] * len(workload.tasks))]
            pods = tuple(min(count, task.count) for count, task in zip(remaining, workload.tasks, strict=False))
            self.runs[key] = replace(run, workload=workload, pods=pods)

    def adopt(self, key: K, run: Run) -> None:
        """Take a job as it was when somebody last looked, whether it fits or not."""
        self.runs[key] = run
        if not run.phase.is_final:
            self._active[key] = None

    def remove(self, key: K) -> None:
        """Forget a job; its pods are gone at once."""
        self.runs.pop(key, None)
        self._active.pop(key, None)
        self._placements.pop(key, None)

    def advance(self, now: float) -> set[K]:
        """Let everything happen that is due; return the jobs that it happened to."""
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
        """Return when the next job will be over, or may have its pods."""
        return min((at for key in self._active if (at := self._changes(key)) is not None), default=None)

    @property
    def used(self) -> Resources:
        """What the pods of the jobs hold."""
        return total(self.runs[key].used for key in self._active)

    @property
    def allocated(self) -> Resources:
        """What all pods with a node hold."""
        return positive(add(self.used, self.external_usage))

    @property
    def allocating(self) -> Resources:
        """What the pods without a node ask for."""
        return positive(total(self.runs[key].pending_requests for key in self._active))

    @property
    def nodes(self) -> list[Node]:
        """Return the nodes, and what all pods hold on each."""
        free = self._packed()[0].free
        return [Node(size, positive(subtract(size, left))) for size, left in zip(self._sizes, free, strict=True)]

    def nodes_of(self, key: K) -> list[list[int]]:
        """Return the number of the node of each pod that runs, by task."""
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
        """Say whether a job waits and has not waited for as long as its pods are late."""
        run = self.runs[key]
        return run.phase is Phase.PENDING and now < run.since + self.pods_late

    def _changes(self, key: K) -> float | None:
        """Return when a job may change by itself; one that has waited for its pods waits for others to go."""
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
    """Return *run* with its gang, if that waits and fits, and with as many more of its pods as fit."""
    if run.phase is Phase.PENDING:
        gang = packing.place_gang(run.workload.tasks)
        if gang is None:
            return run, places
        run, places = replace(run, phase=Phase.RUNNING, since=now), gang
    if run.phase is Phase.RUNNING:
        places = packing.place_remaining(run.workload.tasks, places)
    pods = tuple(map(sum, places))
    return (run if pods == run.pods else replace(run, pods=pods)), places
