"""When a certificate must be renewed.

Pure: the clock is a parameter, nothing is read or written here.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The validity of an issued certificate, both ends in UTC."""

    not_before: datetime
    not_after: datetime

    def renewal_time(self) -> datetime:
        """Return when two thirds of it are over: late enough to be rare, early enough to be retried for long."""
        return self.not_before + (self.not_after - self.not_before) * 2 / 3


def reason_to_renew(leaf: Lifetime, issuer: Lifetime, now: datetime) -> str | None:
    """Return why *leaf* must be replaced at *now*, or ``None`` while it is good.

    A leaf is replaced after two thirds of its life, and at once when it would outlive its issuer, so that no served
    certificate ever lacks a valid chain. An authority is its own issuer.
    """
    if leaf.not_after > issuer.not_after:
        return "it outlives its issuer"
    if now < leaf.not_before:
        return "it is not valid yet"
    if now >= leaf.renewal_time():
        return "two thirds of its life are over"
    return None


def reason_to_reissue(names: frozenset[str], required: frozenset[str]) -> str | None:
    """Return why a leaf made out to *names* does not serve those *wanted*, or ``None``; more names do no harm."""
    if missing := sorted(required - names):
        return f"it is not made out to {', '.join(missing)}"
    return None
