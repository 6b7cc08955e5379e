from fractions import Fraction

from controller.engine.engine import Engine
from controller.simulator.metrics import ShareMetrics
from tests.simulator.traces import START, cluster, job, queue


def reported(*things):
    engine = Engine()
    for thing in things:
        engine.workload_changed(thing.workload, START)
    engine.queue_changed(queue())
    return engine


def read(gauge, state, *, at, cpu):
    """Plan at second *at* with *cpu* CPUs in the cluster, and observe the shares."""
    state.cluster_changed(cluster(cpu=cpu), START + at * 1000)
    state.plan(START + at * 1000)
    gauge.read(state.queue_shares, at * 1000)


def test_gaps_are_fractions_of_current_capacity():
    # Of 8 CPUs q holds 6 and is due 4 for 10 seconds, since r waits for 6; of 80 it is due all that it holds.
    gauge, state = ShareMetrics(), reported(job("a", 6, on="m"), job("b", 6, queue="r"))
    state.queue_changed(queue("r"))
    read(gauge, state, at=0, cpu=8)
    read(gauge, state, at=10, cpu=80)
    gauge.close(15_000)
    track = gauge.queues["q"]
    assert gauge.capacity_area["cpu"] == 8000 * 10_000 + 80_000 * 5000
    assert track.gap_area["cpu"] == 2000 * 10_000
    assert track.max_gap["cpu"] == Fraction(1, 4)


def test_fair_share_is_rounded_down_to_a_base_unit():
    gauge = ShareMetrics()
    state = reported(*(job(f"{name}-{n}", 1, queue=name) for name in "qrs" for n in range(2)))
    state.queue_changed(queue("r"))
    state.queue_changed(queue("s"))
    read(gauge, state, at=0, cpu=1)
    gauge.close(1000)
    assert {name: gauge.queues[name].fair_share_area["cpu"] for name in "qrs"} == dict.fromkeys("qrs", 333_000)
