"""Decodes and encodes AdmissionReviews.

Only the fields that the webhook needs are decoded. The object stays raw, so that an invalid object, which is denied
with a message, is distinguished from an invalid review, which is an error of the caller.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

#: Maximum number of values of a new object, by `count_values`: three times those in 1.5 MiB, etcd's size limit.
MAX_VALUES = 1 << 18
Members = Mapping[str, msgspec.Raw]
"""Members of a JSON object, each name once."""

_ABSENT = msgspec.Raw(b"")

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_ENCODER = msgspec.json.Encoder()
_BOOLEAN = msgspec.json.Decoder(bool)
#: Length of the fixed parts of a review, without whitespace.
_FIXED_LENGTH = len(
    '{"kind":"","apiVersion":"","request":{"uid":"","kind":,"resource":{"group":"","version":"","resource":""},'
    '"operation":"","userInfo":,"object":,"oldObject":,"dryRun":false,"options":}}'
)
#: Long fields of a request, which stay raw.
_OBJECTS = {"object": "sent", "oldObject": "old_object"}
#: Maximum length of a message in characters; longer messages are truncated.
MAX_MESSAGE_LENGTH = 4096
_REMEDY = "correct the rules of its configuration"


class ReviewError(ValueError):
    """The body is not a valid review; carries the request's UID if it could be read."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


class RepeatedKeyError(ValueError):
    """A JSON object repeats a key, so that two parsers may read two different objects."""


class Resource(msgspec.Struct, frozen=True):
    """The resource of a request."""

    group: str
    version: str
    resource: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An admission request for one write."""

    uid: str
    resource: Resource
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool = False
    sent: msgspec.Raw | Members = msgspec.Raw(b"null")
    """The object, raw or by members, as it was decoded."""
    old_object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def object(self) -> msgspec.Raw:
        """The object as raw JSON."""
        return self.sent if isinstance(self.sent, msgspec.Raw) else msgspec.Raw(_ENCODER.encode(self.sent))

    @property
    def members(self) -> Members:
        """The members of the object; raises `ValueError` if it is not an object or repeats a key."""
        return members(self.sent) if isinstance(self.sent, msgspec.Raw) else self.sent


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of a JSON Patch (RFC 6902)."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class Status(msgspec.Struct, frozen=True):
    """Why a write is denied; the API server shows the message to the user."""

    code: int
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The response; *patch* is a base64 encoded JSON Patch."""

    uid: str
    allowed: bool
    status: Status | msgspec.UnsetType = msgspec.UNSET
    patch_type: str | msgspec.UnsetType = msgspec.UNSET
    patch: bytes | msgspec.UnsetType = msgspec.UNSET
    warnings: tuple[str, ...] = ()


class _Uid(msgspec.Struct):
    uid: str = ""


class _Envelope(msgspec.Struct):
    request: _Uid = msgspec.field(default_factory=_Uid)


