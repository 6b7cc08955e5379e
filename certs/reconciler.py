"""One round of upkeep: renew, publish, issue, and let go of former authorities, in an order that never breaks a chain.

A new authority is published beside the old ones before anything it signed is served. The old ones leave the bundle
once every replica is seen to serve the newest certificate; where the replicas are not named, when they expire.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import BACKDATED, AuthorityError, lifetime, load_bundle
from certs.injection import publish, published_bundles
from certs.replicas import served_certificates
from certs.rotation import BUNDLE, CERTIFICATE, SERVING, ensure_authority, ensure_leaf, prune_authorities
from certs.settings import Settings
from certs.store import Store
from controller.kube import Api

log = structlog.get_logger(__name__)

_AGENT = "volcano-global-certs"
ROTATION_REQUESTED = "it was asked for"


@dataclass(frozen=True, slots=True)
class CertificateReconciler:
    """Keeps what is in *store* good, as *settings* say."""

    store: Store
    settings: Settings
    sleep: Callable[[float], None] = time.sleep

    def run(self, *, rotate: bool = False) -> None:
        """Do one round; with *rotate* what is renewed need not be due."""
        if self.settings.external:
            self._publish_external()
            return
        settings, now = self.settings, utc_now()
        forced_reason = ROTATION_REQUESTED if rotate else None
        bundle = ensure_authority(
            self.store, now, settings.lifetimes, forced_reason=forced_reason if settings.authority else None
        )
        if self._publish(bundle) and self._is_bundle_new(bundle):
            self.sleep(settings.settle_seconds)
        issued = ensure_leaf(
            self.store, settings.names, now=utc_now(), lifetimes=settings.lifetimes, forced_reason=forced_reason
        )
        if not issued and self._can_prune(bundle):
            self._publish(prune_authorities(self.store))

    def _is_bundle_new(self, bundle: bytes) -> bool:
        """Say whether what is being served came with another bundle."""
        stored = self.store.read(SERVING)
        return stored is not None and stored.files.get(BUNDLE) != bundle

    def _can_prune(self, bundle: bytes) -> bool:
        """Say whether nobody serves any more what a former authority has signed."""
        if len(load_bundle(bundle)) == 1 or not self.settings.replica:
            return False
        leaf = self._leaf()
        if utc_now() < lifetime(leaf).not_before + BACKDATED + timedelta(seconds=self.settings.overlap_seconds):
            return False
        return self._all_replicas_serve(leaf)

    def _all_replicas_serve(self, leaf: x509.Certificate) -> bool:
        behind = sorted(
            address for address, found in served_certificates(self.settings.replica).items() if found != leaf
        )
        if behind:
            log.info("former authorities kept", reason="replicas do not serve the newest certificate", replicas=behind)
        return not behind

    def _publish_external(self) -> None:
        """Publish the authorities that came with a certificate of somebody else's, beside those still needed."""
        stored = self.store.read(SERVING)
        if stored is None or not stored.files.get(CERTIFICATE):
            raise AuthorityError("there is no certificate yet: see who should issue it")
        if not stored.files.get(BUNDLE):
            raise AuthorityError(f"the certificate has no {BUNDLE} beside it: use an issuer that tells its authority")
        newest = load_bundle(stored.files[BUNDLE])
        former = [each for each in self._published() if each not in newest and lifetime(each).not_after > utc_now()]
        if former and self.settings.replica and self._all_replicas_serve(self._leaf()):
            former = []
        self._publish(_pem([*newest, *former]))

    def _leaf(self) -> x509.Certificate:
        stored = self.store.read(SERVING)
        return load_bundle(stored.files[CERTIFICATE] if stored else b"")[0]

    def _published(self) -> list[x509.Certificate]:
        found: list[x509.Certificate] = []
        for place, bundle in asyncio.run(read_published(self.settings)).items():
            try:
                found += load_bundle(bundle) if bundle else []
            except AuthorityError as error:
                log.warning("published bundle not kept", place=place, reason=str(error))
        return list(dict.fromkeys(found))

    def _publish(self, bundle: bytes) -> bool:
        return asyncio.run(_publish_all(self.settings, bundle))


async def read_published(settings: Settings) -> dict[str, bytes]:
    """Return the bundle published for each webhook of all configurations; without any, nobody is asked."""
    if not settings.webhook_configuration:
        return {}
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as api:
        return {
            f"{name}: {place}": bundle
            for name in settings.webhook_configuration
            for place, bundle in (await published_bundles(api, name)).items()
        }


async def _publish_all(settings: Settings, bundle: bytes) -> bool:
    if not settings.webhook_configuration:
        return False
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as api:
        return any([await publish(api, name, bundle) for name in settings.webhook_configuration])


def utc_now() -> datetime:
    """Return the time by which certificates are judged."""
    return datetime.now(UTC)


def _pem(certificates: Iterable[x509.Certificate] | Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
