"""Stops the controller's Deployment in the host cluster before its objects are removed."""

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import NotFound
from install.objects import InstallError
from install.polling import poll_until

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_POLL_SECONDS = 1.0


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


async def _has_none(host: Api, path: str) -> bool:
    try:
        return msgspec.json.decode(await host.get(path), type=_Deployment).status.replicas == 0
    except NotFound:
        return True
