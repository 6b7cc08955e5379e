"""Reclaim, preemption and resize in `plan -f`, with worked case 6 as manifests."""

import pytest

from tests.cli.manifests import binding, cluster, configuration, job, jobs, priority_class, queue, running, units, write

RECLAIM = configuration(reclaim={"enabled": True})


def admitted(name, requests, *, at="2020-01-01T00:00:00Z", charge=None, **more):
    """Return a job admitted to the cluster, with its binding and record."""
    record = {"uid": name, "queue": "A", "charge": charge or {**requests, "pods": "1"}, "clusters": ["m"]}
    if at:
        record["admittedAt"] = at
    bound = binding(name, clusters=["m"], phase="Running", record=record, uid=name)
    return [job(name, requests, queue="A", **more), bound]


def case_six(*, at="2020-01-01T00:00:00Z"):
    borrowed = [each for number in range(1, 9) for each in admitted(f"a-{number}", units(1), at=at)]
    queues = [queue("A", deserved=units(4)), queue("B", deserved=units(4))]
    return [cluster("m", units(8)), *queues, *borrowed, *jobs("b", 6, units(1), queue="B")]


@pytest.fixture
def decided(run, tmp_path):
    def decided(*documents):
        steps = run("plan", "-f", write(tmp_path, *documents), "-o", "json").answer["decisions"]
        return [
            (step["name"], step["action"], step["reason"], [each["name"] for each in step["clusters"]])
            for step in steps
        ]

    return decided


@pytest.mark.parametrize("at", [pytest.param("2020-01-01T00:00:00Z", id="long-ago"), pytest.param("", id="unknown")])
def test_reclaim_evicts_victims_and_nominates_preemptors(decided, at):
    steps = decided(RECLAIM, *case_six(at=at))
    assert [step[:3] for step in steps if step[1] == "Evict"] == [
        (f"a-{number}", "Evict", "Reclaimed") for number in range(1, 5)
    ]
    waiting = {name: (reason, clusters) for name, action, reason, clusters in steps if action == "Wait"}
    assert [waiting[f"b-{number:02}"] for number in range(1, 5)] == [("PreemptionInProgress", ["m"])] * 4
    assert {waiting[f"b-{number:02}"][0] for number in (5, 6)} == {"InsufficientCapacity"}
    assert sorted(step[0] for step in steps) == sorted({*waiting, *(f"a-{number}" for number in range(1, 5))})


def test_share_counts_current_usage_while_victims_leave(run, tmp_path):
    answer = run("plan", "-f", write(tmp_path, RECLAIM, *case_six()), "-o", "json").answer
    standings = {queue["name"]: queue for queue in answer["queues"]}
    shown = {name: (each["allocated"]["cpu"], each["fairShare"]["cpu"]) for name, each in standings.items()}
    assert (shown["A"], standings["A"]["share"]) == (("8", "4"), 2.0)
    assert (shown["B"], standings["B"]["share"]) == (("0", "4"), 0.0)


def test_no_eviction_without_reclaim_or_of_adopted_jobs(decided):
    assert not [step for step in decided(*case_six()) if step[1] == "Evict"]
    adopted = [each for number in range(1, 9) for each in running(f"a-{number}", units(1), on="m", queue="A")]
    queues = [queue("A", deserved=units(4)), queue("B", deserved=units(4))]
    state = [RECLAIM, cluster("m", units(8)), *queues, *adopted, *jobs("b", 6, units(1), queue="B")]
    assert not [step for step in decided(*state) if step[1] == "Evict"]


def test_victims_within_min_runtime_are_not_evicted(decided):
    state = case_six(at="2999-01-01T00:00:00Z")
    assert not [step for step in decided(RECLAIM, *state) if step[1] == "Evict"]


@pytest.mark.parametrize(("never", "evicted"), [(None, ["a-1"]), ("Never", [])])
def test_higher_priority_preempts_unless_policy_is_never(decided, never, evicted):
    high = priority_class("high", 10, **({"preemptionPolicy": never} if never else {}))
    borrowed = [each for number in (1, 2) for each in admitted(f"a-{number}", units(1))]
    state = [
        cluster("m", units(2)),
        queue("A"),
        high,
        *borrowed,
        job("z", units(1), queue="A", priority="high"),
    ]
    steps = decided(configuration(preemption={"enabled": True}), *state)
    assert [step[0] for step in steps if step[1] == "Evict"] == evicted


def test_resize_above_limit_is_evicted_without_grace_period(decided):
    grown = admitted("a-1", units(5), charge={**units(1), "pods": "1"})
    state = [cluster("m", units(8)), queue("A", capability=units(4)), *grown]
    assert decided(configuration(resize={"gracePeriod": "0s"}), *state)[0][:3] == ("a-1", "Evict", "ResizeRejected")
    assert not decided(*state)
