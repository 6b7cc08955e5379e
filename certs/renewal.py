"""Decides when a certificate must be renewed."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Validity of an issued certificate, in UTC."""

    not_before: datetime
    not_after: datetime

    def renewal_time(self) -> datetime:
        """Return when two thirds of the lifetime have passed, which leaves time for retries."""
        return self.not_before + (self.not_after - self.not_before) * 2 / 3


def reason_to_renew(leaf: Lifetime, issuer: Lifetime, now: datetime) -> str | None:
    """Return why *leaf* must be replaced at *now*, or ``None`` while it is valid long enough.

    A leaf is replaced after two thirds of its lifetime, and at once when it would outlive its issuer, so that every
    served certificate has a valid chain. A CA is its own issuer.
    """
    if leaf.not_after > issuer.not_after:
        return "it outlives its issuer"
    if now < leaf.not_before:
        return "it is not valid yet"
    if now >= leaf.renewal_time():
        return "two thirds of its lifetime have passed"
    return None


def reason_to_reissue(names: frozenset[str], required: frozenset[str]) -> str | None:
    """Return why a leaf for *names* does not cover the *required* names, or ``None``; extra names are harmless."""
    if missing := sorted(required - names):
        return f"it does not cover {', '.join(missing)}"
    return None
