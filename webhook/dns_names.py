"""Validates Kubernetes names by character sets, since regular expressions can be slow on hostile input."""

from string import ascii_lowercase, ascii_uppercase, digits

_EDGE_CHARACTERS = frozenset(ascii_lowercase + digits)
_INNER_CHARACTERS = _EDGE_CHARACTERS | {"-"}
_QUALIFIED_EDGES = _EDGE_CHARACTERS | frozenset(ascii_uppercase)
_QUALIFIED_INNER = _QUALIFIED_EDGES | frozenset("-_.")

MAX_LABEL_LENGTH = 63
MAX_NAME_LENGTH = 253


def is_label(text: str) -> bool:
    """Return whether *text* is a DNS label: lower-case letters, digits and inner dashes."""
    return 0 < len(text) <= MAX_LABEL_LENGTH and _is_made_of(text, _EDGE_CHARACTERS, _INNER_CHARACTERS)


def is_subdomain(text: str) -> bool:
    """Return whether *text* is a DNS subdomain: labels joined by dots."""
    return 0 < len(text) <= MAX_NAME_LENGTH and all(
        _is_made_of(part, _EDGE_CHARACTERS, _INNER_CHARACTERS) for part in text.split(".")
    )


def is_label_value(text: str) -> bool:
    """Return whether *text* is a valid label value; pods carry their name and their job's name as labels."""
    return 0 < len(text) <= MAX_LABEL_LENGTH and _is_made_of(text, _QUALIFIED_EDGES, _QUALIFIED_INNER)


def _is_made_of(text: str, edges: frozenset[str], inner: frozenset[str]) -> bool:
    return bool(text) and text[0] in edges and text[-1] in edges and inner.issuperset(text)
