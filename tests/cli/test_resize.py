"""`explain` for a job that requests more than at its admission."""

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


def test_resize_beyond_queue_limit_is_explained(explained):
    text = " ".join(explained("12", charge={"cpu": "4", "pods": "1"}, output="table").out.split())
    assert "It was admitted with 4 cpu in 1 pod and resized since; the current charge counts." in text
    assert "Queue 'a' uses 12 cpu of 8; it admits nothing while usage exceeds the limit." in text


def test_resize_within_queue_limit_is_explained(explained):
    text = explained("6", charge={"cpu": "4", "pods": "1"}, output="table").out
    assert "resized since" in text
    assert "it admits nothing" not in text


def test_unchanged_requests_are_not_a_resize(explained):
    assert explained("4", charge={"cpu": "4", "pods": "1"}).answer["running"]["pendingResize"] is None
