"""Simulated member cluster: starts, pending jobs and ends."""

import pytest

from controller.engine.state.resources import PODS, total
from localup.karmada.member import Member
from localup.karmada.objects import Key
from localup.karmada.status import run_from_status, status_in_member
from localup.karmada.workloads import IdenticalPods, Workload, parse_workload

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}


def key(name):
    return Key("karmada-es-m1", name)


def phases(cluster):
    return {workload.name: str(run.phase) for workload, run in cluster.runs.items()}


def test_pods_beyond_the_gang_start_with_free_capacity():
    cluster, pod = Member({"cpu": 4000, PODS: 10_000}), {"cpu": 1000, PODS: 1000}
    cluster.submit(key("a"), Workload((IdenticalPods(pod, 6, 2),), 10.0), 0)
    cluster.submit(key("b"), Workload((IdenticalPods(pod, 1, 1),), None), 0)
    cluster.advance(0)
    assert (cluster.runs[key("a")].running, cluster.runs[key("a")].waiting) == (4, 2)
    assert cluster.allocating == {"cpu": 2000, PODS: 2000}
    cluster.allocatable = {"cpu": 8000, PODS: 10000}
    cluster.advance(1)
    assert (cluster.runs[key("a")].running, phases(cluster)["b"]) == (6, "Running")


def batch_job(*, suspend):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "annotations": {"volcano-global.io/runtime": "10s"}},
        "spec": {"parallelism": 2, "suspend": suspend, "template": {"spec": {"containers": [{"name": "main"}]}}},
    }


def test_suspended_job_begins_when_it_is_resumed():
    cluster, job = Member({PODS: 10_000}), key("a")
    cluster.submit(job, parse_workload(batch_job(suspend=True), run_time=1), 0)
    cluster.advance(0)
    assert (cluster.runs[job].running, cluster.next_change()) == (0, None)
    assert status_in_member(batch_job(suspend=True), cluster.runs[job])["conditions"][0]["type"] == "Suspended"
    cluster.submit(job, parse_workload(batch_job(suspend=False), run_time=1), 50)
    cluster.advance(50)
    assert (cluster.runs[job].running, cluster.next_change()) == (2, 60)


def test_finished_job_that_is_suspended_stays_finished():
    cluster, job = Member({PODS: 10_000}), key("a")
    cluster.submit(job, parse_workload(batch_job(suspend=False), run_time=1), 0)
    for now in (0, 10):
        cluster.advance(now)
    cluster.submit(job, parse_workload(batch_job(suspend=True), run_time=1), 50)
    cluster.advance(50)
    assert "completionTime" in status_in_member(batch_job(suspend=True), cluster.runs[job])


@pytest.mark.parametrize("now", [55, 60], ids=["running", "completed"])
def test_job_continues_from_its_status_after_a_restart(now):
    cluster, job, workload = Member({PODS: 10_000}), key("a"), parse_workload(batch_job(suspend=False), run_time=1)
    cluster.submit(job, workload, 50)
    cluster.advance(50)
    cluster.advance(now)
    before = cluster.runs[job]
    after = run_from_status(batch_job(suspend=False), status_in_member(batch_job(suspend=False), before), workload)
    assert (after.phase, after.since) == (before.phase, before.since)


def tasks(*sizes):
    return [{"replicas": count, **({"minAvailable": least} if least is not None else {})} for count, least in sizes]


@pytest.mark.parametrize(
    ("spec", "together"),
    [
        pytest.param({"tasks": tasks((4, None))}, [4], id="all-by-default"),
        pytest.param({"tasks": tasks((1, None), (4, 2)), "minAvailable": 3}, [1, 2], id="task-minimums"),
        pytest.param({"tasks": tasks((1, None), (4, 2)), "minAvailable": 4}, [1, 3], id="more-in-task-order"),
        pytest.param({"tasks": tasks((1, None), (4, None)), "minAvailable": 3}, [1, 2], id="minimums-without-effect"),
        pytest.param({"tasks": tasks((3, 1), (4, 1))}, [1, 1], id="the-sum-of-the-minimums"),
    ],
)
def test_a_gang_is_counted_as_volcano_counts_it(spec, together):
    tasks = parse_workload({**JOB, "metadata": {"name": "a"}, "spec": spec}, run_time=1).tasks
    assert [task.gang_minimum for task in tasks] == together


@pytest.mark.parametrize("text", ["", "x", "90", "-1h", '{"uid":"u"}', "1970-01-01T00:00:00Z"])
def test_invalid_run_time_is_ignored(text):
    """Tenants may write any annotation; a real cluster runs such a job, too."""
    metadata = {"name": "a", "annotations": {"volcano-global.io/runtime": text}}
    assert parse_workload({**JOB, "metadata": metadata, "spec": {}}, run_time=7).run_seconds == 7


def nodes_member(*gpus):
    """Return a member with one node per number of GPUs."""
    sizes = tuple({"gpu": count * 1000, PODS: 110_000} for count in gpus)
    return Member(total(sizes), node_sizes=sizes)


def gang(*sizes, run_seconds=10.0):
    """Return a workload with one pod per number of GPUs, all in one gang."""
    return Workload(tuple(IdenticalPods({"gpu": gpus * 1000, PODS: 1000}, 1, 1) for gpus in sizes), run_seconds)


def used(cluster):
    return [node.used.get("gpu", 0) // 1000 for node in cluster.nodes]


@pytest.mark.parametrize("pods", [pytest.param((5,) * 6, id="six-of-five"), pytest.param((9,), id="one-of-nine")])
def test_a_gang_that_fits_in_sum_but_not_on_nodes_waits(pods):
    cluster = nodes_member(8, 8, 8, 8)
    cluster.submit(key("a"), gang(*pods), 0)
    cluster.submit(key("b"), gang(8, 8, 8), 0)
    cluster.advance(0)
    assert (phases(cluster), used(cluster)) == ({"a": "Pending", "b": "Running"}, [8, 8, 8, 0])


def test_free_nodes_fill_first_fit_and_pods_stay_there():
    cluster = nodes_member(8, 8)
    for name, size in (("a", 5), ("b", 5), ("c", 3)):
        cluster.submit(key(name), gang(size, run_seconds=10.0 if name == "a" else None), 0)
    cluster.advance(0)
    assert (used(cluster), cluster.nodes_of(key("c"))) == ([8, 5], [[0]])
    cluster.advance(10)
    assert used(cluster) == [3, 5]


def test_pods_of_a_removed_node_move_to_other_nodes():
    cluster = nodes_member(8, 8)
    cluster.submit(key("a"), gang(5, 5), 0)
    cluster.advance(0)
    cluster.node_sizes = cluster.node_sizes[:1]
    cluster.advance(1)
    assert (used(cluster), phases(cluster)) == ([10], {"a": "Running"})


def test_external_usage_fills_nodes_in_order():
    cluster = nodes_member(8, 8, 8)
    cluster.external_usage = {"gpu": 11_000}
    assert used(cluster) == [8, 3, 0]
    cluster.submit(key("a"), gang(8, 8), 0)
    cluster.advance(0)
    assert phases(cluster) == {"a": "Pending"}
