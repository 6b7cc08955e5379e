"""Admission webhooks of the in-memory API server; the stored webhook configurations decide what is reviewed.

Of Karmada's own webhooks only the quota of bindings is enforced.
"""

import base64
import binascii
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.json_patches import PatchError, json_patch
from tests.deterministic.kinds import MUTATING, VALIDATING
from tests.deterministic.objects import Kind, Object
from tests.deterministic.parsing import APPLY_PATCH, Request
from tests.deterministic.quota import NamespaceQuota
from tests.deterministic.reads import Response
from tests.deterministic.statuses import StatusError
from tests.deterministic.validation import Target

Send = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Sends a review to the webhook's path; raises OSError or TimeoutError."""

GATED = {"batch.volcano.sh/Job", "apps/Deployment", "batch/Job"}
_OPERATIONS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE", "DELETE": "DELETE"}
_ATTEMPTS = 5


def _spec(obj: Object | None) -> Any:
    return (obj or {}).get("spec")


def _is_gated(_: str, new: Object | None, __: Object | None) -> bool:
    resource = ((new or {}).get("spec") or {}).get("resource") or {}
    group = str(resource.get("apiVersion", "")).rpartition("/")[0]
    return f"{group}/{resource.get('kind')}" in GATED


CONDITIONS: Mapping[str, Callable[[str, Object | None, Object | None], bool]] = {
    "gated-kind": _is_gated,
    "spec-written": lambda operation, new, old: operation == "CREATE" or _spec(new) != _spec(old),
}
"""What the match conditions of the chart's webhook configurations compute, by their name."""


@dataclass(frozen=True)
class _Hook:
    name: str
    path: str
    is_required: bool
    conditions: Sequence[str]

    def matches(self, operation: str, new: Object | None, old: Object | None) -> bool:
        return all(CONDITIONS[name](operation, new, old) for name in self.conditions)


class AdmissionChain:
    """Reviews writes and passes them to *server*."""

    def __init__(self, server: ApiServer, send: Send) -> None:
        self.quota = NamespaceQuota(server)
        self._server = server
        self._send = send
        self._numbers = itertools.count(1)
        self._rules: dict[tuple[Kind, str, str, str], list[_Hook]] = {}
        self._read_at = -1

    def is_reviewed(self, request: Request) -> bool:
        """Return whether a webhook may review *request*."""
        operation, target = _OPERATIONS.get(request.method), self._server.target(request.path)
        if operation is None or target is None or target.subresource:
            return False
        if operation == "UPDATE" and self.quota.concerns(target.kind):
            return True
        operations = {operation, "CREATE"} if request.content_type == APPLY_PATCH else {operation}
        return any(self._hooks(which, target.kind, each) for which in (MUTATING, VALIDATING) for each in operations)

    async def handle(self, request: Request) -> Response:
        """Process *request* with the reviews that it needs."""
        target = self._server.target(request.path)
        assert target is not None
        asked, applies = request, request.content_type == APPLY_PATCH
        for _ in range(_ATTEMPTS):
            exists = target.key in self._server.objects(target.kind)
            operation = "CREATE" if applies and not exists else _OPERATIONS[request.method]
            try:
                old, new = self._objects(asked, target, operation)
                reviewed = await self._review(target, operation, old, new)
            except StatusError as error:
                return Response(error.code, error.status)
            # What a webhook changed is stored instead of what the client sent.
            request = asked if reviewed is new else _with_reviewed(asked, operation, reviewed)
            if self._server.objects(target.kind).get(target.key) is old or asked.method == "POST":
                break
        return self._server.handle(request)

    def _objects(self, request: Request, target: Target, operation: str) -> tuple[Object | None, Object | None]:
        """Return the object before and after *request*; raise the error of an invalid request."""
        if request.method == "POST":
            try:
                new = json.loads(request.body)
            except ValueError:
                new = None
            return None, new if isinstance(new, dict) else None
        old = self._server.objects(target.kind).get(target.key)
        if operation == "DELETE" or (old is None and operation != "CREATE"):
            return old, None
        response = self._server.handle(replace(request, query={**request.query, "dryRun": "All"}))
        if response.status >= 400:
            raise StatusError(response.status, "", "") if not response.body else _RejectedError(response)
        return old, response.body

    async def _review(self, target: Target, operation: str, old: Object | None, new: Object | None) -> Object | None:
        if old is None and new is None:
            return new
        for hook in self._hooks(MUTATING, target.kind, operation):
            if hook.matches(operation, new, old):
                new = await self._mutate(hook, target, operation, old, new)
        for hook in self._hooks(VALIDATING, target.kind, operation):
            if hook.matches(operation, new, old):
                await self._call(hook, target, operation, old, new)
        if operation == "UPDATE" and self.quota.concerns(target.kind) and (why := self.quota.denial(old, new)):
            raise StatusError(
                403, "Forbidden", f'admission webhook "resourcebinding.karmada.io" denied the request: {why}'
            )
        return new

    async def _mutate(
        self, hook: _Hook, target: Target, operation: str, old: Object | None, new: Object | None
    ) -> Object | None:
        answer = await self._call(hook, target, operation, old, new)
        if not answer.get("patch"):
            return new
        try:
            patched: Object = json_patch(new, json.loads(base64.b64decode(answer["patch"])))
        except (PatchError, ValueError, binascii.Error) as error:
            raise _failure(hook, str(error)) from error
        return patched

    async def _call(
        self, hook: _Hook, target: Target, operation: str, old: Object | None, new: Object | None
    ) -> Object:
        """Return the response of *hook*; raise if it denies the request, or fails and is required."""
        uid = f"review-{next(self._numbers)}"
        body = json.dumps(_body(uid, target, operation, old, new)).encode()
        try:
            status, raw = await self._send(hook.path, body)
            answer = json.loads(raw)["response"] if status == 200 else {}
            if answer.get("uid") != uid:
                raise ValueError(f"status {status}")
        except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            if hook.is_required:
                raise _failure(hook, str(error)) from error
            return {}
        if not answer["allowed"]:
            reason = answer.get("status") or {}
            message = f'admission webhook "{hook.name}" denied the request: {reason.get("message", "")}'
            raise StatusError(reason.get("code", 403), "Forbidden", message)
        return dict(answer)

    # -- configurations --------------------------------------------------------

    def _hooks(self, which: Kind, kind: Kind, operation: str) -> Sequence[_Hook]:
        stored = [*self._server.objects(MUTATING).values(), *self._server.objects(VALIDATING).values()]
        read_at = max((int(obj["metadata"]["resourceVersion"]) for obj in stored), default=0) * 8 + len(stored)
        if read_at != self._read_at:
            self._read_at = read_at
            self._rules.clear()
            for configuration_kind in (MUTATING, VALIDATING):
                for configuration in self._server.objects(configuration_kind).values():
                    for group, plural, matched, hook in _parse(configuration):
                        self._rules.setdefault((configuration_kind, group, plural, matched), []).append(hook)
        return self._rules.get((which, kind.group, kind.plural, operation), ())


