"""Publish the CA bundle in webhook configurations, so that the API server believes the certificate being served.

One field of each webhook is patched, and only where the name at its place is still the one that was read. It is not
applied on the server's side: whoever applies one field of a webhook owns a share of the whole webhook, and the
installer that renames or drops it is then refused, because our share alone is no valid webhook. A patched field
stays when the installer applies its own again, and goes with its webhook.
"""

import msgspec
import structlog

from controller.kube import Api, Invalid, NotFound

log = structlog.get_logger(__name__)

FIELD_MANAGER = "volcano-global-certs"
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class InjectionError(Exception):
    """The bundle was not published; the message says where and what to do."""


class _ClientConfig(msgspec.Struct, rename={"bundle": "caBundle"}):
    bundle: bytes = b""


class _Webhook(msgspec.Struct, rename={"client_config": "clientConfig"}):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] = []


async def publish(api: Api, name: str, bundle: bytes) -> bool:
    """Make *bundle* the one that all webhooks of the configuration *name* are verified with; say if it was not."""
    path = f"{_PATH}/{name}"
    try:
        found = msgspec.json.decode(await api.get(path), type=_Configuration)
        if all(webhook.client_config.bundle == bundle for webhook in found.webhooks):
            return False
        await api.patch(path, _patch(found, bundle), parameters={"fieldManager": FIELD_MANAGER})
    except NotFound as error:
        raise InjectionError(
            f"webhook configuration {name!r} does not exist: install it, then run this again"
        ) from error
    except Invalid as error:
        raise InjectionError(f"webhook configuration {name!r} changed meanwhile: run this again ({error})") from error
    log.info("bundle published", configuration=name, webhooks=[webhook.name for webhook in found.webhooks])
    return True


def _patch(found: _Configuration, bundle: bytes) -> bytes:
    operations: list[dict[str, object]] = []
    for place, webhook in enumerate(found.webhooks):
        operations.append({"op": "test", "path": f"/webhooks/{place}/name", "value": webhook.name})
        # msgspec writes bytes as base64, which is what the field holds.
        operations.append({"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle})
    return msgspec.json.encode(operations)
