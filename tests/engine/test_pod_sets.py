"""Pod sets: the pods of a job grouped by equal requests, for node estimates."""

from controller.engine.state.requests import Container, JobTemplate, PodSet, PodTemplate, Task, gang_minimum, pod_sets
from controller.engine.state.resources import positive, scale, total


def pod(cpu: int, claim: str | None = "", priority_class: str = "") -> PodTemplate:
    return PodTemplate(containers=(Container(requests={"cpu": cpu}),), node_claim=claim, priority_class=priority_class)


def request(cpu: int):
    return (("cpu", cpu), ("pods", 1000))


def test_equal_pods_of_two_tasks_are_one_pod_set():
    job = JobTemplate((Task("a", 2, pod(100)), Task("b", 3, pod(100)), Task("c", 1, pod(200))))

    assert pod_sets(job, lambda _: 0) == (PodSet(request(100), 5, 5), PodSet(request(200), 1, 1))


def test_minimum_of_pod_sets_adds_up_to_the_gang_minimum():
    classes = {"high": 10, "low": 1}
    job = JobTemplate(
        (Task("a", 4, pod(100, priority_class="low")), Task("b", 3, pod(200, priority_class="high"), minimum=1)),
        min_available=5,
    )

    found = pod_sets(job, lambda name: classes[name])

    assert [(each.count, each.minimum) for each in found] == [(3, 1), (4, 4)]
    assert positive(total(scale(each.amounts, each.minimum) for each in found)) == gang_minimum(
        job, lambda name: classes[name]
    )


def test_node_claims_separate_pod_sets_only_where_requested():
    job = JobTemplate((Task("a", 2, pod(100, "{}")), Task("b", 3, pod(100))))

    assert pod_sets(job, lambda _: 0) == (PodSet(request(100), 5, 5),)
    assert pod_sets(job, lambda _: 0, with_node_claims=True) == (
        PodSet(request(100), 2, 2, "{}"),
        PodSet(request(100), 3, 3),
    )


def test_task_without_replicas_is_no_pod_set():
    assert pod_sets(JobTemplate((Task("a", 0, pod(100)),)), lambda _: 0) == ()
