"""Defines the answer to an admission review: allowed, denied or patched."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from webhook.review import Operation, Response, Status

#: Maximum length of a message in characters; longer messages are truncated.
MAX_MESSAGE_LENGTH = 4096

_ENCODER = msgspec.json.Encoder()


class Outcome(StrEnum):
    """Outcome of a review, as shown in metrics and logs."""

    ALLOWED = "allowed"
    DENIED = "denied"
    EXEMPT = "exempt"
    PATCHED = "patched"
    WARNED = "warned"


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """Answer to one review: *code* and *message* explain a denial, *patch* changes the object.

    With *depends_on_queues* the answer follows from cached queues, which may be stale.
    """

    outcome: Outcome
    code: int = 0
    message: str = ""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    depends_on_queues: bool = False


_ALLOWED = AdmissionResponse(Outcome.ALLOWED)
_EXEMPT = AdmissionResponse(Outcome.EXEMPT)


def allowed(*warnings: str) -> AdmissionResponse:
    """Allow the object unchanged; the user's client shows *warnings*."""
    warnings = tuple(_truncate(warning) for warning in warnings)
    return AdmissionResponse(Outcome.WARNED, message="; ".join(warnings), warnings=warnings) if warnings else _ALLOWED


def exempt() -> AdmissionResponse:
    """Allow an object of an exempt namespace unchanged."""
    return _EXEMPT


def patched(*operations: Operation) -> AdmissionResponse:
    """Allow the object with *operations* applied, or unchanged if there are none."""
    return AdmissionResponse(Outcome.PATCHED, patch=operations) if operations else allowed()


def denied(message: str, *, code: int = 403, depends_on_queues: bool = False) -> AdmissionResponse:
    """Deny the object with a message for the user; *code* is the HTTP status that the user's client receives."""
    return AdmissionResponse(Outcome.DENIED, code=code, message=_truncate(message), depends_on_queues=depends_on_queues)


def _truncate(text: str) -> str:
    """Return at most `MAX_MESSAGE_LENGTH` characters of *text*, since names in it may be as long as the object."""
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}…"


def review_response(answer: AdmissionResponse, uid: str) -> Response:
    """Return the response to the request *uid* in the form that the API server reads."""
    if answer.outcome is Outcome.DENIED:
        return Response(uid, allowed=False, status=Status(answer.code, answer.message))
    if not answer.patch:
        return Response(uid, allowed=True, warnings=answer.warnings)
    # msgspec encodes bytes as base64, as the API server expects for a patch.
    return Response(uid, allowed=True, patch_type="JSONPatch", patch=_ENCODER.encode(answer.patch))
