"""Random sequences of the requests that the system makes, for two API servers.

A request refers to versions and UIDs by markers, which each side replaces by what its own server returned.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.deterministic.worlds import ROOTS

UID, VERSION, OLD_VERSION = "@uid", "@version", "@old-version"

_HEADS = {
    "things": ("example.io/v1", "Thing"),
    "configmaps": ("v1", "ConfigMap"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}
_FINALIZERS = (
    ["example.io/x"],
    ["example.io/x", "example.io/y"],
    ["example.io/y", "example.io/x"],
)


@dataclass(frozen=True)
class Call:
    """A request with markers; *of* names the object that they mean, which is *name* by default."""

    method: str
    plural: str
    name: str = ""
    subresource: str = ""
    body: Any = None
    kind: str = "json"
    query: tuple[tuple[str, str], ...] = ()
    of: str = ""

    @property
    def path(self) -> str:
        return "/".join(filter(None, (ROOTS[self.plural], self.name, self.subresource)))


def calls(seed: int, count: int) -> Iterator[Call]:
    """Yield *count* random requests to three names of three kinds."""
    rng = random.Random(seed)
    for _ in range(count):
        plural = rng.choice(["things", "things", "configmaps", "leases"])
        make = rng.choices(*zip(*_MAKERS, strict=True))[0]
        yield make(rng, plural, rng.choice("abc"))


def _content(rng: random.Random, plural: str) -> dict[str, Any]:
    if rng.random() < 0.04:
        return {"data": {}} if plural == "configmaps" else {"spec": {}}
    if plural == "configmaps":
        return {"data": {key: str(rng.randint(1, 2)) for key in rng.sample("xyz", rng.randint(1, 3))}}
    if plural == "leases":
        spec = {"holderIdentity": rng.choice(["h1", "h2"]), "leaseDurationSeconds": rng.randint(1, 2)}
        return {"spec": {key: spec[key] for key in rng.sample(sorted(spec), rng.randint(1, 2))}}
    spec = {"size": rng.randint(1, 3), "b": {"c": rng.randint(1, 2), "d": 1}, "l": [rng.randint(1, 2)], "t": "x"}
    if rng.random() < 0.05:
        spec |= {"b": {}, "l": []}
    chosen = {key: spec[key] for key in rng.sample(sorted(spec), rng.randint(1, 4))}
    return {"spec": chosen} | ({"status": {"ready": rng.randint(1, 2)}} if rng.random() < 0.3 else {})


def _metadata(rng: random.Random, name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if rng.random() < 0.5:
        metadata["labels"] = {"g": str(rng.randint(1, 2))}
    if rng.random() < 0.15:
        metadata["finalizers"] = rng.choice(_FINALIZERS)
    if rng.random() < 0.15:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": f"u{rng.randint(1, 2)}"}
        metadata["ownerReferences"] = [owner]
    if rng.random() < 0.05:
        metadata["annotations"] = {"n": "1"}
    return metadata


def _object(rng: random.Random, plural: str, name: str) -> dict[str, Any]:
    api_version, kind = _HEADS[plural]
    return {"apiVersion": api_version, "kind": kind, "metadata": _metadata(rng, name), **_content(rng, plural)}


def _options(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Return the options of an update: the server asks for what a webhook is to review with a dry run."""
    return (("dryRun", "All"),) if rng.random() < 0.1 else ()


def _subresource(rng: random.Random, plural: str) -> str:
    return "status" if plural == "things" and rng.random() < 0.3 else ""


def _create(rng: random.Random, plural: str, name: str) -> Call:
    return Call("POST", plural, body=_object(rng, plural, name if rng.random() < 0.95 else "B_"))


def _get(rng: random.Random, plural: str, name: str) -> Call:
    return Call("GET", plural, name, _subresource(rng, plural))


def _put(rng: random.Random, plural: str, name: str) -> Call:
    plural = "things" if plural == "leases" else plural  # a PUT would create a Lease
    body = _object(rng, plural, name)
    body["metadata"]["resourceVersion"] = rng.choice([VERSION, VERSION, VERSION, OLD_VERSION])
    return Call("PUT", plural, name, _subresource(rng, plural), body, query=_options(rng))


