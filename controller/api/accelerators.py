"""Counts the accelerators that a job requests, and scales the job to another number of them."""

from itertools import compress

from controller.api.quantity import QuantityError, parse_quantity
from controller.api.volcanojobs import JobSpec, Task

_MILLIS_PER_UNIT = 1000
"""Accelerators are counted in thousandths, like everything except bytes."""


class AcceleratorError(ValueError):
    """A number of accelerators that is not a whole number of pods; the message says what to write."""


def accelerators_per_pod(task: Task, resource: str) -> int:
    """Return how many *resource* a pod of *task* requests, in thousandths; a missing request is the limit."""
    return sum(
        _parse(resource, container.resources.requests.get(resource, container.resources.limits.get(resource, 0)))
        for container in task.template.spec.containers
    )


def _parse(resource: str, quantity: str | float) -> int:
    try:
        return parse_quantity(resource, quantity)
    except QuantityError as error:
        raise AcceleratorError(str(error)) from error


def scale_to_accelerators(job: JobSpec, resource: str, wanted: int) -> JobSpec:
    """Return *job* scaled so that its pods request *wanted* accelerators in total.

    Tasks that must exist once keep their pods. All divisible tasks that request the accelerator are scaled by one
    factor; minimums are scaled with them.
    """
    totals = tuple(accelerators_per_pod(task, resource) * max(task.replicas, 0) for task in job.tasks)
    singles = sum(total for total, is_single in zip(totals, job.is_single_instance, strict=True) if is_single)
    grows = tuple(total != 0 and not is_single for total, is_single in zip(totals, job.is_single_instance, strict=True))
    had = sum(compress(totals, grows))
    left = wanted * _MILLIS_PER_UNIT - singles
    if not had:
        raise AcceleratorError(_not_requested_message(job, resource))
    if left <= 0 or any(task.replicas * left % had for task in compress(job.tasks, grows)):
        raise AcceleratorError(
            f"{wanted} {resource} are not a whole number of pods; "
            f"the template requests {(had + singles) // _MILLIS_PER_UNIT}"
        )
    tasks = tuple(
        _scale_task(task, task.replicas * left // had) if is_growing else task
        for task, is_growing in zip(job.tasks, grows, strict=True)
    )
    grown = job.model_copy(update={"tasks": tasks})
    if job.min_available:
        minimum = job.min_available * grown.total_pods // job.total_pods
        grown = grown.model_copy(update={"min_available": minimum})
    return grown


def _not_requested_message(job: JobSpec, resource: str) -> str:
    """Return that no task requests *resource*, with the qualified names that its tasks use if *resource* has none.

    Upstream's examples write ``ascend910c``, which no pod can request.
    """
    if "/" in resource:
        return f"no task that could be divided asks for {resource}; name it in a task's resources"
    asked = {
        name
        for task in job.tasks
        for container in task.template.spec.containers
        for name in (*container.resources.requests, *container.resources.limits)
        if "/" in name
    }
    same = {name for name in asked if name.rpartition("/")[2].lower() == resource.lower()}
    named = (
        " or ".join(sorted(same or asked)) or f"{_guess_vendor(resource)}/{resource}, in acceleratorType and in a task"
    )
    return f"{resource!r} is not a qualified resource name; write {named}"


def _guess_vendor(resource: str) -> str:
    """Return the vendor domain of an accelerator, guessed from its name."""
    return "huawei.com" if resource.lower().startswith("ascend") else "VENDOR"


def _scale_task(task: Task, replicas: int) -> Task:
    minimum = None if task.min_available is None else task.min_available * replicas // task.replicas
    return task.resized(replicas, minimum)
