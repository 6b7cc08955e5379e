"""Tests bodies of reviews: invalid ones are answered 400 with a message and the uid, unusual ones are answered."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.reviews import GOOD, UID, job_binding, review, wire
from webhook import review as wires

DEEP = 100_000


def without(name: str) -> bytes:
    body = review(job_binding())
    del body["request"][name]
    return wire(body)


def with_request(**changes) -> bytes:
    return wire(review(job_binding(), **changes))


def with_review(**changes) -> bytes:
    return wire(review(job_binding()) | changes)


def spliced(before: bytes, after: bytes) -> bytes:
    assert before in GOOD
    return GOOD.replace(before, after, 1)


def with_member(text: bytes) -> bytes:
    """Return a review whose request has another member, given as text."""
    return spliced(b'"dryRun":false', text)


#: Bodies that are meant to use much memory or time.
BOMBS = [
    pytest.param(b"[" * DEEP, id="deep-list"),
    pytest.param(b'{"a":' * DEEP + b"1" + b"}" * DEEP, id="deep-object"),
    pytest.param(with_member(b'"x":' + b"[" * DEEP + b"]" * DEEP), id="deep-in-the-request"),
    pytest.param(spliced(b'"schedulerName"', b'"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b',"y"'), id="deep-spec"),
    pytest.param(b"{" + b'"a":1,' * DEEP + b'"b":1}', id="many-keys"),
    pytest.param(b'"' + b"\\ud800" * DEEP + b'"', id="lone-surrogates"),
]

#: Bodies without a readable uid.
ANONYMOUS = [
    *BOMBS,
    pytest.param(b"", id="empty"),
    pytest.param(b" \n", id="blank"),
    pytest.param(b"null", id="null"),
    pytest.param(b'"review"', id="string"),
    pytest.param(b"{}", id="object"),
    pytest.param(b"[" + GOOD.strip() + b"]", id="review-in-a-list"),
    pytest.param(b"<html></html>", id="html"),
    pytest.param(b"k8s\x00\n\x0c", id="protobuf"),
    pytest.param(GOOD[:200], id="truncated"),
    pytest.param(GOOD + b"{}", id="two-documents"),
    pytest.param(b"\xef\xbb\xbf" + GOOD, id="byte-order-mark"),
    pytest.param(GOOD.decode().encode("utf-16"), id="utf-16"),
    pytest.param(with_member(b'"dryRun":NaN'), id="nan"),
    pytest.param(with_member(b'"x":-Infinity'), id="infinity"),
    pytest.param(with_member(b'"x":012'), id="octal"),
    pytest.param(with_member(b'"x":"\x01"'), id="control-character"),
    pytest.param(with_member(b'"x":"\\x"'), id="bad-escape"),
    pytest.param(with_member(b'"dryRun":false,'), id="trailing-comma"),
    pytest.param(without("uid"), id="no-uid"),
    pytest.param(with_request(uid=""), id="empty-uid"),
    pytest.param(with_request(uid=None), id="null-uid"),
    pytest.param(with_request(uid=7), id="number-uid"),
    pytest.param(spliced(UID.encode(), b"\\ud800"), id="lone-surrogate"),
    pytest.param(spliced(UID.encode(), b"\xff"), id="bad-utf-8-uid"),
    pytest.param(with_review(request=None), id="null-request"),
    pytest.param(with_review(request=[]), id="list-request"),
    pytest.param(wire({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), id="no-request"),
    pytest.param(wire(job_binding()), id="binding-alone"),
]

#: Bodies with a uid to return.
NAMED = [
    pytest.param(with_review(apiVersion="admission.k8s.io/v1beta1"), id="v1beta1"),
    pytest.param(with_review(apiVersion=None), id="null-version"),
    pytest.param(with_review(kind="ConversionReview"), id="conversion"),
    pytest.param(without("operation"), id="no-operation"),
    pytest.param(without("resource"), id="no-resource"),
    pytest.param(with_request(operation=1), id="number-operation"),
    pytest.param(with_request(resource="resourcebindings"), id="string-resource"),
    pytest.param(with_request(resource={"group": "work.karmada.io"}), id="half-a-resource"),
    pytest.param(with_request(namespace=["ml"]), id="list-namespace"),
    pytest.param(spliced(b'"name":"train-job"', b'"name":' + b"9" * 1_000_000), id="number-of-a-million-digits"),
    pytest.param(with_request(dryRun="false"), id="string-dry-run"),
    pytest.param(spliced(b'"dryRun"', b'"uid":"%s","dryRun"' % UID.encode()), id="uid-twice"),
    pytest.param(spliced(b'"dryRun"', b'"object":null,"dryRun"'), id="object-twice"),
    pytest.param(spliced(b'"kind":"AdmissionReview"', b'"kind":"x","kind":"AdmissionReview"'), id="kind-twice"),
    pytest.param(spliced(b'"username":"system:admin"', b'"username":"\xff\xfe"'), id="bad-utf-8-elsewhere"),
    pytest.param(spliced(b'"username":"system:admin"', b'"username":"\xed\xa0\x80"'), id="encoded-surrogate"),
]


@pytest.mark.parametrize("body", ANONYMOUS)
async def test_body_without_a_review_is_answered_400(running, body):
    async with running.post(body) as answer:
        status = await answer.json()
    assert (answer.status, status["code"], status["kind"], status["status"]) == (400, 400, "Status", "Failure")
    assert status["message"].startswith(("the body is ", "the review's request.uid is "))
    assert status["details"] == {"uid": ""}


@pytest.mark.parametrize("body", NAMED)
async def test_invalid_review_is_answered_400_with_its_uid(running, body):
    async with running.post(body) as answer:
        status = await answer.json()
    assert answer.status == 400
    assert status["message"].startswith(
        ("the body is not an AdmissionReview: ", "this webhook reads admission.k8s.io/v1 ")
    )
    assert status["details"] == {"uid": UID}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(GOOD, id="compact"),
        pytest.param(json.dumps(review(job_binding()), indent=2).encode(), id="indented"),
        pytest.param(b"\t\r\n " + GOOD, id="leading-blanks"),
        pytest.param(with_review(new={"since": "1.99"}), id="members-of-a-later-version"),
        pytest.param(spliced(b'"train-job"', '"тренировка"'.encode()), id="beyond-ascii"),
        pytest.param(
            spliced(b'"schedulerName"', b'"x":' + b"9" * DEEP + b',"y"'), id="huge-number-in-an-ignored-field"
        ),
        pytest.param(with_request(userInfo={"extra": {"a" * 253: ["b" * 100_000]}}), id="long-names"),
    ],
)
async def test_unusual_but_valid_reviews_are_answered(running, body):
    async with running.post(body) as answer:
        assert answer.status == 200
        assert (await answer.json())["response"]["patchType"] == "JSONPatch"


def written(value, twice) -> str:
    """Return *value* as JSON, with the fields in *twice* repeated in their objects."""
    if isinstance(value, dict):
        members = [(name, written(inner, twice)) for name, inner in value.items()]
        members += [(name, json.dumps(other)) for name, other in twice.items() if name in value]
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members) + "}"
    return json.dumps(value, separators=(",", ":"))


WORDS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", "default", 'a"b', "\\", "\u20ac"])


@given(
    request_=st.dictionaries(st.sampled_from(["name", "namespace", "uid", "operation", "subResource"]), WORDS),
    absent=st.sets(st.sampled_from(["name", "namespace", "dryRun", "options", "oldObject", "userInfo"])),
    more=st.dictionaries(st.sampled_from(["requestKind", "requestResource", "new"]), st.just({"a": 1})),
    twice=st.dictionaries(st.sampled_from(["uid", "group", "metadata", "spec", "kind", "dryRun", "name"]), WORDS),
    blank=st.sampled_from(["", " ", "\n"]),
)
def test_fast_and_strict_decoding_agree(request_, absent, more, twice, blank):
    """The fast path decodes what is canonical; it must give up wherever a strict parser reads another object."""
    whole = review(job_binding())
    whole["request"] |= request_ | more
    for name in absent:
        whole["request"].pop(name, None)
    body = (written(whole, twice).replace('"request":', f'"request":{blank}') + blank).encode().strip()
    fast = wires._read_canonical(body)
    if fast is None:
        return
    strict = wires._read_strictly(body)
    assert fast[:2] == strict[:2]
    assert msgspec.structs.replace(fast[2], sent=strict[2].sent) == strict[2]
    assert fast[2].members == strict[2].members


def test_canonical_review_is_decoded_by_the_fast_path():
    assert wires._read_canonical(GOOD.strip()) is not None
