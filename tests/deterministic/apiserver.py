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
from tests.deterministic.field_types import FieldTypeError, known_fields
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
from tests.deterministic.options import (
    check_list_options,
    check_write_options,
    delete_options,
    deletion_finalizers,
)
from tests.deterministic.parsing import (
    APPLY_PATCH,
    MERGE_PATCH,
    Request,
    decode_applied,
    decode_object,
    go_type,
    rejected_patch_type,
    require_name,
    selection,
    unknown_order,
    with_unique_owners,
)
from tests.deterministic.reads import Reader, Response, version_to_read
from tests.deterministic.statuses import StatusError, Violation, bad_request
from tests.deterministic.validation import Target, apply_conflict, check_preconditions, failed_precondition, validate


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
        if rest[0] == "namespaces" and len(rest) > 2 and (group or rest[2] not in {"finalize", "status"}):
            namespace, rest = rest[1], rest[2:]
        kind = self._kinds.get((group, version, rest[0]))
        plural, name, subresource = (*rest, "", "")[:3]
        served = (
            {""} | ({"status"} if kind and kind.status else set()) | ({"finalize"} if kind == NAMESPACES else set())
        )
        if kind is None or len(rest) > 3 or subresource not in served or plural != kind.plural:
            raise statuses.not_served()
        return Target(kind, namespace, name, subresource)

    def _dispatch(self, request: Request, target: Target) -> Response:  # noqa: PLR0911 -- one for each method
        if request.method in {"POST", "PUT", "PATCH"}:
            check_write_options(request)
        if request.method == "GET" and target.name:
            version_to_read(request.query)
            return Response(200, self._get(target))
        if request.method == "GET":
            return (
                self.watch(request, target)
                if request.query.get("watch") in {"true", "1"}
                else self.list_objects(request, target)
            )
        if request.method == "POST" and not target.name:
            return self._create(request, target, _decoded(request, target))
        if request.method == "PUT" and target.name:
            return self._put(request, target)
        if request.method == "PATCH" and target.name:
            return self._patch(request, target)
        if request.method == "DELETE" and target.name:
            return self._delete(request, target)
        if request.method == "DELETE":
            return self._delete_collection(request, target)
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
        if metadata.get("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        name = metadata.get("name") or ""
        if not name and metadata.get("generateName"):
            name = metadata["generateName"] + self._uid()[-5:]
        self._require_namespace(kind, target.namespace, name)
        metadata |= {"name": name, "uid": self._uid(), "creationTimestamp": self._now()}
        if target.namespace:
            metadata["namespace"] = target.namespace
        if not kind.builtin:
            metadata["generation"] = 1
        obj = _created(kind, body, metadata)
        validate(kind, obj, None)
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version and "dryRun" not in request.query:
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        existing = self._objects[kind].get((target.namespace, name))
        if existing is not None:
            deleting = "deletionTimestamp" in existing["metadata"]
            generated = bool(metadata.get("generateName"))
            raise statuses.already_exists(kind.group, kind.plural, name, deleting=deleting, generated=generated)
        if "dryRun" in request.query:
            return Response(201, with_metadata(obj, resourceVersion=version) if version else obj)
        if owners is None:
            owners = self._updated_owners(request, target, None, body) if kind.owners else {}
        empty = _stored_empty(request, target, body.get("metadata") or {})
        return Response(201, self._store(kind, (target.namespace, name), obj, owners, empty))

    def _updated_owners(self, request: Request, target: Target, current: Object | None, body: Object) -> Ownership:
        """Return the owners after a write that is no apply; ones that are not known are not tracked."""
        kind = target.kind
        before = self._owners.get(current["metadata"]["uid"], {}) if current else {}
        resets = ([], [{}]) if kind.builtin else ([{}],)
        reset = (body.get("metadata") or {}).get("managedFields") in resets and not target.subresource
        if current and (reset or not before):
            return {}
        requested = normalised(kind, {"apiVersion": kind.api_version, "kind": kind.name, **body})
        requested["metadata"] = normalised_metadata(body.get("metadata") or {})
        manager = _manager(request, kind, "Update", target.subresource)
        try:
            write = Write(_schema(target), manager, self._now())
            return after_update(write, before, current or empty_object(kind), requested)
        except FieldTypeError:
            return {}

    def _require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        stored = self._objects[NAMESPACES].get(("", namespace))
        if stored is None:
            raise statuses.not_found("", "namespaces", namespace)
        if "deletionTimestamp" in stored["metadata"]:
            raise statuses.terminating(kind.group, kind.plural, name, namespace)

    def _put(self, request: Request, target: Target) -> Response:
        body = _decoded(request, target)
        require_name(body, target.name)
        creates = target.key not in self._objects[target.kind] and target.kind.create_on_update
        current = {"metadata": {"uid": ""}} if creates else self._get(target)
        if target.subresource == "finalize":
            return Response(200, self._finalize(target, current, body))
        metadata, dry_run = body.get("metadata") or {}, "dryRun" in request.query
        if metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
            raise failed_precondition(target, "UID", metadata["uid"], current["metadata"]["uid"], dry_run=dry_run)
        if creates:
            # Only a dry run shows the version that the client sent.
            version = metadata.get("resourceVersion", "") if dry_run else ""
            return self._create(request, target, {**body, "metadata": {**metadata, "resourceVersion": version}})
        return Response(200, self._update(request, target, current, body))

    def _patch(self, request: Request, target: Target) -> Response:
        if request.content_type == APPLY_PATCH:
            return self._apply(request, target)
        current = self._get(target)
        try:
            patch = json.loads(request.body)
        except ValueError:
            raise bad_request("error decoding patch: unexpected end of JSON input") from None
        if request.content_type == MERGE_PATCH:
            if not isinstance(patch, dict):
                raise rejected_patch_type(patch, "map[string]interface {}")
            patched = merge_patch(current, patch)
        elif not isinstance(patch, list) and request.query.get("fieldValidation") == "Ignore":
            raise bad_request(f"json: cannot unmarshal {go_type(patch)} into Go value of type jsonpatch.Patch")
        elif not isinstance(patch, list):
            raise rejected_patch_type(patch, "[]handlers.jsonPatchOp")
        else:
            try:
                patched = json_patch(current, patch)
            except PatchError as error:
                raise statuses.rejected_patch() from error
        if not isinstance(patched, dict) or not patched.get("kind"):
            shown = json.dumps(patched, separators=(",", ":"))
            why = f"Object 'Kind' is missing in '{shown}'"
            raise statuses.invalid(
                "", "", "", [Violation("patch", "FieldValueInvalid", f"Invalid value: {json.dumps(shown)}: {why}")]
            )
        patched = self._known_patched(request, target, patched)
        require_name(patched, target.name)
        return Response(200, self._update(request, target, current, patched))

    @staticmethod
    def _known_patched(request: Request, target: Target, patched: Object) -> Object:
        """Return a patched object without unknown fields."""
        known, unknown = known_fields(target.kind.type, patched)
        if unknown and request.query.get("fieldValidation") == "Strict":
            text = json.dumps(patched, separators=(",", ":"))
            shown = ", ".join(f'unknown field "{field}"' for field in unknown_order(target.kind, sorted(unknown)))
            why = f"Invalid value: {json.dumps(text)}: strict decoding error: {shown}"
            raise statuses.invalid("", "", "", [Violation("patch", "FieldValueInvalid", why)])
        return known

    def _apply(self, request: Request, target: Target) -> Response:
        kind, query = target.kind, request.query
        body = decode_applied(kind, request.body)
        current = self._objects[kind].get(target.key)
        if current is None and target.subresource:
            self._get(target)
        if body["metadata"].get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        require_name(body, target.name)
        merged, owners = self._merge(request, target, current, body)
        if request.reviewed is not None:
            merged = {**request.reviewed, "metadata": merged["metadata"]}
        uid = body["metadata"].get("uid")
        if current is None and uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise statuses.conflict(kind.group, kind.plural, target.name, why)
        if current is None:
            # Only a dry run shows the version that the client sent.
            version = body["metadata"].get("resourceVersion", "") if "dryRun" in query else ""
            merged["metadata"] |= {"name": target.name, "resourceVersion": version}
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
        except FieldTypeError as error:
            metadata = body["metadata"]
            shown = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            shown += f"; {kind.group}/{kind.version}, Kind={kind.name}"
            raise StatusError(500, "", f"failed to create typed patch object ({shown}): {error}") from error
        return {**live} if merged is None else merged, owners

    def _update(
        self, request: Request, target: Target, current: Object, body: Object, *, owners: Ownership | None = None
    ) -> Object:
        """Replace *current* by *body*; return the stored object."""
        kind, mine, metadata = target.kind, current["metadata"], body.get("metadata") or {}
        wanted = _replacement(target, current, body)
        self._check_version(kind, target.name, metadata.get("resourceVersion"), mine["resourceVersion"])
        if not kind.builtin and spec_of(wanted) != spec_of(current):
            wanted["metadata"]["generation"] = mine.get("generation", 0) + 1
        validate(kind, wanted, current, uid=metadata.get("uid") or mine["uid"])
        if owners is None:
            owners = self._updated_owners(request, target, current, body)
        if "deletionTimestamp" in mine and not wanted["metadata"].get("finalizers") and kind != NAMESPACES:
            if "dryRun" not in request.query:
                self._remove(kind, target.key)
            # The answer is the object before it is stored; reading a stored object drops its empty fields.
            shown = {key: metadata[key] for key in _empty_fields(request, target, metadata)}
            return wanted | {"metadata": wanted["metadata"] | shown}
        # Other times in the managed fields alone are no change, unless they change the order of the entries.
        before, empty = self._owners.get(mine["uid"], {}), _stored_empty(request, target, metadata)
        same_owners = owners == before if empty else listed(owners) == listed(before)
        if wanted == current and same_owners and empty == self._stored_empty.get(mine["uid"], ()):
            return current
        if "dryRun" in request.query:
            return wanted
        return self._store(kind, target.key, wanted, owners, empty)

    @staticmethod
    def _check_version(kind: Kind, name: str, asked: str | None, version: str) -> None:
        if not asked and not kind.unconditional_update:
            why = "Invalid value: 0: must be specified for an update"
            violation = Violation("metadata.resourceVersion", "FieldValueInvalid", why)
            raise statuses.invalid(kind.group, kind.plural, name, [violation])
        if asked and asked != version:
            raise statuses.modified(kind.group, kind.plural, name)

    def _delete(self, request: Request, target: Target) -> Response:
        options = delete_options(request)
        dry_run = bool(options.get("dryRun"))
        kind, current = target.kind, self._get(target)
        metadata = current["metadata"]
        check_preconditions(kind, current, options.get("preconditions") or {})
        if kind == NAMESPACES:
            return Response(200, self._terminate(target, current, dry_run=dry_run))
        finalizers = deletion_finalizers(metadata.get("finalizers", []), options)
        remaining = [name for name in metadata.get("finalizers", []) if name not in finalizers]
        if not finalizers:
            if remaining and not dry_run and (options.get("preconditions") or {}).get("resourceVersion"):
                raise failed_precondition(target, "ResourceVersion", "", metadata["resourceVersion"])
            if not dry_run:
                self._remove(kind, target.key)
            elif remaining:
                # The server shows an empty object, since it did not store the removal of the finalizer.
                return Response(200, empty_object(kind))
            named = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
            shown = {key: value for key, value in named.items() if value}
            body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
            return Response(200, body)
        changed = {"finalizers": finalizers}
        if "deletionTimestamp" not in metadata:
            changed |= {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
            if metadata.get("generation"):
                changed["generation"] = metadata["generation"] + 1
        wanted = with_metadata(current, **changed)
        code = 202 if options.get("orphanDependents") is False else 200
        if dry_run or (wanted == current and metadata["uid"] not in self._stored_empty):
            return Response(code, wanted)
        return Response(code, self._store(kind, target.key, wanted, self._owners.get(metadata["uid"], {})))

    def _delete_collection(self, request: Request, target: Target) -> Response:
        selection(target.kind, request.query, check_list_options)
        delete_options(request)
        listed = self.list_objects(Request("GET", request.path, request.query), target)
        for item in listed.body["items"]:
            metadata = item["metadata"]
            self._delete(request, Target(target.kind, metadata.get("namespace", ""), metadata["name"], ""))
        return listed

    def _terminate(self, target: Target, current: Object, *, dry_run: bool) -> Object:
        if "deletionTimestamp" in current["metadata"]:
            return current
        wanted = {**with_metadata(current, deletionTimestamp=self._now()), "status": {"phase": "Terminating"}}
        return wanted if dry_run else self._store(NAMESPACES, target.key, wanted, {})

    def _finalize(self, target: Target, current: Object, body: Object) -> Object:
        wanted = {**current, "spec": body.get("spec") or {}}
        if "deletionTimestamp" in current["metadata"] and not wanted["spec"].get("finalizers"):
            self._remove(NAMESPACES, target.key)
            return wanted
        return wanted if wanted == current else self._store(NAMESPACES, target.key, wanted, {})


def _decoded(request: Request, target: Target) -> Object:
    return decode_object(target.kind, request.body, request.query.get("fieldValidation", ""))


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
    name = request.query.get("fieldManager") or request.user_agent.partition("/")[0]
    return Manager(name, operation, kind.api_version, subresource)


def _stored_empty(request: Request, target: Target, metadata: Object) -> tuple[str, ...]:
    """Return the empty fields of *metadata* that an apply of a custom resource stores, though no answer shows them."""
    return tuple(f"{name}={metadata[name]}" for name in _empty_fields(request, target, metadata))


def _empty_fields(request: Request, target: Target, metadata: Object) -> list[str]:
    """Return the names of the empty fields of *metadata* that an apply of a custom resource leaves."""
    if request.content_type != APPLY_PATCH or target.kind.builtin or target.subresource:
        return []
    return sorted(name for name, value in metadata.items() if value in (None, {}, []))


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
    if kind == NAMESPACES:
        labels = {"kubernetes.io/metadata.name": metadata["name"], **obj["metadata"].get("labels", {})}
        obj["metadata"]["labels"] = labels
        obj |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
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
    return with_unique_owners(wanted)
