"""Validation of objects and preconditions, with the messages of the real server."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.deterministic import statuses
from tests.deterministic.field_ownership import ApplyConflictError, Manager
from tests.deterministic.field_types import shown as shown_path
from tests.deterministic.objects import Key, Kind, Object
from tests.deterministic.statuses import StatusError, Violation

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@dataclass(frozen=True)
class Target:
    """What a path names."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def validate(kind: Kind, obj: Object, current: Object | None, *, uid: str = "") -> None:
    violations = [*_name_violations(obj), *(_change_violations(obj, current, uid) if current else ())]
    if violations:
        raise statuses.invalid(kind.group, obj["kind"], obj["metadata"].get("name", ""), violations)


def _name_violations(obj: Object) -> Iterable[Violation]:
    name = obj["metadata"]["name"]
    if not _NAME.fullmatch(name):
        yield Violation("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}')


def _change_violations(obj: Object, current: Object, uid: str) -> Iterable[Violation]:
    mine, finalizers = current["metadata"], obj["metadata"].get("finalizers", ())
    if uid != mine["uid"]:
        yield Violation("metadata.uid", "FieldValueInvalid", f'Invalid value: "{uid}": field is immutable')
    new = sorted(set(finalizers) - set(mine.get("finalizers", ())))
    if new and "deletionTimestamp" in mine:
        listed = ", ".join(f'"{finalizer}"' for finalizer in new)
        why = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        yield Violation("metadata.finalizers", "FieldValueForbidden", f"Forbidden: {why}")


def check_preconditions(kind: Kind, current: Object, preconditions: Object) -> None:
    metadata = current["metadata"]
    name, uid, version = metadata["name"], preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise statuses.conflict(kind.group, kind.name, name, why)
    if version and version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise statuses.conflict(kind.group, kind.name, name, why)


def apply_conflict(error: ApplyConflictError) -> StatusError:
    by_manager: dict[Manager, list[str]] = {}
    for manager, path in error.conflicts:
        by_manager.setdefault(manager, []).append(shown_path(path))
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, paths in by_manager.items()
        for path in paths
    ]
    if len(causes) == 1:
        shown = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lists = [
            f"conflicts with {manager}:\n" + "\n".join(f"- {path}" for path in paths)
            for manager, paths in by_manager.items()
        ]
        shown = f"{len(causes)} conflicts: " + "\n".join(lists)
    return StatusError(409, "Conflict", f"Apply failed with {shown}", {"causes": causes})
