"""Stops the install Job and the controller, and resumes bindings that volcano-global suspended, before the removal.

A binding is managed if its kind is gated in its namespace or it carries an admission record. Other controllers may
suspend bindings of other kinds by the same field; those are not changed. For gated kinds only volcano-global sets the
field: the webhook on every new binding, and the controller afterwards.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import msgspec
import structlog

from controller.api.bindings import ResourceBinding, decode_binding
from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION, CLUSTER_RESOURCE_BINDINGS, JOBS, RESOURCE_BINDINGS, Resource
from controller.kube.client import Api
from controller.kube.errors import Invalid, NotFound
from install.objects import InstallError, poll_until

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SuspendedBinding:
    """A suspended binding; after uninstallation no controller resumes those of volcano-global."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    is_managed: bool

    @property
    def title(self) -> str:
        """Namespace and name, for messages."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


async def list_suspended(api: Api, configuration: VolcanoGlobalConfiguration) -> list[SuspendedBinding]:
    """Return all suspended bindings."""
    return [
        SuspendedBinding(resource, meta.namespace, meta.name, meta.uid, _is_managed(binding, configuration))
        for resource in (RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
        async for binding in _iter_suspended(api, resource)
        for meta in (binding.metadata,)
    ]


def _is_managed(binding: ResourceBinding, configuration: VolcanoGlobalConfiguration) -> bool:
    """Return whether volcano-global suspended *binding*, by its record or its kind."""
    meta, template = binding.metadata, binding.spec.resource
    if ADMISSION_ANNOTATION in meta.annotations:
        return True
    group, _, _ = template.api_version.rpartition("/")
    gated = {(JOBS.group, JOBS.kind), *((rule.group, rule.kind) for rule in configuration.integrations)}
    return (group, template.kind) in gated and meta.namespace not in configuration.exempt_namespaces


async def resume(api: Api, suspended: SuspendedBinding) -> Literal["resumed", "changed", "gone"]:
    """Resume *suspended* if it is the same object and still suspended."""
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": suspended.uid},
        {"op": "test", "path": "/spec/suspension/scheduling", "value": True},
        {"op": "replace", "path": "/spec/suspension/scheduling", "value": False},
    ]
    try:
        await api.patch(suspended.resource.item_path(suspended.namespace, suspended.name), msgspec.json.encode(patch))
    except NotFound:
        return "gone"
    except Invalid as error:
        log.info("binding not resumed", binding=suspended.title, reason=str(error))
        return "changed"
    return "resumed"


async def _iter_suspended(api: Api, resource: Resource) -> AsyncIterator[ResourceBinding]:
    with suppress(NotFound):
        async for item in api.list_items(resource.path):
            binding = decode_binding(item)
            if binding.spec.suspension and binding.spec.suspension.scheduling:
                yield binding


class _Status(msgspec.Struct):
    replicas: int = 0


class _Deployment(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def scale_to_zero(host: Api, namespace: str, name: str, *, seconds: float) -> None:
    """Scale a Deployment to zero and wait until it has no pods."""
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    try:
        await host.patch(f"{path}/scale", b'{"spec":{"replicas":0}}', kind="merge")
    except NotFound:
        return
    log.info("controller stopping", deployment=name)
    if not await poll_until(lambda: _has_none(host, path), seconds=seconds, every=_POLL_SECONDS):
        message = f"Deployment {name!r} still has pods after {seconds:g} s: delete them, then run this again"
        raise InstallError(message)


class _JobStatus(msgspec.Struct):
    active: int = 0
    terminating: int | None = None


class _Job(msgspec.Struct):
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


async def stop_job(host: Api, namespace: str, name: str, *, seconds: float) -> None:
    """Suspend a Job and wait until it has no pods."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    try:
        await host.patch(path, b'{"spec":{"suspend":true}}', kind="merge")
    except NotFound:
        return

    async def is_stopped() -> bool:
        try:
            status = msgspec.json.decode(await host.get(path), type=_Job).status
        except NotFound:
            return True
        return not status.active and not status.terminating

    if not await poll_until(is_stopped, seconds=seconds, every=_POLL_SECONDS):
        raise InstallError(f"Job {name!r} still has pods after {seconds:g} s: delete them, then run this again")


async def _has_none(host: Api, path: str) -> bool:
    try:
        return msgspec.json.decode(await host.get(path), type=_Deployment).status.replicas == 0
    except NotFound:
        return True
