"""Commands on objects captured from a running Karmada."""

import pytest

from tests.cache.objects import SHARED, load, needs_shared
from tests.cli.manifests import NOW, VOLCANO_JOB, configuration, pod, queue, write

pytestmark = needs_shared
OBJECTS = SHARED / "objects"
MEMBER = str(OBJECTS / "cluster-member1.yaml")
REAL = str(OBJECTS / "cluster-real1.yaml")


def template(binding, tasks):
    """Return a job for a captured binding, because the job was not captured."""
    reference = binding["spec"]["resource"]
    about = {"name": reference["name"], "namespace": reference["namespace"], "uid": reference["uid"]}
    return {"apiVersion": VOLCANO_JOB, "kind": "Job", "metadata": about, "spec": {"tasks": tasks}}


@pytest.fixture
def plan(run, tmp_path):
    def plan(*files, documents=()):
        return run("plan", "-f", *files, write(tmp_path, queue("default"), *documents), "-o", "json", "--now", NOW)

    return plan


def test_suspended_binding_is_admitted_once_its_job_is_known(plan):
    path = OBJECTS / "rb-suspended-at-create-single-job.yaml"
    tasks = [{"name": "worker", "replicas": 1, "template": pod({"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": 1})}]
    assert plan(MEMBER, str(path)).reasons() == {"single": "RequestsUnknown"}
    [binding] = load(f"objects/{path.name}")
    assert plan(MEMBER, str(path), documents=[template(binding, tasks)]).clusters() == {"single": ["member1"]}


def test_running_job_is_charged_from_its_template(plan, run):
    path = OBJECTS / "rb-running-two-task-job.yaml"
    [binding] = load(f"objects/{path.name}")
    worker = pod({"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1})
    tasks = [
        {"name": "ps", "replicas": 1, "template": pod({"cpu": 1, "memory": "1Gi"})},
        {"name": "worker", "replicas": 4, "template": worker},
    ]
    ended = plan(REAL, str(path), documents=[template(binding, tasks)])
    assert ended.answer["decisions"] == []
    assert ended.queue("default")["allocated"] == {"cpu": "17", "memory": "33Gi", "nvidia.com/gpu": "4"}


@pytest.mark.parametrize("path", sorted(OBJECTS.glob("rb-gate*.yaml")), ids=lambda path: path.stem)
def test_binding_placed_before_installation_is_unchanged(plan, path):
    assert plan(MEMBER, str(path)).answer["decisions"] == []


def test_deployment_with_integration_is_charged_by_its_binding(plan):
    path = OBJECTS / "rb-gateoff-web-deployment.yaml"
    [binding] = load(f"objects/{path.name}")
    about = template(binding, [])["metadata"] | {"labels": {"volcano.sh/queue-name": "default"}}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about}
    switched_on = configuration(integrations=[{"apiVersion": "apps/v1", "kind": "Deployment"}])
    ended = plan(MEMBER, str(path), documents=[web, switched_on])
    assert ended.queue("default")["allocated"] == {"cpu": "3", "memory": "1536Mi"}


def test_works_are_ignored(run):
    ended = run("plan", "-f", MEMBER, str(OBJECTS / "work-real1.yaml"), "-v")
    assert (ended.code, "not of a kind that is read" in ended.err) == (0, True)


def test_example_manifests_are_planned(plan):
    folder = SHARED / "manifests"
    ended = plan(MEMBER, str(folder / "mpi-gang.yaml"), str(folder / "torchrun-gang.yaml"))
    assert ended.clusters() == {"mpi-gang": ["member1"], "torchrun-gang": ["member1"]}
