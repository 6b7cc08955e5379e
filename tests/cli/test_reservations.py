"""What `explain` says about the reservation in a record (O6, O9)."""

import pytest

from tests.cli.manifests import binding, cluster, job, queue, running, write

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


def test_plan_lists_advance_reservations(run, tmp_path):
    kept = {"name": "upgrade", "clusters": ["m"], "from": "2026-01-02T00:00:00Z", "until": "2026-01-02T04:00:00Z"}
    path = write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        {
            "apiVersion": "config.volcano-global.io/v1alpha1",
            "kind": "VolcanoGlobalConfiguration",
            "advanceReservations": [kept],
        },
        *running("old", {"cpu": 1}, on="m", queue="a"),
        job("new", {"cpu": 1}, queue="a"),
    )
    at = ("-f", path, "--at", "2026-01-01T12:00:00Z")
    [listed] = run("plan", *at, "-o", "json").answer["reservedInAdvance"]
    assert {name: listed[name] for name in kept} == kept
    assert (listed["inForce"], listed["overlapping"]) == (False, 1)
    row = "upgrade maintenance m all 2026-01-02 00:00 2026-01-02 04:00 1 -"
    assert row in " ".join(run("plan", *at).out.split())
    explained = run("explain", "job", "new", "-n", "ml", *at).out
    assert "its clusters are kept free for advance reservation 'upgrade'" in explained
    # The note about queues whose placement matches some clusters only does not apply.
    assert "their placement" not in explained
    later = run("plan", "-f", path, "--at", "2026-01-02T04:00:00Z", "-o", "json").answer
    assert "reservedInAdvance" not in later
    assert [each["action"] for each in later["decisions"]] == ["Admit"]


def with_amounts(tmp_path, **amounts):
    kept = {"name": "launch", "clusters": ["m", "gone"], "amounts": amounts, "queue": "b"}
    times = {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T04:00:00Z"}
    configuration = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        queue("b"),
        configuration | {"advanceReservations": [kept | times]},
        *running("old", {"cpu": 3}, on="m", queue="a"),
        job("new", {"cpu": 1}, queue="a"),
    )


def test_plan_and_explain_show_reserved_amounts(run, tmp_path):
    at = ("-f", with_amounts(tmp_path, cpu=2), "--at", "2026-01-01T12:00:00Z")
    report = run("plan", *at, "-o", "json").answer
    [listed] = report["reservedInAdvance"]
    assert (listed["amounts"], listed["missing"], listed["overlapping"]) == ({"cpu": "2"}, {"cpu": "3"}, 1)
    assert report["notes"] == ["advanceReservations 'launch' names cluster 'gone' in clusters, which does not exist"]
    row = "launch queue b m,gone cpu=2 2026-01-02 00:00 2026-01-02 04:00 1 cpu=3"
    assert row in " ".join(run("plan", *at).out.split())
    explained = " ".join(run("explain", "job", "new", "-n", "ml", *at).out.split())
    reason = "it requests 1 cpu, but only 0 of 'm' are not kept free for advance reservation 'launch'"
    assert reason in explained
    assert "2 cpu of its free capacity are kept free for advance reservations" in explained


@pytest.mark.parametrize(("resource", "has"), [("cpu", "4"), ("nvidia.com/gpu", "0")])
def test_plan_notes_amounts_that_a_cluster_lacks(run, tmp_path, resource, has):
    path = with_amounts(tmp_path, **{resource: 16})
    notes = run("plan", "-f", path, "--at", "2026-01-01T12:00:00Z", "-o", "json").answer["notes"]
    assert f"advanceReservations 'launch' reserves 16 {resource} in amounts, but cluster 'm' has {has}" in notes
