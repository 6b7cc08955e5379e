"""Classifies failed API server requests: one exception class for each way to handle them.

Callers decide about retries.
"""

# ruff: noqa: N818 -- these are the reasons of Kubernetes, which have no suffix

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar

import msgspec

#: How Karmada's webhook reports an exceeded quota, since 1.15 and in 1.14.
_QUOTA_MESSAGES = ("FederatedResourceQuota(", "Quota exceeded for FederatedResourceQuota ")


class ApiError(Exception):
    """A request that the API server rejected or did not answer."""

    metric_label: ClassVar[str] = "refused"
    """Value of the ``outcome`` label in metrics."""
    is_rejection: ClassVar[bool] = True
    """Whether the server rejected the content of the request, so that requests for other objects need not wait."""

    def __init__(self, request: str, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {status} {message}" if status else f"{request}: {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait before a retry, if the server named them."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted."""

    metric_label = "unauthorized"
    is_rejection = False


class Forbidden(ApiError):
    """403: RBAC or an admission policy denies the request."""

    metric_label = "forbidden"


class QuotaExceeded(Forbidden):
    """403: a FederatedResourceQuota of the namespace is exceeded."""

    metric_label = "quota_exceeded"

    @property
    def quota(self) -> str:
        """Return the part of Karmada's message that names the quota and, since 1.15, the resource and the amount."""
        begin = next(self.message.index(text) for text in _QUOTA_MESSAGES if text in self.message)
        return self.message[begin:].rstrip(". ")


class NotFound(ApiError):
    """404: the object or its kind does not exist."""

    metric_label = "not_found"


class Conflict(ApiError):
    """409: the object has changed or exists already; read it again."""

    metric_label = "conflict"


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old."""

    metric_label = "gone"


class Invalid(ApiError):
    """422: a failed test operation, a missing path, an invalid object or a denial by a policy."""

    metric_label = "invalid"


class TooManyRequests(ApiError):
    """429: the server is overloaded or starting."""

    metric_label = "throttled"
    is_rejection = False


class ServerError(ApiError):
    """5xx: the server failed; a write may have been carried out."""

    metric_label = "server_error"
    is_rejection = False


class Unreachable(ApiError):
    """No response or an incomplete one; a write may have been carried out unless it was never sent."""

    metric_label = "unanswered"
    is_rejection = False

    def __init__(self, request: str, message: str, *, sent: bool = True) -> None:
        super().__init__(request, 0, message)
        self.sent = sent


class BodyTooLong(Unreachable):
    """A response body above the size limit; the rest of it was not read."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


class _Details(msgspec.Struct):
    retry_after: float | None = msgspec.field(default=None, name="retryAfterSeconds")


class Status(msgspec.Struct):
    """A Kubernetes ``Status``: body of an error response, and of an ERROR event in a watch."""

    code: int = 0
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after(self) -> float | None:
        """Return the seconds to wait before a retry, if the server named them."""
        return self.details.retry_after if self.details else None


_statuses = msgspec.json.Decoder(Status)


def error_for(status: int, message: str = "") -> type[ApiError]:
    """Return the exception class for an HTTP *status* with this *message*."""
    if status == HTTPStatus.FORBIDDEN and any(text in message for text in _QUOTA_MESSAGES):
        return QuotaExceeded
    return _BY_STATUS.get(status, ServerError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiError)


def read_status(body: bytes) -> Status:
    """Decode a ``Status``; any other body becomes its message, since proxies answer in other formats."""
    try:
        return _statuses.decode(body)
    except msgspec.MsgspecError:
        return Status(message=body[:200].decode(errors="replace").strip())