class _RequestMembers(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A request as the API server encodes it; unused fields stay raw."""

    uid: str
    kind: msgspec.Raw
    resource: Resource
    operation: str
    user_info: msgspec.Raw
    object: dict[str, msgspec.Raw]
    old_object: msgspec.Raw
    dry_run: bool
    options: msgspec.Raw
    sub_resource: str = ""
    request_kind: msgspec.Raw = _ABSENT
    request_resource: msgspec.Raw = _ABSENT
    request_sub_resource: msgspec.Raw = _ABSENT
    name: str = ""
    namespace: str = ""


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: _RequestMembers


class _ReviewResponse(msgspec.Struct, rename="camel"):
    response: Response
    api_version: str = VERSION
    kind: str = KIND


_REVIEW = msgspec.json.Decoder(_Review)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_RESOURCE = msgspec.json.Decoder(Resource)

#: Short fields of a request: their attribute name and decoder.
_FIELDS: Mapping[str, tuple[str, msgspec.json.Decoder[Any]]] = {
    "uid": ("uid", _TEXT),
    "resource": ("resource", _RESOURCE),
    "operation": ("operation", _TEXT),
    "subResource": ("sub_resource", _TEXT),
    "name": ("name", _TEXT),
    "namespace": ("namespace", _TEXT),
    "dryRun": ("dry_run", _BOOLEAN),
}


def read(body: bytes) -> Request:
    """Return the request in *body*; raise `ReviewError` if it is invalid."""
    if len(body) > 2 * MAX_VALUES and count_values(body) > 2 * MAX_VALUES:
        raise ReviewError(f"the body has more than {2 * MAX_VALUES} JSON values", _uid(body))
    try:
        # Raw values are not decoded, so invalid UTF-8 in them would be accepted.
        str(body, "utf-8")
        whole = body.strip()
        version, kind, request = _read_canonical(whole) or _read_strictly(whole)
    except RecursionError as error:
        raise ReviewError("the body is nested too deeply for an AdmissionReview") from error
    except ValueError as error:  # malformed JSON, a wrong type, bad UTF-8, a repeated key
        raise ReviewError(f"the body is not an AdmissionReview: {error}", _uid(body)) from error
    if version != VERSION or kind != KIND:
        raise ReviewError(f"this webhook reads {VERSION} {KIND}, not {version[:60]} {kind[:60]}", request.uid)
    if not request.uid:
        raise ReviewError("the review's request.uid is empty, so the response could not be matched to it")
    return request


def count_values(raw: bytes | msgspec.Raw) -> int:
    """Return the approximate number of values in JSON text, at least half of those that cost memory.

    Characters in strings count too. It is one pass over the bytes, much cheaper than decoding them.
    """
    text = bytes(raw)
    return text.count(b"{") + text.count(b"[") + text.count(b":") + text.count(b'",')


def write(response: Response) -> bytes:
    """Return the body of the response to a review."""
    return _ENCODER.encode(_ReviewResponse(response))


def leaves_unchanged(request: Request, *names: str) -> bool:
    """Return whether an update leaves these members of the object as they were, so that it breaks no rule about them.

    It may remove a finalizer of an object that was stored before the rules were as they are.
    """
    if request.operation != "UPDATE":
        return False
    try:
        new, old = request.members, members(request.old_object)
    except (ValueError, RecursionError):
        return False
    return all(new.get(name) == old.get(name) for name in names)


def members(raw: bytes | msgspec.Raw) -> Members:
    """Return the members of a JSON object; raise `ValueError` if a key is repeated.

    The API server writes JSON without whitespace and without escapes in keys. For such JSON the lengths of the members
    add up exactly if no repeated key was dropped, at a tenth of the cost of a strict parser; any other JSON is parsed
    strictly.
    """
    decoded = _MEMBERS.decode(raw)
    if len(memoryview(raw)) != _encoded_length(decoded):
        json.loads(bytes(raw), object_pairs_hook=_refuse_repeated_keys)
    return decoded


def _read_canonical(body: bytes) -> tuple[str, str, Request] | None:
    """Return version, kind and request of a review in one pass, if it has the API server's canonical form.

    ``None``: it has another form or is invalid, and must be read strictly.
    """
    try:
        review = _REVIEW.decode(body)
    except ValueError:  # a member is missing, unknown, or of another type
        return None
    asked = review.request
    if len(body) != _encoded_review_length(review):
        return None
    request = Request(
        uid=asked.uid,
        resource=asked.resource,
        operation=asked.operation,
        sub_resource=asked.sub_resource,
        name=asked.name,
        namespace=asked.namespace,
        dry_run=asked.dry_run,
        sent=asked.object,
        old_object=asked.old_object,
    )
    return review.api_version, review.kind, request


def _read_strictly(body: bytes) -> tuple[str, str, Request]:
    """Return version, kind and request of a review; raise `ValueError` if it is invalid."""
    review = _require_members(members(body), "apiVersion", "kind", "request")
    request = _require_members(members(review["request"]), "uid", "resource", "operation")
    version, kind = _TEXT.decode(review["apiVersion"]), _TEXT.decode(review["kind"])
    fields: dict[str, Any] = {name: request[member] for member, name in _OBJECTS.items() if member in request}
    for member, (name, decoder) in _FIELDS.items():
        if member in request:
            try:
                fields[name] = decoder.decode(request[member])
            except ValueError as error:
                raise ValueError(f"request.{member}: {error}") from error
    members(request["resource"])
    return version, kind, Request(**fields)


def _require_members(decoded: Members, *names: str) -> Members:
    for name in names:
        if name not in decoded:
            raise ValueError(f"{name!r} is missing")
    return decoded


def _encoded_review_length(review: _Review) -> int:
    """Return the length of the canonical encoding of a review; unknown fields make the body longer."""
    asked, resource = review.request, review.request.resource
    names = (asked.name, asked.namespace, asked.sub_resource, asked.uid, asked.operation)
    texts = (review.kind, review.api_version, resource.group, resource.version, resource.resource, *names)
    kinds = (asked.kind, asked.request_kind, asked.request_resource, asked.request_sub_resource)
    raws = (*kinds, asked.user_info, asked.old_object, asked.options)
    length = _FIXED_LENGTH - asked.dry_run + len("".join(texts)) + len(b"".join(raws)) + _encoded_length(asked.object)
    if asked.name:
        length += len(',"name":""')
    if asked.namespace:
        length += len(',"namespace":""')
    if asked.sub_resource:
        length += len(',"subResource":""')
    if asked.request_kind is not _ABSENT:
        length += len(',"requestKind":')
    if asked.request_resource is not _ABSENT:
        length += len(',"requestResource":')
    if asked.request_sub_resource is not _ABSENT:
        length += len(',"requestSubResource":')
    return length


def _encoded_length(decoded: Members) -> int:
    """Return the length of a JSON object with these members, without whitespace and escapes in keys."""
    if not decoded:
        return len("{}")
    return 1 + len('"":,') * len(decoded) + len("".join(decoded)) + len(b"".join(decoded.values()))


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise RepeatedKeyError(f"the key {repeated[:60]!r} is repeated")
    return by_key


def _uid(body: bytes) -> str:
    try:
        return _ENVELOPE.decode(body).request.uid
    except (ValueError, RecursionError):
        return ""


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
