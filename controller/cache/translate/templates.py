"""Translates templates of configured kinds: queue, priority class and requests, at the paths of their integration."""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller.api import pods
from controller.api import templates as wire
from controller.api.keys import QUEUE_NAME_KEYS
from controller.cache.integrations import Integration
from controller.cache.interning import InternPool, fingerprint
from controller.cache.objects import CachedTemplate, GroupKind, TemplateKey, WorkloadRequests, group_kind
from controller.cache.translate.pods import translate_pod_template
from controller.cache.translate.progress import value_at
from controller.cache.translate.units import AmountError, join_errors, parse_resource_version, to_milliseconds
from controller.engine.state.requests import pod_request
from controller.engine.state.resources import positive, scale

RequestsOrError = WorkloadRequests | AmountError

_POD = GroupKind("Pod.")
#: Fields with the number of pods; the smallest counts, and 1 if none is set.
_REPLICA_FIELDS: Mapping[GroupKind, tuple[str, ...]] = MappingProxyType(
    {GroupKind("Job.batch"): ("parallelism", "completions")}
)
_DEFAULT_REPLICA_FIELDS = ("replicas",)


class TemplateTranslator:
    """Translates templates; equal pod templates share one value of requests."""

    def __init__(self) -> None:
        self._demands: InternPool[RequestsOrError] = InternPool()

    def translate(self, template: wire.Template, integration: Integration) -> CachedTemplate:
        """Return the cached form of *template*; lists omit the kind, so it comes from the integration."""
        meta = template.metadata
        document = {"spec": template.spec}
        counted = self._counted(document, integration)
        error = str(counted) if isinstance(counted, AmountError) else ""
        return CachedTemplate(
            uid=sys.intern(meta.uid),
            resource_version=parse_resource_version(meta.resource_version),
            key=TemplateKey(group_kind(integration.api), sys.intern(meta.namespace), sys.intern(meta.name)),
            generation=meta.generation,
            created_at=to_milliseconds(meta.creation_timestamp) or 0,
            queue=sys.intern(next(_queue_names(template, document, integration), "")),
            priority_class=sys.intern(_string_or_empty(value_at(document, integration.priority_class))),
            deleting=meta.deletion_timestamp is not None,
            requests=counted if isinstance(counted, WorkloadRequests) else None,
            decode_error=join_errors(template.decode_errors, error),
        )

    def _counted(self, document: dict[str, Any], integration: Integration) -> RequestsOrError | None:
        """Return the requests of all pods, ``None`` for an object without a pod template."""
        path = () if group_kind(integration.api) == _POD else integration.pod_template
        pod = value_at(document, path)
        if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
            return None
        counts = [
            value_at(document, ("spec", name))
            for name in _REPLICA_FIELDS.get(group_kind(integration.api), _DEFAULT_REPLICA_FIELDS)
        ]
        replicas = min((count for count in counts if isinstance(count, int)), default=1)
        key = fingerprint(replicas, pod["spec"], path)
        return self._demands.get(key, lambda: _count_requests(pod["spec"], replicas, ".".join((*path, "spec"))))


def _count_requests(spec: dict[str, Any], replicas: int, where: str) -> RequestsOrError:
    try:
        template = translate_pod_template(msgspec.convert(spec, pods.PodSpec), where)
    except msgspec.ValidationError as error:
        return AmountError(f"{where}: {error}")
    except AmountError as error:
        return error
    if replicas < 0:
        return AmountError(f"{where}: replicas is {replicas}; write zero or more")
    pod = pod_request(template)
    return WorkloadRequests(
        positive(scale(pod, replicas)),
        pods=(pod,) if replicas else (),
        replicas=replicas,
        node_claim=template.node_claim,
        claims=template.claims,
    )


def _queue_names(template: wire.Template, document: dict[str, Any], integration: Integration) -> Iterator[str]:
    """Yield the queues that it names, by precedence: spec field, annotation, label, pod template."""
    pod = value_at(document, (*integration.pod_template, "metadata"))
    places = (
        template.metadata.annotations,
        template.metadata.labels,
        value_at(pod, ("annotations",)),
        value_at(pod, ("labels",)),
    )
    named = _string_or_empty(value_at(document, integration.queue)) if integration.queue else ""
    found = (named, *(_string_or_empty(value_at(index, (name,))) for index in places for name in QUEUE_NAME_KEYS))
    return (name for name in found if name)


def _string_or_empty(value: Any) -> str:
    return value if isinstance(value, str) else ""
