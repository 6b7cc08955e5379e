"""Commands on objects as Karmada writes them."""

import pytest

from tests.cli.manifests import NOW, configuration, queue, write
from tests.files import DATA, EXAMPLES, read_object

MEMBERS = (str(DATA / "cluster-member1.yaml"), str(DATA / "cluster-member2.yaml"))


@pytest.fixture
def plan(run, tmp_path):
    def plan(*files, documents=()):
        paths = [str(file) for file in files]
        documents = (queue("default"), queue("research"), *documents)
        return run("plan", "-f", *MEMBERS, *paths, write(tmp_path, *documents), "-o", "json", "--now", NOW)

    return plan


def test_suspended_binding_is_admitted_once_its_job_is_known(plan):
    binding = DATA / "binding-suspended.yaml"
    assert plan(binding).reasons() == {"evaluate": "RequestsUnknown"}
    assert plan(binding, DATA / "job-evaluate.yaml").clusters() == {"evaluate": ["member1"]}


def test_running_job_is_charged_from_its_template(plan):
    ended = plan(DATA / "binding-running.yaml", DATA / "job-train.yaml")
    assert ended.answer["decisions"] == []
    assert ended.queue("research")["allocated"] == {"cpu": "13", "memory": "26Gi", "nvidia.com/gpu": "3"}


@pytest.mark.parametrize("name", ["binding-placed", "binding-with-components", "binding-of-deployment"])
def test_binding_placed_before_installation_is_unchanged(plan, name):
    assert plan(DATA / f"{name}.yaml").answer["decisions"] == []


def test_deployment_with_integration_is_charged_by_its_binding(plan):
    path = DATA / "binding-of-deployment.yaml"
    reference = read_object(path)["spec"]["resource"]
    about = {name: reference[name] for name in ("name", "namespace", "uid")}
    about["labels"] = {"volcano.sh/queue-name": "default"}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about}
    with_integration = configuration(integrations=[{"apiVersion": "apps/v1", "kind": "Deployment"}])
    ended = plan(path, documents=[deployment, with_integration])
    assert ended.queue("default")["allocated"] == {"cpu": "3", "memory": "3Gi", "nvidia.com/gpu": "0"}


def test_works_are_ignored(run):
    ended = run("plan", "-f", *MEMBERS, str(DATA / "work-running.yaml"), "-v")
    assert (ended.code, "not of a kind that is read" in ended.err) == (0, True)


def test_example_manifests_are_planned(plan):
    ended = plan(EXAMPLES / "mpi-gang.yaml", EXAMPLES / "torchrun-gang.yaml")
    assert ended.clusters() == {"mpi-gang": ["member1"], "torchrun-gang": ["member1"]}
