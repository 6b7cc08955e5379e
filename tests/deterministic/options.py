"""Options of requests in their queries and in bodies of deletions, checked as the real server does."""

import json
from collections.abc import Mapping, Sequence

from tests.deterministic import statuses
from tests.deterministic.objects import Object
from tests.deterministic.parsing import APPLY_PATCH, Request
from tests.deterministic.statuses import Violation, bad_request

_POLICIES = ("Foreground", "Background", "Orphan")
_WRITES = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def check_write_options(request: Request) -> None:
    """Reject options that the server does not support for creations, updates and patches."""
    query = request.query
    violations = []
    if request.content_type == APPLY_PATCH and not query.get("fieldManager"):
        violations.append(
            Violation("fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
        )
    if request.method == "PATCH" and request.content_type != APPLY_PATCH and "force" in query:
        violations.append(_forbidden("force", "may not be specified for non-apply patch"))
    violations += _dry_run_violations([query["dryRun"]] if "dryRun" in query else [])
    validation = query.get("fieldValidation", "")
    if validation not in {"", "Ignore", "Strict", "Warn"}:
        violations.append(_unsupported("fieldValidation", f'"{validation}"', ("", "Ignore", "Strict", "Warn")))
    _reject(_WRITES[request.method], violations)


def check_list_options(query: Mapping[str, str]) -> None:
    """Reject versions of lists that exclude each other."""
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    violations = []
    if match and not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        violations.append(_forbidden("resourceVersionMatch", why))
    if match and query.get("continue"):
        why = "resourceVersionMatch is forbidden when continue is provided"
        violations.append(_forbidden("resourceVersionMatch", why))
    if match not in {"", "Exact", "NotOlderThan"}:
        violations.append(_unsupported("resourceVersionMatch", f'"{match}"', ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        violations.append(_forbidden("resourceVersionMatch", why))
    if "sendInitialEvents" in query:
        violations.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _reject("ListOptions", violations)


def check_watch_options(query: Mapping[str, str]) -> None:
    """Reject options that only lists have, or only watches with initial events."""
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    violations = []
    if initial and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        violations.append(_forbidden("resourceVersionMatch", why))
    if match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        violations.append(_forbidden("resourceVersionMatch", why))
    if match not in {"", "NotOlderThan"}:
        violations.append(_unsupported("resourceVersionMatch", f'"{match}"', ("NotOlderThan",)))
    _reject("ListOptions", violations)


def delete_options(request: Request) -> Object:
    """Return the options of a deletion; with a body, the server ignores the query."""
    try:
        body = json.loads(request.body) if request.body else {}
    except ValueError:
        raise bad_request("couldn't get version/kind; json parse error: unexpected end of JSON input") from None
    options: Object = body or {
        key: request.query[key] for key in ("propagationPolicy", "dryRun") if key in request.query
    }
    policy = options.get("propagationPolicy")
    violations = []
    if policy is not None and options.get("orphanDependents") is not None:
        why = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        violations.append(Violation("propagationPolicy", "FieldValueInvalid", why))
    if policy is not None and policy not in _POLICIES:
        violations.append(_unsupported("propagationPolicy", f'"{policy}"', (*_POLICIES, "nil")))
    dry_run = options.get("dryRun") or []
    violations += _dry_run_violations([dry_run] if isinstance(dry_run, str) else dry_run)
    _reject("DeleteOptions", violations)
    return options


def deletion_finalizers(finalizers: Sequence[str], options: Object) -> Sequence[str]:
    """Return the finalizers of an object after a deletion with *options* began."""
    named = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
    others = [name for name in finalizers if name not in named.values()]
    present = [name for name in finalizers if name in named.values()]
    orphan, policy = options.get("orphanDependents"), options.get("propagationPolicy")
    if orphan is not None:
        others += ["orphan"] if orphan else []
    elif policy is not None:
        others += [named[policy]] if policy in named else []
    else:
        others += present[:1]
    return finalizers if set(others) == set(finalizers) else others


def _dry_run_violations(values: Sequence[str]) -> list[Violation]:
    return [] if set(values) <= {"All"} else [_unsupported("dryRun", json.dumps(values), ("All",))]


def _forbidden(field: str, why: str) -> Violation:
    return Violation(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(field: str, value: str, supported: Sequence[str]) -> Violation:
    shown = ", ".join(f'"{name}"' for name in supported)
    return Violation(field, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {shown}")


def _reject(kind: str, violations: Sequence[Violation]) -> None:
    if violations:
        raise statuses.invalid("meta.k8s.io", kind, "", violations)
