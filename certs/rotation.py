"""Keep an authority and a serving certificate good: renew what is due, in an order that never breaks the chain.

A new authority is published beside the old one before anything it signed is served; that the caller's publishing
succeeded is what lets the second half run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import AuthorityError, KeyPair, create_authority, issue, lifetime, load, load_bundle
from certs.renewal import reason_to_reissue, reason_to_renew
from certs.store import Store, Stored

log = structlog.get_logger(__name__)

AUTHORITY = "authority"
SERVING = "serving"
BUNDLE = "ca.crt"
CERTIFICATE = "tls.crt"
KEY = "tls.key"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are valid."""

    # Long enough that a replacement is a rare event, short enough that it is a practised one.
    authority: timedelta = timedelta(days=365)
    # A third of it, 30 days, is left for retries when renewal fails.
    leaf: timedelta = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """One kept certificate: what it is now, and why it must be renewed (``None``: it is good)."""

    stored: Stored | None
    pair: KeyPair | None
    reason: str | None


def ensure_authority(store: Store, now: datetime, lifetimes: Lifetimes, *, forced_reason: str | None = None) -> bytes:
    """Renew the authority if it is due, and return the bundle to publish: the newest first, then older valid ones.

    *because* is a reason to renew it that is not its own.
    """
    part = examine_authority(store, now)
    if part.reason is None and forced_reason is None and part.stored:
        return part.stored.files[BUNDLE]
    fresh = create_authority(now, lifetimes.authority)
    bundle = fresh.certificate_pem() + _unexpired(part.stored, now)
    files = {CERTIFICATE: fresh.certificate_pem(), KEY: fresh.key_pem(), BUNDLE: bundle}
    store.write(AUTHORITY, files, expected=part.stored)
    log.info(
        "authority established", reason=part.reason or forced_reason, not_after=fresh.lifetime.not_after.isoformat()
    )
    return bundle


def ensure_leaf(
    store: Store, names: Iterable[str], *, now: datetime, lifetimes: Lifetimes, forced_reason: str | None = None
) -> bool:
    """Renew the serving certificate if it is due and say whether it was; the authority must be there and published."""
    wanted = frozenset(names)
    authority = examine_authority(store, now)
    if authority.pair is None or authority.stored is None:
        raise AuthorityError("there is no authority to issue a serving certificate: establish one first")
    part = examine_leaf(store, authority, wanted=wanted, now=now)
    bundle, reason, leaf = authority.stored.files[BUNDLE], part.reason or forced_reason, part.pair
    if reason is None and part.stored and part.stored.files.get(BUNDLE) == bundle:
        return False
    if leaf is None or reason is not None:
        leaf = issue(authority.pair, sorted(wanted), now=now, validity=lifetimes.leaf)
        log.info("serving certificate issued", reason=reason, not_after=leaf.lifetime.not_after.isoformat())
    store.write(
        SERVING, {CERTIFICATE: leaf.certificate_pem(), KEY: leaf.key_pem(), BUNDLE: bundle}, expected=part.stored
    )
    return leaf is not part.pair


def prune_authorities(store: Store) -> bytes:
    """Keep the present authority alone in the bundle, and return that; nothing else may be served any more."""
    stored = store.read(AUTHORITY)
    if stored is None:
        raise AuthorityError("there is no authority to publish alone: establish one first")
    alone = _file(stored.files, CERTIFICATE)
    store.write(AUTHORITY, {**stored.files, BUNDLE: alone}, expected=stored)
    log.info("former authorities retired", reason="every replica serves the newest certificate")
    return alone


def examine_authority(store: Store, now: datetime) -> StoredCertificate:
    """Return the authority that is kept and why it must be renewed."""
    stored, pair, reason = _examine(store, AUTHORITY)
    if pair and stored:
        reason = _bundle_violation(stored, pair) or reason_to_renew(pair.lifetime, pair.lifetime, now)
    return StoredCertificate(stored, pair, reason)


def examine_leaf(
    store: Store, authority: StoredCertificate, *, wanted: frozenset[str], now: datetime
) -> StoredCertificate:
    """Return the serving certificate that is kept and why it must be renewed."""
    stored, pair, reason = _examine(store, SERVING)
    if pair and authority.pair:
        if not authority.pair.has_issued(pair.certificate):
            reason = "another authority issued it"
        else:
            reason = reason_to_renew(pair.lifetime, authority.pair.lifetime, now) or reason_to_reissue(
                pair.names, wanted
            )
    return StoredCertificate(stored, pair, reason)


def _examine(store: Store, name: str) -> tuple[Stored | None, KeyPair | None, str | None]:
    stored = store.read(name)
    if stored is None:
        return None, None, "there is none"
    try:
        return stored, load(_file(stored.files, CERTIFICATE), _file(stored.files, KEY)), None
    except AuthorityError as error:
        return stored, None, str(error)


def _bundle_violation(stored: Stored, authority: KeyPair) -> str | None:
    """Return why the bundle kept beside *authority* cannot be published, or ``None``."""
    try:
        bundle = load_bundle(_file(stored.files, BUNDLE))
    except AuthorityError as error:
        return str(error)
    return None if authority.certificate in bundle else f"{BUNDLE} does not hold it"


def _file(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise AuthorityError(f"{name} is missing")
    return files[name]


def _unexpired(stored: Stored | None, now: datetime) -> bytes:
    """Return the certificates of an earlier bundle that may still be needed to verify what is being served."""
    if stored is None:
        return b""
    try:
        former = load_bundle(stored.files.get(BUNDLE, b""))
    except AuthorityError:
        return b""
    return b"".join(
        certificate.public_bytes(Encoding.PEM) for certificate in former if lifetime(certificate).not_after > now
    )
