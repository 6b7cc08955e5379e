"""Identifies callers by TokenReview, and decides what they may read by SubjectAccessReview.

Answers are cached for a short time, with a bounded number of entries: a permission that is withdrawn ends after that
time, and a flood of invalid tokens costs the API server a bounded number of reviews.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from controller.api.visibility import GROUP, RESOURCE
from controller.kube.client import Api
from controller.kube.timing import RequestRates

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 -- a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

#: Lifetime of a positive and of a negative answer, in seconds.
_YES_SECONDS, _NO_SECONDS = 30.0, 5.0

#: Answers of each kind that are cached; the oldest is dropped.
_MAX_CACHED = 4096

#: Reviews per second that are sent to the API server for all callers together by default, and how many at once.
_REVIEWS_PER_SECOND = 20.0
#: The part of these rates for one user, or for all invalid tokens together: enough at once for a page of the console.
_PART_OF_ONE, _BURST_OF_ONE = 0.5, 0.75

_MAX_TOKEN_CHARACTERS = 16_384

V = TypeVar("V")


class RefusedError(Exception):
    """A request that is not answered: HTTP status, reason and what the caller can do."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def unauthenticated() -> RefusedError:
    """Return the error for a missing or invalid token."""
    text = "send a valid token of the Karmada API server: Authorization: Bearer TOKEN"
    return RefusedError(401, "Unauthorized", text)


def bearer_token(authorization: str) -> str:
    """Return the token in the header Authorization, empty without one or where it is too long."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) <= _MAX_TOKEN_CHARACTERS else ""


def failure(status: int, reason: str, message: str) -> dict[str, str | int]:
    """Return an error as Kubernetes' ``Status``."""
    kind = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    return {**kind, "code": status, "reason": reason, "message": message}


class User(msgspec.Struct, frozen=True):
    """The user of a token, as the API server names it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class AnswerCache(Generic[V]):
    """Answers by key, each with a lifetime; at most *size* of them."""

    def __init__(self, size: int = _MAX_CACHED, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Hashable) -> tuple[V] | None:
        """Return the cached answer in a tuple, ``None`` without one."""
        entry = self._answers.get(key)
        return None if entry is None or entry[0] <= self._clock() else (entry[1],)

    def last(self, key: Hashable) -> V | None:
        """Return the last answer, also after its lifetime; ``None`` where it is not in memory."""
        entry = self._answers.get(key)
        return None if entry is None else entry[1]

    def put(self, key: Hashable, answer: V, *, is_yes: bool) -> None:
        """Cache *answer*; a negative one for a shorter time."""
        self._answers.pop(key, None)
        self._answers[key] = self._clock() + (_YES_SECONDS if is_yes else _NO_SECONDS), answer
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Permission:
    """A verb on a resource, in one namespace or, without one, in all."""

    verb: str
    resource: str = RESOURCE
    group: str = GROUP
    namespace: str = ""


class Access:
    """Reviews callers with the process' own credentials."""

    def __init__(
        self,
        api: Api,
        *,
        reviews_per_second: float = _REVIEWS_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._users: AnswerCache[User | None] = AnswerCache(clock=clock)
        self._allowed: AnswerCache[bool] = AnswerCache(clock=clock)
        self._rates = RequestRates(reviews_per_second, burst=reviews_per_second, clock=clock)
        self._rates_of_one = RequestRates(
            _PART_OF_ONE * reviews_per_second, burst=_BURST_OF_ONE * reviews_per_second, clock=clock
        )

    async def require(self, token: str, namespace: str, verb: str) -> None:
        """Raise `RefusedError` unless the caller may *verb* the workloads of *namespace*.

        Raises `ApiError` where the API server does not answer.
        """
        user = await self.user(token)
        if user is None:
            raise unauthenticated()
        if not await self.may(user, Permission(verb, namespace=namespace)):
            text = f"you may not {verb} {RESOURCE} of {GROUP} in namespace {namespace!r}; the role `view` allows it"
            raise RefusedError(403, "Forbidden", text)

    async def user(self, token: str) -> User | None:
        """Return the user of *token*, ``None`` for an invalid one; raise `RefusedError` where callers are too many."""
        if not token.isascii():
            # Bytes of a header that are not UTF-8 could not be sent to the API server.
            return None
        key = _digest(token)
        cached = self._users.get(key)
        if cached is None:
            known = self._users.last(key)
            self._count(known.username if known is not None else "")
            raw = await self._review(_TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
            status = msgspec.json.decode(raw, type=_TokenReview).status
            cached = (status.user if status.authenticated and status.user.username else None,)
            self._users.put(key, cached[0], is_yes=cached[0] is not None)
        return cached[0]

    def known_user(self, token: str) -> User | None:
        """Return the user of a token that was valid at its last review, however long ago; it permits nothing."""
        return self._users.last(_digest(token)) if token.isascii() else None

    async def may(self, user: User, permission: Permission) -> bool:
        """Return whether *user* has *permission*; raise `RefusedError` where callers are too many."""
        extra = msgspec.json.encode(user.extra, order="sorted")
        key = user.username, user.uid, user.groups, extra, permission
        cached = self._allowed.get(key)
        if cached is None:
            cached = (await self._is_allowed(user, permission),)
            self._allowed.put(key, cached[0], is_yes=cached[0])
        return cached[0]

    async def _is_allowed(self, user: User, permission: Permission) -> bool:
        attributes = {"verb": permission.verb, "group": permission.group, "resource": permission.resource}
        if permission.namespace:
            attributes["namespace"] = permission.namespace
        spec: dict[str, Any] = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        self._count(user.username)
        raw = await self._review(_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return msgspec.json.decode(raw, type=_AccessReview).status.allowed

    def _count(self, username: str) -> None:
        """Count one review of a user, or of an unknown token; raise `RefusedError` where they are too many."""
        if not (self._rates_of_one.admits(username) and self._rates.admits("")):
            raise RefusedError(429, "TooManyRequests", "too many callers; try again after a second")

    async def _review(self, path: str, api_version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = {"apiVersion": api_version, "kind": kind, "spec": spec}
        return await self._api.create(path, msgspec.json.encode(body))


def _digest(token: str) -> bytes:
    """Return what a token is stored as, so that a memory dump has no tokens of tenants."""
    return hashlib.sha256(token.encode()).digest()
