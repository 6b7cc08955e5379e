"""Places pods of a member cluster on its nodes, first fit."""

from collections.abc import Iterator, Sequence

from controller.engine.state.resources import Resources, scale, subtract
from localup.karmada.workloads import Task

Counts = tuple[int, ...]
"""Number of pods of each task."""
PodPlacement = tuple[tuple[int, ...], ...]
"""By task, the number of its pods on each node."""


class Packing:
    """Free resources of each node while pods are placed."""

    def __init__(self, nodes: Sequence[Resources]) -> None:
        self.free = list(nodes)

    def place_gang(self, tasks: Sequence[Task]) -> PodPlacement | None:
        """Place the gang minimums of all *tasks*, or nothing."""
        before = list(self.free)
        places = tuple(self._place(task.pod, task.gang_minimum) for task in tasks)
        if all(sum(row) == task.gang_minimum for row, task in zip(places, tasks, strict=True)):
            return places
        self.free = before
        return None

    def place_remaining(self, tasks: Sequence[Task], places: PodPlacement) -> PodPlacement:
        """Place as many missing pods as fit, in task order."""
        added = (self._place(task.pod, task.count - sum(row)) for task, row in zip(tasks, places, strict=True))
        return tuple(tuple(map(sum, zip(row, more, strict=True))) for row, more in zip(places, added, strict=True))

    def place_running(self, tasks: Sequence[Task], counts: Counts, before: PodPlacement) -> PodPlacement:
        """Keep running pods on their previous nodes as far as task and node still exist."""
        rows = []
        for number, count in enumerate(counts):
            row = before[number] if number < len(before) else ()
            rows.append(_at_most(row, count) if len(row) == len(self.free) else (0,) * len(self.free))
        self._occupy(tasks, tuple(rows))
        return tuple(rows)

    def restore(self, tasks: Sequence[Task], counts: Counts, remaining: PodPlacement) -> PodPlacement:
        """Place other running pods: first fit, otherwise on the last node even if they do not fit."""
        rows = []
        for task, count, row in zip(tasks, counts, remaining, strict=True):
            added = self._place(task.pod, count - sum(row))
            forced = (0,) * (len(row) - 1) + (count - sum(row) - sum(added),)
            self._occupy((task,), (forced,))
            rows.append(tuple(map(sum, zip(row, added, forced, strict=True))))
        return tuple(rows)

    def _occupy(self, tasks: Sequence[Task], places: PodPlacement) -> None:
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
    return tuple(_taken(row, count))


def _taken(row: Sequence[int], count: int) -> Iterator[int]:
    for item in row:
        yield min(item, count)
        count -= min(item, count)
