"""Random request sequences for two API servers.

A request refers to versions and UIDs by markers, which each side replaces by what its own server returned.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.deterministic.worlds import ROOTS

UID, VERSION, OLD_VERSION = "@uid", "@version", "@old-version"
GENERATED = "@generated"
"""The name that the server generated last."""

_HEADS = {
    "things": ("example.io/v1", "Thing"),
    "configmaps": ("v1", "ConfigMap"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}
_FINALIZERS = (
    ["example.io/x"],
    ["example.io/x", "example.io/y"],
    ["example.io/y", "example.io/x"],
    ["example.io/x", "example.io/y", "example.io/x"],
    ["orphan"],
)
_WRONG_SIZE = {"op": "replace", "path": "/spec/size", "value": "big"}
_POLICIES = (None, None, "Background", "Foreground", "Orphan")


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
        if rng.random() < 0.01:
            yield from rng.choice([_generated, _many_managers, _emptied])(rng, plural)


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
        metadata["labels"] = {"g": str(rng.randint(1, 2))} if rng.random() < 0.95 else {}
    if rng.random() < 0.15:
        metadata["finalizers"] = rng.choice(_FINALIZERS)
    if rng.random() < 0.15:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": f"u{rng.randint(1, 2)}"}
            for _ in range(rng.choice([1, 1, 1, 2]))
        ]
    if rng.random() < 0.05:
        metadata |= rng.choice(
            [{"managedFields": []}, {"managedFields": [{}]}, {"annotations": {"n": "1"}}, {"generateName": "g-"}]
        )
    return metadata


def _object(rng: random.Random, plural: str, name: str) -> dict[str, Any]:
    api_version, kind = _HEADS[plural]
    return {"apiVersion": api_version, "kind": kind, "metadata": _metadata(rng, name), **_content(rng, plural)}


def _dry_run(rng: random.Random) -> tuple[tuple[str, str], ...]:
    return (("dryRun", "All"),) if rng.random() < 0.1 else ()


def _options(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Return the options of a write."""
    query = dict(_dry_run(rng))
    if rng.random() < 0.15:
        query["fieldValidation"] = rng.choice(["Strict", "Strict", "Warn", "Ignore", "Never"])
    if rng.random() < 0.15:
        query["fieldManager"] = f"w{rng.randint(1, 12)}"
    return tuple(query.items())


def _unknown_fields(rng: random.Random, body: dict[str, Any]) -> None:
    """Add fields that no schema has to one body of ten."""
    if rng.random() < 0.1:
        body["extra"] = 1
    if rng.random() < 0.05:
        body["metadata"]["more"] = "x"


def _create(rng: random.Random, plural: str, name: str) -> Call:
    body = _object(rng, plural, name)
    match rng.randint(0, 15):
        case 0:
            body["metadata"] = {key: value for key, value in body["metadata"].items() if "ame" not in key}
        case 1:
            body["metadata"]["name"] = "B_"
        case 2:
            body["metadata"]["namespace"] = "other"
        case 3:
            body["metadata"]["resourceVersion"] = "123456789"
        case 4 if plural == "things":
            body["spec"]["size"] = "big"
        case 5 if plural == "things":
            body["kind"] = "Other"
        case 6 if plural == "things":
            body["apiVersion"] = "example.io/v2"
        case 7 if plural == "things":
            del body["kind"]
        case 8:
            return Call("POST", plural, body=b"{")
    _unknown_fields(rng, body)
    return Call("POST", plural, body=body, query=_options(rng))


def _generated(rng: random.Random, plural: str) -> Iterator[Call]:
    """Yield the requests of the life of an object with a generated name, of which one exists at a time."""
    body = _object(rng, plural, "")
    body["metadata"] = {"generateName": "generated-", "labels": {"g": "1"}}
    yield Call("POST", plural, body=body, query=_dry_run(rng))
    yield Call("GET", plural, GENERATED)
    yield Call("PATCH", plural, GENERATED, body={"metadata": {"labels": {"g": "2"}}}, kind="merge-patch")
    yield Call("DELETE", plural, GENERATED)


def _many_managers(rng: random.Random, plural: str) -> Iterator[Call]:
    """Yield updates by more managers than the server remembers."""
    name = rng.choice("abc")
    for number in range(1, 14):
        body = {"metadata": {"annotations": {f"n{number}": "1"}}}
        query = (("fieldManager", f"w{number}"),)
        yield Call("PATCH", plural, name, body=body, kind="merge-patch", query=query)
    yield _apply(rng, plural, name)


def _emptied(rng: random.Random, plural: str) -> Iterator[Call]:
    """Yield applies that remove the last label, and a write that changes nothing."""
    name = rng.choice("abc")
    yield Call("PATCH", plural, name, body={"metadata": {"labels": None}}, kind="merge-patch")
    for labels in ({"labels": {"g": "1"}}, {}):
        api_version, kind = _HEADS[plural]
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **labels}}
        query = (("fieldManager", "m1"), ("force", "true"))
        yield Call("PATCH", plural, name, body=body, kind="apply-patch", query=query)
    yield Call("PATCH", plural, name, body=[], kind="json-patch")


def _get(rng: random.Random, plural: str, name: str) -> Call:
    version = rng.choice([None, None, "0", VERSION, OLD_VERSION, "bad"])
    status = plural == "things" and rng.random() < 0.3
    query = (("resourceVersion", version),) if version else ()
    return Call("GET", plural, name, "status" if status else "", query=query)


