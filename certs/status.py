"""What `status` prints: what is kept, what is published, and what replicas serve; changes nothing."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime

from cryptography import x509

from certs.authority import AuthorityError, issued, lifetime, load_bundle, names
from certs.replicas import served
from certs.rounds import read_all, utc_now
from certs.settings import Settings
from certs.store import Store
from certs.upkeep import AUTHORITY, CERTIFICATE, SERVING, Part, examine_authority, examine_leaf


def describe(store: Store, settings: Settings) -> Iterator[str]:
    """Yield a line about each certificate that is kept, each webhook it is published for, each replica."""
    now = utc_now()
    if settings.external:
        yield _kept_by_others(_leaf(store), now)
    else:
        authority = examine_authority(store, now)
        yield _kept(AUTHORITY, authority)
        yield _kept(SERVING, examine_leaf(store, authority, wanted=frozenset(settings.names), now=now))
    leaf = _leaf(store)
    for place, bundle in asyncio.run(read_all(settings)).items():
        yield f"published in {place}: {_cover(bundle, leaf)}"
    for address, found in served(settings.replica).items():
        yield f"replica {address}: {_served(found, leaf)}"


def _kept(name: str, part: Part) -> str:
    if part.pair is None:
        return f"{name}: must be renewed now: {part.reason}"
    due = part.pair.lifetime.due()
    then = f"must be renewed now: {part.reason}" if part.reason else f"to be renewed from {due:%Y-%m-%d %H:%M} UTC"
    return f"{name}: {_told(part.pair.certificate)}; {then}"


def _kept_by_others(chain: Sequence[x509.Certificate], now: datetime) -> str:
    """Return what is to be known of a certificate that is not ours to renew."""
    if not chain:
        return f"{SERVING}: kept by somebody else, and not there yet: see who should issue it"
    expired = "" if now < lifetime(chain[0]).ends else "; it has expired: see who should renew it"
    return f"{SERVING}: kept by somebody else, {_told(chain[0])}{expired}"


def _told(certificate: x509.Certificate) -> str:
    made_out = f", made out to {', '.join(sorted(names(certificate)))}" if names(certificate) else ""
    return f"valid until {lifetime(certificate).ends:%Y-%m-%d %H:%M} UTC{made_out}"


def _leaf(store: Store) -> list[x509.Certificate]:
    stored = store.read(SERVING)
    try:
        return load_bundle(stored.files.get(CERTIFICATE, b"")) if stored else []
    except AuthorityError:
        return []


def _cover(bundle: bytes, chain: list[x509.Certificate]) -> str:
    try:
        authorities = load_bundle(bundle) if bundle else []
    except AuthorityError as error:
        return f"{error}: run ensure"
    count = "1 CA" if len(authorities) == 1 else f"{len(authorities)} CAs"
    covered = any(issued(authority, each) for authority in authorities for each in chain)
    return f"{count}, {'covers' if covered else 'does not cover'} the serving certificate"


def _served(found: x509.Certificate | None, chain: list[x509.Certificate]) -> str:
    if found is None:
        return "does not answer"
    return "serves the newest certificate" if found in chain[:1] else "serves another certificate"
