"""Templates of further gated kinds: their queue, their priority and what they ask for, as their rule says."""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from controller.api import pods
from controller.api import templates as wire
from controller.api.keys import QUEUE_NAMES
from controller.cache.facts import Demand, GroupKind, TemplateFacts, TemplateKey, group_kind
from controller.cache.gates import Gate
from controller.cache.pool import Pool, fingerprint
from controller.cache.translate.amounts import AmountError, milliseconds, sentence, version
from controller.cache.translate.pods import pod_template
from controller.cache.translate.progress import at
from controller.engine.requests import pod_request
from controller.engine.resources import positive, scale

Counted = Demand | AmountError

_POD = GroupKind("Pod.")
#: What says how many pods there are; the smallest of those that are there counts, and one where none is.
_COUNTS: Mapping[GroupKind, tuple[str, ...]] = MappingProxyType(
    {GroupKind("Job.batch"): ("parallelism", "completions")}
)
_REPLICAS = ("replicas",)


class TemplateTranslator:
    """Makes facts of templates; equal pod templates share one demand."""

    def __init__(self) -> None:
        self._demands: Pool[Counted] = Pool()

    def facts(self, template: wire.Template, gate: Gate) -> TemplateFacts:
        """Return what is kept of *template*; lists leave its kind out, so the gate tells it."""
        meta = template.metadata
        document = {"spec": template.spec}
        counted = self._counted(document, gate)
        trouble = str(counted) if isinstance(counted, AmountError) else ""
        return TemplateFacts(
            uid=sys.intern(meta.uid),
            resource_version=version(meta.resource_version),
            key=TemplateKey(group_kind(gate.api), sys.intern(meta.namespace), sys.intern(meta.name)),
            generation=meta.generation,
            since=milliseconds(meta.creation_timestamp) or 0,
            queue=sys.intern(next(_queues(template, document, gate), "")),
            priority_class=sys.intern(_text(at(document, gate.priority_class))),
            deleting=meta.deletion_timestamp is not None,
            demand=counted if isinstance(counted, Demand) else None,
            flaw=sentence(template.flaws, trouble),
        )

    def _counted(self, document: dict[str, Any], gate: Gate) -> Counted | None:
        """Return what the pods ask for together, ``None`` for an object without a pod template."""
        path = () if group_kind(gate.api) == _POD else gate.pod_template
        pod = at(document, path)
        if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
            return None
        counts = [at(document, ("spec", name)) for name in _COUNTS.get(group_kind(gate.api), _REPLICAS)]
        replicas = min((count for count in counts if isinstance(count, int)), default=1)
        key = fingerprint(replicas, pod["spec"], path)
        return self._demands.get(key, lambda: _count(pod["spec"], replicas, ".".join((*path, "spec"))))


def _count(spec: dict[str, Any], replicas: int, where: str) -> Counted:
    try:
        template = pod_template(msgspec.convert(spec, pods.PodSpec), where)
    except msgspec.ValidationError as error:
        return AmountError(f"{where}: {error}")
    except AmountError as error:
        return error
    if replicas < 0:
        return AmountError(f"{where}: there cannot be {replicas} replicas; write zero or more")
    pod = pod_request(template)
    return Demand(
        positive(scale(pod, replicas)),
        pods=(pod,) if replicas else (),
        replicas=replicas,
        node_claim=template.node_claim,
        claims=template.claims,
    )


def _queues(template: wire.Template, document: dict[str, Any], gate: Gate) -> Iterator[str]:
    """Yield the queues it names, the one that counts first: spec field, annotation, label, pod template."""
    pod = at(document, (*gate.pod_template, "metadata"))
    places = (
        template.metadata.annotations,
        template.metadata.labels,
        at(pod, ("annotations",)),
        at(pod, ("labels",)),
    )
    named = _text(at(document, gate.queue)) if gate.queue else ""
    found = (named, *(_text(at(place, (name,))) for place in places for name in QUEUE_NAMES))
    return (name for name in found if name)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
