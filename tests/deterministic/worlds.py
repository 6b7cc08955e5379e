"""Parts that the deterministic tests share: kinds, seeded sources, short requests."""

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.clock import EPOCH
from tests.deterministic.field_types import FREE_OBJECT, declared_object
from tests.deterministic.objects import CONFIGMAPS, LEASES, Kind, Object, path_of
from tests.deterministic.parsing import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request
from tests.deterministic.reads import Response

THINGS = Kind(
    "example.io", "v1", "things", "Thing", status=True, type=declared_object(spec=FREE_OBJECT, status=FREE_OBJECT)
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
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
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


def deletions_of_orphans(server: ApiServer) -> Iterator[Request]:
    """Yield the deletions that the garbage collector would request: of objects whose owners are gone."""
    # Events, of which there are most, own nothing and have no owners.
    kinds_with_owners = [kind for kind in server.kinds if kind.name != "Event"]
    uids = {obj["metadata"]["uid"] for kind in kinds_with_owners for obj in server.objects(kind).values()}
    for kind in kinds_with_owners:
        for (namespace, name), obj in server.objects(kind).items():
            owners = obj["metadata"].get("ownerReferences", ())
            if (
                owners
                and "deletionTimestamp" not in obj["metadata"]
                and not any(owner["uid"] in uids for owner in owners)
            ):
                options = {"preconditions": {"uid": obj["metadata"]["uid"]}, "propagationPolicy": "Background"}
                yield request("DELETE", path_of(kind, namespace, name), options)


def thing(name: str, spec: Any = None, **metadata: Any) -> Object:
    body = {"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": name, **metadata}}
    return body if spec is None else {**body, "spec": spec}
