"""What a webhook answers about one object: allowed, denied or patched; knows no HTTP and no object."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from controller.api.review import Operation, Response, Status

#: Characters of a message; what is longer is cut.
MAX_MESSAGE_LENGTH = 4096

_ENCODER = msgspec.json.Encoder()


class Outcome(StrEnum):
    """How a review ended, as metrics and logs name it."""

    ALLOWED = "allowed"
    DENIED = "denied"
    EXEMPT = "exempt"
    PATCHED = "patched"
    WARNED = "warned"


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """The answer to one review; *code* and *message* are for a denial, *patch* for an object that is to be changed.

    One that *rests_on_queues* follows from what was heard of them, which may not be true any more.
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
    """Let the object through as it is; its user's client shows *warnings*."""
    warnings = tuple(_truncate(warning) for warning in warnings)
    return AdmissionResponse(Outcome.WARNED, message="; ".join(warnings), warnings=warnings) if warnings else _ALLOWED


def exempt() -> AdmissionResponse:
    """Let an object through that would be changed, had the operator not exempted it."""
    return _EXEMPT


def patched(*operations: Operation) -> AdmissionResponse:
    """Let the object through with *operations* applied; without any it is let through as it is."""
    return AdmissionResponse(Outcome.PATCHED, patch=operations) if operations else allowed()


def denied(message: str, *, code: int = 403, depends_on_queues: bool = False) -> AdmissionResponse:
    """Refuse the object with a sentence for its user; *code* is the HTTP status the user's client sees."""
    return AdmissionResponse(Outcome.DENIED, code=code, message=_truncate(message), depends_on_queues=depends_on_queues)


def _truncate(text: str) -> str:
    """Return *text* at a length that can be shown: names in it may be as long as the object."""
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}…"


def review_response(answer: AdmissionResponse, uid: str) -> Response:
    """Return the wire form of *verdict* on the request *uid*."""
    if answer.outcome is Outcome.DENIED:
        return Response(uid, allowed=False, status=Status(answer.code, answer.message))
    if not answer.patch:
        return Response(uid, allowed=True, warnings=answer.warnings)
    # msgspec writes bytes as base64, which is what the API server expects of a patch.
    return Response(uid, allowed=True, patch_type="JSONPatch", patch=_ENCODER.encode(answer.patch))
