"""Errors of the in-memory API server, as the ``Status`` objects that the real one returns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

Status = dict[str, Any]


class Violation(NamedTuple):
    """One finding of the validation of an object."""

    field: str
    reason: str
    message: str


class StatusError(Exception):
    """A rejected request, with the ``Status`` that reports it."""

    def __init__(self, code: int, reason: str, message: str, details: Status | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({"details": details} if details is not None else {}),
            "code": code,
        }


def details(name: str, group: str, kind: str, causes: Sequence[Violation] = ()) -> Status:
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    every = {"name": name, "group": group, "kind": kind, "causes": listed}
    return {key: value for key, value in every.items() if value}


def rejected_patch() -> StatusError:
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def not_served() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{_qualified(plural, group)} "{name}" not found', details(name, group, plural))


def already_exists(group: str, plural: str, name: str, *, deleting: bool) -> StatusError:
    message = f'{_qualified(plural, group)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, details(name, group, plural))


def conflict(group: str, kind: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {_qualified(kind, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details(name, group, kind))


def modified(group: str, plural: str, name: str) -> StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def invalid(group: str, kind: str, name: str, violations: Sequence[Violation]) -> StatusError:
    shown = [f"{violation.field}: {violation.message}" for violation in dict.fromkeys(violations)]
    text = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    message = f'{_qualified(kind, group)} "{name}" is invalid: {text}'
    return StatusError(422, "Invalid", message, details(name, group, kind, violations))


def expired(message: str, *, token: str = "") -> StatusError:
    error = StatusError(410, "Expired", message)
    if token:
        error.status["metadata"] = {"continue": token}
    return error


def version_too_large(version: int, current: int) -> StatusError:
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _qualified(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind
