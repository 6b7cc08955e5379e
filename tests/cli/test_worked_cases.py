"""Worked cases of the rules as manifests: the command line plans with the engine of the controller."""

import pytest

from tests.cli.manifests import binding, cluster, configuration, job, jobs, queue, units

ONE = units(1)


def admitted(ended):
    """Return the number of admissions of each queue."""
    steps = [step["queue"] for step in ended.answer["decisions"] if step["action"] == "Admit"]
    return {queue: steps.count(queue) for queue in sorted(set(steps))}


def test_case_3_capability_caps_the_fair_share(plan):
    queues = queue("a", weight=2, capability=units(2)), queue("b"), queue("c")
    waiting = [*jobs("a", 10, ONE, queue="a"), *jobs("b", 10, ONE, queue="b"), *jobs("c", 3, ONE, queue="c")]
    ended = plan(cluster("m", units(12)), *queues, *waiting)
    assert [ended.queue(name)["fairShare"] for name in "abc"] == [units(2), units(7), units(3)]
    assert admitted(ended) == {"a": 2, "b": 7, "c": 3}


@pytest.mark.parametrize("at", [pytest.param("2020-01-01T00:00:00Z", id="long-ago"), pytest.param(None, id="unknown")])
def test_case_6_reclaim_takes_back_borrowed_quota(plan, at):
    borrowed = []
    for name in (f"a-{number}" for number in range(1, 9)):
        record = {"uid": name, "queue": "a", "charge": {**ONE, "pods": "1"}, "clusters": ["m"]}
        record |= {"admittedAt": at} if at else {}
        borrowed += [job(name, ONE, queue="a"), binding(name, clusters=["m"], phase="Running", record=record, uid=name)]
    queues = [queue(name, deserved=units(4)) for name in "ab"]
    documents = [cluster("m", units(8)), *queues, *borrowed, *jobs("b", 6, ONE, queue="b")]
    assert not admitted(plan(*documents))
    ended = plan(configuration(reclaim={"enabled": True}), *documents)
    steps = [(step["name"], step["reason"], step["clusters"]) for step in ended.answer["decisions"]]
    assert steps[:4] == [(f"a-{number}", "Reclaimed", []) for number in range(1, 5)]
    assert steps[4:8] == [(f"b-{number:02}", "PreemptionInProgress", [{"name": "m"}]) for number in range(1, 5)]
    assert [reason for _, reason, _ in steps[8:]] == ["InsufficientCapacity"] * 2
    # The usage is the current one while the victims stop.
    assert [(ended.queue(name)["allocated"]["cpu"], ended.queue(name)["share"]) for name in "ab"] == [
        ("8", 2.0),
        ("0", 0.0),
    ]


def test_case_9_branches_of_the_hierarchy_alternate(plan):
    queues = [
        queue(name, parent=of, deserved=units(4)) for name, of in (("a", ""), ("b", ""), ("a1", "a"), ("b1", "b"))
    ]
    ended = plan(cluster("m", units(8)), *queues, *jobs("a", 8, ONE, queue="a1"), *jobs("b", 8, ONE, queue="b1"))
    assert [name.partition("-")[0] for name in ended.clusters()] == ["a", "b"] * 4
