"""Requests to an API server: their selectors and continue tokens."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.deterministic.objects import Key, Object
from tests.deterministic.watches import Match

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    metadata_only: bool = False
    user_agent: str = "unknown"
    reviewed: Object | None = None
    """What an apply is to store as webhooks have changed it, but for its metadata."""


def selection(query: Mapping[str, str]) -> Match:
    """Return the predicate of both selectors: labels as in `a,!b,c=d`, and the name of an object."""
    labels, names = (_terms(query.get(name, "")) for name in ("labelSelector", "fieldSelector"))
    assert {name for name, _, _ in names} <= {"metadata.name"}
    if not labels and not names:
        return lambda _: True

    def matches(obj: Mapping[str, Object]) -> bool:
        mine = obj["metadata"].get("labels") or {}
        return all(obj["metadata"]["name"] == name for _, _, name in names) and all(
            mine.get(key) == value if equal else (key.removeprefix("!") in mine) != key.startswith("!")
            for key, equal, value in labels
        )

    return matches


def _terms(selector: str) -> list[tuple[str, str, str]]:
    return [term.partition("=") for term in selector.split(",") if term]


def continue_token(version: int, after: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{'/'.join(filter(None, after))}\0"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_continue_token(token: str) -> tuple[int, Key]:
    read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    namespace, _, name = read["start"].rstrip("\0").rpartition("/")
    return int(read["rv"]), (namespace, name)
