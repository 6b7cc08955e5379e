"""Parts that the deterministic tests share: kinds, seeded sources, short requests."""

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.clock import EPOCH
from tests.deterministic.field_types import FREE, FREE_OBJECT, NUMBER, MapType, Type, declared_object
from tests.deterministic.objects import CONFIGMAPS, LEASES, Kind, Object
from tests.deterministic.parsing import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request
from tests.deterministic.reads import Response
from tests.deterministic.statuses import Violation


def _size_is_integer(obj: Object) -> Sequence[Violation]:
    """Return what the schema of Things finds."""
    if "spec" in obj and obj["spec"] is None:
        return [_wrong_type("spec", "object", "null")]
    size = (obj.get("spec") or {}).get("size", 0)
    return [] if isinstance(size, int) else [_wrong_type("spec.size", "integer", "string")]


def _wrong_type(field: str, expected: str, actual: str) -> Violation:
    message = f'Invalid value: "{actual}": {field} in body must be of type {expected}: "{actual}"'
    return Violation(field, "FieldValueTypeInvalid", message)


THINGS = Kind(
    "example.io",
    "v1",
    "things",
    "Thing",
    status=True,
    type=declared_object(spec=Type(MapType({"size": NUMBER}, FREE)), status=FREE_OBJECT),
    validate=_size_is_integer,
)

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
THINGS_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.io"},
    "spec": {
        "group": "example.io",
        "scope": "Namespaced",
        "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {**_OPEN, "properties": {"size": {"type": "integer"}}}, "status": _OPEN},
                    }
                },
            }
        ],
    },
}
"""The definition of Things for a real server."""

ROOTS = {
    "configmaps": "/api/v1/namespaces/ns/configmaps",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/ns/leases",
    "things": "/apis/example.io/v1/namespaces/ns/things",
}


@lru_cache(maxsize=64)
def timestamp(seconds: float) -> str:
    """Return a time of day, in seconds since the start."""
    return datetime.fromtimestamp(EPOCH + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def numbered_uids() -> Callable[[], str]:
    """Return a function that returns another UID with each call."""
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012x}"


def new_server(clock: Callable[[], float] = lambda: 0) -> ApiServer:
    """Return a server with the namespace ``ns``; *clock* returns seconds since the start."""
    server = ApiServer([CONFIGMAPS, LEASES, THINGS], now=lambda: timestamp(int(clock())), uid=numbered_uids())
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    return server


def content_type(kind: str) -> str:
    """Return the Content-Type of a body of this kind."""
    types = {"apply-patch": APPLY_PATCH, "json-patch": JSON_PATCH, "merge-patch": MERGE_PATCH}
    return types.get(kind, "application/json")


def request(method: str, path: str, body: Any = None, kind: str = "json", **query: str) -> Request:
    """Return a request; *kind* is ``json``, ``json-patch``, ``merge-patch`` or ``apply-patch``."""
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(method, path, query, raw, content_type(kind))


def send(server: ApiServer, method: str, path: str, body: Any = None, kind: str = "json", **query: str) -> Response:
    """Send one request to *server*."""
    return server.handle(request(method, path, body, kind, **query))


def thing(name: str, spec: Any = None, **metadata: Any) -> Object:
    body = {"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": name, **metadata}}
    return body if spec is None else {**body, "spec": spec}
