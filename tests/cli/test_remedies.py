"""Unmet requirements and verified remedies in `explain`."""

import pytest

from tests.cli.manifests import NOW, cluster, job, queue, running, write


@pytest.fixture
def waiting(run, tmp_path):
    def waiting(name, *documents):
        ended = run("explain", "job", name, "-n", "ml", "-f", write(tmp_path, *documents), "-o", "json", "--now", NOW)
        return ended.answer["waiting"]

    return waiting


def messages(answer):
    return [each["message"] for each in answer["missing"]]


def test_unmet_queues_and_closest_cluster_are_listed(waiting):
    answer = waiting(
        "j",
        cluster("m", {"cpu": 4, "memory": "4Gi"}),
        queue("p", capability={"cpu": 3}),
        queue("a", parent="p", capability={"cpu": 2}),
        *running("old", {"cpu": 2, "memory": "3Gi"}, on="m", queue="a"),
        job("j", {"cpu": 2, "memory": "2Gi"}, queue="a"),
    )
    assert answer["reason"] == "QueueLimitReached"
    assert messages(answer) == [
        "queue 'a': requests 2 cpu, free 0, lacks 2",
        "queue 'p': requests 2 cpu, free 1, lacks 1",
        "all clusters together: requests 2Gi memory, free 1Gi, lacks 1Gi",
        "cluster 'm': requests 2Gi memory, free 1Gi, lacks 1Gi",
    ]
    assert answer["remedy"] == (
        "raise capability of queue 'a' from 2 to 4 cpu and raise capability of queue 'p' from 3 to 4 cpu "
        "and add 1Gi memory to cluster 'm' (4Gi allocatable)"
    )
    assert answer["complete"]


def test_negative_free_capacity_is_reported(waiting):
    answer = waiting(
        "j",
        cluster("m", {"cpu": 9}),
        queue("a", capability={"cpu": 4}),
        *running("old", {"cpu": 6}, on="m", queue="a"),
        job("j", {"cpu": 2}, queue="a"),
    )
    assert messages(answer) == ["queue 'a': requests 2 cpu, free -2, lacks 4"]
    assert (answer["missing"][0]["free"], answer["missing"][0]["lacks"]) == ("-2", "4")
    assert [each["change"] for each in answer["changes"]] == ["queue/a.spec.capability.cpu=8"]


def test_sibling_guarantees_that_lower_a_limit_are_listed(waiting):
    answer = waiting(
        "j",
        cluster("m", {"cpu": 10}),
        queue("a"),
        queue("b", guarantee={"resource": {"cpu": 3}}),
        queue("c", guarantee={"resource": {"cpu": 4}}),
        job("j", {"cpu": 5}, queue="a"),
    )
    assert messages(answer) == [
        "queue 'a': requests 5 cpu, free 3 even while idle, lacks 2; guaranteed to others: b 3, c 4",
        "queue 'a': requests 5 cpu, free 3, lacks 2; guaranteed to others: b 3, c 4",
        "all clusters together: requests 5 cpu, free 3, lacks 2; guaranteed to others: b 3, c 4",
    ]
    assert answer["missing"][0]["guaranteedToOthers"] == [
        {"queue": "b", "amount": "3"},
        {"queue": "c", "amount": "4"},
    ]
    assert answer["remedy"] == "add 2 cpu to cluster 'm' (10 allocatable)"


def test_job_behind_queue_head_lists_later_requirements(waiting):
    answer = waiting(
        "second",
        cluster("m", {"cpu": 4}),
        queue("a", dequeueStrategy="fifo"),
        job("first", {"cpu": 6}, queue="a", created="2026-01-01T00:00:00Z"),
        job("second", {"cpu": 5}, queue="a", created="2026-01-02T00:00:00Z"),
    )
    assert answer["reason"] == "ExceedsTotalCapacity"
    answer = waiting(
        "second",
        cluster("m", {"cpu": 8}),
        queue("a", dequeueStrategy="fifo"),
        *running("old", {"cpu": 5}, on="m", queue="a"),
        job("first", {"cpu": 6}, queue="a", created="2026-01-01T00:00:00Z"),
        job("second", {"cpu": 4}, queue="a", created="2026-01-02T00:00:00Z"),
    )
    assert [each["reason"] for each in answer["missing"]] == ["BlockedByQueueHead", *["InsufficientCapacity"] * 2]
    assert messages(answer)[-1] == "cluster 'm': requests 4 cpu, free 3, lacks 1"
    assert not answer["complete"]
    assert answer["remedy"] == (
        "add 1 cpu to cluster 'm' (8 allocatable); not included: "
        "queue 'a' is strict FIFO, and Job ml/first is ahead of it"
    )


def test_remedy_without_capacity_says_it_is_incomplete(waiting):
    answer = waiting("j", cluster("m", {"cpu": 4}), job("j", {"cpu": 9}, queue="none"))
    assert answer["changes"] is None
    assert answer["remedy"].endswith("; other shortages are not included")
