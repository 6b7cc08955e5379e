import json

import pytest

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import read_hyperjob
from controller.engine.state.resources import fits
from localup.apply import read_manifests
from localup.demo import scenario
from localup.demo.scenario import EXAMPLES, queues, scenario_steps, volcano_job
from localup.karmada.clusters import ALLOCATABLE
from localup.karmada.workloads import amounts

MANIFESTS = scenario._MEMBERS.parent


@pytest.fixture(scope="module")
def demo_jobs():
    return {demo_job.name: demo_job for step in scenario_steps() for demo_job in step.jobs}


@pytest.fixture(scope="module")
def capacities():
    found = {}
    for cluster in read_manifests(MANIFESTS):
        annotation = json.loads(cluster["metadata"]["annotations"][ALLOCATABLE])
        found[cluster["metadata"]["name"]] = amounts(annotation)
    return found


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


def test_admissible_jobs_fit_a_cluster_and_their_queue(demo_jobs, capacities):
    items = read_manifests(EXAMPLES / "queues.yaml")
    limits = {item["metadata"]["name"]: amounts(item["spec"].get("capability")) for item in items}
    for demo_job in demo_jobs.values():
        if demo_job.expected_reason is None:
            assert any(fits(demo_job.requests, capacity) for capacity in capacities.values()), demo_job.name
            limit = limits[demo_job.queue]
            assert all(demo_job.requests.get(name, 0) <= most for name, most in limit.items()), demo_job.name


def test_tenants_request_more_than_all_clusters_have(demo_jobs, capacities):
    wanted = sum(
        demo_job.requests.get("cpu", 0) for demo_job in demo_jobs.values() if demo_job.queue.startswith("team-")
    )
    (policy,) = read_manifests(EXAMPLES / "policy.yaml")
    reachable = policy["spec"]["placement"]["clusterAffinity"]["clusterNames"]
    assert wanted > sum(capacities[name]["cpu"] for name in reachable)


def test_every_referenced_queue_exists(demo_jobs):
    named = {job.template_spec.queue for hyperjob in hyperjobs() for job in hyperjob.spec.replicated_jobs}
    assert {demo_job.queue for demo_job in demo_jobs.values()} | named == set(queues())


def hyperjobs():
    return [read_hyperjob(demo_job.manifest) for step in scenario_steps() for demo_job in step.hyperjobs]


def test_hyperjobs_of_both_groups_are_valid():
    spellings = [hyperjob.resource.group for hyperjob in hyperjobs()]
    assert sorted(spellings) == ["batch.volcano.sh", "batch.volcano.sh", "training.volcano.sh"]
    assert [hyperjob_violations(hyperjob) for hyperjob in hyperjobs()] == [()] * 3


def test_priority_class_is_set_only_if_given():
    plain = volcano_job("a/b", "q", pods=1, runtime="1s")
    classed = volcano_job("a/b", "q", pods=1, runtime="1s", priority="high")
    assert "priorityClassName" not in plain["spec"]
    assert classed["spec"]["priorityClassName"] == "high"
