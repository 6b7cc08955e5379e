"""Defines the answer to an admission review, and denies reviews of the wrong path and of objects that are too large."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from webhook.review import MAX_VALUES, Operation, Request, Response, Status, count_values

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


_REMEDY = "correct the rules of its configuration"


def validate_target(
    request: Request, group: str, resources: Collection[str], *, operations: Collection[str]
) -> AdmissionResponse | None:
    """Return a denial of a *request* that is not about *operations* on *resources*, or ``None``."""
    resource = request.resource
    if resource.group != group or resource.resource not in resources or request.sub_resource:
        path = "/".join(filter(None, (resource.group, resource.resource, request.sub_resource)))
        return denied(
            f"this webhook reviews {_format_resources(group, resources)}, not {path[:200]!r}: {_REMEDY}", code=400
        )
    if request.operation not in operations:
        expected = f"{', '.join(operations)} of {_format_resources(group, resources)}"
        return denied(f"this webhook reviews {expected}, not {request.operation[:60]!r}: {_REMEDY}", code=400)
    return None


def validate_value_count(request: Request) -> AdmissionResponse | None:
    """Return a denial of an object with more JSON values than a new object may have, or ``None``.

    A stored object may still be updated, so that its finalizers can be removed.
    """
    count = count_values(request.object)
    if count <= MAX_VALUES or count <= count_values(request.old_object):
        return None
    return denied(f"the object has {count} JSON values: use at most {MAX_VALUES}", code=422)


def _format_resources(group: str, resources: Collection[str]) -> str:
    return f"{group} {'/'.join(sorted(resources))}"
