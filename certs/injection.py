"""Publishes the CA bundle in webhook configurations, so that the API server trusts the served certificate.

The patch changes one field of each webhook, and only if the webhook at that index still has the name that was read.
Server-side apply is not used: the applier of one field of a webhook becomes an owner of that webhook, and an installer
that renames or removes it is then refused, because the remaining field is not a valid webhook. A patched field stays
when the installer applies its own fields again, and is removed together with the webhook.
"""

from collections.abc import Mapping

import msgspec
import structlog

from controller.kube.client import Api
from controller.kube.errors import Invalid, NotFound
from controller.kube.webhook_configurations import RegisteredWebhook, read_webhooks, webhook_kind

log = structlog.get_logger(__name__)

FIELD_MANAGER = "volcano-global-certs"


class InjectionError(Exception):
    """The bundle was not published; the message says where and what to do."""


class ChangedError(InjectionError):
    """The configuration changed while the bundle was being published: publish it again."""


async def publish(api: Api, name: str, bundle: bytes, *, may_be_missing: bool = False) -> bool:
    """Publish *bundle* for all webhooks of the configurations *name*, and return whether anything changed."""
    configurations = await (read_webhooks if may_be_missing else _read)(api, name)
    changed = False
    for path, webhooks in configurations.items():
        if all(webhook.client_config.bundle == bundle for webhook in webhooks):
            continue
        try:
            await api.patch(path, _patch(webhooks, bundle), parameters={"fieldManager": FIELD_MANAGER})
        except (Invalid, NotFound) as error:
            raise ChangedError(
                f"webhook configuration {name!r} was changed by another process: run this again ({error})"
            ) from error
        log.info("bundle published", configuration=name, webhooks=[webhook.name for webhook in webhooks])
        changed = True
    return changed


async def published_bundles(api: Api, name: str, *, may_be_missing: bool = False) -> Mapping[str, bytes]:
    """Return the published bundle of each webhook of the configurations *name*, by kind and webhook name."""
    configurations = await (read_webhooks if may_be_missing else _read)(api, name)
    return {
        f"{webhook_kind(path)}/{webhook.name}": webhook.client_config.bundle
        for path, webhooks in configurations.items()
        for webhook in webhooks
    }


async def _read(api: Api, name: str) -> Mapping[str, list[RegisteredWebhook]]:
    configurations = await read_webhooks(api, name)
    if not configurations:
        raise InjectionError(f"webhook configuration {name!r} does not exist: install it, then run this again")
    return configurations


def _patch(webhooks: list[RegisteredWebhook], bundle: bytes) -> bytes:
    operations: list[dict[str, object]] = []
    for index, webhook in enumerate(webhooks):
        operations.append({"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name})
        # msgspec encodes bytes as base64, as the field requires.
        operations.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
    return msgspec.json.encode(operations)
