"""A worked case of the rules as manifests: the command line plans with the engine of the controller."""

import pytest

from tests.cli.manifests import binding, cluster, configuration, job, jobs, queue, units

ONE = units(1)


@pytest.mark.parametrize("at", [pytest.param("2020-01-01T00:00:00Z", id="long-ago"), pytest.param(None, id="unknown")])
def test_case_6_reclaim_takes_back_borrowed_quota(plan, at):
    borrowed = []
    for name in (f"a-{number}" for number in range(1, 9)):
        record = {"uid": name, "queue": "a", "charge": {**ONE, "pods": "1"}, "clusters": ["m"]}
        record |= {"admittedAt": at} if at else {}
        borrowed += [job(name, ONE, queue="a"), binding(name, clusters=["m"], phase="Running", record=record, uid=name)]
    queues = [queue(name, deserved=units(4)) for name in "ab"]
    documents = [cluster("m", units(8)), *queues, *borrowed, *jobs("b", 6, ONE, queue="b")]
    assert plan(*documents).clusters() == {}
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
