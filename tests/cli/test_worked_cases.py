"""The worked cases of the rules, as manifests through the command line."""

import pytest

from tests.cli.manifests import binding, cluster, configuration, job, jobs, priority_class, queue, running, units

ONE = units(1)


def pool(count):
    return cluster("m", units(count))


def fair_shares(ended, *names):
    return {name: ended.queue(name)["fairShare"] for name in names}


def admitted(ended):
    """Return the number of admissions of each queue."""
    steps = [step["queue"] for step in ended.answer["decisions"] if step["action"] == "Admit"]
    return {queue: steps.count(queue) for queue in sorted(set(steps))}


def test_case_1_weights_divide_contended_capacity(plan):
    a, b = jobs("a", 10, ONE, queue="a"), jobs("b", 10, ONE, queue="b")
    ended = plan(pool(8), queue("a", weight=1), queue("b", weight=3), *a, *b)
    assert fair_shares(ended, "a", "b") == {"a": units(2), "b": units(6)}
    assert admitted(ended) == {"a": 2, "b": 6}


def test_case_3_capability_caps_the_fair_share(plan):
    queues = queue("a", weight=2, capability=units(2)), queue("b"), queue("c")
    waiting = [*jobs("a", 10, ONE, queue="a"), *jobs("b", 10, ONE, queue="b"), *jobs("c", 3, ONE, queue="c")]
    ended = plan(pool(12), *queues, *waiting)
    assert fair_shares(ended, "a", "b", "c") == {"a": units(2), "b": units(7), "c": units(3)}
    assert admitted(ended) == {"a": 2, "b": 7, "c": 3}


def test_case_4_queues_with_deserved_come_first(plan):
    queues = queue("a", deserved=units(4)), queue("b", deserved=units(2)), queue("c")
    there = cluster("m", units(6), used={**units(2), "pods": "1"})
    waiting = [each for name in "abc" for each in jobs(name, 6, ONE, queue=name)]
    ended = plan(there, *queues, *running("old", units(2), on="m", queue="a"), *waiting)
    assert admitted(ended) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [pytest.param("traverse", ["four", "one"], id="traverse"), pytest.param("fifo", ["four"], id="fifo")],
)
def test_case_5_blocked_job_blocks_in_fifo_only(plan, strategy, expected):
    sizes = {"four": 4, "three": 3, "one": 1}
    waiting = [
        job(name, units(size), queue="a", created=f"2026-03-01T09:00:0{place}Z")
        for place, (name, size) in enumerate(sizes.items())
    ]
    ended = plan(pool(50), queue("a", capability=units(5), dequeueStrategy=strategy), *waiting)
    assert list(ended.clusters()) == expected
    assert ended.reasons()["three"] == "QueueLimitReached"
    assert ended.reasons().get("one") == (None if "one" in expected else "BlockedByQueueHead")


@pytest.mark.parametrize("strategy", ["traverse", "fifo"])
def test_case_7_inadmissible_job_does_not_block(plan, strategy):
    members = cluster("m1", {"cpu": 10}), cluster("m2", {"cpu": 10})
    twelve = job("twelve", {"cpu": 12}, queue="a", created="2026-03-01T09:00:00Z")
    seven = job("seven", {"cpu": 7}, queue="a", created="2026-03-01T09:00:01Z")
    ended = plan(*members, queue("a", dequeueStrategy=strategy), twelve, seven)
    assert (ended.clusters(), ended.reasons()) == ({"seven": ["m1"]}, {"twelve": "ExceedsEveryCluster"})


def test_case_9_branches_of_the_hierarchy_alternate(plan):
    queues = [
        queue(name, parent=parent, deserved=units(4))
        for name, parent in (("a", ""), ("b", ""), ("a1", "a"), ("b1", "b"))
    ]
    ended = plan(pool(8), *queues, *jobs("a", 8, ONE, queue="a1"), *jobs("b", 8, ONE, queue="b1"))
    turns = [name.partition("-")[0] for name in ended.clusters()]
    assert turns == ["a", "b"] * 4


