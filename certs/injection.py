"""Publish the CA bundle in webhook configurations, so that the API server believes the certificate being served.

One field of each webhook is applied on the server's side and belongs to us from then on: whoever installs the
configuration again, and however, does not empty it. The rest of the configuration is never sent, so it cannot be
changed; a webhook that is gone cannot be brought back either, since what is applied alone would not be valid.
"""

import base64
import json

import msgspec
import structlog

from controller.kube import Api, Invalid, NotFound

log = structlog.get_logger(__name__)

FIELD_MANAGER = "volcano-global-certs"
_VERSION = "admissionregistration.k8s.io/v1"
_KIND = "MutatingWebhookConfiguration"
_PATH = f"/apis/{_VERSION}/mutatingwebhookconfigurations"


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
        await api.apply(path, _applied(name, found, bundle), field_manager=FIELD_MANAGER)
    except NotFound as error:
        raise InjectionError(
            f"webhook configuration {name!r} does not exist: install it, then run this again"
        ) from error
    except Invalid as error:
        raise InjectionError(f"webhook configuration {name!r} changed meanwhile: run this again ({error})") from error
    log.info("bundle published", configuration=name, webhooks=[webhook.name for webhook in found.webhooks])
    return True


def _applied(name: str, found: _Configuration, bundle: bytes) -> bytes:
    encoded = base64.b64encode(bundle).decode()
    webhooks = [{"name": webhook.name, "clientConfig": {"caBundle": encoded}} for webhook in found.webhooks]
    body = {"apiVersion": _VERSION, "kind": _KIND, "metadata": {"name": name}, "webhooks": webhooks}
    return json.dumps(body).encode()
