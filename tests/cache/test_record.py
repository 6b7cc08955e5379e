"""The admission record: canonical encoding and validation."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.record import (
    AdmissionRecord,
    _shared_amounts,
    _shared_quantities,
    read_record,
    write_record,
)
from tests.cache.objects import admission_record

TIMES = st.integers(0, 4_000_000_000_000)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(0, 10**15))
RECORDS = st.builds(
    AdmissionRecord,
    queue=st.text(max_size=40),
    charge=AMOUNTS,
    clusters=st.lists(st.text(min_size=1, max_size=10), max_size=3).map(tuple),
    admitted_at=st.none() | TIMES,
    waiting_since=st.none() | TIMES,
    reserved_since=st.none() | TIMES,
    promised_start=st.none() | TIMES,
    nominated_cluster=st.none() | st.text(min_size=1, max_size=10),
    reserved_clusters=st.none() | st.dictionaries(st.text(max_size=10), AMOUNTS, min_size=1, max_size=3),
    nominated_at=st.none() | TIMES,
    nomination_rank=st.none() | st.integers(0, 1000),
    nominated_requests=st.none() | AMOUNTS,
    aborted=st.booleans(),
    aborted_generation=st.none() | st.integers(0, 1000),
    evictions=st.integers(0, 100),
    attempts=st.integers(0, 100),
    startup_failed_at=st.none() | TIMES,
    back_off_until=st.none() | TIMES,
    clusters_changed_at=st.none() | TIMES,
    excluded_clusters=st.dictionaries(st.text(max_size=10), st.text(max_size=16), max_size=3),
    raised_by=st.integers(0, 2**40),
    plan_id=st.text(max_size=20),
    last_phase=st.sampled_from(("", "Waiting", "Running", "Finished")),
)


@given(RECORDS)
def test_written_record_is_read_back(record):
    assert read_record({ADMISSION_ANNOTATION: write_record("u", record)}, "u") == (record, "")


def test_written_record_has_only_the_known_keys():
    assert set(json.loads(write_record("u", AdmissionRecord()))) == {
        "uid", "queue", "charge", "clusters", "admittedAt", "waitingSince", "reservedSince", "nominatedCluster",
        "nominatedAt", "nominationRank", "nominatedRequests", "aborted", "evictions", "attempts", "planID",
    }  # fmt: skip


def test_times_are_rfc3339_in_utc():
    record = AdmissionRecord(admitted_at=1_767_323_045_000, waiting_since=1_767_323_045_007)
    written = json.loads(write_record("u", record))
    assert written["admittedAt"] == "2026-01-02T03:04:05Z"
    assert re.fullmatch(r"2026-01-02T03:04:05\.007Z", written["waitingSince"])


def test_record_of_another_uid_or_version_is_read():
    record, error = read_record({ADMISSION_ANNOTATION: admission_record("old", charge={"cpu": "1"})}, "new")
    assert record is None
    assert "written for another binding" in error
    assert read_record({ADMISSION_ANNOTATION: '{"uid":"u","later":{"version":2}}'}, "u") == (AdmissionRecord(), "")
    assert read_record({"other": "x"}, "u") == (None, "")


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
    record, error = read_record({ADMISSION_ANNOTATION: text}, "u")
    assert record is None
    assert ADMISSION_ANNOTATION in error


def test_amounts_with_long_resource_names_are_not_cached():
    record = AdmissionRecord(charge={f"example.com/{number:0300}": 1000 for number in range(4)})
    before = [cached.cache_info().currsize for cached in (_shared_amounts, _shared_quantities)]
    assert read_record({ADMISSION_ANNOTATION: write_record("u", record)}, "u") == (record, "")
    assert [cached.cache_info().currsize for cached in (_shared_amounts, _shared_quantities)] == before


def test_amounts_of_a_cluster_with_a_long_name_are_not_cached():
    record = AdmissionRecord(reserved_clusters={"m" * 2000: {"cpu": 1000}})
    read_record({ADMISSION_ANNOTATION: write_record("u", AdmissionRecord())}, "u")
    before = _shared_amounts.cache_info().currsize
    assert read_record({ADMISSION_ANNOTATION: write_record("u", record)}, "u") == (record, "")
    assert _shared_amounts.cache_info().currsize == before
