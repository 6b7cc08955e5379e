"""What a webhook answers about one object: allowed, denied or patched; knows no HTTP and no object."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from controller.api.review import Operation, Response, Status

#: Characters of a message; what is longer is cut.
LONGEST_MESSAGE = 4096

_ENCODER = msgspec.json.Encoder()


class Outcome(StrEnum):
    """How a review ended, as metrics and logs name it."""

    ALLOWED = "allowed"
    DENIED = "denied"
    EXEMPT = "exempt"
    PATCHED = "patched"
    WARNED = "warned"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one review; *code* and *message* are for a denial, *patch* for an object that is to be changed.

    One that *rests_on_queues* follows from what was heard of them, which may not be true any more.
    """

    outcome: Outcome
    code: int = 0
    message: str = ""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    rests_on_queues: bool = False


_ALLOWED = Verdict(Outcome.ALLOWED)
_EXEMPT = Verdict(Outcome.EXEMPT)


def allowed(*warnings: str) -> Verdict:
    """Let the object through as it is; its user's client shows *warnings*."""
    warnings = tuple(_clipped(warning) for warning in warnings)
    return Verdict(Outcome.WARNED, message="; ".join(warnings), warnings=warnings) if warnings else _ALLOWED


def exempt() -> Verdict:
    """Let an object through that would be changed, had the operator not exempted it."""
    return _EXEMPT


def patched(*operations: Operation) -> Verdict:
    """Let the object through with *operations* applied; without any it is let through as it is."""
    return Verdict(Outcome.PATCHED, patch=operations) if operations else allowed()


def denied(message: str, *, code: int = 403, rests_on_queues: bool = False) -> Verdict:
    """Refuse the object with a sentence for its user; *code* is the HTTP status the user's client sees."""
    return Verdict(Outcome.DENIED, code=code, message=_clipped(message), rests_on_queues=rests_on_queues)


def _clipped(text: str) -> str:
    """Return *text* at a length that can be shown: names in it may be as long as the object."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def response(verdict: Verdict, uid: str) -> Response:
    """Return the wire form of *verdict* on the request *uid*."""
    if verdict.outcome is Outcome.DENIED:
        return Response(uid, allowed=False, status=Status(verdict.code, verdict.message))
    if not verdict.patch:
        return Response(uid, allowed=True, warnings=verdict.warnings)
    # msgspec writes bytes as base64, which is what the API server expects of a patch.
    return Response(uid, allowed=True, patch_type="JSONPatch", patch=_ENCODER.encode(verdict.patch))
