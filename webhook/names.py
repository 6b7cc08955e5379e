"""Which texts Kubernetes takes as names; reads them character by character, for a pattern can be made to take long."""

from string import ascii_lowercase, ascii_uppercase, digits

_EDGES = frozenset(ascii_lowercase + digits)
_INNER = _EDGES | {"-"}
_QUALIFIED_EDGES = _EDGES | frozenset(ascii_uppercase)
_QUALIFIED_INNER = _QUALIFIED_EDGES | frozenset("-_.")

LONGEST_LABEL = 63
LONGEST_NAME = 253


def is_label(text: str) -> bool:
    """Say whether *text* is a DNS label: small letters, digits and inner dashes."""
    return 0 < len(text) <= LONGEST_LABEL and _consists(text, _EDGES, _INNER)


def is_subdomain(text: str) -> bool:
    """Say whether *text* is a DNS name: labels joined by dots."""
    return 0 < len(text) <= LONGEST_NAME and all(_consists(part, _EDGES, _INNER) for part in text.split("."))


def is_qualified(text: str) -> bool:
    """Say whether *text* can be the value of a label, which pods get their names and their job's name as."""
    return 0 < len(text) <= LONGEST_LABEL and _consists(text, _QUALIFIED_EDGES, _QUALIFIED_INNER)


def _consists(text: str, edges: frozenset[str], inner: frozenset[str]) -> bool:
    return bool(text) and text[0] in edges and text[-1] in edges and inner.issuperset(text)
