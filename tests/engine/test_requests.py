"""Requests of pods and gang minimums of jobs, in addition to those of the scenarios (requests)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.state.requests import (
    Container,
    JobTemplate,
    PodSet,
    PodTemplate,
    Task,
    gang_minimum,
    pod_request,
    pod_requests,
    pod_sets,
    total_requests,
    with_few_containers,
)
from controller.engine.state.resources import Resources, fits, positive, scale, total
from tests.work import work_of

GI = 2**30
GPU = "nvidia.com/gpu"


def resources(*, cpu: int = 0, memory: int = 0, gpu: int = 0) -> Resources:
    """Return amounts from milli-CPU, bytes and whole GPUs."""
    return positive({"cpu": cpu, "memory": memory, GPU: gpu * 1000})


def container(**amounts: int) -> Container:
    return Container(requests=resources(**amounts))


def limited(**amounts: int) -> Container:
    return Container(limits=resources(**amounts))


def sidecar(**amounts: int) -> Container:
    return Container(requests=resources(**amounts), restarts=True)


def pod(*containers: Container, **parts: object) -> PodTemplate:
    return PodTemplate(containers=containers, **parts)


def task(template: PodTemplate, replicas: int = 1, minimum: int | None = None) -> Task:
    return Task(name="t", replicas=replicas, pod=template, minimum=minimum)


def job(*tasks: Task, min_available: int = 0) -> JobTemplate:
    return JobTemplate(tasks=tasks, min_available=min_available)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            pod(limited(cpu=1000), container(cpu=500)), resources(cpu=1500), id="limits-default-per-container"
        ),
        pytest.param(
            pod(Container(requests={"cpu": 0}, limits={"cpu": 1000})), {}, id="a-zero-request-is-not-the-limit"
        ),
        pytest.param(
            pod(container(cpu=100), init=(limited(cpu=900),)),
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
            pod(limited(cpu=1500), limits=resources(cpu=4000)),
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


def pods_of(cpu: int, priority_class: str = "", claim: str | None = "") -> PodTemplate:
    return pod(container(cpu=cpu), priority_class=priority_class, node_claim=claim)


MASTER, WORKER = pods_of(50, "master"), pods_of(100, "worker")
UNSET = None


# master: 2 replicas of 50m; worker: 2 replicas of 100m; then their minimums, the job's, and the first task.
@pytest.mark.parametrize(
    ("master", "worker", "min_available", "first", "cpu"),
    [
        pytest.param(1, 1, 0, UNSET, 150, id="unset-means-the-sum-of-the-minimums"),
        pytest.param(UNSET, 1, 3, UNSET, 200, id="equal-to-the-sum"),
        pytest.param(1, 1, 3, "worker", 250, id="the-rest-goes-to-the-higher-priority"),
        pytest.param(1, 1, 3, UNSET, 200, id="the-rest-goes-to-the-first-in-the-list"),
        pytest.param(0, 1, 3, "worker", 250, id="a-minimum-of-zero"),
        pytest.param(1, 1, 4, "worker", 300, id="everything-in-two-steps"),
        # CalcPGMinResources alone says 150, the controller that calls it 200: task minimums are ignored here.
        pytest.param(UNSET, 1, 2, "worker", 200, id="below-the-sum-the-first-pods-of-the-higher-priority"),
        pytest.param(UNSET, UNSET, 3, UNSET, 200, id="below-the-sum-over-two-tasks"),
        pytest.param(1, 1, 1, UNSET, 50, id="less-than-one-each"),
        pytest.param(UNSET, UNSET, 9, UNSET, 300, id="more-than-there-are-pods"),
        pytest.param(5, 1, 0, UNSET, 200, id="a-minimum-above-the-replicas"),
    ],
)
def test_gang_minimum_equals_that_of_volcano(
    master: int | None, worker: int | None, min_available: int, first: str | None, cpu: int
):
    template = job(task(MASTER, 2, master), task(WORKER, 2, worker), min_available=min_available)
    assert gang_minimum(template, lambda name: 2 if name == first else 0)["cpu"] == cpu


@pytest.mark.parametrize(("priority", "cpu"), [pytest.param(1, 100, id="above"), pytest.param(-5, 50, id="below")])
def test_task_without_a_class_has_priority_zero_in_its_gang(priority: int, cpu: int):
    template = job(task(WORKER), task(pods_of(50)), min_available=1)
    assert gang_minimum(template, lambda _: priority)["cpu"] == cpu


@pytest.mark.parametrize("tasks", [[], [task(MASTER, 0)], [task(MASTER, -3)]], ids=["no-tasks", "none", "negative"])
def test_job_without_pods_requests_nothing(tasks: list[Task]):
    assert total_requests(job(*tasks)) == gang_minimum(job(*tasks), lambda _: 0) == {}
    assert pod_sets(job(*tasks), lambda _: 0) == ()


def test_equal_pods_are_listed_once():
    template = job(task(MASTER, 2), task(WORKER, 1), task(MASTER, 7), task(pod(container(gpu=1)), 0))
    assert pod_requests(template) == ({"cpu": 50, "pods": 1000}, {"cpu": 100, "pods": 1000})


def test_huge_requests_are_computed_exactly():
    assert total_requests(job(task(pods_of(10**40), 2**31 - 1)))["cpu"] == 10**40 * (2**31 - 1)


def test_work_is_linear_in_the_init_containers():
    """Each is a sidecar with a resource of its own; an object may have 15,000 of them."""

    def work(count: int) -> int:
        sidecars = [Container(requests={f"hugepages-{number}": 1}, restarts=True) for number in range(count)]
        return work_of(lambda: pod_request(pod(init=tuple(sidecars))))

    assert work(400) < 4.5 * work(100)


some_amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", GPU]), st.integers(-1, 9))
some_containers = st.lists(st.builds(Container, some_amounts, some_amounts, st.booleans()), max_size=30).map(tuple)


@given(st.builds(PodTemplate, some_containers, some_containers, some_amounts, some_amounts, some_amounts))
def test_pod_with_few_containers_has_equal_requests(template: PodTemplate):
    few = with_few_containers(template)
    assert pod_request(few) == pod_request(template)
    assert max(len(few.containers), len(few.init)) <= 17
    assert (few is template) == (max(len(template.containers), len(template.init)) <= 16)


some_tasks = st.lists(
    st.builds(
        task,
        st.sampled_from([MASTER, WORKER, pods_of(50), pods_of(100, "y"), pod(container(memory=7))]),
        st.integers(0, 6),
        st.none() | st.integers(0, 7),
    ),
    max_size=5,
)


@given(some_tasks, st.integers(-1, 40))
def test_gang_minimum_has_min_available_of_the_pods(tasks: list[Task], min_available: int):
    template = job(*tasks, min_available=min_available)
    least = gang_minimum(template, len)
    assert fits(least, total_requests(template))
    assert least.get("pods", 0) == 1000 * min(template.gang_pods, sum(template_task.count for template_task in tasks))
    sets = pod_sets(template, len)
    assert positive(total(scale(pod_set.amounts, pod_set.minimum) for pod_set in sets)) == positive(least)
    assert positive(total(scale(pod_set.amounts, pod_set.count) for pod_set in sets)) == positive(
        total_requests(template)
    )


def test_node_claims_separate_pod_sets_only_where_requested():
    template = job(task(pods_of(100, claim="{}"), 2), task(pods_of(100), 3))
    request = (("cpu", 100), ("pods", 1000))
    assert pod_sets(template, lambda _: 0) == (PodSet(request, 5, 5),)
    assert pod_sets(template, lambda _: 0, with_node_claims=True) == (
        PodSet(request, 2, 2, "{}"),
        PodSet(request, 3, 3),
    )
