"""Compares the permissions that manifests grant with those in the audit log of an API server."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

OURS = "volcano-global-"
#: What precedes the name of a user that is a service account of the control plane.
_ACCOUNT = "system:serviceaccount:karmada-system:"
#: Verbs that no request uses, but that ValidatingAdmissionPolicies check.
CHECKED_BY_POLICIES = {"admit", "split"}


@dataclass(frozen=True, order=True)
class Permission:
    """A user's permission for a verb on a resource."""

    user: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.user.removeprefix(OURS)}: {self.verb} {self.resource}.{self.group}"


def granted(manifests: Iterable[Manifest]) -> set[Permission]:
    """Return the permissions of the roles bound to users of volcano-global."""
    listed = list(manifests)
    roles = {
        (role["kind"], role["metadata"]["name"]): role for role in listed if role["kind"] in {"ClusterRole", "Role"}
    }
    rights = set()
    for binding in listed:
        if binding["kind"] not in {"ClusterRoleBinding", "RoleBinding"}:
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            rights |= {Permission(subject["name"], *allowed) for rule in role["rules"] for allowed in _of(rule)}
    return {permission for permission in rights if permission.verb not in CHECKED_BY_POLICIES}


def used(log: Path, *, since: int = 0) -> set[Permission]:
    """Return the permissions that users of volcano-global have used."""
    return {_right(event) for event in _events(log, since) if not _is_refused(event)}


def refused(log: Path, *, since: int = 0) -> set[Permission]:
    """Return the permissions that users of volcano-global were refused."""
    return {_right(event) for event in _events(log, since) if _is_refused(event)}


def _of(rule: Manifest) -> Iterator[tuple[str, str, str]]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield group, resource, verb


def _events(log: Path, since: int) -> Iterator[dict[str, Any]]:
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            event = json.loads(line)
            name = event["user"].get("username", "").removeprefix(_ACCOUNT)
            if name.startswith(OURS) and "resource" in event.get("objectRef", {}):
                yield event


def _right(event: dict[str, Any]) -> Permission:
    target = event["objectRef"]
    resource = f"{target['resource']}/{target['subresource']}" if "subresource" in target else target["resource"]
    # An apply that creates needs both verbs; the audit log has the second one only if it is refused.
    verb = "create" if "cannot create resource" in event.get("responseStatus", {}).get("message", "") else event["verb"]
    return Permission(event["user"]["username"].removeprefix(_ACCOUNT), target.get("apiGroup", ""), resource, verb)


def _is_refused(event: dict[str, Any]) -> bool:
    if "cannot create resource" in event.get("responseStatus", {}).get("message", ""):
        return True
    return event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
