import pytest

from localup.demo.scenario import scenario_steps, volcano_job


@pytest.fixture(scope="module")
def demo_jobs():
    return {demo_job.name: demo_job for step in scenario_steps() for demo_job in step.jobs}


def test_example_jobs_are_submitted_unchanged(demo_jobs):
    assert demo_jobs["ml/torchrun-gang"].manifest["spec"]["plugins"]["pytorch"]
    assert "annotations" not in demo_jobs["ml/mpi-gang"].manifest["metadata"]


def test_gpu_limits_count_as_requests(demo_jobs):
    assert demo_jobs["ml/torchrun-gang"].requests == {"nvidia.com/gpu": 3000, "pods": 3000}


def test_priority_class_is_set_only_if_given():
    plain = volcano_job("a/b", "q", pods=1, runtime="1s")
    classed = volcano_job("a/b", "q", pods=1, runtime="1s", priority="high")
    assert "priorityClassName" not in plain["spec"]
    assert classed["spec"]["priorityClassName"] == "high"
