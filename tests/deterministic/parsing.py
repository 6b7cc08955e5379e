"""Requests to an API server: their bodies, options, selectors and continue tokens."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deterministic import statuses
from tests.deterministic.objects import Key, Kind, Object
from tests.deterministic.selectors import Match, SelectorError, field_selector, label_selector, match_all
from tests.deterministic.statuses import StatusError, Violation, bad_request

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_POLICIES = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    metadata_only: bool = False
    user_agent: str = "unknown"


def decode_object(kind: Kind, body: bytes) -> Object:
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
        why = f"Object 'Kind' is missing in '{text}' ({text if len(text) <= 30 else f'{text[:30]} ...'})"
        raise bad_request(f"{unrecognized}: {why}")
    _check_types(kind, obj)
    return obj


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


def delete_options(request: Request) -> Object:
    try:
        body = json.loads(request.body) if request.body else {}
    except ValueError:
        raise bad_request("couldn't get version/kind; json parse error: unexpected end of JSON input") from None
    # With a body, the server ignores the query.
    options = body or {key: request.query[key] for key in ("propagationPolicy", "dryRun") if key in request.query}
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{name}"' for name in (*_POLICIES, "nil"))
        why = f'Unsupported value: "{policy}": supported values: {supported}'
        violation = Violation("propagationPolicy", "FieldValueNotSupported", why)
        raise statuses.invalid("meta.k8s.io", "DeleteOptions", "", [violation])
    return options


def rejected_patch_type(patch: Any, expected: str) -> StatusError:
    """Return the error of a patch that is not of the *expected* Go type."""
    return bad_request(
        f"error decoding patch: json: cannot unmarshal {go_type(patch)} into Go value of type {expected}"
    )


def go_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return names.get(type(value), "number")


def selection(kind: Kind, query: Mapping[str, str]) -> Match:
    try:
        labels, fields = label_selector(query.get("labelSelector", "")), match_all
        if query.get("fieldSelector"):
            fields = field_selector(query["fieldSelector"], builtin=kind.builtin)
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


def unsupported_dry_run(request: Request) -> StatusError:
    names = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
    why = f'Unsupported value: ["{request.query["dryRun"]}"]: supported values: "All"'
    violation = Violation("dryRun", "FieldValueNotSupported", why)
    return statuses.invalid("meta.k8s.io", names.get(request.method, "GetOptions"), "", [violation])
