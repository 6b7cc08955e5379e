"""The examples, and objects as Karmada writes them, can be planned and simulated from a fresh checkout."""

import pytest

from tests.cli.manifests import NOW, configuration, queue, write
from tests.files import DATA, EXAMPLES, read_object

FILES = ("-f", str(EXAMPLES), "-f", str(EXAMPLES / "what-if"))
MEMBERS = (str(DATA / "cluster-member1.yaml"), str(DATA / "cluster-member2.yaml"))


def test_examples_can_be_planned_from_files(run):
    admitted = run("plan", *FILES, "-o", "json").clusters()
    assert {admitted[name][0] for name in ("mpi-gang", "torchrun-gang")} <= {"member1"}
    assert (admitted["llm-train-hyperjob-0"], admitted["llm-train-hyperjob-1"]) == (["cluster-a"], ["cluster-b"])


def test_examples_can_be_simulated(run):
    assert run("simulate", *FILES, "-o", "json").answer["summary"]["jobs"]["finished"] >= 4


def test_two_teams_get_shares_by_weight(run):
    ended = run("plan", "-f", str(EXAMPLES.parent / "docs" / "examples" / "two-teams.yaml"), "-o", "json")
    admitted = [step["namespace"] for step in ended.answer["decisions"] if step["action"] == "Admit"]
    assert (admitted.count("team-a"), admitted.count("team-b")) == (2, 4)


def test_comparison_ends_although_a_gang_never_fits(run):
    ended = run("simulate", "-f", str(EXAMPLES), "--compare", "backfill")
    easy = next(line.split() for line in ended.out.splitlines() if line.startswith("easy"))
    assert (ended.code, easy[-1]) == (0, "6")


@pytest.fixture
def plan(run, tmp_path):
    def plan(*names, documents=()):
        paths = [str(DATA / f"{name}.yaml") for name in names]
        queues = write(tmp_path, queue("default"), queue("research"), *documents)
        return run("plan", "-v", "-f", *MEMBERS, *paths, queues, "-o", "json", "--now", NOW)

    return plan


def test_suspended_binding_is_admitted_once_its_job_is_known(plan):
    assert plan("binding-suspended").reasons() == {"evaluate": "RequestsUnknown"}
    assert plan("binding-suspended", "job-evaluate").clusters() == {"evaluate": ["member1"]}


def test_running_job_is_charged_from_its_template(plan):
    ended = plan("binding-running", "job-train", "work-running")
    assert ended.answer["decisions"] == []
    assert ended.queue("research")["allocated"] == {"cpu": "13", "memory": "26Gi", "nvidia.com/gpu": "3"}
    assert "not of a kind that is read" in ended.err


@pytest.mark.parametrize("name", ["binding-placed", "binding-with-components", "binding-of-deployment"])
def test_binding_placed_before_installation_is_unchanged(plan, name):
    assert plan(name).answer["decisions"] == []


def test_deployment_with_integration_is_charged_by_its_binding(plan):
    reference = read_object(DATA / "binding-of-deployment.yaml")["spec"]["resource"]
    metadata = {name: reference[name] for name in ("name", "namespace", "uid")}
    metadata["labels"] = {"volcano.sh/queue-name": "default"}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    with_integration = configuration(integrations=[{"apiVersion": "apps/v1", "kind": "Deployment"}])
    ended = plan("binding-of-deployment", documents=[deployment, with_integration])
    assert ended.queue("default")["allocated"] == {"cpu": "3", "memory": "3Gi", "nvidia.com/gpu": "0"}
