"""Causes of idle capacity and of waiting, compared with values computed by hand."""

import pytest

from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.state.resources import CPU
from controller.simulator.simulation import Simulation
from controller.simulator.summary import LongWait, ReasonWaits, summarise
from controller.simulator.trace import SimulationSettings
from tests.simulator.traces import cluster, cpus, job, queue, trace


def figures(*jobs, writes=0, **more):
    return summarise(Simulation(trace(*jobs, **more), SimulationSettings(writes_per_second=writes)).run())


def idle(*jobs, **more):
    return figures(*jobs, **more).idle[CPU]


def test_idle_beyond_requests_counts_as_nothing_pending():
    # For 10 of 20 seconds 4 CPUs are idle while 3 are asked for, which no cluster has in one piece.
    shares = idle(job("a", 6), job("b", 6), job("c", 3), clusters=[cluster("m", 8), cluster("n", 8)], queues=[queue()])
    # Of 16 CPUs: 3 fragmented and 1 too many for 10 seconds, 13 too many for the other 10.
    assert shares == {"nothingPending": round(14 / 32, 4), "fragmented": round(3 / 32, 4)}


def test_idle_because_of_a_queue_limit():
    shares = idle(job("a", 4), job("b", 4), queues=[queue(capability=cpus(4))])
    assert shares == {"limited": 0.25, "nothingPending": 0.25}


def test_idle_because_of_a_guarantee():
    shares = idle(job("a", 4), job("b", 4), queues=[queue(), queue("g", guarantee=cpus(4))])
    assert shares == {"guaranteed": 0.5}


def test_idle_because_of_a_nomination():
    policy = Policy(preemption=EvictionPolicy(enabled=True, min_runtime_ms=0))
    shares = idle(job("low", 4, runs=100), job("high", 6, at=10, runs=10, priority=9), policy=policy)
    # From second 10 to 40 low leaves and 4 of 8 CPUs are held for high, which asks for 6; all ends in second 150.
    assert shares["nominated"] == 4 * 30 / (8 * 150)


def test_waiting_time_is_reported_by_reason():
    summary = figures(job("a", 8), job("b", 8), job("c", 8))
    assert summary.waiting_by_reason == (ReasonWaits("InsufficientCapacity", 2, 30),)
    assert summary.longest_waits == (
        LongWait("Job", "ml", "c", "q", 20, "InsufficientCapacity", _FULL),
        LongWait("Job", "ml", "b", "q", 10, "InsufficientCapacity", _FULL),
    )


_FULL = "it requests 8 cpu, all usable clusters together have 0 left"


def test_waiting_for_a_write_has_no_reason():
    assert figures(job("a", 4), writes=1).waiting_by_reason == (ReasonWaits(None, 1, 1),)


def test_every_second_of_waiting_has_one_reason():
    jobs = [job(f"j{number}", 3 + number % 5, at=number, runs=5 + number % 7) for number in range(20)]
    summary = figures(*jobs, queues=[queue(fifo=True)])
    assert summary.waiting is not None
    total = sum(waiting.time for waiting in summary.waiting_by_reason)
    assert total == pytest.approx(summary.waiting.mean * summary.waiting.jobs, abs=0.1)
