"""An in-memory Kubernetes API server: a state machine of requests in, responses and watch events out.

It has no clock and no randomness: time and UIDs come from the functions that it is constructed with. Its answers are
compared with those of the real kube-apiserver by `test_equivalence`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from tests.deterministic import statuses
from tests.deterministic.field_ownership import (
    ApplyConflictError,
    Manager,
    Ownership,
    Schema,
    Write,
    after_update,
    apply_fields,
    listed,
)
from tests.deterministic.json_patches import PatchError, json_patch, merge_patch
from tests.deterministic.objects import (
    CLIENT_METADATA,
    NAMESPACES,
    SERVER_METADATA,
    Kind,
    Object,
    empty_object,
    normalised,
    normalised_metadata,
    spec_of,
    with_metadata,
)
from tests.deterministic.parsing import APPLY_PATCH, MERGE_PATCH, Request
from tests.deterministic.reads import Reader, Response
from tests.deterministic.statuses import StatusError
from tests.deterministic.validation import Target, apply_conflict, check_preconditions, validate

OPTIONS = {
    *("continue", "limit", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"),
    *("watch", "allowWatchBookmarks", "timeoutSeconds"),
    *("dryRun", "fieldManager", "force", "timeout"),
}
"""What the system sends; the server has no other options of kube-apiserver."""


class ApiServer(Reader):
    """Serves *kinds*; ``handle`` processes one request."""

    def __init__(
        self, kinds: Iterable[Kind], *, now: Callable[[], str], uid: Callable[[], str], version: int = 1
    ) -> None:
        super().__init__(kinds, version)
        self._discovery = _discovery(self.kinds)
        self._target = lru_cache(maxsize=4096)(self._route)
        self._now = now
        self._uid = uid

    def target(self, path: str) -> Target | None:
        """Return what *path* names, ``None`` if it is not served."""
        try:
            return self._target(path)
        except StatusError:
            return None

    # -- requests ------------------------------------------------------------

    def handle(self, request: Request) -> Response:
        """Process one request; errors are responses too."""
        assert request.query.keys() <= OPTIONS, f"{request.path} has unknown options: {dict(request.query)}"
        try:
            if served := self._discovery.get(request.path):
                return Response(200, served)
            return self._dispatch(request, self._target(request.path))
        except StatusError as error:
            return Response(error.code, error.status)

    def _route(self, path: str) -> Target:
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise statuses.not_served()
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.get((group, version, rest[0]))
        plural, name, subresource = (*rest, "", "")[:3]
        served = {"", "status"} if kind and kind.status else {""}
        if kind is None or len(rest) > 3 or subresource not in served or plural != kind.plural:
            raise statuses.not_served()
        return Target(kind, namespace, name, subresource)

    def _dispatch(self, request: Request, target: Target) -> Response:  # noqa: PLR0911 -- one for each method
        match request.method:
            case "GET" if target.name:
                return Response(200, self._get(target))
            case "GET" if request.query.get("watch") == "true":
                return self.watch(request, target)
            case "GET":
                return self.list_objects(request, target)
            case "POST" if not target.name:
                return self._create(request, target, json.loads(request.body))
            case "PUT" if target.name:
                return Response(200, self._update(request, target, self._get(target), json.loads(request.body)))
            case "PATCH" if target.name:
                return self._patch(request, target)
            case "DELETE" if target.name:
                return self._delete(request, target)
        why = "the server does not allow this method on the requested resource"
        raise StatusError(405, "MethodNotAllowed", why, {})

    def _get(self, target: Target) -> Object:
        stored = self._objects[target.kind].get(target.key)
        if stored is None:
            raise statuses.not_found(target.kind.group, target.kind.plural, target.name)
        return stored

    # -- writes --------------------------------------------------------------

    def _create(self, request: Request, target: Target, body: Object, *, owners: Ownership | None = None) -> Response:
        kind = target.kind
        metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key in CLIENT_METADATA}
        name = metadata["name"]
        if kind.namespaced and ("", target.namespace) not in self._objects[NAMESPACES]:
            raise statuses.not_found("", "namespaces", target.namespace)
        metadata |= {"uid": self._uid(), "creationTimestamp": self._now()}
        if target.namespace:
            metadata["namespace"] = target.namespace
        if not kind.builtin:
            metadata["generation"] = 1
        obj = _created(kind, body, metadata)
        validate(kind, obj, None)
        existing = self._objects[kind].get((target.namespace, name))
        if existing is not None:
            deleting = "deletionTimestamp" in existing["metadata"]
            raise statuses.already_exists(kind.group, kind.plural, name, deleting=deleting)
        if "dryRun" in request.query:
            return Response(201, obj)
        if owners is None:
            owners = self._updated_owners(request, target, None, body) if kind.owners else {}
        return Response(201, self._store(kind, (target.namespace, name), obj, owners))

    def _updated_owners(self, request: Request, target: Target, current: Object | None, body: Object) -> Ownership:
        """Return the owners after a write that is no apply; ones that are not known are not tracked."""
        kind = target.kind
        before = self._owners.get(current["metadata"]["uid"], {}) if current else {}
        if current and not before:
            return {}
        requested = normalised(kind, {"apiVersion": kind.api_version, "kind": kind.name, **body})
        requested["metadata"] = normalised_metadata(body.get("metadata") or {})
        write = Write(_schema(target), _manager(request, kind, "Update", target.subresource), self._now())
        return after_update(write, before, current or empty_object(kind), requested)

    def _patch(self, request: Request, target: Target) -> Response:
        if request.content_type == APPLY_PATCH:
            return self._apply(request, target)
        current, patch = self._get(target), json.loads(request.body)
        try:
            patched = (merge_patch if request.content_type == MERGE_PATCH else json_patch)(current, patch)
        except PatchError as error:
            raise statuses.rejected_patch() from error
        return Response(200, self._update(request, target, current, patched))

    def _apply(self, request: Request, target: Target) -> Response:
        kind, body = target.kind, json.loads(request.body)
        current = self._objects[kind].get(target.key)
        if current is None and target.subresource:
            self._get(target)
        merged, owners = self._merge(request, target, current, body)
        if request.reviewed is not None:
            merged = {**request.reviewed, "metadata": merged["metadata"]}
        uid = body["metadata"].get("uid")
        if current is None and uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise statuses.conflict(kind.group, kind.plural, target.name, why)
        if current is None:
            return self._create(request, target, merged, owners=owners)
        return Response(200, self._update(request, target, current, merged, owners=owners))

    def _merge(
        self, request: Request, target: Target, current: Object | None, body: Object
    ) -> tuple[Object, Ownership]:
        """Return the object and its owners after the apply of *body*."""
        kind, schema, now = target.kind, _schema(target), self._now()
        live = current or empty_object(kind)
        owners = self._owners.get(current["metadata"]["uid"], {}) if current else {}
        if current and not owners:
            first = Manager("before-first-apply", "Update", kind.api_version, target.subresource)
            owners = after_update(Write(schema, first, now), {}, empty_object(kind), current)
        manager = _manager(request, kind, "Apply", target.subresource)
        try:
            write, force = Write(schema, manager, now), request.query.get("force") == "true"
            merged, owners = apply_fields(write, live, body, owners, force=force)
        except ApplyConflictError as error:
            raise apply_conflict(error) from error
        return {**live} if merged is None else merged, owners

    def _update(
        self, request: Request, target: Target, current: Object, body: Object, *, owners: Ownership | None = None
    ) -> Object:
        """Replace *current* by *body*; return the stored object."""
        kind, mine, metadata = target.kind, current["metadata"], body.get("metadata") or {}
        wanted = _replacement(target, current, body)
        if metadata.get("resourceVersion", mine["resourceVersion"]) != mine["resourceVersion"]:
            raise statuses.modified(kind.group, kind.plural, target.name)
        if not kind.builtin and spec_of(wanted) != spec_of(current):
            wanted["metadata"]["generation"] = mine.get("generation", 0) + 1
        validate(kind, wanted, current, uid=metadata.get("uid") or mine["uid"])
        if owners is None:
            owners = self._updated_owners(request, target, current, body)
        if "deletionTimestamp" in mine and not wanted["metadata"].get("finalizers"):
            if "dryRun" not in request.query:
                self._remove(kind, target.key)
            return wanted
        # Other times in the managed fields alone are no change, unless they change the order of the entries.
        if wanted == current and listed(owners) == listed(self._owners.get(mine["uid"], {})):
            return current
        if "dryRun" in request.query:
            return wanted
        return self._store(kind, target.key, wanted, owners)

    def _delete(self, request: Request, target: Target) -> Response:
        kind, current = target.kind, self._get(target)
        metadata = current["metadata"]
        options = json.loads(request.body) if request.body else {}
        assert options.get("propagationPolicy", "Background") == "Background", "dependents are deleted in background"
        check_preconditions(kind, current, options.get("preconditions") or {})
        if not metadata.get("finalizers"):
            self._remove(kind, target.key)
            named = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
            shown = {key: value for key, value in named.items() if value}
            body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
            return Response(200, body)
        if "deletionTimestamp" in metadata:
            return Response(200, current)
        changed = {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
        if metadata.get("generation"):
            changed["generation"] = metadata["generation"] + 1
        owners = self._owners.get(metadata["uid"], {})
        return Response(200, self._store(kind, target.key, with_metadata(current, **changed), owners))


def _discovery(kinds: Iterable[Kind]) -> Mapping[str, Object]:
    """Return the resources of each group and version, by path."""
    lists: dict[str, Object] = {}
    for kind in kinds:
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kind.api_version}
        resources = lists.setdefault(path, {**head, "resources": []})["resources"]
        resources.append({"name": kind.plural, "kind": kind.name, "namespaced": kind.namespaced})
    return lists


def _manager(request: Request, kind: Kind, operation: str = "Update", subresource: str = "") -> Manager:
    name = request.query.get("fieldManager") or request.user_agent
    return Manager(name, operation, kind.api_version, subresource)


def _schema(target: Target) -> Schema:
    if target.subresource == "status":
        return Schema(target.kind.type, frozenset({"metadata", "spec"}))
    return Schema(target.kind.type, frozenset({"status"} if target.kind.status else ()))


def _created(kind: Kind, body: Object, metadata: Object) -> Object:
    """Return the new object of *body* with *metadata*."""
    obj = normalised(kind, {**body, "apiVersion": kind.api_version, "kind": body.get("kind") or kind.name})
    obj["metadata"] = normalised_metadata(metadata)
    if kind.status:
        obj.pop("status", None)
    return obj


def _replacement(target: Target, current: Object, body: Object) -> Object:
    """Return *body* with what the server alone sets, and with what this request does not change."""
    kind, mine = target.kind, current["metadata"]
    if target.subresource == "status":
        wanted = {key: value for key, value in current.items() if key != "status"}
        source = body
    else:
        metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key not in SERVER_METADATA}
        wanted = {**body, "metadata": metadata | {key: value for key, value in mine.items() if key in SERVER_METADATA}}
        wanted |= {"apiVersion": body.get("apiVersion") or kind.api_version, "kind": body.get("kind") or kind.name}
        source = current
    if kind.status:
        wanted.pop("status", None)
        wanted |= {"status": source["status"]} if "status" in source else {}
    wanted = normalised(kind, wanted)
    wanted["metadata"] = normalised_metadata(wanted["metadata"])
    return wanted
