"""Bindings that are still paused when we go: listed, and let run where the operator wants that."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

import msgspec
import structlog

from controller.api.keys import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS, Resource
from controller.kube import Api, Invalid, NotFound

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _Meta(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""


class _Suspension(msgspec.Struct):
    scheduling: bool | None = None


class _Spec(msgspec.Struct):
    suspension: _Suspension | None = None


class _Binding(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_BINDING = msgspec.json.Decoder(_Binding)


@dataclass(frozen=True, slots=True)
class Paused:
    """A binding that nobody will let run once we are gone."""

    resource: Resource
    namespace: str
    name: str
    uid: str

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


async def find(api: Api) -> list[Paused]:
    """Return all paused bindings."""
    return [
        each for resource in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS) async for each in _paused(api, resource)
    ]


async def resume(api: Api, paused: Paused) -> Literal["resumed", "changed", "gone"]:
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


async def _paused(api: Api, resource: Resource) -> AsyncIterator[Paused]:
    token = ""
    while True:
        try:
            page = await api.list_page(resource.path, token=token)
        except NotFound:
            return
        for item in page.items or ():
            found = _BINDING.decode(item)
            if found.spec.suspension and found.spec.suspension.scheduling:
                meta = found.metadata
                yield Paused(resource, meta.namespace, meta.name, meta.uid)
        token = page.metadata.continue_token
        if not token:
            return
