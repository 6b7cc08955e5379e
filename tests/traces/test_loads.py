from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from controller.engine.state.resources import scale, total
from controller.simulator.jobs import JobStage
from controller.simulator.simulation import Simulation
from tests.traces.__main__ import SHAPES, main
from tests.traces.alibaba import alibaba_load
from tests.traces.helios import helios_load
from tests.traces.load import LoadSize, to_trace
from tests.traces.measurements import quantile
from tests.traces.philly import GPU, gpu_tasks, philly_load

each_shape = pytest.mark.parametrize("generate", SHAPES.values(), ids=SHAPES)
DAY = 86_400_000


def asked(job):
    return total(scale(dict(task.request), task.replicas) for task in job.tasks)


@each_shape
def test_load_has_the_requested_size_and_follows_the_seed(generate):
    size = LoadSize(seed=3, jobs=200, queues=14, clusters=5)
    load = generate(size)
    assert (len(load.jobs), len(load.queues), len(load.clusters)) == (200, 14, 5)
    assert len({(job.namespace, job.name) for job in load.jobs}) == 200
    assert {job.queue for job in load.jobs} <= {queue.name for queue in load.queues}
    assert all(before.at <= after.at for before, after in pairwise(load.jobs))
    assert all(1000 <= job.runtime <= DAY for job in load.jobs)
    assert load == generate(size)
    assert load != generate(replace(size, seed=4))


@each_shape
def test_every_job_fits_the_first_cluster_and_finishes(generate):
    load = generate(LoadSize(jobs=120))
    room = load.clusters[0].allocatable
    assert all(amount <= room[name] for job in load.jobs for name, amount in asked(job).items())
    result = Simulation(to_trace(load)).run()
    assert Counter(simulated.stage for simulated in result.jobs) == {JobStage.FINISHED: 120}


@each_shape
def test_higher_load_means_fewer_nodes_for_the_same_jobs(generate):
    light, heavy = (generate(LoadSize(jobs=500, load=load)) for load in (50, 200))
    assert light.jobs == heavy.jobs
    cpus = [sum(cluster.allocatable["cpu"] for cluster in load.clusters) for load in (light, heavy)]
    assert cpus[0] > cpus[1]


def test_philly_sizes_tenants_and_weights_match_measurements():
    jobs = philly_load(LoadSize(jobs=5000, queues=11)).jobs
    one = sum(asked(job)[GPU] == 1000 for job in jobs) / len(jobs)
    largest = sum(job.queue == "vc-6214e9" for job in jobs) / len(jobs)
    assert 0.88 < one < 0.97
    assert 0.40 < largest < 0.62
    weights = {queue.name: queue.weight for queue in philly_load(LoadSize(jobs=10, queues=12)).queues}
    assert (weights["vc-ee9e8c"], weights["vc-ed69ec"], weights["vc-6214e9-2"]) == (26, 1, 10)


def test_helios_job_types_and_mean_gpus_match_measurements():
    jobs = [asked(job) for job in helios_load(LoadSize(jobs=5000)).jobs]
    gpus = [job[GPU] // 1000 for job in jobs if GPU in job]
    assert 0.44 < len(gpus) / len(jobs) < 0.50
    assert 3.2 < sum(gpus) / len(gpus) < 4.2


def test_alibaba_has_fractional_gpus_and_service_classes():
    load = alibaba_load(LoadSize(jobs=3000))
    parts = [asked(job).get("koordinator.sh/gpu-core", 0) // 1000 for job in load.jobs]
    assert 0.10 < parts.count(0) / len(parts) < 0.16
    assert {part for part in parts if 0 < part < 100} == {81, 47, 32, 65, 23, 46, 59, 16, 55, 22, 37}
    assert Counter(job.priority_class for job in load.jobs).most_common(2)[0][0] == "latency-sensitive"
    assert {job.priority_class for job in load.jobs} <= set(load.classes)


@pytest.mark.parametrize(("gpus", "pods", "per_pod"), [(1, 1, 1), (8, 1, 8), (12, 2, 6), (16, 2, 8), (128, 16, 8)])
def test_gpu_job_has_equal_pods_that_fit_a_node(gpus, pods, per_pod):
    [task] = gpu_tasks(gpus)
    assert (task.replicas, dict(task.request)[GPU]) == (pods, per_pod * 1000)


def test_quantiles_are_interpolated_logarithmically():
    assert [round(quantile(part, (0, 0.5, 1), (1, 100, 10_000)), 6) for part in (0, 0.25, 0.5, 0.75)] == [
        1,
        10,
        100,
        1000,
    ]
    assert quantile(0.25, (0, 0.5, 1), (0, 100, 200)) == 50


@pytest.mark.parametrize("flag", ["--jobs", "--queues", "--clusters", "--load"])
@pytest.mark.parametrize("text", ["0", "-1", "x"])
def test_number_below_one_is_refused(capsys, flag, text):
    with pytest.raises(SystemExit) as ended:
        main(["philly", flag, text])
    assert (ended.value.code, f"argument {flag}: '{text}' is not a whole" in capsys.readouterr().err) == (2, True)
