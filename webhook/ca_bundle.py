"""The CA bundle that our webhook configurations publish, read by name: does it cover what is served?

Only reads. What cannot be read is as it was last; what was never read makes the webhook not ready.
"""

from collections.abc import Mapping, Sequence

import msgspec
import structlog
from cryptography import x509

from controller.kube import Api, ApiError, NotFound
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
    """What the API server verifies the webhook with, as it was last read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bundles: Mapping[str, bytes] | None = None
        self._read_error = f"webhook configuration {name!r} was not read yet"

    async def read(self, api: Api) -> None:
        """Read the bundles again; keep what is known where they cannot be read."""
        found: dict[str, bytes] = {}
        try:
            for kind in KINDS:
                found |= await self._read_kind(api, kind)
        except (ApiError, ValueError) as error:
            if self._read_error != str(error):
                log.warning("webhook configuration not read", name=self._name, reason=str(error))
            self._read_error = str(error)
            return
        self._bundles = found
        self._read_error = ""

    def not_ready_reason(self, chain: Sequence[x509.Certificate]) -> str | None:
        """Return why the API server would not believe the served *chain*, or ``None``."""
        if self._bundles is None:
            return f"cannot tell whether the served certificate is believed: {self._read_error}"
        if not self._bundles:
            return f"webhook configuration {self._name!r} does not exist or has no webhooks: install it"
        for webhook, bundle in self._bundles.items():
            if not is_trusted(chain, _certificates(bundle)):
                return f"the bundle published for {webhook} does not cover the served certificate: {_REMEDY}"
        return None

    async def _read_kind(self, api: Api, kind: str) -> Mapping[str, bytes]:
        try:
            found = _CONFIGURATION.decode(await api.get(f"{_API}/{kind}/{self._name}"))
        except NotFound:
            return {}
        return {f"{webhook.name} ({kind})": webhook.client_config.bundle for webhook in found.webhooks or ()}


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
