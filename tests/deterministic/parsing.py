"""Requests to an API server: their bodies, options, selectors and continue tokens."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deterministic.field_types import CUSTOM_OBJECT, declared_object, known_fields
from tests.deterministic.objects import Key, Kind, Object, with_metadata
from tests.deterministic.selectors import Match, SelectorError, field_selector, field_terms, label_selector, match_all
from tests.deterministic.statuses import StatusError, bad_request

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


def decode_object(kind: Kind, body: bytes, validation: str = "") -> Object:
    """Return the object in *body* without unknown fields, which a *validation* of ``Strict`` rejects."""
    unrecognized = f"the object provided is unrecognized (must be of type {kind.name})"
    try:
        obj = json.loads(body)
    except ValueError:
        why = f"couldn't get version/kind; json parse error: unexpected end of JSON input ({body.decode()})"
        raise bad_request(f"{unrecognized}: {why}") from None
    if not isinstance(obj, dict):
        raise bad_request(f"{unrecognized}: couldn't get version/kind; json parse error")
    if not kind.builtin and not obj.get("kind"):
        text = body.decode()
        missing = f"Object 'Kind' is missing in '{text}'"
        if validation == "Ignore":
            raise bad_request(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {missing}')
        raise bad_request(f"{unrecognized}: {missing} ({text if len(text) <= 30 else f'{text[:30]} ...'})")
    version, name = str(obj.get("apiVersion") or kind.api_version), str(obj.get("kind") or kind.name)
    declared = kind.type
    if not kind.builtin and (version, name) != (kind.api_version, kind.name):
        declared = declared_object() if name == kind.name else CUSTOM_OBJECT
    known, unknown = known_fields(declared, obj)
    if unknown and validation == "Strict":
        shown = ", ".join(f'unknown field "{field}"' for field in unknown_order(kind, unknown))
        why = f'{name} in version "{version.rpartition("/")[2]}" cannot be handled as a {name}'
        raise bad_request(f"{why}: strict decoding error: {shown}")
    _check_types(kind, obj)
    return with_unique_owners(known)


def unknown_order(kind: Kind, unknown: list[str]) -> list[str]:
    """Return unknown fields in the order in which errors list them: of built-in kinds, that of the document."""
    return unknown if kind.builtin else sorted(unknown, key=lambda field: (not field.startswith("metadata."), field))


def with_unique_owners(obj: Object) -> Object:
    """Return *obj* without repeated owner references."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or []
    unique = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    return obj if unique == owners else with_metadata(obj, ownerReferences=unique)


def _check_types(kind: Kind, obj: Object) -> None:
    if obj.get("apiVersion", kind.api_version) != kind.api_version:
        given = obj["apiVersion"]
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({kind.api_version})"
        )


def decode_applied(kind: Kind, body: bytes) -> Object:
    try:
        obj = json.loads(body)
    except ValueError:
        raise bad_request("error decoding YAML: unexpected end of JSON input") from None
    if not isinstance(obj, dict) or not obj.get("kind"):
        raise bad_request("invalid object type: /, Kind=")
    _check_types(kind, obj)
    return {**obj, "metadata": obj.get("metadata") or {}}


def require_name(obj: Object, name: str) -> None:
    given = (obj.get("metadata") or {}).get("name")
    if given and given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def rejected_patch_type(patch: Any, expected: str) -> StatusError:
    """Return the error of a patch that is not of the *expected* Go type."""
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {go_type(patch)} into Go value of type {expected}"
    )


def go_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return names.get(type(value), "number")


def selection(kind: Kind, query: Mapping[str, str], check: Callable[[Mapping[str, str]], None]) -> Match:
    """Return the predicate of both selectors; *check* rejects other options, before unknown fields are rejected."""
    try:
        labels, terms = label_selector(query.get("labelSelector", "")), field_terms(query.get("fieldSelector", ""))
        check(query)
        fields = field_selector(terms, builtin=kind.builtin) if terms else match_all
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return lambda obj: labels(obj) and fields(obj)


def names_one(query: Mapping[str, str], namespace: str) -> bool:
    """Return whether the server reads a single object instead of pages."""
    selector = query.get("fieldSelector", "")
    return bool(namespace) and selector.startswith("metadata.name=") and "," not in selector


def parse_integer(text: str) -> int:
    if text and not text.isdecimal():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def parse_version(text: str, prefix: str) -> int:
    if text and not text.isdecimal():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(prefix + why)
    return int(text or 0)


def continue_token(version: int, after: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": f"{'/'.join(filter(None, after))}\0"})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_continue_token(token: str) -> tuple[int, Key]:
    try:
        read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = read["start"].rstrip("\0").rpartition("/")
        return int(read["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
