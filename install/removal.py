"""Stops the install Job and the controller, and resumes bindings that volcano-global suspended, before the removal.

A binding is managed if its kind is gated in its namespace or it carries an admission record. Other controllers may
suspend bindings of other kinds by the same field; those are not changed. For gated kinds only volcano-global sets the
field: the webhook on every new binding, and the controller afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import structlog

from controller.api.bindings import ResourceBinding, decode_binding
from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION, CLUSTER_RESOURCE_BINDINGS, JOBS, RESOURCE_BINDINGS, Resource
from controller.kube.client import Api
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.timing import Backoff
from install.objects import InstallError, find, poll_until

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

Outcome = Literal["resumed", "changed", "refused", "gone", "stays suspended"]

_POLL_SECONDS = 1.0
#: Bindings that are resumed at once; one after the other would take longer than Helm waits for many of them.
_IN_FLIGHT = 16
#: Attempts to resume a binding while the API server does not answer or is overloaded.
_ATTEMPTS = 6


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

    @property
    def path(self) -> str:
        """Path in the API."""
        return self.resource.item_path(self.namespace, self.name)


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


async def outcomes(
    api: Api, bindings: Sequence[SuspendedBinding], *, resume: bool
) -> AsyncIterator[tuple[SuspendedBinding, Outcome]]:
    """Yield each of *bindings* with its outcome; with *resume* they are resumed, some of them at once."""
    if not resume:
        for binding in bindings:
            yield binding, "stays suspended"
        return
    for start in range(0, len(bindings), _IN_FLIGHT):
        part = bindings[start : start + _IN_FLIGHT]
        results = await asyncio.gather(*(resume_binding(api, binding) for binding in part))
        for binding, outcome in zip(part, results, strict=True):
            yield binding, outcome


async def resume_binding(api: Api, suspended: SuspendedBinding) -> Outcome:
    """Resume *suspended* if it is the same object and still suspended; raises `ApiError` after several failures.

    One binding that a policy or a webhook of others refuses must not prevent the removal.
    """
    backoff = Backoff()
    while True:
        try:
            await _resume(api, suspended)
        except NotFound:
            return "gone"
        except ApiError as error:
            if error.is_rejection and not isinstance(error, Conflict):
                log.warning("binding not resumed", binding=suspended.title, reason=str(error))
                return "refused" if await _is_suspended(api, suspended) else "changed"
            delay = backoff.next_delay(at_least=error.retry_after)
            if backoff.failures == _ATTEMPTS:
                raise
            await asyncio.sleep(delay)
        else:
            return "resumed"


async def _resume(api: Api, suspended: SuspendedBinding) -> None:
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": suspended.uid},
        {"op": "test", "path": "/spec/suspension/scheduling", "value": True},
        {"op": "replace", "path": "/spec/suspension/scheduling", "value": False},
    ]
    await api.patch(suspended.path, msgspec.json.encode(patch))


async def _is_suspended(api: Api, suspended: SuspendedBinding) -> bool:
    """Return whether *suspended* is still the same object and suspended."""
    try:
        binding = decode_binding(await api.get(suspended.path))
    except NotFound:
        return False
    suspension = binding.spec.suspension
    return binding.metadata.uid == suspended.uid and suspension is not None and bool(suspension.scheduling)


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
    if not await poll_until(lambda: _has_no_pods(host, path), seconds=seconds, every=_POLL_SECONDS):
        message = f"Deployment {name!r} still has pods after {seconds:g} s: delete them, then run this again"
        raise InstallError(message)


async def wait_until_released(karmada: Api, path: str, *, seconds: float) -> None:
    """Wait until no controller holds the Lease at *path*: a Deployment does not count pods that still terminate."""
    loop = asyncio.get_running_loop()
    seen, since = dict[str, Any](), loop.time()

    async def is_released() -> bool:
        nonlocal seen, since
        spec: dict[str, Any] = (await find(karmada, path) or {}).get("spec") or {}
        if not spec.get("holderIdentity"):
            return True
        if spec != seen:
            seen, since = spec, loop.time()
        return loop.time() - since >= float(spec.get("leaseDurationSeconds") or 0)

    if not await poll_until(is_released, seconds=seconds, every=_POLL_SECONDS):
        raise InstallError(
            f"Lease {path.rpartition('/')[2]!r} is still renewed after {seconds:g} s by {seen.get('holderIdentity')!r}:"
            " delete that pod, then run this again"
        )


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


async def _has_no_pods(host: Api, path: str) -> bool:
    try:
        return msgspec.json.decode(await host.get(path), type=_Deployment).status.replicas == 0
    except NotFound:
        return True
