"""Bindings that volcano-global suspended and has not admitted: listed, and resumed where the operator wants that.

A binding is ours when its kind is gated in its namespace, or when it carries our record. Others suspend bindings of
other kinds by the same field; those are left as they are. For a gated kind the field is ours alone: the webhook sets it
on every new binding, and the controller decides on it from then on.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import structlog

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION, CLUSTER_RESOURCE_BINDINGS, JOBS, RESOURCE_BINDINGS, Resource
from controller.kube import Api, Invalid, NotFound

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _Meta(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""
    annotations: Mapping[str, str] | None = None


class _Template(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Suspension(msgspec.Struct):
    scheduling: bool | None = None


class _Spec(msgspec.Struct):
    resource: _Template = msgspec.field(default_factory=_Template)
    suspension: _Suspension | None = None


class _Binding(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_BINDING = msgspec.json.Decoder(_Binding)


@dataclass(frozen=True, slots=True)
class SuspendedBinding:
    """A suspended binding; one of ours is resumed by nobody else once we are gone."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    is_ours: bool

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


async def list_suspended(api: Api, configuration: VolcanoGlobalConfiguration) -> list[SuspendedBinding]:
    """Return all suspended bindings."""
    return [
        SuspendedBinding(resource, meta.namespace, meta.name, meta.uid, _is_ours(found, configuration))
        for resource in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
        async for found in _iter_suspended(api, resource)
        for meta in (found.metadata,)
    ]


def _is_ours(binding: _Binding, configuration: VolcanoGlobalConfiguration) -> bool:
    """Say whether volcano-global suspended *binding*, by its record or its kind."""
    meta, template = binding.metadata, binding.spec.resource
    if ADMISSION_ANNOTATION in (meta.annotations or {}):
        return True
    group, slash, _ = template.api_version.rpartition("/")
    gated = {(JOBS.group, JOBS.kind), *((rule.group, rule.kind) for rule in configuration.integrations)}
    return (group if slash else "", template.kind) in gated and meta.namespace not in configuration.exempt_namespaces


async def resume(api: Api, paused: SuspendedBinding) -> Literal["resumed", "changed", "gone"]:
    """Let one of them run, if it is still the one that was seen, and still paused."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": paused.uid},
        {"op": "test", "path": "/spec/suspension/scheduling", "value": True},
        {"op": "replace", "path": "/spec/suspension/scheduling", "value": False},
    ]
    try:
        await api.patch(paused.resource.item_path(paused.namespace, paused.name), msgspec.json.encode(patch))
    except NotFound:
        return "gone"
    except Invalid as error:
        log.info("not resumed", binding=paused.title, reason=str(error))
        return "changed"
    return "resumed"


async def _iter_suspended(api: Api, resource: Resource) -> AsyncIterator[_Binding]:
    token = ""
    while True:
        try:
            page = await api.list_page(resource.path, token=token)
        except NotFound:
            return
        for item in page.items or ():
            found = _BINDING.decode(item)
            if found.spec.suspension and found.spec.suspension.scheduling:
                yield found
        token = page.metadata.continue_token
        if not token:
            return
