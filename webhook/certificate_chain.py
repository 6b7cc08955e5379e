"""Verifies that a certificate chain leads to a CA of a bundle, regardless of names and validity."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

#: A leaf, intermediate certificates and a root.
_MAX_LENGTH = 5


def is_trusted(chain: Sequence[x509.Certificate], bundle: Sequence[x509.Certificate]) -> bool:
    """Return whether *chain*, which begins with the leaf, leads to a certificate of *bundle*."""
    if not chain:
        return False
    certificate, intermediates = chain[0], chain[1:]
    for _ in range(_MAX_LENGTH):
        if any(_is_issued_by(authority, certificate) for authority in bundle):
            return True
        issuer = next((candidate for candidate in intermediates if _is_issued_by(candidate, certificate)), None)
        if issuer is None or issuer == certificate:
            return False
        certificate = issuer
    return False


def _is_issued_by(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
