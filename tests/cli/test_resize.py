"""A job that asks for more than it was admitted with is told so, and what it does to its queue."""

import pytest

from tests.cli.manifests import binding, cluster, job, queue, units, write


@pytest.fixture
def explained(run, tmp_path):
    def explained(cpu, *, charge, output="json"):
        record = {"uid": "rb-j", "queue": "a", "charge": charge, "clusters": ["m"]}
        files = write(
            tmp_path,
            cluster("m", units(20)),
            queue("a", capability={"cpu": "8"}),
            job("j", {"cpu": cpu}, queue="a"),
            binding("j", clusters=["m"], phase="Running", record=record, uid="rb-j"),
        )
        return run("explain", "job", "j", "-n", "ml", "-f", files, "-o", output)

    return explained


def test_growth_beyond_the_queue_is_explained(explained):
    text = " ".join(explained("12", charge={"cpu": "4", "pods": "1"}, output="table").out.split())
    assert "It was admitted with 4 cpu in 1 pod and has grown since; all of it counts." in text
    assert "Queue 'a' holds 12 cpu of 8 and takes nothing more until it is back below that." in text


def test_growth_within_the_queue_is_told_too(explained):
    text = explained("6", charge={"cpu": "4", "pods": "1"}, output="table").out
    assert "has grown since" in text
    assert "takes nothing more" not in text


def test_what_asks_for_what_it_was_admitted_with_has_not_grown(explained):
    assert explained("4", charge={"cpu": "4", "pods": "1"}).answer["running"]["outgrown"] is None
