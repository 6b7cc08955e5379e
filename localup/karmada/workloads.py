"""Parses manifests into pods, gang minimum and run time for member clusters.

The gang minimum is computed independently of the engine, which the stand-in is used to test. In bindings Karmada
counts differently from the API server: it treats sidecars as init containers that end, and ignores pod-level
resources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import msgspec

from controller.api.jobs import PodSpec
from controller.api.keys import JOBS, RUNTIME_ANNOTATION
from controller.api.quantity import format_quantity, parse_quantity
from controller.cache.translate.templates import translate_pod_template
from controller.engine.state.requests import PodTemplate, pod_request
from controller.engine.state.resources import CPU, EMPTY, MEMORY, MILLI, Resources, add, elementwise_max, total
from localup.karmada.objects import BATCH_JOBS, REPLICATED, Object, annotations_of, is_a, nonempty, spec_of
from localup.karmada.settings import seconds_in


class TemplateError(ValueError):
    """A pod template that Karmada cannot interpret."""


def pod_template(template: Object) -> PodTemplate:
    """Parse a pod template, or raise `TemplateError`."""
    try:
        return translate_pod_template(msgspec.convert(template.get("spec") or {}, PodSpec), "template.spec")
    except msgspec.ValidationError as error:
        raise TemplateError(f"template.spec: {error}") from error
    except ValueError as error:
        raise TemplateError(str(error)) from error


def amounts(quantities: Mapping[str, Any] | None) -> Resources:
    """Parse quantities by resource."""
    return {name: parse_quantity(name, value) for name, value in (quantities or {}).items()}


def quantities(amounts: Resources) -> dict[str, str]:
    """Format amounts by resource; zero amounts are omitted, as in Karmada."""
    return {name: format_quantity(name, amounts[name]) for name in sorted(amounts) if amounts[name]}


def replica_requirements(template: Object) -> dict[str, Any] | None:
    """Return the requirements of one replica, as Karmada writes them in a binding."""
    spec = template.get("spec") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    claim = {
        "hardNodeAffinity": affinity,
        "nodeSelector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
    }
    requirements = {
        "nodeClaim": nonempty(claim),
        "resourceRequest": quantities(_as_karmada_counts(pod_template(template))),
    }
    return nonempty(requirements) or None


def _as_karmada_counts(pod: PodTemplate) -> Resources:
    """Return the requests of a pod, rounded up to whole units except CPU and memory."""
    running = total(container.effective_requests for container in pod.containers)
    starting = reduce(elementwise_max, (item.effective_requests for item in pod.init), EMPTY)
    requests = add(elementwise_max(running, starting), pod.overhead)
    return {name: amount if name in {CPU, MEMORY} else -(-amount // MILLI) * MILLI for name, amount in requests.items()}


OUTCOME: Final = "volcano-global.io/outcome"


@dataclass(frozen=True, slots=True)
class IdenticalPods:
    """Identical pods: their number, and how many must start together with the rest of the gang."""

    pod: Resources
    count: int
    gang_minimum: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Part of a manifest that a member cluster needs."""

    tasks: tuple[IdenticalPods, ...]
    run_seconds: float | None = None
    """Run time in seconds; ``None`` if it runs until it is removed."""
    fails: bool = False


def parse_workload(manifest: Object, *, run_time: float) -> Workload:
    """Parse a manifest, or raise `ValueError`; *run_time* applies to jobs without a run time annotation."""
    if not is_a(manifest, JOBS, BATCH_JOBS, *REPLICATED):
        return Workload(())
    lasts = _run_time(manifest, run_time)
    fails = annotations_of(manifest).get(OUTCOME) == "Failed"
    spec = spec_of(manifest)
    if is_a(manifest, JOBS):
        return Workload(_volcano_tasks(spec.get("tasks") or (), int(spec.get("minAvailable", 0))), lasts, fails)
    pod = pod_request(pod_template(spec.get("template") or {}))
    if is_a(manifest, BATCH_JOBS):
        if spec.get("suspend"):
            return Workload((IdenticalPods(pod, 0),))
        return Workload((IdenticalPods(pod, int(spec.get("parallelism", 1))),), lasts, fails)
    return Workload((IdenticalPods(pod, int(spec.get("replicas", 1))),))


def _run_time(manifest: Object, default: float) -> float:
    """Return the seconds of the annotation; an invalid duration is ignored."""
    try:
        return seconds_in(annotations_of(manifest)[RUNTIME_ANNOTATION])
    except (KeyError, ValueError):
        return default


def min_available(manifest: Object) -> int:
    """Return `minAvailable` of a Volcano Job with the defaults of Volcano's webhook."""
    spec = spec_of(manifest)
    return int(spec.get("minAvailable", 0)) or sum(_task_minimum(task) for task in spec.get("tasks") or ())


def _volcano_tasks(tasks: Sequence[Object], wanted: int) -> tuple[IdenticalPods, ...]:
    """Divide the gang minimum: task minimums if all of them fit, then the remaining pods in task order."""
    least = [_task_minimum(item) for item in tasks]
    wanted = wanted or sum(least)
    together = least if wanted >= sum(least) else [0] * len(tasks)
    left = wanted - sum(together)
    read = []
    for task, minimum in zip(tasks, together, strict=True):
        count = int(task.get("replicas", 0))
        more = min(left, count - minimum)
        left -= more
        read.append(IdenticalPods(pod_request(pod_template(task.get("template") or {})), count, minimum + more))
    return tuple(read)


def _task_minimum(task: Object) -> int:
    replicas = int(task.get("replicas", 0))
    return min(int(task.get("minAvailable", replicas)), replicas)
