from dataclasses import replace
from math import log
from statistics import median, pstdev

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.checkpoint import restore, take_checkpoint
from controller.engine.engine import Engine
from controller.engine.policy import AdvanceReservation, EvictionPolicy, Policy
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.workloads import WorkloadUid
from controller.forecast import futures as under_test
from controller.forecast.futures import ForecastOptions, Future, StartForecaster, order_statistic
from controller.forecast.run_times import JobProfile, Run, RunTimes
from controller.forecast.sampling import RepeatedArrivals, RunTimeSampler, repeated_uid
from controller.simulator.jobs import JobAction
from controller.simulator.simulation import Simulation
from controller.simulator.trace import DEFAULT_GRACE, SimulationSettings
from tests.draws import draws
from tests.simulator.traces import START, cluster, cpus, job, queue, trace

UID = WorkloadUid


def engine_of(workload_trace) -> Engine:
    """Return the engine of a trace after its first plan."""
    engine = Engine(workload_trace.policy)
    for submission in workload_trace.submissions:
        engine.workload_changed(submission.workload, START)
    for traced_queue in workload_trace.queues:
        engine.queue_changed(traced_queue)
    for traced_cluster in workload_trace.clusters:
        engine.cluster_changed(traced_cluster, START)
    engine.plan(START)
    return engine


def true_future(workload_trace) -> Future:
    runtimes = {submission.workload.uid: submission.runtime for submission in workload_trace.submissions}
    return Future(lambda workload, _: runtimes[workload.uid])


def forecast(workload_trace, *names, **options):
    forecaster = StartForecaster(engine_of(workload_trace), START, ForecastOptions(**options))
    *_, last = forecaster.forecasts([UID(f"uid-{name}") for name in names], [true_future(workload_trace)])
    return last


jobs = st.lists(
    st.builds(
        lambda cpu, runs, where, priority: (cpu, runs, where, priority),
        st.integers(1, 8),
        st.integers(1, 3000),
        st.sampled_from("ab"),
        st.sampled_from([0, 0, 0, 5]),
    ),
    min_size=1,
    max_size=25,
)

policies = st.sampled_from(
    [
        Policy(),
        Policy(tenant_fairness="Namespace"),
        Policy(queue_order="FairShareFirst"),
        Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0)),
    ]
)


@draws(150)
@given(jobs, policies, st.integers(0, 4000), st.booleans(), st.integers(1, 16))
def test_forecast_with_true_run_times_is_exact(sizes, policy, moment, fifo, loaded):
    submissions = [
        job(f"{number:02}", cpu, runs=runs, queue=name, priority=priority)
        for number, (cpu, runs, name, priority) in enumerate(sizes)
    ]
    workload_trace = trace(
        *submissions,
        clusters=[cluster("m1", 6), cluster("m2", 9)],
        queues=[queue("a", weight=2, fifo=fifo), queue("b")],
        policy=policy,
    )
    saved = []

    def observe(*values):
        if not saved and values[-1] >= moment * 1000:
            saved.append((values[-1], take_checkpoint(simulation.engine)))

    simulation = Simulation(workload_trace, SimulationSettings(status_period=0), observe=observe)
    result = simulation.run()
    if not saved:
        return
    now, checkpoint = saved[0]
    engine = restore(checkpoint.policy, checkpoint.queues, checkpoint.workloads, checkpoint.history, START + now)
    engine.plan(START + now)
    targets = [workload.uid for name in engine.queues_with_pending() for workload in engine.pending_workloads(name)]
    targets = [uid for uid in targets if not engine.workloads[uid].is_being_evicted]
    if not targets:
        return
    before, under_test._LOADED_PER_CLASS = under_test._LOADED_PER_CLASS, loaded
    try:
        *_, forecasts = StartForecaster(engine, START + now).forecasts(targets, [true_future(workload_trace)])
    finally:
        under_test._LOADED_PER_CLASS = before
    admitted = [entry for entry in result.log if entry.action is JobAction.ADMIT and entry.at > now]
    actual = {entry.workload.uid: START + entry.at for entry in reversed(admitted)}
    assert {uid: start.p50 for uid, start in forecasts.items()} == {uid: actual.get(uid) for uid in targets}


def test_start_waits_for_the_workload_that_frees_its_cluster():
    workload_trace = trace(
        job("small", 2, runs=50, on="m1"),
        job("large", 6, runs=100, on="m2"),
        job("new", 6),
        clusters=[cluster("m1", 2, used=2), cluster("m2", 6, used=6)],
    )
    start = forecast(workload_trace, "new")[UID("uid-new")]
    assert (start.p10, start.p50, start.p90) == (START + 100_000,) * 3
    assert [(blocker.workload.name, blocker.cluster) for blocker in start.after] == [("large", "m2")]


def test_start_follows_those_of_earlier_workloads():
    workload_trace = trace(*(job(name, 8, runs=10) for name in "abc"))
    assert forecast(workload_trace, "c")[UID("uid-c")].p50 == START + 20_000


def test_start_does_not_wait_for_estimators():
    submission = job("new", 8)
    pods = (PodSet(tuple(cpus(8).items()), 1, 1),)
    requirements = replace(submission.workload.requirements, pod_sets=pods)
    submission = replace(submission, workload=replace(submission.workload, requirements=requirements))
    workload_trace = trace(submission, policy=Policy(node_estimates=True))
    assert forecast(workload_trace, "new")[UID("uid-new")].p50 == START


