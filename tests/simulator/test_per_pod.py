from dataclasses import replace

import pytest

from controller.engine.state.workloads import WorkloadState
from controller.simulator.per_pod import PerPodReport, admit_per_pod
from controller.simulator.simulation import Simulation
from tests.simulator.traces import cluster, events_of, job, trace
from tests.traces.cohorts import gang_load
from tests.traces.load import to_trace

GANG = to_trace(gang_load())


def test_five_gangs_finish_one_after_another():
    result = Simulation(GANG).run()
    assert [entry for entry in events_of(result) if entry[1] != "Submit"] == [
        entry
        for number in range(1, 6)
        for entry in ((60 * (number - 1), "Admit", f"job-{number}"), (60 * number, "Finish", f"job-{number}"))
    ]


@pytest.mark.parametrize("seed", range(10))
def test_admission_pod_by_pod_deadlocks(seed):
    result = admit_per_pod(GANG, seed)
    assert result.deadlocked
    assert (result.jobs, result.finished, result.wasted_pods) == (5, 0, 9)


def test_admission_pod_by_pod_succeeds_with_enough_capacity():
    workload_trace = trace(*(job(f"j{n}", 2, pods=2, at=n) for n in range(4)), clusters=[cluster(cpu=8)])
    assert admit_per_pod(workload_trace, 0) == PerPodReport(
        0, jobs=4, finished=4, finished_at=13, deadlocked=False, deadlocked_jobs=0, wasted_pods=0
    )


def test_simulation_pod_by_pod_stops_at_its_limit():
    running, waiting, later = job("running", 5, runs=30, on="m"), job("waiting", 8, pods=8), job("later", at=50)
    cut, whole = (admit_per_pod(trace(running, waiting, later), 0, until) for until in (20_000, None))
    assert cut == PerPodReport(
        0, jobs=2, finished=0, finished_at=None, deadlocked=False, deadlocked_jobs=0, wasted_pods=0
    )
    assert (whole.jobs, whole.finished) == (3, 3)


def test_too_large_job_holds_capacity_pod_by_pod():
    result = admit_per_pod(trace(job("giant", 10, pods=10)), 0)
    assert (result.finished, result.deadlocked_jobs, result.wasted_pods) == (0, 1, 8)


def test_running_job_frees_its_capacity_pod_by_pod():
    running, waiting = job("running", 8, runs=30, on="m"), job("waiting", 8)
    started = replace(running, ran=10_000)
    for clusters in ([cluster(used=8)], [cluster()]):
        result = admit_per_pod(trace(started, waiting, clusters=clusters), 0)
        assert (result.jobs, result.finished, result.finished_at) == (2, 2, 30)


def test_job_without_reported_pods_holds_capacity_pod_by_pod():
    running = job("running", 4, runs=30, on="m")
    admission = replace(running.workload.admission, reported=False)
    unreported = replace(running, workload=replace(running.workload, admission=admission))
    result = admit_per_pod(trace(unreported, job("waiting", 4), clusters=[cluster(used=4)]), 0)
    assert (result.finished, result.finished_at) == (2, 40)


def test_evicted_job_waits_again_pod_by_pod():
    evicted = job("evicted", 8, on="m")
    pending = replace(evicted, workload=replace(evicted.workload, state=WorkloadState.PENDING))
    result = admit_per_pod(trace(pending, clusters=[cluster(used=8)]), 0)
    assert (result.jobs, result.finished_at) == (1, 40)
