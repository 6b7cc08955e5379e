"""Measures forecasts of start times against simulated worlds."""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from statistics import median, quantiles

from controller.engine.checkpoint import take_history
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.requests import Container, JobTemplate, PodTemplate, Task
from controller.engine.state.workloads import Workload
from controller.forecast.counterfactuals import PendingJob, find_counterfactuals
from controller.forecast.futures import StartForecaster
from controller.forecast.run_times import JobProfile, Run, RunTimes
from controller.forecast.sampling import RunTimeSampler
from controller.forecast.trials import Trials
from tests.benchmarks import states
from tests.benchmarks.figures import Figure
from tests.benchmarks.forecast_worlds import Case, World
from tests.benchmarks.plan import SIZES
from tests.benchmarks.states import NOW, Size
from tests.traces.templates import TEMPLATE_SHAPES

SEEDS = 100
#: As many as the command line simulates.
FUTURES = 19


def measure(*, quick: bool) -> list[Figure]:
    """Run all worlds, and the forecast in a large state; return the figures."""
    worlds = [(shape, seed) for seed in range(2 if quick else SEEDS) for shape in TEMPLATE_SHAPES]
    with ProcessPoolExecutor(max_workers=2) as pool:
        cases = [case for of_world in pool.map(cases_of, worlds) for case in of_world]
    first_answer = _first_answer(SIZES[0 if quick else -1])
    return [
        *calibration(cases),
        Figure("forecast_first_answer_seconds", first_answer, "s", "< 10"),
        *_counterfactuals(SIZES[0 if quick else -1], 20 if quick else 100),
    ]


def cases_of(world: tuple[str, int]) -> list[Case]:
    """Simulate one world and return its cases."""
    shape, seed = world
    return list(World(shape, seed).cases(FUTURES))


def calibration(cases: Sequence[Case]) -> list[Figure]:
    """Print the coverage by queue depth, and return the figures of *cases*."""
    errors = {name: _median_error(cases, name) for name in ("p50", "by_rate", "by_limits")}
    tenths = _inside_by_tenth(cases)
    print("starts between p10 and p90 by tenth of the queue depth:", *(f"{share:.0%}" for share in tenths), flush=True)
    return [
        Figure(
            "forecast_interval_coverage", sum(case.is_inside for case in cases) / len(cases), "of starts", "75-85 %"
        ),
        Figure("forecast_interval_coverage_lowest_tenth", min(tenths), "of starts", "70-90 %"),
        Figure("forecast_interval_coverage_highest_tenth", max(tenths), "of starts", "70-90 %"),
        Figure("forecast_median_error_seconds", errors["p50"], "s", "half of by rate", errors["by_rate"]),
        Figure("forecast_median_error_seconds", errors["p50"], "s", "half of Slurm-style", errors["by_limits"]),
    ]


def _median_error(cases: Sequence[Case], name: str) -> float:
    return median(abs(getattr(case, name) - case.actual) for case in cases) / 1000


def _inside_by_tenth(cases: Sequence[Case]) -> list[float]:
    """Return the share of starts in the interval for each tenth of the queue depth that has any."""
    tenths: list[list[bool]] = [[] for _ in range(10)]
    for case in cases:
        tenths[min(int(case.depth * 10 - 1e-9), 9)].append(case.is_inside)
    return [sum(tenth) / len(tenth) for tenth in tenths if tenth]


def _first_answer(size: Size) -> float:
    """Return the seconds until the first forecast of the first ten workloads of one queue."""
    engine = _engine_of_twenty_queues(size)
    run_times = RunTimes()
    for seconds in range(600, 14_400, 600):
        run_times.record(JobProfile("a", "b"), Run(seconds))
    queue = next(engine.queues_with_pending())
    targets = [workload.uid for workload in islice(engine.pending_workloads(queue), 10)]
    begun = time.monotonic()
    sampler = RunTimeSampler(run_times, lambda workload: JobProfile(workload.queue, workload.namespace))
    next(StartForecaster(engine, NOW).forecasts(targets, sampler.futures(8)))
    return time.monotonic() - begun


def _counterfactuals(size: Size, count: int) -> list[Figure]:
    """Return how long the search for counterfactuals of one pending workload takes, in CPU milliseconds."""
    engine = _engine_of_twenty_queues(size)
    trials = Trials(engine, take_history(engine), NOW, Plan())
    queues = [engine.pending_workloads(name) for name in engine.queues_with_pending()]
    times = []
    for number in range(count):
        queue = queues[number % len(queues)]
        begun = time.process_time()
        for _ in find_counterfactuals(trials, _job(queue[number % min(len(queue), 50)])):
            pass
        times.append((time.process_time() - begun) * 1000)
    p50, p99 = (quantiles(times, n=100)[percent - 1] for percent in (50, 99))
    return [
        Figure("counterfactuals_cpu_ms_p50", p50, "ms", "< 300"),
        Figure("counterfactuals_cpu_ms_p99", p99, "ms", "< 2000"),
    ]


def _job(workload: Workload) -> PendingJob:
    """Return a pending workload with a template of equal pods."""
    requests = workload.requirements.requests
    pods = requests["pods"] // 1000
    amounts = {name: amount // pods for name, amount in requests.items() if name != "pods"}
    container = Container(requests=amounts, limits={name: amounts[name] for name in amounts if "/" in name})
    template = JobTemplate((Task("main", pods, PodTemplate(containers=(container,))),), pods)
    return PendingJob(workload, template, lambda _: 0, {"low": 0, "middle": 100, "high": 300}, workload.name)


def _engine_of_twenty_queues(size: Size) -> Engine:
    """Return the state of the benchmark of plans, with 20 queues in the place of many."""
    engine = Engine()
    names = [QueueName(f"q{number}") for number in range(20)]
    for number, name in enumerate(names):
        engine.queue_changed(Queue(name, weight=1 + number % 3))
    workloads = [
        replace(workload, queue=names[number % len(names)]) for number, workload in enumerate(states.workloads(size))
    ]
    for workload in workloads:
        engine.workload_changed(workload, NOW)
    for cluster in states.full_clusters(size, [workload for workload in workloads if workload.admission]):
        engine.cluster_changed(cluster, NOW)
    engine.plan(NOW)
    return engine
