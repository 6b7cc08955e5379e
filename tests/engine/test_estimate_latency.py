"""Admission times in virtual time: a slow, silent or wrong estimator delays only workloads of its cluster."""

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Admit
from controller.engine.policy import Policy
from controller.engine.state.clusters import Affinity, ClusterName, Placement, Spread
from controller.engine.state.estimates import QUERY_TIMEOUT_MS, Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import WorkloadUid
from tests.engine.test_estimate_tracker import gang, job, pods, site

END_MS, STEP_MS = 60_000, 50
TIMEOUT_MS = 3_000


def on(cluster: str) -> Placement:
    return Placement(affinity=Affinity(names=(ClusterName(cluster),)), spread=(Spread("cluster", 1, 1),))


def arrivals():
    """Yield arrivals: for m1, whose estimator misbehaves, for m2, and some that need no estimate."""
    for number in range(60):
        cluster = ("m1", "m2")[number % 2]
        claim = None if number % 3 == 0 else ""
        shape = gang(pods(1 + number % 4, cpu=1, claim=claim))
        name = f"{cluster}-{number:02}" + ("-unasked" if claim is None else "")
        yield 500 * number, name, shape, on(cluster)


def admission_times(answer) -> dict[str, int]:
    """Run one minute; *answer* returns after which time m1's estimator answers what."""
    state, times, coming = Engine(Policy(node_estimates=True, startup_timeout_ms=None)), {}, list(arrivals())
    state.queue_changed(Queue(QueueName("q")))
    for each in (site("m1", 1000), site("m2", 1000)):
        state.cluster_changed(each, 0)
    answers: list[tuple[int, Estimate]] = []
    for now in range(0, END_MS, STEP_MS):
        while coming and coming[0][0] <= now:
            since, name, shape, placement = coming.pop(0)
            fields = {each: getattr(shape, each) for each in ("requests", "gang_requests", "pod_sets")}
            state.workload_changed(job(name, type(shape)(placement=placement, **fields), created_at=since), now)
        for each in [each for each in answers if each[0] <= now]:
            answers.remove(each)
            state.cluster_estimated(each[1], now)
        plan = state.plan(now)
        times |= {
            each.workload.name: now - each.workload.created_at for each in plan.decisions if isinstance(each, Admit)
        }
        for query in plan.queries:
            after, count, is_silent = (STEP_MS, 1000, False) if query.cluster == "m2" else answer(query)
            answers.append((now + after, Estimate(query, count, is_silent)))
    return times


PROMPT = admission_times(lambda _: (STEP_MS, 1000, False))

BAD = [
    pytest.param(lambda _: (2_900, 1000, False), 2_900, id="slow"),
    pytest.param(lambda _: (TIMEOUT_MS, None, True), TIMEOUT_MS, id="timed-out"),
    pytest.param(lambda _: (END_MS, 1000, False), QUERY_TIMEOUT_MS, id="never"),
    pytest.param(lambda _: (STEP_MS, None, True), STEP_MS, id="failing"),
    pytest.param(lambda _: (STEP_MS, -7, False), STEP_MS, id="negative"),
    pytest.param(lambda _: (STEP_MS, 2**31 - 2, False), STEP_MS, id="huge"),
    pytest.param(lambda _: (STEP_MS, 0, False), None, id="always-no"),
]


@pytest.mark.parametrize(("answer", "_most"), BAD)
def test_bad_estimator_does_not_delay_other_workloads(answer, _most):
    times = admission_times(answer)
    others = {name: time for name, time in PROMPT.items() if name.startswith("m2") or name.endswith("unasked")}

    assert len(others) == 40
    assert {name: times[name] for name in others} == others


@pytest.mark.parametrize(("answer", "most"), BAD)
def test_bad_estimator_delays_its_workloads_by_one_answer(answer, most):
    times = admission_times(answer)
    own = {name for name in PROMPT if name.startswith("m1") and not name.endswith("unasked")}

    if most is None:
        assert not own & set(times), "it is a refusal, and never final"
    else:
        assert own <= set(times)
        assert max(times[name] for name in own) <= most + STEP_MS


def test_refused_large_workload_precedes_later_small_ones():
    """All answers expire together, so that the queue's order decides once there is capacity."""
    state = Engine(Policy(node_estimates=True, startup_timeout_ms=None))
    state.queue_changed(Queue(QueueName("q")))
    state.cluster_changed(site("m1", 40), 0)
    large, small = gang(pods(4, cpu=5)), gang(pods(1, cpu=5))
    state.workload_changed(job("large", large, created_at=1), 0)
    (query,) = state.plan(0).queries
    state.cluster_estimated(Estimate(query, 3), 0)
    state.plan(0)
    state.workload_changed(job("small-1", small, created_at=2), 10)
    (query,) = state.plan(10).queries
    state.cluster_estimated(Estimate(query, 3), 10)
    assert [each.workload.name for each in state.plan(10).decisions] == ["small-1"]

    state.workload_changed(job("small-2", small, created_at=3), 500)
    state.workload_removed(WorkloadUid("small-1"), 500)
    asked = state.plan(500).queries
    assert len(asked) == 2, "the large one is asked for together with the small one"
    for query in asked:
        state.cluster_estimated(Estimate(query, 4), 505)
    assert [each.workload.name for each in state.plan(505).decisions] == ["large"]
