"""Requests of jobs; measured rows are results of Volcano, with our result where it differs by intention."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.state.requests import (
    Container,
    JobTemplate,
    PodTemplate,
    Task,
    gang_minimum,
    pod_request,
    pod_requests,
    total_requests,
)
from controller.engine.state.resources import Resources, fits

MI, GI = 2**20, 2**30
GPU = "nvidia.com/gpu"


def resources(*, cpu: int = 0, memory: int = 0, gpu: int = 0, **others: int) -> Resources:
    """Return amounts from milli-CPU, bytes and whole GPUs."""
    named = {"cpu": cpu, "memory": memory, GPU: gpu * 1000, **others}
    return {name: amount for name, amount in named.items() if amount}


def container(**amounts: int) -> Container:
    return Container(requests=resources(**amounts))


def sidecar(**amounts: int) -> Container:
    return Container(requests=resources(**amounts), restarts=True)


def pod(*containers: Container, **parts: object) -> PodTemplate:
    return PodTemplate(containers=containers, **parts)


def job(*tasks: Task, min_available: int = 0) -> JobTemplate:
    return JobTemplate(tasks=tasks, min_available=min_available)


def task(template: PodTemplate, replicas: int = 1, minimum: int | None = None, **parts: object) -> Task:
    return Task(name="t", replicas=replicas, pod=template, minimum=minimum, **parts)


def no_priorities(_name: str) -> int:
    return 0


PAGES = {"hugepages-2Mi": 4 * MI * 1000, "ephemeral-storage": GI * 1000}

MEASURED = [
    pytest.param(pod(container(cpu=1000, memory=GI)), 2, resources(cpu=2000, memory=2 * GI), id="requests"),
    pytest.param(
        pod(Container(limits=resources(cpu=1000, memory=GI))),
        2,
        resources(cpu=2000, memory=2 * GI),  # Volcano: nothing
        id="limits-only-count",
    ),
    pytest.param(
        pod(Container(requests=resources(cpu=1000), limits=resources(gpu=4))),
        2,
        resources(cpu=2000, gpu=8),  # Volcano: no gpu
        id="gpu-only-in-limits-counts",
    ),
    pytest.param(
        pod(Container(requests=resources(gpu=4), limits=resources(gpu=4))), 2, resources(gpu=8), id="gpu-in-both"
    ),
    pytest.param(
        pod(
            container(cpu=1000),
            container(cpu=2000),
            init=(container(cpu=4000), container(cpu=2000)),
        ),
        1,
        resources(cpu=4000),
        id="the-largest-init-container",
    ),
    pytest.param(
        pod(container(cpu=2000), init=(sidecar(cpu=1000), container(cpu=5000))),
        1,
        resources(cpu=6000),
        id="a-sidecar-runs-beside-the-init-container-after-it",
    ),
    pytest.param(
        pod(container(cpu=2000), init=(container(cpu=5000), sidecar(cpu=1000))),
        1,
        resources(cpu=5000),
        id="a-sidecar-does-not-run-beside-the-init-container-before-it",
    ),
    pytest.param(
        pod(container(cpu=1000, memory=GI), overhead=resources(cpu=250, memory=64 * MI)),
        2,
        resources(cpu=2500, memory=2176 * MI),
        id="overhead",
    ),
    pytest.param(
        pod(container(cpu=1000, memory=GI), requests=resources(cpu=8000)),
        1,
        resources(cpu=8000, memory=GI),
        id="pod-level-request",
    ),
    pytest.param(pod(Container()), 3, {}, id="no-resources"),
    pytest.param(pod(Container(requests=PAGES)), 1, PAGES, id="huge-pages-and-storage"),
]


@pytest.mark.parametrize(("template", "replicas", "expected"), MEASURED)
def test_job_requests_equal_the_measured_requests_of_its_pods(
    template: PodTemplate, replicas: int, expected: Resources
):
    measured = job(task(template, replicas))
    assert total_requests(measured) == {**expected, "pods": replicas * 1000}
    assert gang_minimum(measured, no_priorities) == total_requests(measured)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            pod(Container(requests=resources(cpu=500), limits=resources(cpu=2000, memory=GI))),
            resources(cpu=500, memory=GI),
            id="limits-default-per-resource",
        ),
        pytest.param(
            pod(Container(limits=resources(cpu=1000)), container(cpu=500)),
            resources(cpu=1500),
            id="limits-default-per-container",
        ),
        pytest.param(
            pod(Container(requests={"cpu": 0}, limits={"cpu": 1000})), {}, id="an-explicit-zero-request-is-one"
        ),
        pytest.param(
            pod(container(cpu=100), init=(Container(limits=resources(cpu=900)),)),
            resources(cpu=900),
            id="limits-default-for-init-containers",
        ),
        pytest.param(
            pod(
                container(cpu=1000),
                init=(sidecar(cpu=100), container(cpu=700), sidecar(cpu=200), container(cpu=1500)),
            ),
            resources(cpu=1800),
            id="two-sidecars-run-beside-the-last-init-container",
        ),
        pytest.param(
            pod(container(cpu=100, memory=2 * GI), init=(container(cpu=900, memory=GI),)),
            resources(cpu=900, memory=2 * GI),
            id="the-maximum-is-per-resource",
        ),
        pytest.param(
            pod(init=(sidecar(cpu=100), sidecar(cpu=200))), resources(cpu=300), id="sidecars-add-up-without-containers"
        ),
        pytest.param(
            pod(container(memory=GI), limits=resources(cpu=4000)),
            resources(cpu=4000, memory=GI),
            id="pod-level-limit-where-containers-ask-for-nothing",
        ),
        pytest.param(
            pod(container(cpu=1000), limits=resources(cpu=4000)),
            resources(cpu=1000),
            id="container-requests-before-the-pod-level-limit",
        ),
        pytest.param(
            pod(Container(limits=resources(cpu=1500)), limits=resources(cpu=4000)),
            resources(cpu=1500),
            id="container-limits-become-requests-before-the-pod-level-limit",
        ),
        pytest.param(
            pod(container(cpu=1000), requests=resources(cpu=500), limits=resources(cpu=4000)),
            resources(cpu=500),
            id="pod-level-request-before-all-others",
        ),
        pytest.param(
            pod(container(gpu=1), requests=resources(gpu=8), limits=resources(gpu=8)),
            resources(gpu=1),
            id="pod-level-gpu-means-nothing",
        ),
        pytest.param(
            pod(
                Container(requests={"hugepages-2Mi": 2}, limits={"hugepages-2Mi": 2}),
                limits={"hugepages-2Mi": 8},
            ),
            {"hugepages-2Mi": 8},
            id="pod-level-limit-of-huge-pages",
        ),
        pytest.param(
            pod(container(cpu=1000), init=(container(cpu=3000),), requests=resources(cpu=2000)),
            resources(cpu=2000),
            id="pod-level-request-overrules-init-containers",
        ),
        pytest.param(
            pod(container(cpu=1000), requests=resources(cpu=2000), overhead=resources(cpu=250)),
            resources(cpu=2250),
            id="overhead-comes-on-top-of-the-pod-level-request",
        ),
        pytest.param(
            pod(Container(requests={"cpu": -4000}), container(cpu=1000)),
            resources(cpu=1000),
            id="a-negative-request-frees-nothing",
        ),
        pytest.param(
            pod(Container(requests={"example.com/widget": 5})), {"example.com/widget": 5}, id="unknown-resources-count"
        ),
    ],
)
def test_pod_requests_equal_those_of_kubernetes(template: PodTemplate, expected: Resources):
    assert pod_request(template) == {**expected, "pods": 1000}


def ranked(template: PodTemplate, name: str) -> PodTemplate:
    return PodTemplate(containers=template.containers, priority_class=name)


MASTER = pod(container(cpu=50))
WORKER = pod(container(cpu=100))
UNSET = None


# master: 2 replicas of 50m; worker: 2 replicas of 100m; then their minimums, the job's, and the first task.
@pytest.mark.parametrize(
    ("master", "worker", "min_available", "first", "cpu"),
    [
        pytest.param(1, 1, 0, UNSET, 150, id="unset-means-the-sum-of-the-minimums"),
        pytest.param(UNSET, 1, 0, "master", 200, id="an-unset-minimum-means-all-replicas"),
        pytest.param(UNSET, 1, 3, UNSET, 200, id="equal-to-the-sum"),
        pytest.param(1, UNSET, 3, UNSET, 250, id="equal-to-the-sum-the-other-way"),
        pytest.param(1, 1, 2, UNSET, 150, id="one-each"),
        pytest.param(1, 1, 3, "master", 200, id="the-rest-goes-to-the-higher-priority-master"),
        pytest.param(1, 1, 3, "worker", 250, id="the-rest-goes-to-the-higher-priority-worker"),
        pytest.param(1, 1, 3, UNSET, 200, id="the-rest-goes-to-the-first-in-the-list"),
        pytest.param(0, 1, 3, "worker", 250, id="a-minimum-of-zero"),
        pytest.param(UNSET, 1, 4, "worker", 300, id="everything"),
        pytest.param(1, 1, 4, "worker", 300, id="everything-in-two-steps"),
        pytest.param(UNSET, 1, 2, "master", 100, id="below-the-sum-the-first-pods"),
        # CalcPGMinResources alone says 150, the controller that calls it 200: task minimums are ignored here.
        pytest.param(UNSET, 1, 2, "worker", 200, id="below-the-sum-the-first-pods-of-the-higher-priority"),
        pytest.param(1, UNSET, 2, UNSET, 100, id="below-the-sum-in-list-order"),
        pytest.param(UNSET, UNSET, 3, UNSET, 200, id="below-the-sum-over-two-tasks"),
        pytest.param(1, 1, 1, UNSET, 50, id="less-than-one-each"),
        pytest.param(UNSET, UNSET, 9, UNSET, 300, id="more-than-there-are-pods"),
        pytest.param(5, 1, 0, UNSET, 200, id="a-minimum-above-the-replicas"),
    ],
)
def test_gang_minimum_equals_that_of_volcano(
    master: int | None, worker: int | None, min_available: int, first: str | None, cpu: int
):
    template = job(
        task(ranked(MASTER, "master"), 2, master),
        task(ranked(WORKER, "worker"), 2, worker),
        min_available=min_available,
    )
    assert gang_minimum(template, lambda name: 2 if name == first else 0)["cpu"] == cpu


def test_the_gang_minimum_counts_its_pods():
    template = job(task(MASTER, 2), task(WORKER, 2), min_available=3)
    assert gang_minimum(template, no_priorities)["pods"] == 3000


def test_a_task_without_a_class_comes_after_any_class_above_zero():
    template = job(task(MASTER, 1), task(ranked(WORKER, "low"), 1), min_available=1)
    assert gang_minimum(template, lambda _: 1)["cpu"] == 100


def test_a_task_without_a_class_comes_before_a_class_below_zero():
    template = job(task(ranked(WORKER, "idle"), 1), task(MASTER, 1), min_available=1)
    assert gang_minimum(template, lambda _: -5)["cpu"] == 50


@pytest.mark.parametrize("replicas", [0, -3])
def test_task_without_replicas_requests_nothing(replicas: int):
    assert total_requests(job(task(MASTER, replicas))) == gang_minimum(job(task(MASTER, replicas)), no_priorities) == {}


def test_job_without_tasks_requests_nothing():
    assert total_requests(job()) == gang_minimum(job(), no_priorities) == {}


def test_requests_cover_all_replicas_regardless_of_the_minimum():
    template = job(task(MASTER, 2, 1), task(WORKER, 3, 0), min_available=1)
    assert total_requests(template) == {"cpu": 400, "pods": 5000}


def test_equal_pods_are_listed_once():
    template = job(task(MASTER, 2), task(WORKER, 1), task(MASTER, 7), task(pod(container(gpu=1)), 0))
    assert pod_requests(template) == ({"cpu": 50, "pods": 1000}, {"cpu": 100, "pods": 1000})


def test_huge_requests_are_computed_exactly():
    template = job(task(pod(container(cpu=10**40)), 2**31 - 1))
    assert total_requests(template)["cpu"] == 10**40 * (2**31 - 1)


some_tasks = st.lists(
    st.builds(
        task,
        st.sampled_from([MASTER, WORKER, ranked(MASTER, "x"), ranked(WORKER, "y"), pod(container(memory=7))]),
        st.integers(0, 6),
        st.none() | st.integers(0, 7),
    ),
    max_size=5,
)


@given(some_tasks, st.integers(-1, 40))
def test_gang_minimum_never_exceeds_the_requests(tasks: list[Task], min_available: int):
    template = job(*tasks, min_available=min_available)
    assert fits(gang_minimum(template, len), total_requests(template))


@given(some_tasks, st.integers(0, 40))
def test_gang_minimum_has_exactly_min_available_pods(tasks: list[Task], min_available: int):
    template = job(*tasks, min_available=min_available)
    pods = sum(each.count for each in tasks)
    assert gang_minimum(template, len).get("pods", 0) == 1000 * min(template.gang_pods, pods)
