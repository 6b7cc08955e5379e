"""Distributes the pods of a template over its parts, and their minimums.

All divided pods form one sequence in which every section contains the tasks in proportion, and each part takes the next
section. So the pods of every task add up, every part has its number of pods, and no task deviates from its proportion
by one pod per task or more. Partitions are never divided. Tasks that must exist once are in the first part.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import gcd, lcm
from typing import Any, Final

import msgspec

from controller.api.jobs import decode_job
from controller.api.volcanojobs import JobSpec, TemplateTask
from controller.cache.interning import InternPool, fingerprint
from controller.cache.translate.templates import JobTranslator
from controller.engine.state.requests import pod_request
from controller.engine.state.resources import Resources, scale, total

#: The requests of templates by a hash, because a template may be as large as an object.
_REQUESTS: Final = InternPool[tuple[Resources, ...]](256)

PodCounts = tuple[int, ...]
"""Number of pods of each task, in the order of the template."""


def equal_units(template: JobSpec) -> int:
    """Return the number of equal sections of the pod sequence, each with the same pods of each task."""
    return gcd(*(task.replicas // task.partition_step for task in template.divisible)) if template.divisible else 0


def distribute(template: JobSpec, counts: Sequence[int]) -> list[PodCounts]:
    """Return the pods of each part, for parts of *counts* divided pods; *counts* add up to all of them.

    A count that would divide a partition is rounded down, and the rest goes to the next part.
    """
    sequence = _pod_sequence(template)
    block = next(sequence, None)
    shares: list[PodCounts] = []
    taken = 0
    for index, end in enumerate(accumulate(counts)):
        pods = [0] * len(template.tasks)
        is_last = index == len(counts) - 1
        while block is not None and (is_last or taken + template.tasks[block].partition_step <= end):
            pods[block] += template.tasks[block].partition_step
            taken += template.tasks[block].partition_step
            block = next(sequence, None)
        shares.append(_add_single_tasks(template, tuple(pods), is_first=index == 0))
    return shares


def part_minimum(template: JobSpec, before: int, tasks: Sequence[TemplateTask]) -> int:
    """Return the gang minimum of a part of *tasks*, after parts with *before* pods in total.

    Pro rata: the minimums of all parts add up to the template's, but each part keeps at least one pod. If the
    template's minimum covers the minimums of its tasks, a part's does too, because Volcano ignores the task minimums
    otherwise.
    """
    if not template.min_available or not template.total_pods:
        return _default_minimum(tasks)
    whole, all_pods = template.min_available, template.total_pods
    pods = sum(task.replicas for task in tasks)
    share = whole * (before + pods) // all_pods - whole * before // all_pods
    covered = _default_minimum(tasks) if whole >= _default_minimum(template.tasks) else 0
    return min(max(share, covered, 1), pods)


def part_success_minimum(template: JobSpec, before: int, pods: int) -> int | None:
    """Return how many of the *pods* of a part must succeed, after parts with *before* pods; ``None`` if unset.

    Pro rata like the gang minimum: no part could reach the number of all parts together.
    """
    wanted, all_pods = template.min_success, template.total_pods
    return wanted and max(wanted * (before + pods) // all_pods - wanted * before // all_pods, 1)


def _default_minimum(tasks: Sequence[TemplateTask]) -> int:
    """Return Volcano's gang minimum of a job of *tasks* that names none: the minimums of its tasks together."""
    return sum(task.effective_min_available for task in tasks)


def task_minimum(task: TemplateTask, before: int, pods: int) -> int | None:
    """Return the minimum of a task in a part, pro rata; whole partitions where these have a minimum."""
    partitions = task.partition_policy.min_partitions if task.partition_policy and task.has_partitions else None
    if partitions:
        count, step = task.replicas // task.partition_step, task.partition_step
        return step * (partitions * ((before + pods) // step) // count - partitions * (before // step) // count)
    if task.min_available is None or not task.replicas:
        return task.min_available
    return task.min_available * (before + pods) // task.replicas - task.min_available * before // task.replicas


def divide_equally(total: int, parts: int) -> list[int]:
    """Return *total* in equal parts; the remainder goes to the first parts, one each."""
    return [total // parts + (index < total % parts) for index in range(parts)]


def divide_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Return *total* in parts by weight; the rest goes to the largest remainders, to the first of equals."""
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(total * weights[index] % whole), index))
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def _pod_sequence(template: JobSpec) -> Iterator[int]:
    """Yield the task index of each block of pods that stay together."""
    blocks = {
        index: task.replicas // task.partition_step
        for index, (task, is_single) in enumerate(zip(template.tasks, template.is_single_instance, strict=True))
        if task.replicas > 0 and not is_single
    }
    if len(blocks) == 1:
        for index, count in blocks.items():
            yield from (index for _ in range(count))
        return
    scale = lcm(*blocks.values())
    positions = [
        ((2 * number + 1) * (scale // count), index) for index, count in blocks.items() for number in range(count)
    ]
    yield from (index for _, index in sorted(positions))


def _add_single_tasks(template: JobSpec, pods: PodCounts, *, is_first: bool) -> PodCounts:
    return tuple(
        task.replicas if is_single and is_first else count
        for task, is_single, count in zip(template.tasks, template.is_single_instance, pods, strict=True)
    )


class SplitError(ValueError):
    """A HyperJob that cannot be split because a field cannot be read; the message names the field and the error."""


def pod_requests(template: JobSpec) -> tuple[Resources, ...]:
    """Return the requests of one pod of each task, in the order of the tasks; raises `SplitError`."""
    spec = template.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return _REQUESTS.get(fingerprint(spec), lambda: _requests(spec))


def _requests(spec: dict[str, Any]) -> tuple[Resources, ...]:
    job = JobTranslator().translate(decode_job(msgspec.json.encode({"spec": spec})))
    if job.requests is None or job.requests.job is None:
        raise SplitError(job.decode_error)
    return tuple(pod_request(task.pod) for task in job.requests.job.tasks)


def sum_requests(requests: tuple[Resources, ...], pods: PodCounts) -> Resources:
    """Return the total requests of the given number of pods of each task."""
    return total(scale(request, count) for request, count in zip(requests, pods, strict=True))
