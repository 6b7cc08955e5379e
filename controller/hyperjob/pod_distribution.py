"""How a template's pods are shared out: which pods each part gets, and which minimum it keeps.

The rule for rounding: all pods that are divided stand in one line, in which
every stretch holds the tasks in proportion; each part takes the next stretch.
So every task's pods add up, every part has as many as it was to have, and no
task is off its proportion by a whole pod for each task. Partitions are never
cut. Roles that must exist once are with the first part.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import gcd, lcm

from controller.api.volcanojobs import JobSpec, Task

PodCounts = tuple[int, ...]
"""How many pods of each task, in the order of the template."""


def equal_units(template: JobSpec) -> int:
    """Return into how many equal stretches the line can be cut, each with the same pods of each task."""
    return gcd(*(task.replicas // task.partition_step for task in template.divisible)) if template.divisible else 0


def distribute(template: JobSpec, counts: Sequence[int]) -> list[PodCounts]:
    """Return the pods of each part, for parts of so many divided pods each; *counts* add up to all of them.

    A count that would cut a partition is rounded down, and the rest falls to the next part.
    """
    line = _pod_sequence(template)
    block = next(line, None)
    shares: list[PodCounts] = []
    taken = 0
    for place, end in enumerate(accumulate(counts)):
        pods = [0] * len(template.tasks)
        is_last = place == len(counts) - 1
        while block is not None and (is_last or taken + template.tasks[block].partition_step <= end):
            pods[block] += template.tasks[block].partition_step
            taken += template.tasks[block].partition_step
            block = next(line, None)
        shares.append(_add_single_tasks(template, tuple(pods), is_first=place == 0))
    return shares


def part_minimum(template: JobSpec, before: int, tasks: Sequence[Task]) -> int | None:
    """Return the gang minimum of a part of *tasks*, where the parts before it have *before* pods; ``None`` if unset.

    Pro rata: the minimums of all parts add up to the template's, unless a part
    would have none; it keeps one pod as its minimum then. Where the template's
    covers the minimums of its tasks, a part's does too: Volcano overlooks them
    otherwise.
    """
    if not template.min_available or not template.total_pods:
        return template.min_available
    whole, all_pods = template.min_available, template.total_pods
    pods = sum(task.replicas for task in tasks)
    share = whole * (before + pods) // all_pods - whole * before // all_pods
    covered = _sum_of_minimums(tasks) if whole >= _sum_of_minimums(template.tasks) else 0
    return min(max(share, covered, 1), pods)


def _sum_of_minimums(tasks: Sequence[Task]) -> int:
    return sum(task.replicas if task.min_available is None else task.min_available for task in tasks)


def task_minimum(task: Task, before: int, pods: int) -> int | None:
    """Return the minimum of a task in a part, pro rata as that of the part; of whole partitions where those count."""
    partitions = task.partition_policy.min_partitions if task.partition_policy and task.partition_step > 1 else None
    if partitions:
        count, step = task.replicas // task.partition_step, task.partition_step
        return step * (partitions * ((before + pods) // step) // count - partitions * (before // step) // count)
    if task.min_available is None or not task.replicas:
        return task.min_available
    return task.min_available * (before + pods) // task.replicas - task.min_available * before // task.replicas


def divide_equally(total: int, parts: int) -> list[int]:
    """Return *total* in equal parts; what is left over goes to the first ones, one each."""
    return [total // parts + (place < total % parts) for place in range(parts)]


def divide_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Return *total* in parts by weight; what rounding leaves goes to the largest remainders, the first of equals."""
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place))
    for place in by_remainder[: total - sum(shares)]:
        shares[place] += 1
    return shares


def _pod_sequence(template: JobSpec) -> Iterator[int]:
    """Yield the task of each block of pods that stay together, by its place in the template."""
    blocks = {
        place: task.replicas // task.partition_step
        for place, (task, is_single) in enumerate(zip(template.tasks, template.is_single_instance, strict=True))
        if task.replicas > 0 and not is_single
    }
    if len(blocks) == 1:
        for place, count in blocks.items():
            yield from (place for _ in range(count))
        return
    scale = lcm(*blocks.values())
    stands = [
        ((2 * number + 1) * (scale // count), place) for place, count in blocks.items() for number in range(count)
    ]
    yield from (place for _, place in sorted(stands))


def _add_single_tasks(template: JobSpec, pods: PodCounts, *, is_first: bool) -> PodCounts:
    return tuple(
        task.replicas if is_single and is_first else count
        for task, is_single, count in zip(template.tasks, template.is_single_instance, pods, strict=True)
    )
