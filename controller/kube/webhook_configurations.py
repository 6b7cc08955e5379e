"""Reads the registered webhooks with the CA bundles that the API server trusts for them."""

from collections.abc import Mapping

import msgspec

from controller.api.keys import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from controller.kube.client import Api
from controller.kube.errors import NotFound


class ClientConfig(msgspec.Struct, rename={"bundle": "caBundle"}):
    """How the API server reaches a webhook."""

    bundle: bytes = b""


class RegisteredWebhook(msgspec.Struct, rename={"client_config": "clientConfig"}):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig


class _Configuration(msgspec.Struct):
    webhooks: list[RegisteredWebhook] | None = None


_CONFIGURATION = msgspec.json.Decoder(_Configuration)


async def read_webhooks(api: Api, name: str) -> Mapping[str, list[RegisteredWebhook]]:
    """Return the webhooks of the configurations *name* by API path; a configuration that is missing is left out."""
    configurations = {}
    # A mutating and a validating configuration may share the name; either may be missing.
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        path = resource.item_path("", name)
        try:
            configurations[path] = _CONFIGURATION.decode(await api.get(path)).webhooks or []
        except NotFound:
            continue
    return configurations


def webhook_kind(path: str) -> str:
    """Return the resource of the configuration at the API *path*, such as ``mutatingwebhookconfigurations``."""
    return path.split("/")[-2]
