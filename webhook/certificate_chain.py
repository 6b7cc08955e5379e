"""Whether who trusts a bundle believes a certificate; asks no clock and no name, which a handshake tells sooner."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

#: A serving certificate, some intermediate ones, and the authority.
_MAX_LENGTH = 5


def is_trusted(chain: Sequence[x509.Certificate], bundle: Sequence[x509.Certificate]) -> bool:
    """Say whether the served *chain*, whose first is the leaf, leads to a certificate of *bundle*."""
    if not chain:
        return False
    link, others = chain[0], chain[1:]
    for _ in range(_MAX_LENGTH):
        if any(_is_issued_by(authority, link) for authority in bundle):
            return True
        above = next((other for other in others if _is_issued_by(other, link)), None)
        if above is None or above == link:
            return False
        link = above
    return False


def _is_issued_by(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
