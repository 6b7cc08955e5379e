"""Reconciles the certificates: renews the CA, publishes the bundle, renews the leaf, and removes old CAs.

A new CA is published together with the old ones before a certificate signed by it is served. Old CAs leave the bundle
once every replica serves the newest certificate, or, if no replicas are configured, when they expire.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import BACKDATED, AuthorityError, lifetime, load_bundle
from certs.injection import publish, published_bundles
from certs.rotation import BUNDLE, CERTIFICATE, ensure_authority, ensure_leaf, prune_authorities
from certs.settings import CertificateSettings
from certs.store import SERVING, CertificateStore
from controller.kube.certificates import is_trusted
from controller.kube.client import Api
from controller.kube.serving_certificate import utc_now

_TIMEOUT_SECONDS = 5.0

log = structlog.get_logger(__name__)
_AGENT = "volcano-global-certs"
ROTATION_REQUESTED = "a rotation was requested"


def served_certificates(endpoints: Iterable[str]) -> Mapping[str, x509.Certificate | None]:
    """Return the certificate served at each address of *endpoints* (``HOST:PORT``); ``None`` without an answer."""
    return {address: _served_certificate(address) for endpoint in endpoints for address in _addresses(endpoint)}


def _addresses(endpoint: str) -> list[str]:
    """Return each address of *endpoint*; an unresolvable name is returned itself and will not answer."""
    host, _, port = endpoint.rpartition(":")
    try:
        infos = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return [endpoint]
    return sorted({f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos})


def _served_certificate(address: str) -> x509.Certificate | None:
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The certificate is only compared, and may not be covered by any bundle.
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain) as connection,
        ):
            certificate = connection.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(certificate) if certificate else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class CertificateReconciler:
    """Reconciles the certificates in *store* with *settings*."""

    store: CertificateStore
    settings: CertificateSettings
    sleep: Callable[[float], None] = time.sleep

    def run(self, *, rotate: bool = False) -> None:
        """Reconcile once; with *rotate* certificates are renewed before they are due."""
        if self.settings.external:
            self._publish_external()
            return
        settings, now = self.settings, utc_now()
        forced_reason = ROTATION_REQUESTED if rotate else None
        bundle = ensure_authority(
            self.store, now, settings.lifetimes, forced_reason=forced_reason if settings.authority else None
        )
        published = bundle + _pem(self._former_authorities(load_bundle(bundle)))
        if self._publish(published) and self._is_bundle_new(bundle):
            self.sleep(settings.settle_seconds)
        issued = ensure_leaf(
            self.store,
            settings.names,
            now=utc_now(),
            lifetimes=settings.lifetimes,
            forced_reason=forced_reason,
            published=bundle,
        )
        if not issued and self._can_prune(bundle):
            self._publish(prune_authorities(self.store, bundle))

    def _is_bundle_new(self, bundle: bytes) -> bool:
        """Return whether the stored serving certificate came with another bundle."""
        stored = self.store.read(SERVING)
        return stored is not None and stored.files.get(BUNDLE) != bundle

    def _can_prune(self, bundle: bytes) -> bool:
        """Return whether no replica serves a certificate of an old CA any more."""
        if len(load_bundle(bundle)) == 1 or not self.settings.replica:
            return False
        leaf = self._leaf()
        until = lifetime(leaf).not_before + BACKDATED + timedelta(seconds=self.settings.overlap_seconds)
        if utc_now() < until:
            log.info("old CAs not removed", reason="the newest certificate is too new", until=until.isoformat())
            return False
        return self._all_replicas_serve(leaf)

    def _all_replicas_serve(self, leaf: x509.Certificate) -> bool:
        outdated = sorted(
            address
            for address, certificate in served_certificates(self.settings.replica).items()
            if certificate != leaf
        )
        if outdated:
            log.info("old CAs not removed", reason="replicas do not serve the newest certificate", replicas=outdated)
        return not outdated

    def _publish_external(self) -> None:
        """Publish the CAs of an external certificate, together with old ones that are still needed."""
        stored = self.store.read(SERVING)
        if stored is None or not stored.files.get(CERTIFICATE):
            raise AuthorityError("there is no certificate yet: check its issuer")
        if not stored.files.get(BUNDLE):
            raise AuthorityError(f"the Secret of the certificate has no {BUNDLE}: use an issuer that provides its CA")
        newest = load_bundle(stored.files[BUNDLE])
        old = self._other_published(newest)
        if old and self.settings.replica and self._is_covered(newest) and self._all_replicas_serve(self._leaf()):
            old = []
        self._publish(_pem([*newest, *old]))

    def _former_authorities(self, newest: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """Return the CAs that are published besides *newest* and still needed, also where the stored ones were lost."""
        others = self._other_published(newest)
        if not others or self.settings.before_registration:
            # Replicas that an upgrade has not replaced yet may serve a certificate of another CA.
            return others
        served = [[leaf] for leaf in served_certificates(self.settings.replica).values() if leaf is not None]
        uncovered = [chain for chain in served if not is_trusted(chain, newest)]
        return [ca for ca in others if any(is_trusted(chain, [ca]) for chain in uncovered)]

    def _other_published(self, newest: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """Return the CAs that are published besides *newest* and have not expired."""
        return [ca for ca in self._published() if ca not in newest and lifetime(ca).not_after > utc_now()]

    def _is_covered(self, bundle: Sequence[x509.Certificate]) -> bool:
        """Return whether the API server trusts the stored serving certificate by *bundle*."""
        return is_trusted(self._chain(), bundle)

    def _leaf(self) -> x509.Certificate:
        return self._chain()[0]

    def _chain(self) -> list[x509.Certificate]:
        stored = self.store.read(SERVING)
        return load_bundle(stored.files[CERTIFICATE] if stored else b"")

    def _published(self) -> list[x509.Certificate]:
        certificates: list[x509.Certificate] = []
        for webhook, bundle in asyncio.run(read_published(self.settings)).items():
            try:
                certificates += load_bundle(bundle) if bundle else []
            except AuthorityError as error:
                log.warning("published bundle ignored", webhook=webhook, reason=str(error))
        return list(dict.fromkeys(certificates))

    def _publish(self, bundle: bytes) -> bool:
        return asyncio.run(_publish_all(self.settings, bundle))


async def read_published(settings: CertificateSettings) -> dict[str, bytes]:
    """Return the bundle published for each webhook of all configurations; none if no configuration is set."""
    if not settings.webhook_configuration:
        return {}
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as api:
        return {
            f"{name}: {place}": bundle
            for name in settings.webhook_configuration
            for place, bundle in (
                await published_bundles(api, name, may_be_missing=settings.before_registration)
            ).items()
        }


async def _publish_all(settings: CertificateSettings, bundle: bytes) -> bool:
    if not settings.webhook_configuration:
        return False
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as api:
        return any(
            [
                await publish(api, name, bundle, may_be_missing=settings.before_registration)
                for name in settings.webhook_configuration
            ]
        )


def _pem(certificates: Iterable[x509.Certificate] | Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
