import filecmp
from pathlib import Path

import pytest

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import read_hyperjob
from controller.engine.resources import fits
from localup.apply import read_manifests
from localup.demo.scenario import EXAMPLES, hyperjobs_by_name, jobs_by_name, scenario_steps, volcano_job
from localup.demo.setup import limits, queues

MANIFESTS = Path(__file__).parents[4] / "shared" / "manifests"


@pytest.fixture(scope="module")
def everybody():
    return jobs_by_name(scenario_steps())


def test_there_are_some_forty_jobs_with_names_of_their_own(everybody):
    assert 40 <= len(everybody) <= 45
    assert len(everybody) == sum(len(act.jobs) for act in scenario_steps())


def test_the_acts_follow_one_another_in_time():
    begins = [act.starts_at for act in scenario_steps()]
    assert begins == sorted(begins)


@pytest.mark.parametrize("name", ["torchrun-gang.yaml", "mpi-gang.yaml", "hyperjob-conceptual.yaml"])
def test_the_examples_are_the_users_files_unchanged(name):
    if not MANIFESTS.is_dir():
        pytest.skip("the users' manifests are not at hand")
    assert filecmp.cmp(EXAMPLES / name, MANIFESTS / name, shallow=False)


def test_the_examples_are_among_the_jobs_as_they_are(everybody):
    assert everybody["ml/torchrun-gang"].manifest["spec"]["plugins"]["pytorch"]
    assert "annotations" not in everybody["ml/mpi-gang"].manifest["metadata"]


def test_gpus_that_stand_only_under_limits_are_asked_for(everybody):
    assert everybody["ml/torchrun-gang"].requests == {"nvidia.com/gpu": 3000, "pods": 3000}


def test_whoever_is_to_run_fits_a_cluster_and_his_queue(everybody):
    for demo_job in everybody.values():
        if demo_job.expected_reason is None:
            assert any(fits(demo_job.requests, room) for room in limits().clusters.values()), demo_job.name
            ceiling = limits().queues[demo_job.queue]
            assert all(demo_job.requests.get(name, 0) <= most for name, most in ceiling.items()), demo_job.name


def test_the_tenants_want_more_than_all_clusters_have(everybody):
    wanted = sum(
        demo_job.requests.get("cpu", 0) for demo_job in everybody.values() if demo_job.queue.startswith("team-")
    )
    (policy,) = read_manifests(EXAMPLES / "policy.yaml")
    reachable = policy["spec"]["placement"]["clusterAffinity"]["clusterNames"]
    assert wanted > sum(limits().clusters[name]["cpu"] for name in reachable)


def test_every_queue_that_is_named_exists(everybody):
    named = {job.template_spec.queue for hyperjob in hyperjobs() for job in hyperjob.spec.replicated_jobs}
    assert {demo_job.queue for demo_job in everybody.values()} | named == set(queues())


def hyperjobs():
    return [read_hyperjob(demo_job.manifest) for demo_job in hyperjobs_by_name(scenario_steps()).values()]


def test_there_are_hyperjobs_of_both_spellings_and_all_can_be_split():
    spellings = [hyperjob.resource.group for hyperjob in hyperjobs()]
    assert sorted(spellings) == ["batch.volcano.sh", "batch.volcano.sh", "training.volcano.sh"]
    assert [hyperjob_violations(hyperjob) for hyperjob in hyperjobs()] == [()] * 3


def test_a_job_starts_with_all_its_pods_or_not_at_all(demo_job):
    assert demo_job.gang == demo_job.manifest["spec"]["tasks"][0]["replicas"]


def test_a_priority_class_is_named_only_where_one_is_given():
    plain = volcano_job("a/b", "q", pods=1, runtime="1s")
    classed = volcano_job("a/b", "q", pods=1, runtime="1s", priority="high")
    assert "priorityClassName" not in plain["spec"]
    assert classed["spec"]["priorityClassName"] == "high"
