"""Label selectors as kubectl takes them with ``-l``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.cli.errors import InputError

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|"
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_SEPARATOR = re.compile(r",(?![^(]*\))")

Requirement = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector; all requirements must hold."""

    text: str
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with *labels* is selected."""
        return all(requirement(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Return the selector in *text*; raise `InputError`."""
    return Selector(text, tuple(_requirement(part.strip(), text) for part in _SEPARATOR.split(text)))


def _requirement(part: str, text: str) -> Requirement:
    if match := _EQUAL.fullmatch(part):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _SET.fullmatch(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        return lambda labels: (labels.get(key) in values) == (operator == "in")
    if match := _EXISTS.fullmatch(part):
        absent, key = match.groups()
        return lambda labels: (key not in labels) == bool(absent)
    raise InputError(f"-l {text!r}: {part!r} is not a requirement; write a=b, a!=b, a, !a, a in (b,c) or a notin (b,c)")
