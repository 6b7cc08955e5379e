"""How a call to the API server can fail, one class for each thing to do about it.

Only the names and the reading of a ``Status``; what is tried again is decided
by those who call.
"""

# ruff: noqa: N818 -- these are Kubernetes' own words, and say what they are without a suffix

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar

import msgspec

#: How what Karmada's webhook says of a quota begins.
_QUOTA = "FederatedResourceQuota("


class ApiError(Exception):
    """A call that the API server refused, or never answered."""

    metric_label: ClassVar[str] = "refused"
    """What metrics call it."""

    def __init__(self, request: str, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {status} {message}" if status else f"{request}: {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after
        """After how many seconds the server asks us to come back, where it does."""


class Unauthorized(ApiError):
    """401: the credentials are not, or no longer, accepted."""

    metric_label = "unauthorized"


class Forbidden(ApiError):
    """403: no right to do this, or a policy denies it."""

    metric_label = "forbidden"


class QuotaExceeded(Forbidden):
    """403: Karmada's own quota of the namespace does not take it."""

    metric_label = "quota_exceeded"

    @property
    def quota(self) -> str:
        """Return what Karmada says of it: which quota, for which resource, and how much."""
        return self.message[self.message.index(_QUOTA) :].rstrip(". ")


class NotFound(ApiError):
    """404: no such object, or no such kind."""

    metric_label = "not_found"


class Conflict(ApiError):
    """409: it changed, or exists already: look again."""

    metric_label = "conflict"


class Gone(ApiError):
    """410: this resourceVersion or continue token is too old."""

    metric_label = "gone"


class Invalid(ApiError):
    """422: a failed test, a missing path, an invalid object or a policy's denial."""

    metric_label = "invalid"


class TooManyRequests(ApiError):
    """429: the server asks us to slow down, or is starting."""

    metric_label = "throttled"


class ServerError(ApiError):
    """5xx: the server failed; a write may have been done all the same."""

    metric_label = "server_error"


class Unreachable(ApiError):
    """No answer, or half of one; a write may have been done unless it was never sent."""

    metric_label = "unanswered"

    def __init__(self, request: str, message: str, *, sent: bool = True) -> None:
        super().__init__(request, 0, message)
        self.sent = sent


class BodyTooLong(Unreachable):
    """An answer of more bytes than are read; the rest of it was not."""


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
    """Kubernetes' ``Status``: the body of a refusal, and of an ERROR event in a watch."""

    code: int = 0
    message: str = ""
    details: _Details | None = None

    @property
    def retry_after(self) -> float | None:
        """Return after how many seconds to come back, where the server says so."""
        return self.details.retry_after if self.details else None


_statuses = msgspec.json.Decoder(Status)


def error_for(status: int, message: str = "") -> type[ApiError]:
    """Return the kind of error that an HTTP *status* with this *message* means."""
    if status == HTTPStatus.FORBIDDEN and _QUOTA in message:
        return QuotaExceeded
    return _BY_STATUS.get(status, ServerError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiError)


def read_status(body: bytes) -> Status:
    """Read a ``Status``; whatever else a proxy on the way may say becomes its message."""
    try:
        return _statuses.decode(body)
    except msgspec.MsgspecError:
        return Status(message=body[:200].decode(errors="replace"))