def test_case_14_idle_guarantee_below_a_parent_is_reserved(plan):
    guarantee = {"resource": units(4)}
    queues = queue("p", guarantee=guarantee), queue("x", parent="p", guarantee=guarantee), queue("y", parent="p")
    runs = [each for number in range(4) for each in running(f"y-{number}", ONE, on="m", queue="y")]
    there = cluster("m", units(8), used={**units(4), "pods": "4"})
    ended = plan(there, *queues, queue("s"), *runs, *jobs("s", 4, ONE, queue="s"))
    assert set(ended.reasons().values()) == {"BlockedByGuarantee"}
    assert ended.clusters() == {}


def recorded(name, requests, *, queue, since="2026-02-01T00:00:00Z"):
    """Return a job admitted to cluster m at *since*, with its binding and record."""
    record = {
        "uid": name,
        "queue": queue,
        "charge": {**requests, "pods": "1"},
        "clusters": ["m"],
        "admittedAt": since,
    }
    bound = binding(name, clusters=["m"], phase="Running", record=record, uid=name)
    return [job(name, requests, queue=queue), bound]


def test_case_16_closed_queue_guarantee_counts_up_to_usage(plan):
    there = cluster("m", units(8), used={**ONE, "pods": "1"})
    closed = queue("c", state="Closed", guarantee={"resource": units(4)})
    ended = plan(there, queue("a"), closed, *running("old", ONE, on="m", queue="c"), *jobs("a", 8, ONE, queue="a"))
    assert admitted(ended) == {"a": 7}


def test_case_17_namespaces_take_turns_across_priorities(plan):
    fair = configuration(tenantFairness="NamespaceFirst")
    x = jobs("x", 4, ONE, queue="q", namespace="x", priority="high")
    y = jobs("y", 4, ONE, queue="q", namespace="y")
    ended = plan(fair, priority_class("high", 1000), pool(4), queue("q"), *x, *y)
    assert [name.partition("-")[0] for name in ended.clusters()] == ["x", "y", "x", "y"]


def test_case_18_protected_victim_holds_no_quota_back(plan):
    on = configuration(reclaim={"enabled": True, "minRuntime": "24h"})
    there = cluster("m", units(8), used={**ONE, "pods": "1"})
    victim = recorded("b-old", ONE, queue="b", since="2026-03-01T09:59:00Z")
    queues = queue("a", deserved=units(8)), queue("b")
    ended = plan(on, there, *queues, *victim, job("a", units(8), queue="a"), *jobs("b", 8, ONE, queue="b"))
    assert admitted(ended) == {"b": 7}


def test_case_19_smallest_victim_that_suffices_is_evicted(plan):
    on = configuration(reclaim={"enabled": True})
    there = cluster("m", units(8), used={**units(8), "pods": "2"})
    victims = [*recorded("six", units(6), queue="v"), *recorded("two", units(2), queue="v")]
    ended = plan(on, there, queue("v"), queue("a", deserved=ONE), *victims, job("a", ONE, queue="a"))
    evicted = [step["name"] for step in ended.answer["decisions"] if step["action"] == "Evict"]
    assert evicted == ["two"]


def test_case_20_cpu_jobs_leave_gpu_clusters_to_gpu_jobs(plan):
    gpu = "nvidia.com/gpu"
    members = cluster("g", {"cpu": 8, gpu: 4}), cluster("c", {"cpu": 16})
    first = job("first", {"cpu": 4}, queue="q", created="2026-03-01T09:00:00Z")
    second = job("second", {"cpu": 4, gpu: 4}, queue="q", created="2026-03-01T09:00:01Z")
    ended = plan(*members, queue("q"), first, second)
    assert ended.clusters() == {"first": ["c"], "second": ["g"]}