def _operations(rng: random.Random, plural: str) -> list[dict[str, Any]]:
    field_path = {"things": "/spec/size", "configmaps": "/data/x", "leases": "/spec/holderIdentity"}[plural]
    value: Any = rng.randint(1, 3) if plural == "things" else str(rng.randint(1, 2))
    pool = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": VERSION},
        {"op": "test", "path": "/metadata/resourceVersion", "value": OLD_VERSION},
        {"op": "test", "path": field_path, "value": value},
        {"op": "test", "path": "/status", "value": None},
        {"op": "test", "path": "/no/such/path", "value": None},
        {"op": "test", "path": "/metadata/uid", "value": UID},
        {"op": "add", "path": field_path, "value": value},
        {"op": "add", "path": field_path, "value": value},
        {"op": "replace", "path": field_path, "value": value},
        {"op": "remove", "path": field_path},
        {"op": "add", "path": "/metadata/labels", "value": {"g": "1"}},
        {"op": "add", "path": "/metadata/labels/h~1i", "value": "1"},
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.io/x"]},
        {"op": "remove", "path": "/metadata/finalizers"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": OLD_VERSION},
    ]
    if plural == "things":
        pool += [
            {"op": "add", "path": "/status", "value": {"ready": value}},
            {"op": "add", "path": "/spec/l/-", "value": value},
            {"op": "remove", "path": "/spec/l/0"},
        ]
    return rng.sample(pool, rng.choice([0, 1, 1, 2, 2, 3]))


def _json_patch(rng: random.Random, plural: str, name: str) -> Call:
    body = _operations(rng, plural)
    return Call("PATCH", plural, name, _subresource(rng, plural), body, "json-patch", _options(rng))


def _merge_patch(rng: random.Random, plural: str, name: str) -> Call:
    body: dict[str, Any] = _content(rng, plural)
    metadata = {key: value for key, value in _metadata(rng, name).items() if key != "name"}
    if rng.random() < 0.3:
        metadata |= rng.choice(
            [{"labels": None}, {"finalizers": None}, {"labels": {"g": None, "k": "1"}}, {"finalizers": []}]
        )
    if rng.random() < 0.2:
        metadata["resourceVersion"] = rng.choice([VERSION, OLD_VERSION])
    if plural == "configmaps" and rng.random() < 0.3:
        body = {"data": rng.choice([None, {"x": None}])}
    body["metadata"] = metadata
    return Call("PATCH", plural, name, _subresource(rng, plural), body, "merge-patch", _options(rng))


def _apply(rng: random.Random, plural: str, name: str) -> Call:
    body, subresource = _object(rng, plural, name), _subresource(rng, plural)
    if subresource:
        body = {key: value for key, value in body.items() if key != "spec"} | {
            "status": {rng.choice("xy"): rng.randint(1, 2)}
        }
    if finalizers := body["metadata"].get("finalizers"):
        body["metadata"]["finalizers"] = finalizers[:1]
    if rng.random() < 0.1:
        body["metadata"]["uid"] = UID
    query = (("fieldManager", rng.choice(["m1", "m2"])), ("force", rng.choice(["true", "false"])))
    return Call("PATCH", plural, name, subresource, body, "apply-patch", (*_options(rng), *query))


def _delete(rng: random.Random, plural: str, name: str) -> Call:
    options: dict[str, Any] = {"propagationPolicy": "Background"} if rng.random() < 0.6 else {}
    if rng.random() < 0.3:
        options["preconditions"] = rng.choice([{"uid": UID}, {"uid": "other"}, {"resourceVersion": VERSION}])
    return Call("DELETE", plural, name, body=options or None)


def _list(rng: random.Random, plural: str, name: str) -> Call:
    query: dict[str, str] = {}
    if rng.random() < 0.4:
        query["labelSelector"] = rng.choice(["g=1", "g", "!g", "g=1,!k"])
    if rng.random() < 0.7:
        query["limit"] = str(rng.randint(1, 3))
    if rng.random() < 0.3:
        # The versions are those that answers showed of one object.
        query |= {"resourceVersion": rng.choice([VERSION, OLD_VERSION]), "resourceVersionMatch": "Exact"}
    return Call("GET", plural, name="", of=name, query=tuple(query.items()))


_MAKERS = [
    (_create, 5),
    (_get, 1),
    (_put, 3),
    (_json_patch, 5),
    (_merge_patch, 3),
    (_apply, 4),
    (_delete, 2),
    (_list, 2),
]