def _with_reviewed(request: Request, operation: str, reviewed: Object | None) -> Request:
    """Return *request* with what webhooks have changed in its object; the owner of applied fields stays."""
    if request.content_type == APPLY_PATCH:
        return replace(request, reviewed=reviewed)
    method = "POST" if operation == "CREATE" else "PUT"
    return replace(request, method=method, body=json.dumps(reviewed).encode(), content_type="application/json")


class _RejectedError(StatusError):
    """An invalid request, with the response that the server gives to it."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status, "", str(response.body.get("message", "")))
        self.status = response.body


def _failure(hook: _Hook, why: str) -> StatusError:
    message = f'Internal error occurred: failed calling webhook "{hook.name}": {why}'
    return StatusError(500, "InternalError", message)


def _parse(configuration: Object) -> Iterator[tuple[str, str, str, _Hook]]:
    for webhook in configuration.get("webhooks") or ():
        conditions = [condition["name"] for condition in webhook.get("matchConditions") or ()]
        path = urlsplit(webhook["clientConfig"]["url"]).path
        hook = _Hook(webhook["name"], path, webhook.get("failurePolicy", "Fail") == "Fail", conditions)
        for rule in webhook.get("rules") or ():
            for group, plural, operation in itertools.product(rule["apiGroups"], rule["resources"], rule["operations"]):
                yield group, plural, operation, hook


def _body(uid: str, target: Target, operation: str, old: Object | None, new: Object | None) -> Object:
    kind = target.kind
    named = target.name or ((new or {}).get("metadata") or {}).get("name") or ""
    identity = {"group": kind.group, "version": kind.version}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid,
            "kind": {**identity, "kind": kind.name},
            "resource": {**identity, "resource": kind.plural},
            "requestKind": {**identity, "kind": kind.name},
            "requestResource": {**identity, "resource": kind.plural},
            "name": named,
            **({"namespace": target.namespace} if target.namespace else {}),
            "operation": operation,
            "userInfo": {"username": "simulated", "groups": ["system:authenticated"]},
            "object": _complete(kind, target, new),
            "oldObject": _complete(kind, target, old),
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _complete(kind: Kind, target: Target, obj: Object | None) -> Object | None:
    if obj is None:
        return None
    metadata = obj.get("metadata") or {}
    if target.namespace and isinstance(metadata, dict):
        metadata = {**metadata, "namespace": target.namespace}
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
