"""Reports stored certificates, published bundles, and what replicas serve."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime

from cryptography import x509

from certs.authority import AuthorityError, lifetime, load_bundle, names
from certs.reconciler import read_published, served_certificates
from certs.rotation import CERTIFICATE, StoredCertificate, examine_authority, examine_leaf
from certs.settings import CertificateSettings
from certs.store import AUTHORITY, SERVING, CertificateStore
from controller.kube.certificates import is_trusted
from controller.kube.serving_certificate import utc_now


def report(store: CertificateStore, settings: CertificateSettings) -> Iterator[str]:
    """Yield a line for each stored certificate, each webhook with a published bundle, and each replica."""
    now = utc_now()
    if settings.external:
        yield _external_status(_stored_chain(store), now)
    else:
        authority = examine_authority(store, now)
        yield _stored_status(AUTHORITY, authority)
        yield _stored_status(SERVING, examine_leaf(store, authority, wanted=frozenset(settings.names), now=now))
    chain = _stored_chain(store)
    for webhook, bundle in asyncio.run(read_published(settings)).items():
        yield f"published in {webhook}: {_bundle_status(bundle, chain)}"
    for address, certificate in served_certificates(settings.replica).items():
        yield f"replica {address}: {_replica_status(certificate, chain)}"


def _stored_status(name: str, stored_certificate: StoredCertificate) -> str:
    if stored_certificate.pair is None:
        return f"{name}: must be renewed now: {stored_certificate.reason}"
    renewal_time = stored_certificate.pair.lifetime.renewal_time()
    renewal = (
        f"must be renewed now: {stored_certificate.reason}"
        if stored_certificate.reason
        else f"is renewed from {renewal_time:%Y-%m-%d %H:%M} UTC"
    )
    return f"{name}: {_validity(stored_certificate.pair.certificate)}; {renewal}"


def _external_status(chain: Sequence[x509.Certificate], now: datetime) -> str:
    """Return the status of a certificate that another issuer renews."""
    if not chain:
        return f"{SERVING}: external, does not exist yet: check its issuer"
    expired = "" if now < lifetime(chain[0]).not_after else "; it has expired: check its issuer"
    return f"{SERVING}: external, {_validity(chain[0])}{expired}"


def _validity(certificate: x509.Certificate) -> str:
    covered_names = f", for {', '.join(sorted(names(certificate)))}" if names(certificate) else ""
    return f"valid until {lifetime(certificate).not_after:%Y-%m-%d %H:%M} UTC{covered_names}"


def _stored_chain(store: CertificateStore) -> list[x509.Certificate]:
    """Return the stored serving certificate with its intermediate ones; none if there is none that can be read."""
    stored = store.read(SERVING)
    try:
        return load_bundle(stored.files.get(CERTIFICATE, b"")) if stored else []
    except AuthorityError:
        return []


def _bundle_status(bundle: bytes, chain: list[x509.Certificate]) -> str:
    try:
        authorities = load_bundle(bundle) if bundle else []
    except AuthorityError as error:
        return f"{error}: run ensure"
    count = "1 CA" if len(authorities) == 1 else f"{len(authorities)} CAs"
    covers = "covers" if is_trusted(chain, authorities) else "does not cover"
    return f"{count}, {covers} the serving certificate"


def _replica_status(certificate: x509.Certificate | None, chain: list[x509.Certificate]) -> str:
    if certificate is None:
        return "does not answer"
    return "serves the newest certificate" if certificate in chain[:1] else "serves another certificate"
