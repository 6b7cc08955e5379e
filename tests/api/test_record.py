"""The admission record: canonical encoding and validation."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from controller.api.keys import ADMISSION_ANNOTATION
from controller.api.record import Record, read_record, write_record

#: Times in RFC 3339 with milliseconds.
MOMENTS = st.integers(0, 4_000_000_000_000).map(
    lambda time: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.sampled_from(["1", "500m"]))
RECORDS = st.builds(
    Record,
    uid=st.text(min_size=1, max_size=40),
    queue=st.text(max_size=40),
    charge=AMOUNTS,
    clusters=st.lists(st.text(min_size=1, max_size=10), max_size=3).map(tuple),
    admitted_at=st.none() | MOMENTS,
    waiting_since=st.none() | MOMENTS,
    reserved_since=st.none() | MOMENTS,
    nominated_cluster=st.none() | st.text(max_size=10),
    reserved_clusters=st.just(UNSET) | st.dictionaries(st.text(max_size=10), AMOUNTS, max_size=3),
    nominated_at=st.none() | MOMENTS,
    nomination_rank=st.none() | st.integers(0, 1000),
    nominated_requests=st.none() | AMOUNTS,
    aborted=st.booleans(),
    evictions=st.integers(0, 100),
    attempts=st.integers(0, 100),
    startup_failed_at=st.just(UNSET) | MOMENTS,
    back_off_until=st.just(UNSET) | MOMENTS,
    excluded_clusters=st.just(UNSET) | st.dictionaries(st.text(max_size=10), st.text(max_size=16), max_size=3),
    plan_id=st.text(max_size=20),
)


@given(RECORDS)
def test_written_record_is_read_back(record):
    assert read_record({ADMISSION_ANNOTATION: write_record(record)}, record.uid).record == record


@given(RECORDS)
def test_read_record_is_written_unchanged(record):
    text = write_record(record)
    again = read_record({ADMISSION_ANNOTATION: text}, record.uid).record
    assert again is not None
    assert write_record(again) == text


def test_record_keys():
    assert set(json.loads(write_record(Record("u")))) == {
        "uid", "queue", "charge", "clusters", "admittedAt", "waitingSince", "reservedSince", "nominatedCluster",
        "nominatedAt", "nominationRank", "nominatedRequests", "aborted", "evictions", "attempts", "planID",
    }  # fmt: skip


def test_times_are_rfc3339_in_utc():
    admitted = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    written = json.loads(
        write_record(Record("u", admitted_at=admitted, waiting_since=admitted.replace(microsecond=7000)))
    )
    assert written["admittedAt"] == "2026-01-02T03:04:05Z"
    assert re.fullmatch(r"2026-01-02T03:04:05\.007Z", written["waitingSince"])


def test_missing_annotation_has_no_record_and_no_error():
    assert read_record({"other": "x"}, "u").record is None
    assert read_record({"other": "x"}, "u").error == ""


def test_record_for_another_uid_is_rejected():
    reading = read_record({ADMISSION_ANNOTATION: write_record(Record("old", charge={"cpu": "1"}))}, "new")
    assert reading.record is None
    assert "written for another binding" in reading.error


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a-list"),
        pytest.param("{", id="cut-off"),
        pytest.param("{}", id="without-uid"),
        pytest.param('{"uid":1}', id="uid-is-a-number"),
        pytest.param('{"uid":"u","charge":{"cpu":8}}', id="charge-is-a-number"),
        pytest.param('{"uid":"u","charge":[]}', id="charge-is-a-list"),
        pytest.param('{"uid":"u","clusters":"m1"}', id="clusters-is-a-text"),
        pytest.param('{"uid":"u","admittedAt":"yesterday"}', id="a-time-in-words"),
        pytest.param('{"uid":"u","admittedAt":"2026-01-02T03:04:05"}', id="a-time-without-zone"),
        pytest.param('{"uid":"u","evictions":-1}', id="fewer-than-no-evictions"),
        pytest.param('{"uid":"u","aborted":"no"}', id="a-word-for-a-yes-or-no"),
        pytest.param('{"uid":"u","evictions":' + "9" * 5000 + "}", id="a-very-large-number"),
        pytest.param('{"uid":"u","x":' + "[" * 100_000 + "]" * 100_000 + "}", id="very-deep"),
        pytest.param("\udcff", id="no-text"),
    ],
)
def test_unreadable_record_has_an_error(text):
    reading = read_record({ADMISSION_ANNOTATION: text}, "u")
    assert reading.record is None
    assert ADMISSION_ANNOTATION in reading.error


def test_unknown_record_fields_are_ignored():
    assert read_record({ADMISSION_ANNOTATION: '{"uid":"u","later":{"version":2}}'}, "u").record == Record("u")
