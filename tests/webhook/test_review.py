"""Tests invalid review bodies: each is answered 400 with a message, and none raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.reviews import UID, job_binding, review, wire
from tests.webhook.test_resourcebindings import BAD_OBJECTS
from webhook import review as wires
from webhook.bindings import GatedKinds, review_binding
from webhook.review import Outcome, review_response

GOOD = wire(review(job_binding()))
DEEP = 100_000


def without(name: str) -> bytes:
    body = review(job_binding())
    del body["request"][name]
    return wire(body)


def with_request(**changes) -> bytes:
    return wire(review(job_binding(), **changes))


def spliced(before: bytes, after: bytes) -> bytes:
    assert before in GOOD
    return GOOD.replace(before, after, 1)


#: Bodies without a readable uid.
ANONYMOUS = [
    pytest.param(b"", id="empty"),
    pytest.param(b" \n", id="blank"),
    pytest.param(b"null", id="null"),
    pytest.param(b"true", id="true"),
    pytest.param(b"7", id="number"),
    pytest.param(b'"review"', id="string"),
    pytest.param(b"[]", id="list"),
    pytest.param(b"{}", id="object"),
    pytest.param(b"[" + GOOD.strip() + b"]", id="review-in-a-list"),
    pytest.param(b"<html></html>", id="html"),
    pytest.param(b"apiVersion: admission.k8s.io/v1", id="yaml"),
    pytest.param(b"\x00", id="nul"),
    pytest.param(b"k8s\x00\n\x0c", id="protobuf"),
    pytest.param(GOOD[:-3], id="truncated-at-the-end"),
    pytest.param(GOOD[:200], id="truncated"),
    pytest.param(GOOD + b"{}", id="two-documents"),
    pytest.param(GOOD.strip() + b"x", id="trailing-letter"),
    pytest.param(b"\xef\xbb\xbf" + GOOD, id="utf-8-bom"),
    pytest.param(GOOD.decode().encode("utf-16"), id="utf-16"),
    pytest.param(GOOD.decode().encode("utf-32"), id="utf-32"),
    pytest.param(b"[" * DEEP, id="deep-list-open"),
    pytest.param(b"[" * DEEP + b"]" * DEEP, id="deep-list"),
    pytest.param(b'{"a":' * DEEP + b"1" + b"}" * DEEP, id="deep-object"),
    pytest.param(spliced(b'"dryRun":false', b'"x":' + b"[" * DEEP + b"]" * DEEP), id="deep-in-the-request"),
    pytest.param(spliced(b'"schedulerName"', b'"x":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b',"y"'), id="deep-spec"),
    pytest.param(spliced(b'"dryRun":false', b'"dryRun":NaN'), id="nan"),
    pytest.param(spliced(b'"dryRun":false', b'"x":Infinity'), id="infinity"),
    pytest.param(spliced(b'"dryRun":false', b'"x":-Infinity'), id="negative-infinity"),
    pytest.param(spliced(b'"dryRun":false', b'"x":012'), id="octal"),
    pytest.param(spliced(b'"dryRun":false', b'"x":0x12'), id="hexadecimal"),
    pytest.param(spliced(b'"dryRun":false', b"'x':1"), id="single-quotes"),
    pytest.param(spliced(b'"dryRun":false', b'"x":"\x01"'), id="control-character"),
    pytest.param(spliced(b'"dryRun":false', b'"x":"\\x"'), id="bad-escape"),
    pytest.param(spliced(b'"dryRun":false', b'"dryRun":false,'), id="trailing-comma"),
    pytest.param(spliced(b'"dryRun":false', b'/* */"dryRun":false'), id="comment"),
    pytest.param(without("uid"), id="no-uid"),
    pytest.param(with_request(uid=""), id="empty-uid"),
    pytest.param(with_request(uid=None), id="null-uid"),
    pytest.param(with_request(uid=7), id="number-uid"),
    pytest.param(with_request(uid=[UID]), id="list-uid"),
    pytest.param(spliced(UID.encode(), b"\\ud800"), id="lone-surrogate"),
    pytest.param(spliced(UID.encode(), b"\xff"), id="bad-utf-8-uid"),
    pytest.param(wire(review(job_binding()) | {"request": None}), id="null-request"),
    pytest.param(wire(review(job_binding()) | {"request": "x"}), id="string-request"),
    pytest.param(wire(review(job_binding()) | {"request": []}), id="list-request"),
    pytest.param(wire({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), id="no-request"),
    pytest.param(
        wire({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": UID}}), id="answer"
    ),
    pytest.param(wire(job_binding()), id="binding-alone"),
]

#: Bodies with a uid to return.
NAMED = [
    pytest.param(wire(review(job_binding()) | {"apiVersion": "admission.k8s.io/v1beta1"}), id="v1beta1"),
    pytest.param(wire(review(job_binding()) | {"apiVersion": "admission.k8s.io/v2"}), id="v2"),
    pytest.param(wire(review(job_binding()) | {"apiVersion": ""}), id="empty-version"),
    pytest.param(wire(review(job_binding()) | {"apiVersion": None}), id="null-version"),
    pytest.param(wire(review(job_binding()) | {"kind": "ConversionReview"}), id="conversion"),
    pytest.param(wire(review(job_binding()) | {"kind": 1}), id="number-kind"),
    pytest.param(without("operation"), id="no-operation"),
    pytest.param(without("resource"), id="no-resource"),
    pytest.param(with_request(operation=1), id="number-operation"),
    pytest.param(with_request(operation=None), id="null-operation"),
    pytest.param(with_request(resource="resourcebindings"), id="string-resource"),
    pytest.param(with_request(resource={"group": "work.karmada.io"}), id="half-a-resource"),
    pytest.param(with_request(resource=None), id="null-resource"),
    pytest.param(with_request(namespace=["ml"]), id="list-namespace"),
    pytest.param(with_request(name=int("9" * 4000)), id="huge-number-name"),
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


@pytest.mark.parametrize("new", BAD_OBJECTS)
async def test_invalid_object_is_a_denial_and_not_an_error(running, new):
    async with running.post(wire(review(new))) as answer:
        body = await answer.json()
    assert answer.status == 200
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert body["response"]["uid"] == UID
    assert body["response"]["allowed"] is False
    assert body["response"]["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(GOOD, id="compact"),
        pytest.param(json.dumps(review(job_binding()), indent=2).encode(), id="indented"),
        pytest.param(b"\t\r\n " + GOOD, id="leading-blanks"),
        pytest.param(wire(review(job_binding()) | {"new": {"since": "1.99"}}), id="members-of-a-later-version"),
        pytest.param(spliced(b'"train-job"', '"тренировка"'.encode()), id="beyond-ascii"),
        pytest.param(
            spliced(b'"schedulerName"', b'"x":' + b"9" * 100_000 + b',"y"'), id="huge-number-in-an-ignored-field"
        ),
        pytest.param(with_request(userInfo={"extra": {"a" * 253: ["b" * 100_000]}}), id="long-names"),
    ],
)
async def test_unusual_but_valid_reviews_are_answered(running, body):
    async with running.post(body) as answer:
        assert answer.status == 200
        assert (await answer.json())["response"]["patchType"] == "JSONPatch"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["uid", "resource", "operation", "name", "namespace", "object", "dryRun", "subResource", "kind"]
)
paths = st.sampled_from(["spec", "metadata", "apiVersion", "kind"])
spec_paths = st.sampled_from(["resource", "suspension", "clusters", "placement"])


@given(
    st.dictionaries(names, json_values), st.dictionaries(paths, json_values), st.dictionaries(spec_paths, json_values)
)
def test_any_field_value_gives_an_answer_or_a_review_error(request_, members, spec):
    new = job_binding(**spec) | members
    body = wire(review(new) | {"request": review(new)["request"] | request_})
    try:
        asked = wires.read(body)
    except wires.ReviewError:
        return
    answer = review_response(review_binding(asked, GatedKinds()), asked.uid)
    assert answer.uid == asked.uid
    assert answer.allowed or answer.status.message


def written(value, twice) -> str:
    """Return *value* as JSON, with the fields in *twice* repeated in their objects."""
    if isinstance(value, dict):
        members = [(name, written(inner, twice)) for name, inner in value.items()]
        members += [(name, json.dumps(other)) for name, other in twice.items() if name in value]
        return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members) + "}"
    return json.dumps(value, separators=(",", ":"))


def strictly(body: bytes):
    """Return the review in *body*, or ``None`` if a field outside the reviewed object is repeated."""

    def once(pairs):
        found = dict(pairs)
        return found if len(found) == len(pairs) else found | {TWICE: True}

    found = json.loads(body, object_pairs_hook=once)
    asked = found["request"]
    return None if any(TWICE in each for each in (found, asked, asked["resource"])) else asked


TWICE = object()
WORDS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", "default", 'a"b', "\\", "\u20ac"])


@given(
    request_=st.dictionaries(st.sampled_from(["name", "namespace", "uid", "operation", "subResource"]), WORDS),
    absent=st.sets(st.sampled_from(["name", "namespace", "dryRun", "options", "oldObject", "userInfo"])),
    more=st.dictionaries(st.sampled_from(["requestKind", "requestResource", "new"]), st.just({"a": 1})),
    twice=st.dictionaries(st.sampled_from(["uid", "group", "metadata", "spec", "kind", "dryRun", "name"]), WORDS),
    blank=st.sampled_from(["", " ", "\n"]),
)
def test_fast_and_strict_decoding_agree(request_, absent, more, twice, blank):
    whole = review(job_binding())
    whole["request"] |= request_ | more
    for name in absent:
        whole["request"].pop(name, None)
    body = (written(whole, twice).replace('"request":', f'"request":{blank}') + blank).encode()
    expected = strictly(body)
    try:
        asked = wires.read(body)
    except wires.ReviewError:
        assert twice or not expected["uid"]
        return
    assert expected is not None
    assert [asked.uid, asked.operation, asked.name, asked.namespace, asked.sub_resource, asked.dry_run] == [
        expected["uid"],
        expected["operation"],
        *(expected.get(name, "") for name in ("name", "namespace", "subResource")),
        expected.get("dryRun", False),
    ]
    if TWICE in expected["object"]:
        with pytest.raises(wires.RepeatedKeyError):
            _ = asked.members
    else:
        assert json.loads(bytes(asked.object)) == json.loads(body)["request"]["object"]


@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.binary(max_size=12))
def test_truncated_review_raises_only_review_errors(start, length, written):
    body = GOOD[:start] + written + GOOD[start + length :]
    try:
        asked = wires.read(body)
    except wires.ReviewError:
        return
    assert review_binding(asked, GatedKinds()).outcome in Outcome
