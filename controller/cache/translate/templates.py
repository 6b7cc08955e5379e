"""Templates of further gated kinds: from which queue and with which priority, as their rule says."""

import sys
from collections.abc import Iterator
from typing import Any

from controller.api import templates as wire
from controller.api.keys import QUEUE_NAMES
from controller.cache.facts import TemplateFacts, TemplateKey, group_kind
from controller.cache.gates import Gate
from controller.cache.translate.amounts import milliseconds, sentence, version
from controller.cache.translate.progress import at


def template_facts(template: wire.Template, gate: Gate) -> TemplateFacts:
    """Return what is kept of *template*; lists leave its kind out, so the gate tells it."""
    meta = template.metadata
    document = {"spec": template.spec}
    return TemplateFacts(
        uid=sys.intern(meta.uid),
        resource_version=version(meta.resource_version),
        key=TemplateKey(group_kind(gate.api), sys.intern(meta.namespace), sys.intern(meta.name)),
        generation=meta.generation,
        since=milliseconds(meta.creation_timestamp) or 0,
        queue=sys.intern(next(_queues(template, document, gate), "")),
        priority_class=sys.intern(_text(at(document, gate.priority_class))),
        deleting=meta.deletion_timestamp is not None,
        flaw=sentence(template.flaws),
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
