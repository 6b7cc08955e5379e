"""Renews the CA and the serving certificate when they are due.

A new CA is published together with the old one before a certificate signed by it is served: `ensure_leaf` must run only
after the caller has published the bundle of `ensure_authority`, and nothing is issued or removed where another process
has renewed the CA since then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import (
    AuthorityError,
    KeyPair,
    create_authority,
    issue,
    lifetime,
    load,
    load_bundle,
    reason_to_reissue,
    reason_to_renew,
)
from certs.store import AUTHORITY, SERVING, CertificateStore, ConflictError, Stored

log = structlog.get_logger(__name__)

BUNDLE = "ca.crt"
CERTIFICATE = "tls.crt"
KEY = "tls.key"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of the certificates."""

    # Replacing the CA is rare, but frequent enough to be tested in practice.
    authority: timedelta = timedelta(days=365)
    # A third, 30 days, remains for retries when a renewal fails.
    leaf: timedelta = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """A stored certificate, and why it must be renewed (``None``: it is valid)."""

    stored: Stored | None
    pair: KeyPair | None
    reason: str | None


def ensure_authority(
    store: CertificateStore, now: datetime, lifetimes: Lifetimes, *, forced_reason: str | None = None
) -> bytes:
    """Renew the CA if it is due or *forced_reason* is given, and return the bundle, the newest CA first."""
    authority = examine_authority(store, now)
    if authority.reason is None and forced_reason is None and authority.stored:
        return authority.stored.files[BUNDLE]
    created = create_authority(now, lifetimes.authority)
    bundle = created.certificate_pem() + _unexpired(authority.stored, now)
    files = {CERTIFICATE: created.certificate_pem(), KEY: created.key_pem(), BUNDLE: bundle}
    store.write(AUTHORITY, files, expected=authority.stored)
    log.info("CA created", reason=authority.reason or forced_reason, not_after=created.lifetime.not_after.isoformat())
    return bundle


def ensure_leaf(  # noqa: PLR0913 -- two of them are rarely given
    store: CertificateStore,
    names: Iterable[str],
    *,
    now: datetime,
    lifetimes: Lifetimes,
    forced_reason: str | None = None,
    published: bytes | None = None,
) -> bool:
    """Renew the serving certificate if it is due and return whether it was; requires a published CA.

    One that lacks a name keeps the others until the next renewal, since the API server may still call it by them.
    Raises `ConflictError` where the bundle is not the *published* one; ``None``: none is published.
    """
    wanted = frozenset(names)
    authority = examine_authority(store, now)
    if authority.pair is None or authority.stored is None:
        raise AuthorityError("there is no CA to issue a serving certificate: run ensure first")
    if published is not None:
        _check_published(authority.stored, published)
    stored_leaf = examine_leaf(store, authority, wanted=wanted, now=now)
    bundle, reason, leaf = authority.stored.files[BUNDLE], stored_leaf.reason or forced_reason, stored_leaf.pair
    if reason is None and stored_leaf.stored and stored_leaf.stored.files.get(BUNDLE) == bundle:
        return False
    if leaf is None or reason is not None:
        earlier = leaf.names if leaf and reason_to_reissue(leaf.names, wanted) else frozenset()
        leaf = issue(authority.pair, sorted(wanted | earlier), now=now, validity=lifetimes.leaf)
    store.write(
        SERVING, {CERTIFICATE: leaf.certificate_pem(), KEY: leaf.key_pem(), BUNDLE: bundle}, expected=stored_leaf.stored
    )
    is_issued = leaf is not stored_leaf.pair
    if is_issued:
        log.info("serving certificate issued", reason=reason, not_after=leaf.lifetime.not_after.isoformat())
    return is_issued


def prune_authorities(store: CertificateStore, published: bytes) -> bytes:
    """Remove all but the current CA from the *published* bundle and return it; requires that no other CA is in use.

    Raises `ConflictError` where the bundle is another one.
    """
    stored = store.read(AUTHORITY)
    if stored is None:
        raise AuthorityError("there is no CA to publish: run ensure first")
    _check_published(stored, published)
    current = _file(stored.files, CERTIFICATE)
    store.write(AUTHORITY, {**stored.files, BUNDLE: current}, expected=stored)
    log.info("old CAs removed", reason="every replica serves the newest certificate")
    return current


def _check_published(stored: Stored, published: bytes) -> None:
    if stored.files.get(BUNDLE) != published:
        raise ConflictError("the CA was renewed by another process: run this again")


def examine_authority(store: CertificateStore, now: datetime) -> StoredCertificate:
    """Return the stored CA, and why it must be renewed."""
    stored, pair, reason = _examine(store, AUTHORITY)
    if pair and stored:
        reason = _bundle_violation(stored, pair) or reason_to_renew(pair.lifetime, pair.lifetime, now)
    return StoredCertificate(stored, pair, reason)


def examine_leaf(
    store: CertificateStore, authority: StoredCertificate, *, wanted: frozenset[str], now: datetime
) -> StoredCertificate:
    """Return the stored serving certificate, and why it must be renewed."""
    stored, pair, reason = _examine(store, SERVING)
    if pair and authority.pair:
        if not authority.pair.has_issued(pair.certificate):
            reason = "another CA issued it"
        else:
            reason = reason_to_renew(pair.lifetime, authority.pair.lifetime, now) or reason_to_reissue(
                pair.names, wanted
            )
    return StoredCertificate(stored, pair, reason)


def _examine(store: CertificateStore, name: str) -> tuple[Stored | None, KeyPair | None, str | None]:
    stored = store.read(name)
    if stored is None:
        return None, None, "it does not exist"
    try:
        return stored, load(_file(stored.files, CERTIFICATE), _file(stored.files, KEY)), None
    except AuthorityError as error:
        return stored, None, str(error)


def _bundle_violation(stored: Stored, authority: KeyPair) -> str | None:
    """Return why the bundle stored with *authority* cannot be published, or ``None``."""
    try:
        bundle = load_bundle(_file(stored.files, BUNDLE))
    except AuthorityError as error:
        return str(error)
    return None if authority.certificate in bundle else f"{BUNDLE} does not contain it"


def _file(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise AuthorityError(f"{name} is missing")
    return files[name]


def _unexpired(stored: Stored | None, now: datetime) -> bytes:
    """Return the certificates of the stored bundle that may still be needed to verify served certificates."""
    if stored is None:
        return b""
    try:
        certificates = load_bundle(stored.files.get(BUNDLE, b""))
    except AuthorityError:
        return b""
    return b"".join(
        certificate.public_bytes(Encoding.PEM) for certificate in certificates if lifetime(certificate).not_after > now
    )