def _put(rng: random.Random, plural: str, name: str) -> Call:
    body = _object(rng, plural, name if rng.random() < 0.95 else "other")
    version = rng.choice([VERSION, VERSION, VERSION, OLD_VERSION, None])
    if version:
        body["metadata"]["resourceVersion"] = version
    if rng.random() < 0.2:
        body["metadata"]["uid"] = rng.choice([UID, "99999999-2222-4333-8444-555555555555"])
    status = plural == "things" and rng.random() < 0.3
    _unknown_fields(rng, body)
    return Call("PUT", plural, name, "status" if status else "", body, query=_options(rng))


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
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.io/y"},
        {"op": "remove", "path": "/metadata/finalizers"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": OLD_VERSION},
        {"op": "replace", "path": "/metadata/name", "value": "other"},
        {"op": "unknown", "path": field_path},
        {"op": "add", "path": "/extra", "value": 1},
        {"op": "replace", "path": "/metadata/managedFields", "value": rng.choice([[], [{}]])},
    ]
    if plural == "things":
        pool += [
            {"op": "add", "path": "/status", "value": {"ready": value}},
            {"op": "add", "path": "/spec/l/-", "value": value},
            {"op": "remove", "path": "/spec/l/0"},
            {"op": "copy", "from": "/spec/size", "path": "/spec/copied"},
            {"op": "move", "from": "/spec/b", "path": "/spec/moved"},
            _WRONG_SIZE,
        ]
    return rng.sample(pool, rng.choice([0, 1, 1, 2, 2, 3]))


def _json_patch(rng: random.Random, plural: str, name: str) -> Call:
    status = plural == "things" and rng.random() < 0.3
    body: Any = _operations(rng, plural) if rng.random() < 0.95 else {"op": "add"}
    return Call("PATCH", plural, name, "status" if status else "", body, "json-patch", _options(rng))


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
    status = plural == "things" and rng.random() < 0.3
    body["metadata"] = metadata
    _unknown_fields(rng, body)
    return Call("PATCH", plural, name, "status" if status else "", body, "merge-patch", _options(rng))


def _apply(rng: random.Random, plural: str, name: str) -> Call:
    body = _object(rng, plural, name)
    status = plural == "things" and rng.random() < 0.3
    if status:
        body = {key: value for key, value in body.items() if key != "spec"} | {
            "status": {rng.choice("xy"): rng.randint(1, 2)}
        }
    if rng.random() < 0.1:
        body["metadata"] |= rng.choice([{"uid": UID}, {"resourceVersion": VERSION}, {"resourceVersion": OLD_VERSION}])
    query = {"fieldManager": rng.choice(["m1", "m2"]), "force": rng.choice(["true", "false"])}
    if rng.random() < 0.03:
        del query["fieldManager"]
    if plural == "things" and not status and rng.random() < 0.05:
        body["spec"]["size"] = "big"
    _unknown_fields(rng, body)
    options = dict(_options(rng)) | query
    return Call("PATCH", plural, name, "status" if status else "", body, "apply-patch", tuple(options.items()))


def _delete(rng: random.Random, plural: str, name: str) -> Call:
    options = _delete_options(rng)
    if rng.random() < 0.3:
        options["preconditions"] = rng.choice([{"uid": UID}, {"uid": "other"}, {"resourceVersion": VERSION}])
    query = dict(_dry_run(rng))
    if rng.random() < 0.1:
        query["propagationPolicy"] = rng.choice(["Background", "Foreground", "Orphan", "Other"])
    return Call("DELETE", plural, name, body=options or None, query=tuple(query.items()))


def _delete_options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if policy := rng.choice(_POLICIES):
        options["propagationPolicy"] = policy
    if rng.random() < 0.1:
        options["dryRun"] = ["All"]
    if rng.random() < 0.1:
        options["gracePeriodSeconds"] = rng.choice([0, 30])
    if rng.random() < 0.05:
        options["orphanDependents"] = rng.choice([True, False])
    return options


def _delete_collection(rng: random.Random, plural: str, name: str) -> Call:
    query = {**_selectors(rng, name), **dict(_dry_run(rng))}
    return Call("DELETE", plural, body=_delete_options(rng) or None, query=tuple(query.items()))


def _list(rng: random.Random, plural: str, name: str) -> Call:
    query = _selectors(rng, name)
    if rng.random() < 0.7:
        query["limit"] = str(rng.randint(1, 3))
    if rng.random() < 0.4:
        # The versions are those that answers showed of one object.
        query["resourceVersion"] = rng.choice(["0", VERSION, OLD_VERSION, "bad"])
    if rng.random() < 0.3:
        query["resourceVersionMatch"] = rng.choice(["Exact", "NotOlderThan", "Other"])
    return Call("GET", plural, name="", of=name, query=tuple(query.items()))


def _selectors(rng: random.Random, name: str) -> dict[str, str]:
    query: dict[str, str] = {}
    if rng.random() < 0.4:
        query["labelSelector"] = rng.choice(["g=1", "g!=1", "g", "!g", "g in (1,2),!k", "g notin (2)", "g==1,k"])
    if rng.random() < 0.2:
        fields = (f"metadata.name={name}", f"metadata.name!={name}", "spec.size=1", "metadata.namespace=ns")
        query["fieldSelector"] = rng.choice([*fields, f"metadata.name!={name},metadata.namespace!=other", "bad"])
    return query


_MAKERS = [
    (_create, 5),
    (_get, 1),
    (_put, 3),
    (_json_patch, 5),
    (_merge_patch, 3),
    (_apply, 4),
    (_delete, 2),
    (_delete_collection, 0.3),
    (_list, 2),
]
