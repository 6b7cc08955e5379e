from collections import Counter

import pytest

from controller.simulator.jobs import JobStage
from controller.simulator.simulation import Simulation
from controller.simulator.summary import summarise
from controller.simulator.trace import SimulationSettings
from tests.traces.cohorts import SMALL, THIRTY, THOUSAND, cohorts_load
from tests.traces.load import to_trace


def played(shape, *, clusters=1, **settings):
    return Simulation(to_trace(cohorts_load(shape, clusters=clusters)), SimulationSettings(**settings)).run()


@pytest.mark.parametrize(
    ("shape", "queues", "jobs", "ideal"),
    [
        pytest.param(THIRTY, 5 + 30, 15_000, 66_000, id="thirty"),
        pytest.param(THOUSAND, 10 + 1000, 50_000, 4_025, id="thousand"),
    ],
)
def test_cohort_loads_have_the_documented_sizes(shape, queues, jobs, ideal):
    load = cohorts_load(shape)
    assert (len(load.queues), len(load.jobs), shape.ideal_makespan) == (queues, jobs, ideal)
    leaf, cohort = load.queues[1], load.queues[0]
    assert (leaf.parent, leaf.deserved, leaf.capability) == (cohort.name, {"cpu": 20_000}, {"cpu": 120_000})
    assert cohort.capability == {"cpu": shape.queues * 20_000}
    assert load.clusters[0].allocatable["cpu"] == shape.cohorts * shape.queues * 20_000


def test_every_queue_gets_the_same_jobs():
    load = cohorts_load(THIRTY)
    assert set(Counter(job.queue for job in load.jobs).values()) == {500}
    one = [job for job in load.jobs if job.queue == "cohort-3-queue-2"]
    large = [(job.at, job.runtime) for job in one if job.priority_class == "large"]
    assert large == [(1200 * number, 1000) for number in range(50)]
    assert load.classes == {"small": 50, "medium": 100, "large": 200}


@pytest.mark.parametrize("clusters", [1, 2])
def test_small_cohort_load_is_near_the_ideal_makespan(clusters):
    assert {cluster.allocatable["cpu"] for cluster in cohorts_load(SMALL, clusters=clusters).clusters} == {
        120_000 // clusters
    }
    summary = summarise(played(SMALL, clusters=clusters))
    assert summary.jobs.finished == 2 * 3 * 50
    assert summary.makespan * 1000 <= SMALL.ideal_makespan * 6 / 5
    assert summary.fairness > 0.95


def test_makespan_is_bounded_by_a_low_write_rate():
    result = played(SMALL, writes_per_second=20)
    assert {simulated.stage for simulated in result.jobs} == {JobStage.FINISHED}
    # Fifteen seconds of writes, and the run of the job that was written last.
    assert 15_000 <= result.ended_at <= 17_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "clusters"),
    [
        pytest.param(THIRTY, 1, id="thirty"),
        pytest.param(THIRTY, 5, id="thirty-on-five-clusters"),
        pytest.param(THOUSAND, 1, id="thousand"),
    ],
)
def test_makespan_is_within_a_fifth_of_the_ideal(shape, clusters):
    summary = summarise(played(shape, clusters=clusters))
    assert summary.jobs.finished == summary.jobs.submitted
    assert summary.makespan * 1000 <= shape.ideal_makespan * 6 / 5


@pytest.mark.long
def test_makespan_is_bounded_by_fifty_writes_per_second():
    summary = summarise(played(THIRTY, writes_per_second=50))
    assert summary.jobs.finished == 15_000
    assert 300 <= summary.makespan <= 305
