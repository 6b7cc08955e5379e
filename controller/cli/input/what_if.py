"""Changes fields of objects before a plan, as ``--what-if KIND/[NAMESPACE/]NAME.FIELD=VALUE`` requests.

The changed objects are validated like those of files.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from controller.api.keys import JOBS, RESOURCE_BINDINGS
from controller.cache.translate.units import format_time
from controller.cli.errors import InputError
from controller.cli.input.objects import WIRE_TYPES
from controller.cli.input.validation import check_fields, unread_field

T = TypeVar("T")

#: What each kind's objects are decoded into, by the kind in lower case.
_STRUCTS: Final = {resource.kind.lower(): struct for resource, struct in WIRE_TYPES.items()}
#: Fields that a path may begin with; what precedes it is the name of the object.
_ROOTS: Final = ("spec", "status", "metadata")
_TOKEN: Final = re.compile(r"\.?(?:'([^']+)'|([^.\[\]']+))|\[(\d{1,6})\]")
_MAX_CHANGES: Final = 100
#: Fields that name an object: with another name it would be another object, or none.
_IDENTITY: Final = {("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"), ("spec", "resource")}

Step = str | int
"""A member of a mapping, or an index of a list."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One requested change of one field; ``null`` removes it."""

    text: str
    kind: str
    """The object's kind, in lower case."""
    namespace: str
    name: str
    path: tuple[Step, ...]
    value: Any

    @property
    def target(self) -> str:
        """Return ``kind/namespace/name``."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)

    @property
    def completes_job(self) -> bool:
        """Return whether it lets a job finish, which its binding shows: the template has no status."""
        return self.kind == JOBS.kind.lower() and self.path == ("status", "state", "phase")


def parse_what_if(texts: Iterable[str]) -> tuple[WhatIf, ...]:
    """Return the changes in *texts*, of which each may contain several, separated by ``;``; raise `InputError`."""
    changes = [_parse(part.strip()) for text in texts for part in text.split(";") if part.strip()]
    if len(changes) > _MAX_CHANGES:
        raise InputError(f"--what-if: {len(changes)} changes; at most {_MAX_CHANGES} are possible")
    return tuple(changes)


def _parse(text: str) -> WhatIf:
    if not _is_utf8(text):
        raise InputError(f"--what-if: {text!r} is not UTF-8 text")
    target, equals, written = text.partition("=")
    kind, slash, rest = target.strip().partition("/")
    start = re.search(rf"\.({'|'.join(_ROOTS)})(?=[.\[])", rest)
    if not equals or not slash or start is None:
        example = "queue/team-a.spec.capability.cpu=20 or job/ml/train.spec.tasks[0].replicas=4"
        raise InputError(f"--what-if: {text!r} is not a change; write KIND/NAME.FIELD=VALUE, for example {example}")
    namespace, _, name = rest[: start.start()].rpartition("/")
    path = tuple(_steps(text, rest[start.start() + 1 :]))
    change = WhatIf(text, _kind(kind.lower()), namespace, name, path, _value(written.strip()))
    refuse_identity(change)
    return change


def refuse_identity(change: WhatIf) -> None:
    """Raise `InputError` for a change of a field that names the object."""
    if change.path[:2] in _IDENTITY:
        path = ".".join(map(str, change.path))
        raise InputError(f"--what-if: {change.target}: {path} names an object; change others")


def _is_utf8(text: str) -> bool:
    """Return whether *text* can be encoded: bytes of an argument that are not UTF-8 became lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(text: str) -> str:
    """Return the kind of ``kind`` or ``kind.group``, as ``-o name`` prints it; raise `InputError`."""
    kind, _, group = text.partition(".")
    groups = {resource.group for resource in WIRE_TYPES if resource.kind.lower() == kind}
    if group and groups and group not in groups:
        raise InputError(f"--what-if: objects of {text!r} are not read; write {kind}.{', '.join(sorted(groups))}")
    return kind


def _steps(text: str, path: str) -> Iterator[Step]:
    position = 0
    while position < len(path):
        match = _TOKEN.match(path, position)
        if match is None:
            raise InputError(
                f"--what-if: {text!r}: cannot read the field path at {path[position:]!r}; "
                "separate fields by dots, and write names that contain dots in single quotes"
            )
        quoted, plain, index = match.groups()
        yield int(index) if index is not None else quoted or plain
        position = match.end()


def _value(written: str) -> Any:
    """Return JSON as it is, anything else as text."""
    try:
        return msgspec.json.decode(written.encode())
    except (msgspec.DecodeError, RecursionError):
        return written


