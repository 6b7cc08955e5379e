"""An AdmissionReview as it travels between the API server and a webhook; judges nothing.

Only the members a verdict needs are decoded. The object stays raw, so that a bad object (a refusal the user reads) is
told from a bad review (a broken caller).
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

Levels = Mapping[str, "Levels"]
"""Which members of a JSON object are looked into: name -> the same of its value."""


class ReviewError(ValueError):
    """The body is no review that could be answered; carries the request's uid where it could be read."""

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


class RepeatedKeyError(ValueError):
    """A JSON object names a member twice, so that two readers may see two different objects."""


class Resource(msgspec.Struct, frozen=True):
    """The resource a request is about."""

    group: str
    version: str
    resource: str


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What the API server asks about one write."""

    uid: str
    resource: Resource
    operation: str
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool = False
    object: msgspec.Raw = msgspec.Raw(b"null")


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """The question."""

    api_version: str
    kind: str
    request: Request


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of a JSON Patch (RFC 6902)."""

    op: str
    path: str
    value: Any = msgspec.UNSET


class Status(msgspec.Struct, frozen=True):
    """Why a write is refused; the API server shows the message to the user."""

    code: int
    message: str


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer; *patch* is a base64 encoded JSON Patch."""

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


class _Answer(msgspec.Struct, rename="camel"):
    response: Response
    api_version: str = VERSION
    kind: str = KIND


_REVIEW = msgspec.json.Decoder(Review)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_LEVELS: Levels = {"request": {"resource": {}}}


def read(body: bytes) -> Request:
    """Return the request in *body*, or raise `ReviewError` with a sentence that says what is wrong with it."""
    try:
        # What is skipped is not decoded, so bad UTF-8 there would pass.
        review = _REVIEW.decode(str(body, "utf-8"))
        refuse_repeated_keys(body.strip(), _LEVELS)
    except RecursionError as error:
        raise ReviewError("the body is nested too deeply for an AdmissionReview") from error
    except ValueError as error:  # malformed JSON, a wrong type, bad UTF-8, a repeated key
        raise ReviewError(f"the body is no AdmissionReview: {error}", _uid(body)) from error
    uid = review.request.uid
    if (review.api_version, review.kind) != (VERSION, KIND):
        raise ReviewError(f"this webhook reads {VERSION} {KIND}, not {review.api_version[:60]} {review.kind[:60]}", uid)
    if not uid:
        raise ReviewError("the review's request.uid is empty, so that no answer could be told to belong to it")
    return review.request


def write(response: Response) -> bytes:
    """Return the body of the answer to a review."""
    return _ENCODER.encode(_Answer(response))


def refuse_repeated_keys(raw: bytes | memoryview, levels: Levels) -> None:
    """Raise `RepeatedKeyError` when a member that is looked into, or a neighbour of one, is named twice.

    The API server writes JSON without blanks and with plain keys. There the lengths of the members add up exactly when
    none was dropped as a repetition, at a tenth of the cost of a strict parser; anything else is parsed strictly.
    """
    members = {key: memoryview(value) for key, value in _MEMBERS.decode(raw).items()}
    if len(raw) != 1 + sum(len(key) + len(value) + 4 for key, value in members.items()):
        json.loads(bytes(raw), object_pairs_hook=_once)
        return
    for name, below in levels.items():
        # A member that is no object is the typed decoder's business: it says what it should have been.
        if name in members and bytes(members[name][:1]) == b"{":
            refuse_repeated_keys(members[name], below)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"the key {repeated[:60]!r} is there twice")
    return members


def _uid(body: bytes) -> str:
    try:
        return _ENVELOPE.decode(body).request.uid
    except (ValueError, RecursionError):
        return ""
