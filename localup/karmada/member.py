"""A member cluster: one pool of resources, and what runs in it.

A state machine without I/O or clock. A job waits until its gang fits into what
is free, then runs for its time; what of it did not fit follows when there is
room. There are no nodes: what adds up, fits. A job that waits has no pods yet,
as with Volcano, so that it is invisible in the summary (facts, §2).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from controller.engine.resources import EMPTY, Resources, add, fits, requested, scale, subtract, total
from localup.karmada.loads import Load, Task

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

    load: Load
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
        return sum(task.count for task in self.load.tasks) - self.running if self.phase is Phase.RUNNING else 0

    @property
    def ends(self) -> float | None:
        """When it will be over, as far as that is known."""
        return None if self.phase is not Phase.RUNNING or self.load.lasts is None else self.since + self.load.lasts

    @property
    def used(self) -> Resources:
        """What its pods hold."""
        return EMPTY if self.phase.is_final else total(scale(each.pod, count) for each, count in self._counted())

    @property
    def asked(self) -> Resources:
        """What its pods that have found no room ask for."""
        if self.phase is not Phase.RUNNING:
            return EMPTY
        return total(scale(each.pod, each.count - count) for each, count in self._counted())

    def _counted(self) -> Iterator[tuple[Task, int]]:
        return zip(self.load.tasks, self.pods, strict=True)


@dataclass(slots=True)
class Member(Generic[K]):
    """One cluster's jobs by key, in the order in which they came; those that are over hold nothing."""

    allocatable: Resources = EMPTY
    foreign: Resources = EMPTY
    """What pods that we did not cause hold."""
    pods_late: float = 0
    """For how many seconds a job that fits has no pods yet."""
    runs: dict[K, Run] = field(default_factory=dict)
    _active: dict[K, None] = field(default_factory=dict)
    _seen: float = 0
    """The time of the last look."""

    def submit(self, key: K, load: Load, now: float) -> None:
        """Take a job, or the new size of one that is here."""
        run = self.runs.get(key)
        if run is None:
            self.adopt(key, Run(load, Phase.PENDING, now, (0,) * len(load.tasks)))
        elif run.load != load and not run.phase.is_final:
            kept = [*run.pods, *([0] * len(load.tasks))]
            pods = tuple(min(count, task.count) for count, task in zip(kept, load.tasks, strict=False))
            self.runs[key] = replace(run, load=load, pods=pods)

    def adopt(self, key: K, run: Run) -> None:
        """Take a job as it was when somebody last looked, whether it fits or not."""
        self.runs[key] = run
        if not run.phase.is_final:
            self._active[key] = None

    def remove(self, key: K) -> None:
        """Forget a job; its pods are gone at once."""
        self.runs.pop(key, None)
        self._active.pop(key, None)

    def advance(self, now: float) -> set[K]:
        """Let everything happen that is due; return the jobs that it happened to."""
        self._seen = now
        before = {key: self.runs[key] for key in self._active}
        for key in before:
            self._finish(key, now)
        free = subtract(subtract(self.allocatable, self.foreign), self.used)
        for key in self._active:
            for change in (_with_more,) if self._is_early(key, now) else (_with_gang, _with_more):
                changed = change(self.runs[key], free, now)
                free = subtract(free, subtract(changed.used, self.runs[key].used))
                self.runs[key] = changed
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
        return requested(add(self.used, self.foreign))

    @property
    def allocating(self) -> Resources:
        """What the pods without a node ask for."""
        return requested(total(self.runs[key].asked for key in self._active))

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
        return due if due > self._seen else None

    def _finish(self, key: K, now: float) -> None:
        run = self.runs[key]
        if run.ends is not None and run.ends <= now:
            phase = Phase.FAILED if run.load.fails else Phase.COMPLETED
            self.runs[key] = replace(run, phase=phase, since=run.ends)
            del self._active[key]


def _with_gang(run: Run, free: Resources, now: float) -> Run:
    """Return *run* running with its gang, if that waits and fits."""
    if run.phase is not Phase.PENDING:
        return run
    gang = total(scale(task.pod, task.together) for task in run.load.tasks)
    if not fits(gang, free):
        return run
    return replace(run, phase=Phase.RUNNING, since=now, pods=tuple(task.together for task in run.load.tasks))


def _with_more(run: Run, free: Resources, _: float) -> Run:
    """Return *run* with as many more of its pods as fit, in task order."""
    if not run.waiting:
        return run
    pods = []
    for task, count in zip(run.load.tasks, run.pods, strict=True):
        more = min([task.count - count, *(max(free.get(name, 0), 0) // asked for name, asked in task.pod.items())])
        free = subtract(free, scale(task.pod, more))
        pods.append(count + more)
    return replace(run, pods=tuple(pods))