@dataclass(slots=True)
class Changes:
    """The requested changes of one command, applied to each object that is read."""

    requested: tuple[WhatIf, ...] = ()
    now: int = 0
    """The time of a requested completion, in milliseconds."""
    notes: list[str] = field(default_factory=list)
    """Changes without effect, because no decision depends on their fields."""
    _used: set[str] = field(default_factory=set)

    def apply(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return *body*, an object of *kind*, after the changes of it; raise `InputError` where one is impossible."""
        for change in self.requested:
            if change.completes_job and kind == RESOURCE_BINDINGS.kind and _refers_to(body, change):
                self._used.add(change.text)
                if not _target_clusters(body):
                    self.notes.append(f"--what-if: {change.text!r}: the job is not admitted, so it cannot finish")
                body = _with_completion(body, change, self.now)
            elif not change.completes_job and change.kind == kind.lower() and _is_named(body, change):
                self._used.add(change.text)
                body = _changed(body, change.path, change)
                self._note_unread(change)
        return body

    def decode(self, kind: str, raw: bytes, decode: Callable[[bytes], T]) -> T:
        """Return what *decode* makes of the object *raw* after the changes; raise `InputError` if they are invalid."""
        before = msgspec.json.decode(raw)
        body = self.apply(kind, before)
        if body is before:
            return decode(raw)
        path = "/".join(part for part in (body["metadata"].get("namespace"), body["metadata"]["name"]) if part)
        if struct := _STRUCTS.get(kind.lower()):
            known = check_fields(struct, before).violations
            if added := [violation for violation in check_fields(struct, body).violations if violation not in known]:
                raise InputError(*(f"--what-if: {kind} {path}: {violation}" for violation in added))
        decoded = decode(msgspec.json.encode(body))
        if error := getattr(decoded, "decode_error", ""):
            raise InputError(f"--what-if: {kind} {path}: {error}")
        return decoded

    def _note_unread(self, change: WhatIf) -> None:
        struct = _STRUCTS.get(change.kind)
        unread = unread_field(struct, change.path) if struct else ""
        if unread:
            self.notes.append(f"--what-if: {change.text!r}: no decision depends on {unread}")

    def concern(self, kind: str) -> bool:
        """Return whether a change may concern objects of *kind*: bindings, where a job is completed."""
        kinds = {RESOURCE_BINDINGS.kind.lower() if change.completes_job else change.kind for change in self.requested}
        return kind.lower() in kinds

    def check_all_used(self, kinds: Iterable[str] | None = None) -> None:
        """Raise `InputError` for changes of objects that do not exist, or are of none of *kinds*; ``None`` for any."""
        known = None if kinds is None else {kind.lower() for kind in kinds}
        unused = [change for change in self.requested if change.text not in self._used]
        if unused:
            raise InputError(*(f"--what-if: {_why_unused(change, known)}" for change in unused))


def _why_unused(change: WhatIf, known: Collection[str] | None) -> str:
    if known is None or change.kind in known:
        return f"{change.target} does not exist"
    return f"{change.target}: only {', '.join(sorted(known))} of a control plane can be changed; name files with -f"


def _is_named(body: Mapping[str, Any], change: WhatIf) -> bool:
    metadata = _mapping(body, "metadata")
    # Namespaced objects of files may be without their namespace.
    namespaces = {metadata["namespace"]} if metadata.get("namespace") else {"", "default"}
    return metadata.get("name") == change.name and change.namespace in namespaces


def _refers_to(binding: Mapping[str, Any], change: WhatIf) -> bool:
    reference = _mapping(_mapping(binding, "spec"), "resource")
    wanted = (JOBS.api_version, JOBS.kind, change.namespace, change.name)
    return tuple(reference.get(name) for name in ("apiVersion", "kind", "namespace", "name")) == wanted


def _with_completion(binding: Mapping[str, Any], change: WhatIf, now: int) -> Mapping[str, Any]:
    """Return *binding* with the phase of *change* reported by each of its clusters."""
    state = {"phase": change.value, "lastTransitionTime": format_time(now)}
    reported = [{"clusterName": name, "status": {"state": state}} for name in _target_clusters(binding)]
    return {**binding, "status": {**_mapping(binding, "status"), "aggregatedStatus": reported}}


def _target_clusters(binding: Mapping[str, Any]) -> list[str]:
    """Return the names of the clusters of a binding, which is not validated yet."""
    clusters = _mapping(binding, "spec").get("clusters")
    known = clusters if isinstance(clusters, list) else []
    names = [cluster.get("name") for cluster in known if isinstance(cluster, Mapping)]
    return [name for name in names if isinstance(name, str)]


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping *name* of an object that is not validated yet; empty for anything else."""
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}


def _changed(value: Any, path: tuple[Step, ...], change: WhatIf) -> Any:
    """Return a copy of *value* with the field at *path* set; missing mappings are created, list items are not."""
    if not path:
        is_text = isinstance(value, str) and isinstance(change.value, int | float)
        return change.text.partition("=")[2].strip() if is_text else change.value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(value, list) or step >= len(value):
            size = len(value) if isinstance(value, list) else 0
            raise InputError(f"--what-if: {change.text!r}: there is no item [{step}]; the list has {size}")
        return [*value[:step], _changed(value[step], rest, change), *value[step + 1 :]]
    if value is not None and not isinstance(value, Mapping):
        raise InputError(
            f"--what-if: {change.text!r}: {step} is not a field of {msgspec.json.encode(value).decode()[:40]}"
        )
    members = dict(value or {})
    if not rest and change.value is None:
        members.pop(step, None)
    else:
        members[step] = _changed(members.get(step), rest, change)
    return members
