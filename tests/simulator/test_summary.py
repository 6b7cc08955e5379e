from fractions import Fraction

import pytest

from controller.simulator.comparison import Variant
from controller.simulator.comparison import figures as variant_figures
from controller.simulator.simulation import Simulation
from controller.simulator.summary import Deviation, Jobs, WaitTimes, jain, nearest_rank, summarise
from controller.simulator.trace import SimulationSettings
from tests.simulator.traces import cluster, job, queue, trace


def figures(*jobs, until=None, **more):
    return summarise(Simulation(trace(*jobs, **more), SimulationSettings(until=until)).run())


def by_name(summary):
    return {queue_figures.name: queue_figures for queue_figures in summary.queues}


def test_waiting_times_count_from_submission_to_start():
    # One at a time: they wait 0, 10, 20 and 30 seconds.
    summary = figures(*(job(f"j{n}", 8, at=5) for n in range(4)))
    assert summary.waiting == WaitTimes(jobs=4, mean=15, p50=10, p99=30, max=30)
    assert summary.makespan == 40
    assert summary.jobs == Jobs(submitted=4, finished=4, running=0, waiting=0)


def test_comparison_has_the_utilisation_of_the_summary():
    result = Simulation(trace(job("a", 2), clusters=[cluster(used=4)])).run()
    assert variant_figures(Variant.CONFIGURED, result).utilisation == summarise(result).utilisation["cpu"] == 0.5


def test_utilisation_is_running_usage_over_capacity():
    # 8 CPUs for 20 seconds; 4 of them for 20 and 2 for 10.
    assert figures(job("a", 4, runs=20), job("b", 2, at=10)).utilisation == {"cpu": 0.625}


def test_external_usage_is_excluded_from_capacity():
    assert figures(job("a", 4), clusters=[cluster(used=4)]).utilisation == {"cpu": 1.0}


def test_queue_is_compared_with_its_fair_share():
    # For 10 seconds q uses all 8 with a fair share of 4, because r is pending; then r uses all without contention.
    submissions = job("q1", 8), job("r1", 8, queue="r", at=0)
    summary = figures(*submissions, queues=[queue("q"), queue("r")])
    q, r = by_name(summary)["q"], by_name(summary)["r"]
    assert (q.used, q.fair_share) == ({"cpu": 0.5}, {"cpu": 0.25})
    assert q.deviation == {"cpu": Deviation(mean=0.25, max=0.5)}
    assert (r.used, r.fair_share) == ({"cpu": 0.5}, {"cpu": 0.75})
    assert (q.satisfaction, r.satisfaction) == (2.0, 0.6667)
    # (2 + 2/3)^2 / (2 * (4 + 4/9)) = 64/9 / (80/9)
    assert summary.fairness == 0.8


def test_never_admitted_job_is_listed_with_its_reason():
    summary = figures(job("a"), job("giant", 9, at=2))
    [never] = summary.never_admitted
    assert (never.name, never.since, never.reason) == ("giant", 2, "ExceedsTotalCapacity")
    assert "all clusters together have no more than 8" in never.message
    assert (summary.jobs.waiting, summary.waiting.jobs) == (1, 1)


def test_admission_being_written_at_the_end_is_explained():
    result = Simulation(trace(job("a")), SimulationSettings(until=500, writes_per_second=1)).run()
    [never] = summarise(result).never_admitted
    assert (never.reason, never.message) == (None, "its admission was being written")


def test_initially_running_job_has_no_waiting_time():
    summary = figures(job("old", 4, on="m", runs=5), clusters=[cluster(used=4)])
    assert (summary.waiting, summary.jobs.finished) == (None, 1)


def test_trace_without_jobs_has_no_statistics():
    summary = figures()
    assert (summary.makespan, summary.waiting, summary.fairness, summary.utilisation) == (None, None, None, {})


def test_unfinished_run_counts_partially():
    summary = figures(job("a", 8, runs=100), until=10_000)
    assert (summary.utilisation, summary.end, summary.makespan) == ({"cpu": 1.0}, 10, None)


@pytest.mark.parametrize(
    ("values", "index"),
    [
        pytest.param([1, 1, 1], 1, id="all-equal"),
        pytest.param([1, 0, 0, 0], Fraction(1, 4), id="one-has-all"),
        pytest.param([1, 2, 3], Fraction(36, 42), id="by-hand"),
        pytest.param([0, 0], None, id="all-zero"),
        pytest.param([], None, id="empty"),
    ],
)
def test_jains_index(values, index):
    assert jain([Fraction(value) for value in values]) == index


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2), (51, 3), (99, 4), (100, 4)])
def test_percentiles_use_the_nearest_rank(percent, value):
    assert nearest_rank([1, 2, 3, 4], percent) == value
