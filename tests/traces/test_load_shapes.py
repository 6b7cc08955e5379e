from collections import Counter
from itertools import pairwise

import pytest

from controller.engine.state.resources import scale, total
from controller.simulator.jobs import JobStage
from controller.simulator.simulation import Simulation
from tests.traces.load import to_trace
from tests.traces.load_shapes import LoadShape, SizeError, generate_load
from tests.traces.measurements import RandomStream, load_measurements, milliseconds, quantile
from tests.traces.philly import GPU, gpu_tasks

MEASURED = [LoadShape.PHILLY, LoadShape.HELIOS, LoadShape.ALIBABA]
DAY = 86_400_000


def asked(job):
    return total(scale(dict(task.request), task.replicas) for task in job.tasks)


@pytest.mark.parametrize("shape", MEASURED)
def test_load_has_the_requested_size(shape):
    load = generate_load(shape, 3, jobs=200, queues=14, clusters=5)
    assert (len(load.jobs), len(load.queues), len(load.clusters)) == (200, 14, 5)
    assert len({(job.namespace, job.name) for job in load.jobs}) == 200
    assert {job.queue for job in load.jobs} <= {queue.name for queue in load.queues}


@pytest.mark.parametrize("shape", MEASURED)
def test_jobs_are_ordered_and_run_times_are_limited(shape):
    jobs = generate_load(shape, 0, jobs=500).jobs
    assert all(before.at <= after.at for before, after in pairwise(jobs))
    assert all(1000 <= job.runtime <= DAY for job in jobs)


@pytest.mark.parametrize("shape", MEASURED)
def test_load_is_determined_by_the_seed(shape):
    assert generate_load(shape, 5, jobs=50) == generate_load(shape, 5, jobs=50)
    assert generate_load(shape, 5, jobs=50) != generate_load(shape, 6, jobs=50)


@pytest.mark.parametrize("shape", MEASURED)
@pytest.mark.parametrize("seed", range(3))
def test_every_job_fits_the_first_cluster_and_finishes(shape, seed):
    load = generate_load(shape, seed, jobs=120)
    room = load.clusters[0].allocatable
    assert all(amount <= room[name] for job in load.jobs for name, amount in asked(job).items())
    result = Simulation(to_trace(load)).run()
    assert Counter(simulated.stage for simulated in result.jobs) == {JobStage.FINISHED: 120}


@pytest.mark.parametrize("shape", MEASURED)
def test_higher_load_means_fewer_nodes_for_the_same_jobs(shape):
    light, heavy = (generate_load(shape, 0, jobs=500, load=load) for load in (50, 200))
    assert light.jobs == heavy.jobs
    cpus = [sum(each.allocatable["cpu"] for each in load.clusters) for load in (light, heavy)]
    assert cpus[0] > cpus[1]


def test_philly_job_sizes_and_tenants_match_measurements():
    jobs = generate_load(LoadShape.PHILLY, 0, jobs=5000, queues=11).jobs
    one = sum(asked(job)[GPU] == 1000 for job in jobs) / len(jobs)
    largest = sum(job.queue == "vc-6214e9" for job in jobs) / len(jobs)
    assert 0.88 < one < 0.97
    assert 0.40 < largest < 0.62


def test_philly_queues_are_weighted_by_gpu_time():
    weights = {queue.name: queue.weight for queue in generate_load(LoadShape.PHILLY, 0, jobs=10, queues=12).queues}
    assert (weights["vc-ee9e8c"], weights["vc-ed69ec"]) == (26, 1)
    assert weights["vc-6214e9"] == weights["vc-6214e9-2"] == 10


def test_helios_job_types_and_mean_gpus_match_measurements():
    jobs = [asked(job) for job in generate_load(LoadShape.HELIOS, 0, jobs=5000).jobs]
    gpus = [job[GPU] // 1000 for job in jobs if GPU in job]
    assert 0.44 < len(gpus) / len(jobs) < 0.50
    assert 3.2 < sum(gpus) / len(gpus) < 4.2


def test_alibaba_has_fractional_gpus_and_service_classes():
    load = generate_load(LoadShape.ALIBABA, 0, jobs=3000)
    parts = [asked(job).get("koordinator.sh/gpu-core", 0) // 1000 for job in load.jobs]
    assert 0.10 < parts.count(0) / len(parts) < 0.16
    assert {part for part in parts if 0 < part < 100} == {81, 47, 32, 65, 23, 46, 59, 16, 55, 22, 37}
    assert Counter(job.priority_class for job in load.jobs).most_common(2)[0][0] == "latency-sensitive"
    assert {job.priority_class for job in load.jobs} <= set(load.classes)


@pytest.mark.parametrize(("gpus", "pods", "each"), [(1, 1, 1), (8, 1, 8), (12, 2, 6), (16, 2, 8), (128, 16, 8)])
def test_gpu_job_has_equal_pods_that_fit_a_node(gpus, pods, each):
    [task] = gpu_tasks(gpus)
    assert (task.replicas, dict(task.request)[GPU]) == (pods, each * 1000)


@pytest.mark.parametrize(
    ("shape", "sizes", "why"),
    [
        pytest.param(LoadShape.GANG, {"clusters": 2}, "gang does not accept clusters; it accepts jobs", id="not-taken"),
        pytest.param(LoadShape.PHILLY, {"jobs": 0}, "jobs is 0; write 1 or more", id="none-at-all"),
    ],
)
def test_invalid_size_is_rejected(shape, sizes, why):
    with pytest.raises(SizeError, match=why):
        generate_load(shape, 0, **sizes)


def test_quantile_lists_have_one_value_per_probability():
    found = load_measurements()
    lists = [tenant.durations for tenant in found.philly.tenants]
    lists += [found.alibaba.durations, found.alibaba.cpu_milli, found.alibaba.memory_mib]
    assert {len(each) for each in lists} == {len(found.probabilities)}
    assert all(list(each) == sorted(each) for each in lists)
    assert all(source.source for source in (found.philly, found.helios, found.alibaba))


def test_quantiles_are_interpolated_logarithmically():
    assert [round(quantile(part, (0, 0.5, 1), (1, 100, 10_000)), 6) for part in (0, 0.25, 0.5, 0.75)] == [
        1,
        10,
        100,
        1000,
    ]
    assert quantile(0.25, (0, 0.5, 1), (0, 100, 200)) == 50


def test_random_values_have_the_requested_means():
    dice = RandomStream(1, "means")
    bursts = [dice.burst(12.6) for _ in range(20_000)]
    gaps = [dice.gap(30) for _ in range(20_000)]
    assert min(bursts) == 1
    assert sum(bursts) / len(bursts) == pytest.approx(12.6, rel=0.05)
    assert sum(gaps) / len(gaps) == pytest.approx(30_000, rel=0.05)
    assert {dice.burst(1) for _ in range(10)} == {1}


def test_run_time_is_limited_to_a_second_and_a_day():
    assert [milliseconds(each) for each in (0.1, 1.5, 1e9)] == [1000, 1500, DAY]
