"""Computes replicas and their requirements as Karmada's default resource interpreter does.

Used for templates without a binding; existing bindings contain the result.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller.api.jobs import Template, decode_job
from controller.api.meta import WatchedObject
from controller.api.pods import PodSpec, PodTemplate
from controller.cache.objects import GroupKind, WorkloadRequests
from controller.cache.translate.templates import JobTranslator
from controller.cache.translate.units import format_resources
from controller.engine.state.resources import PODS


class ReplicatedSpec(msgspec.Struct, rename="camel", frozen=True):
    """Pod count and pod template."""

    replicas: int = 1
    parallelism: int = 1
    completions: int | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class Replicated(WatchedObject, frozen=True):
    """A Deployment, StatefulSet or batch Job."""

    spec: ReplicatedSpec = msgspec.field(default_factory=ReplicatedSpec)


class Pod(WatchedObject, frozen=True):
    """A pod without a controller."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


Spec = Mapping[str, Any]


def _parallel_pods(spec: Spec) -> int:
    parallelism = _number(spec, "parallelism", 1)
    return min(parallelism, _number(spec, "completions", parallelism))


def _number(spec: Spec, name: str, default: int) -> int:
    value = spec.get(name)
    return value if isinstance(value, int) else default


_REPLICAS: Mapping[GroupKind, Callable[[Spec], int]] = MappingProxyType(
    {
        GroupKind("Deployment.apps"): lambda spec: _number(spec, "replicas", 1),
        GroupKind("StatefulSet.apps"): lambda spec: _number(spec, "replicas", 1),
        GroupKind("Job.batch"): _parallel_pods,
    }
)
_POD = GroupKind("Pod.")


def wire_type(kind: GroupKind) -> type[msgspec.Struct]:
    """Return the struct that validates objects of an integration's kind."""
    if kind == _POD:
        return Pod
    return Replicated if kind in _REPLICAS else Template


def replica_requirements(kind: GroupKind, spec: Spec) -> dict[str, Any] | None:
    """Return the replica fields of a binding's spec, or ``None`` for a kind without replicas in Karmada."""
    if kind == _POD:
        return _requirements(1, {"spec": spec})
    replicas = _REPLICAS.get(kind)
    return None if replicas is None else _requirements(replicas(spec), spec.get("template") or {})


def _requirements(replicas: int, pod_template: Spec) -> dict[str, Any]:
    request = {name: amount for name, amount in _pod_requests(pod_template).total.items() if name != PODS}
    return {"replicas": replicas, "replicaRequirements": {"resourceRequest": format_resources(request)}}


def _pod_requests(pod_template: Spec) -> WorkloadRequests:
    """Return the requests of one pod, computed as those of a job with one pod."""
    job = {"spec": {"tasks": [{"replicas": 1, "template": pod_template}]}}
    return JobTranslator().translate(decode_job(msgspec.json.encode(job))).requests or WorkloadRequests({})
