"""Publish the CA bundle in webhook configurations, so that the API server believes the certificate being served.

One field of each webhook is patched, and only where the name at its place is still the one that was read. It is not
applied on the server's side: whoever applies one field of a webhook owns a share of the whole webhook, and the
installer that renames or drops it is then refused, because our share alone is no valid webhook. A patched field
stays when the installer applies its own again, and goes with its webhook.
"""

from collections.abc import Mapping

import msgspec
import structlog

from controller.kube import Api, Invalid, NotFound

log = structlog.get_logger(__name__)

FIELD_MANAGER = "volcano-global-certs"
_GROUP = "/apis/admissionregistration.k8s.io/v1"
#: A mutating and a validating configuration of one name are kept alike; either may be missing.
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class InjectionError(Exception):
    """The bundle was not published; the message says where and what to do."""


class ChangedError(InjectionError):
    """The configuration was changed while the bundle was being published: publish it again."""


class _ClientConfig(msgspec.Struct, rename={"bundle": "caBundle"}):
    bundle: bytes = b""


class _Webhook(msgspec.Struct, rename={"client_config": "clientConfig"}):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] | None = None


async def publish(api: Api, name: str, bundle: bytes) -> bool:
    """Make *bundle* the one that all webhooks of the configurations *name* are verified with; say if it was not."""
    found = await _read(api, name)
    changed = False
    for path, webhooks in found.items():
        if all(webhook.client_config.bundle == bundle for webhook in webhooks):
            continue
        try:
            await api.patch(path, _patch(webhooks, bundle), parameters={"fieldManager": FIELD_MANAGER})
        except (Invalid, NotFound) as error:
            raise ChangedError(f"webhook configuration {name!r} changed meanwhile: run this again ({error})") from error
        log.info("bundle published", configuration=name, webhooks=[webhook.name for webhook in webhooks])
        changed = True
    return changed


async def published_bundles(api: Api, name: str) -> Mapping[str, bytes]:
    """Return the bundle that each webhook of the configurations *name* is verified with, by place and name."""
    return {
        f"{path.rpartition('/')[0].rpartition('/')[2]}/{webhook.name}": webhook.client_config.bundle
        for path, webhooks in (await _read(api, name)).items()
        for webhook in webhooks
    }


async def _read(api: Api, name: str) -> Mapping[str, list[_Webhook]]:
    found = {}
    for kind in KINDS:
        path = f"{_GROUP}/{kind}/{name}"
        try:
            found[path] = msgspec.json.decode(await api.get(path), type=_Configuration).webhooks or []
        except NotFound:
            continue
    if not found:
        raise InjectionError(f"webhook configuration {name!r} does not exist: install it, then run this again")
    return found


def _patch(webhooks: list[_Webhook], bundle: bytes) -> bytes:
    operations: list[dict[str, object]] = []
    for place, webhook in enumerate(webhooks):
        operations.append({"op": "test", "path": f"/webhooks/{place}/name", "value": webhook.name})
        # msgspec writes bytes as base64, which is what the field holds.
        operations.append({"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle})
    return msgspec.json.encode(operations)
