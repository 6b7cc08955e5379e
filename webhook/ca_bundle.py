"""Reads the CA bundle that the webhook configurations publish and compares it with the served certificate.

A bundle that cannot be read remains as it was read last; before the first read the webhook is not ready.
"""

from collections.abc import Mapping, Sequence

import msgspec
import structlog
from cryptography import x509

from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from webhook.certificate_chain import is_trusted

log = structlog.get_logger(__name__)

_API = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_REMEDY = "run `python -m certs ensure` for this webhook configuration"


class _ClientConfig(msgspec.Struct, rename={"bundle": "caBundle"}):
    bundle: bytes = b""


class _Webhook(msgspec.Struct, rename={"client_config": "clientConfig"}):
    name: str
    client_config: _ClientConfig


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] | None = None


_CONFIGURATION = msgspec.json.Decoder(_Configuration)


class PublishedBundle:
    """CA bundles that the API server verifies the webhook with, as read last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bundles: Mapping[str, bytes] | None = None
        self._read_error = f"webhook configuration {name!r} was not read yet"

    async def read(self, api: Api) -> None:
        """Read the bundles again; keep the previous ones if they cannot be read."""
        bundles: dict[str, bytes] = {}
        try:
            for kind in KINDS:
                bundles |= await self._read_kind(api, kind)
        except (ApiError, ValueError) as error:
            if self._read_error != str(error):
                log.warning("webhook configuration read failed", name=self._name, reason=str(error))
            self._read_error = str(error)
            return
        self._bundles = bundles
        self._read_error = ""

    def not_ready_reason(self, chain: Sequence[x509.Certificate]) -> str | None:
        """Return why the API server would not trust the served *chain*, or ``None``."""
        if self._bundles is None:
            return f"cannot determine whether the served certificate is trusted: {self._read_error}"
        if not self._bundles:
            return f"webhook configuration {self._name!r} does not exist or has no webhooks: install it"
        for webhook, bundle in self._bundles.items():
            if not is_trusted(chain, _certificates(bundle)):
                return f"the bundle published for {webhook} does not cover the served certificate: {_REMEDY}"
        return None

    async def _read_kind(self, api: Api, kind: str) -> Mapping[str, bytes]:
        try:
            configuration = _CONFIGURATION.decode(await api.get(f"{_API}/{kind}/{self._name}"))
        except NotFound:
            return {}
        return {f"{webhook.name} ({kind})": webhook.client_config.bundle for webhook in configuration.webhooks or ()}


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
