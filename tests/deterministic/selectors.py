"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Match = Callable[[Mapping[str, Any]], bool]
"""Whether an object is selected."""

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<not>!)?\s*(?P<name>[\w./-]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[\w.-]*))?)\s*(?:,|$)"
)


class SelectorError(ValueError):
    """A selector that cannot be parsed."""


def match_all(_: Mapping[str, Any]) -> bool:
    return True


def label_selector(text: str) -> Match:
    """Return the predicate of a label selector."""
    requirements, at = [], 0
    while at < len(text):
        parsed = _REQUIREMENT.match(text, at)
        if parsed is None:
            raise SelectorError(f"unable to parse requirement: {text[at:]}")
        requirements.append(_requirement(parsed))
        at = parsed.end()
    return lambda obj: all(matches(obj["metadata"].get("labels") or {}) for matches in requirements)


def _requirement(parsed: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    if parsed["set"]:
        key, values = parsed["key"], {value.strip() for value in parsed["values"].split(",")}
        if parsed["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    name, value = parsed["name"], parsed["value"]
    if parsed["op"] is None:
        return lambda labels: (name in labels) != bool(parsed["not"])
    if parsed["op"] == "!=":
        return lambda labels: labels.get(name) != value
    return lambda labels: labels.get(name) == value


FieldTerm = tuple[str, str, bool]
"""Field, value, and whether they must be equal."""


def field_terms(text: str) -> list[FieldTerm]:
    """Return the terms of a field selector."""
    terms = []
    for term in filter(None, text.split(",")):
        parts = re.split(r"==|!=|=", term, maxsplit=1)
        if len(parts) < 2:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((parts[0], parts[1], "!=" not in term))
    return terms


def field_selector(terms: Sequence[FieldTerm], *, builtin: bool) -> Match:
    """Return the predicate of a field selector on name and namespace, the only fields that all kinds have."""
    for name, _, _ in terms:
        if name not in {"metadata.name", "metadata.namespace"}:
            only = f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            raise SelectorError(only if builtin else f"field label not supported: {name}")
    wanted = [(name.partition(".")[2], value, equal) for name, value, equal in terms]
    return lambda obj: all((obj["metadata"].get(name, "") == value) is equal for name, value, equal in wanted)
