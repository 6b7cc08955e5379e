"""Reads X.509 certificates that others may have written, in any form."""

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
