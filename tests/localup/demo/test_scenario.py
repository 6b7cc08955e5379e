import pytest

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import read_hyperjob
from controller.engine.state.resources import fits
from localup.apply import read_manifests
from localup.demo.scenario import EXAMPLES, hyperjobs_by_name, jobs_by_name, limits, queues, scenario_steps, volcano_job


@pytest.fixture(scope="module")
def demo_jobs():
    return jobs_by_name(scenario_steps())


def test_forty_jobs_have_unique_names(demo_jobs):
    assert 40 <= len(demo_jobs) <= 45
    assert len(demo_jobs) == sum(len(step.jobs) for step in scenario_steps())


def test_steps_are_ordered_by_start_time():
    begins = [step.starts_at for step in scenario_steps()]
    assert begins == sorted(begins)


def test_example_jobs_are_submitted_unchanged(demo_jobs):
    assert demo_jobs["ml/torchrun-gang"].manifest["spec"]["plugins"]["pytorch"]
    assert "annotations" not in demo_jobs["ml/mpi-gang"].manifest["metadata"]


def test_gpu_limits_count_as_requests(demo_jobs):
    assert demo_jobs["ml/torchrun-gang"].requests == {"nvidia.com/gpu": 3000, "pods": 3000}


def test_admissible_jobs_fit_a_cluster_and_their_queue(demo_jobs):
    for demo_job in demo_jobs.values():
        if demo_job.expected_reason is None:
            assert any(fits(demo_job.requests, capacity) for capacity in limits().clusters.values()), demo_job.name
            limit = limits().queues[demo_job.queue]
            assert all(demo_job.requests.get(name, 0) <= most for name, most in limit.items()), demo_job.name


def test_tenants_request_more_than_all_clusters_have(demo_jobs):
    wanted = sum(
        demo_job.requests.get("cpu", 0) for demo_job in demo_jobs.values() if demo_job.queue.startswith("team-")
    )
    (policy,) = read_manifests(EXAMPLES / "policy.yaml")
    reachable = policy["spec"]["placement"]["clusterAffinity"]["clusterNames"]
    assert wanted > sum(limits().clusters[name]["cpu"] for name in reachable)


def test_every_referenced_queue_exists(demo_jobs):
    named = {job.template_spec.queue for hyperjob in hyperjobs() for job in hyperjob.spec.replicated_jobs}
    assert {demo_job.queue for demo_job in demo_jobs.values()} | named == set(queues())


def hyperjobs():
    return [read_hyperjob(demo_job.manifest) for demo_job in hyperjobs_by_name(scenario_steps()).values()]


def test_hyperjobs_of_both_groups_are_valid():
    spellings = [hyperjob.resource.group for hyperjob in hyperjobs()]
    assert sorted(spellings) == ["batch.volcano.sh", "batch.volcano.sh", "training.volcano.sh"]
    assert [hyperjob_violations(hyperjob) for hyperjob in hyperjobs()] == [()] * 3


def test_gang_minimum_is_all_pods(demo_job):
    assert demo_job.gang == demo_job.manifest["spec"]["tasks"][0]["replicas"]


def test_priority_class_is_set_only_if_given():
    plain = volcano_job("a/b", "q", pods=1, runtime="1s")
    classed = volcano_job("a/b", "q", pods=1, runtime="1s", priority="high")
    assert "priorityClassName" not in plain["spec"]
    assert classed["spec"]["priorityClassName"] == "high"