def test_start_waits_for_the_configured_grace_period():
    reserved = AdvanceReservation(
        "own", (ClusterName("m"),), START + 100_000, START + 3_600_000, queue=QueueName("own"), evicts=True
    )
    policy = Policy(advance_reservations=(reserved,), preemption=EvictionPolicy(grace_ms=300_000))
    workload_trace = trace(
        job("old", 8, runs=7200, on="m"),
        job("new", 8, queue="own"),
        clusters=[cluster(used=8)],
        queues=[queue(), queue("own")],
        policy=policy,
    )
    assert forecast(workload_trace, "new")[UID("uid-new")].p50 == START + 400_000


def test_start_after_the_horizon_or_never_is_unknown():
    workload_trace = trace(job("old", 8, runs=100, on="m"), job("new", 8), clusters=[cluster(used=8)])
    assert forecast(workload_trace, "new", horizon=99_000)[UID("uid-new")].p50 is None
    assert forecast(workload_trace, "new", horizon=100_000)[UID("uid-new")].p50 == START + 100_000
    start = forecast(trace(job("giant", 9)), "giant")[UID("uid-giant")]
    assert (start.p10, start.p50, start.p90, start.after) == (None, None, None, ())


def test_start_beyond_the_maximum_of_cycles_is_marked_as_cut():
    workload_trace = trace(job("old", 8, runs=100, on="m"), job("new", 8), clusters=[cluster(used=8)])
    uid = UID("uid-new")
    cut, late, known = (
        forecast(workload_trace, "new", **options)[uid] for options in ({"max_cycles": 1}, {"horizon": 99_000}, {})
    )
    assert [(start.p50 is None, start.is_cut) for start in (cut, late, known)] == [
        (True, True),
        (True, False),
        (False, False),
    ]


def test_each_future_makes_the_interval_wider_or_equal():
    workload_trace = trace(job("old", 8, runs=100, on="m"), job("new", 8), clusters=[cluster(used=8)])
    futures = [Future(lambda *_, seconds=seconds: seconds * 1000) for seconds in (50, 100, 10, 500)]
    uid = UID("uid-new")
    engine = engine_of(workload_trace)
    before = take_checkpoint(engine)
    seen = [forecasts[uid] for forecasts in StartForecaster(engine, START).forecasts([uid], futures)]
    assert take_checkpoint(engine) == before
    assert [(start.p10 - START, start.p90 - START, start.futures) for start in seen] == [
        (50_000, 50_000, 1),
        (50_000, 100_000, 2),
        (10_000, 100_000, 3),
        (10_000, 500_000, 4),
    ]


def test_order_statistic_is_interpolated_or_unknown():
    times = [hundred * 100 for hundred in range(1, 10)]
    assert [order_statistic(times, 9, probability) for probability in (0.01, 0.25, 0.5, 0.99)] == [100, 250, 500, 900]
    assert order_statistic([1, 2], 9, 0.1) == 1
    assert order_statistic([1, 2], 9, 0.5) is None


def learned(*seconds: int) -> RunTimes:
    run_times = RunTimes()
    for run_time in seconds:
        run_times.record(PROFILE, Run(run_time))
    return run_times


PROFILE = JobProfile("q", "ml", "train")


def test_draws_are_the_same_for_the_same_seed():
    workload = job("a").workload
    first, second, other = (
        [
            future.run_time_of(workload, 5000)
            for future in RunTimeSampler(learned(10, 20, 30), lambda _: PROFILE, seed=seed).futures(5)
        ]
        for seed in (1, 1, 2)
    )
    assert first == second != other
    assert len(set(first)) > 1
    assert min(first) >= 5000


def test_jobs_of_one_template_are_alike_in_one_future():
    run_times, workloads = learned(*range(10, 1000, 50)), [job(str(number)).workload for number in range(40)]

    def spread(profile_of):
        medians = [
            median(future.run_time_of(workload, 0) for workload in workloads)
            for future in RunTimeSampler(run_times, profile_of).futures(20)
        ]
        return pstdev(map(log, medians))

    apart = spread(lambda workload: PROFILE._replace(template=workload.name))
    assert spread(lambda _: PROFILE) > 1.5 * apart


def test_arrivals_repeat_those_of_the_last_day():
    hour = 3_600_000
    workloads = [
        replace(job(f"{number}").workload, created_at=START - number * hour) for number in (1, 2, 3, 23, 25, 30)
    ]
    counts = []
    for number in range(200):
        arrivals = RepeatedArrivals(workloads, START)(number)
        assert all(START < at <= START + 24 * hour for at, _ in arrivals)
        assert {workload.name for _, workload in arrivals} <= {"1", "2", "3", "23"}
        assert len({workload.uid for _, workload in arrivals}) == len(arrivals)
        counts.append(len(arrivals))
    assert 3.5 < sum(counts) / len(counts) < 4.5


def test_arrivals_have_the_expected_run_times_of_the_repeated():
    known = replace(job("1").workload.expecting(60_000, 90_000), created_at=START - 1000)
    arrivals = [workload for number in range(9) for _, workload in RepeatedArrivals([known], START)(number)]
    assert {repeated_uid(workload) for workload in arrivals} == {known.uid}
    assert {workload.run_time_ms for workload in arrivals} == {60_000}
    assert {workload.details.run_time_bounds_ms for workload in arrivals} == {(90_000,)}


def test_aborted_workload_starts_in_no_future_again():
    workload_trace = trace(job("aborted", 8, runs=600, on="m1"), job("next", 8), clusters=[cluster("m1", 8, used=8)])
    engine = engine_of(workload_trace)
    aborted = engine.workloads[UID("uid-aborted")]
    engine.workload_changed(replace(aborted, hold=Refusal(Reason.ABORTED)), START)
    engine.plan(START)
    *_, last = StartForecaster(engine, START).forecasts([UID("uid-next")], [true_future(workload_trace)])
    assert last[UID("uid-next")].p50 == START + DEFAULT_GRACE
