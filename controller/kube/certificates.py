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
    """Return whether *chain*, which begins with the leaf, leads to a certificate of *bundle*.

    Several CAs may have signed one intermediate certificate, so that the chain has branches.
    """
    reached, others = list(chain[:1]), list(chain[1:])
    for _ in range(_MAX_LENGTH):
        if any(is_issued_by(authority, certificate) for authority in bundle for certificate in reached):
            return True
        reached = [issuer for issuer in others if any(is_issued_by(issuer, certificate) for certificate in reached)]
        others = [certificate for certificate in others if certificate not in reached]
    return False
