"""The garbage collector and the namespace controller: what they would request of a server in its present state."""

from collections.abc import Iterator
from typing import Any

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.objects import NAMESPACES, Kind, Object, path_of
from tests.deterministic.parsing import Request
from tests.deterministic.worlds import request


def cleanup(server: ApiServer) -> Iterator[Request]:
    """Yield the requests that are due; the caller sends any of them, in any order, and asks again."""
    # Events, of which there are most, own nothing and have no owners.
    kinds = [kind for kind in server.kinds if kind.name != "Event"]
    uids = {obj["metadata"]["uid"] for kind in kinds for obj in server.objects(kind).values()}
    for kind in kinds:
        for obj in server.objects(kind).values():
            metadata = obj["metadata"]
            if "ownerReferences" in metadata or "finalizers" in metadata or "deletionTimestamp" in metadata:
                yield from _of_object(server, kind, obj, uids)


def _of_object(server: ApiServer, kind: Kind, obj: Object, uids: set[str]) -> Iterator[Request]:
    metadata = obj["metadata"]
    owners, finalizers = metadata.get("ownerReferences", ()), metadata.get("finalizers", ())
    if kind == NAMESPACES and "deletionTimestamp" in metadata:
        yield from _of_namespace(server, obj)
    elif owners and "deletionTimestamp" not in metadata and not any(owner["uid"] in uids for owner in owners):
        yield _delete(kind, obj)
    elif "foregroundDeletion" in finalizers or "orphan" in finalizers:
        dependents = list(_dependents(server, metadata["uid"]))
        for dependent_kind, dependent in dependents:
            if "orphan" in finalizers:
                yield _patch(dependent_kind, dependent, ownerReferences=_without(dependent, metadata["uid"]))
            elif "deletionTimestamp" not in dependent["metadata"]:
                yield _delete(dependent_kind, dependent)
        if not dependents:
            rest = [name for name in finalizers if name not in {"foregroundDeletion", "orphan"}]
            yield _patch(kind, obj, finalizers=rest)


def _of_namespace(server: ApiServer, namespace: Object) -> Iterator[Request]:
    name = namespace["metadata"]["name"]
    inside = [
        (kind, obj) for kind in server.kinds for key, obj in server.objects(kind).items() if key[0] == name and key[0]
    ]
    for kind, obj in inside:
        if "deletionTimestamp" not in obj["metadata"]:
            yield _delete(kind, obj)
    if not inside:
        yield request("PUT", f"{_path(NAMESPACES, namespace)}/finalize", {**namespace, "spec": {}})


def _dependents(server: ApiServer, uid: str) -> Iterator[tuple[Kind, Object]]:
    for kind in server.kinds:
        for obj in server.objects(kind).values():
            if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences", ())):
                yield kind, obj


def _without(dependent: Object, uid: str) -> list[Any]:
    return [owner for owner in dependent["metadata"]["ownerReferences"] if owner["uid"] != uid]


def _path(kind: Kind, obj: Object) -> str:
    return path_of(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _delete(kind: Kind, obj: Object) -> Request:
    options = {"preconditions": {"uid": obj["metadata"]["uid"]}, "propagationPolicy": "Background"}
    return request("DELETE", _path(kind, obj), options)


def _patch(kind: Kind, obj: Object, **metadata: Any) -> Request:
    identity = {key: obj["metadata"][key] for key in ("uid", "resourceVersion")}
    return request("PATCH", _path(kind, obj), {"metadata": {**identity, **metadata}}, "merge-patch")
