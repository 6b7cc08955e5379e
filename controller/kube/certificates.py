"""Reads X.509 certificates that others may have written, in any form."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises for certificates and keys that it cannot read, some of it only when a part is read."""

#: A leaf, intermediate certificates and a root.
_MAX_LENGTH = 5


def load_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates in *pem*; raise ``ValueError`` if one cannot be read."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except UNREADABLE as error:
        raise ValueError(str(error)) from error


def is_issued_by(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    """Return whether *authority* signed *leaf*."""
    try:
        leaf.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def is_trusted(chain: Sequence[x509.Certificate], bundle: Sequence[x509.Certificate]) -> bool:
    """Return whether *chain*, which begins with the leaf, leads to a certificate of *bundle*."""
    if not chain:
        return False
    certificate, intermediates = chain[0], chain[1:]
    for _ in range(_MAX_LENGTH):
        if any(is_issued_by(authority, certificate) for authority in bundle):
            return True
        issuer = next((candidate for candidate in intermediates if is_issued_by(candidate, certificate)), None)
        if issuer is None or issuer == certificate:
            return False
        certificate = issuer
    return False
