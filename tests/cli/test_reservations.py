"""What `explain` says about the reservation in a record (O6, O9)."""

import pytest

from tests.cli.manifests import binding, cluster, job, queue, write

RECORD = {
    "uid": "u",
    "queue": "a",
    "reservedSince": "2026-01-01T00:00:00Z",
    "reservedClusters": {"m": {"cpu": "4", "pods": "1"}},
    "nominatedRequests": {"cpu": "4", "pods": "1"},
}


@pytest.fixture
def explained(run, tmp_path):
    def explained(record, *flags):
        documents = (
            cluster("m", {"cpu": 4}, used={"cpu": 2}),
            queue("a"),
            job("j", {"cpu": 4}, queue="a"),
            binding("j", suspended=True, record=record, uid="u"),
        )
        manifests = write(tmp_path, *documents)
        return run("explain", "job", "j", "-n", "ml", "-f", manifests, "--now", "2026-01-01T00:05:00Z", *flags)

    return explained


def test_reservation_and_promised_start_are_explained(explained):
    said = " ".join(explained({**RECORD, "promisedStart": "2026-01-01T01:30:00Z"}).out.split())
    assert "Capacity is reserved for it on m since 2026-01-01 00:00 UTC." in said
    assert "When it was reserved, the start was expected by 2026-01-01 01:30 UTC." in said


@pytest.mark.parametrize(
    ("promised", "expected"), [({}, None), ({"promisedStart": "2026-01-01T01:30:00Z"}, "2026-01-01T01:30:00Z")]
)
def test_reservation_is_in_the_json(explained, promised, expected):
    waiting = explained({**RECORD, **promised}, "-o", "json").answer["waiting"]
    assert waiting["reservation"] == {
        "since": "2026-01-01T00:00:00Z",
        "clusters": ["m"],
        "promisedStart": expected,
    }


def test_workload_without_a_reservation_has_none(explained):
    assert explained({"uid": "u", "queue": "a"}, "-o", "json").answer["waiting"]["reservation"] is None
