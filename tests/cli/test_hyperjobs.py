"""`explain hyperjob` on files."""

import pytest

from controller.api.hyperjobs import read_hyperjob
from tests.cli.manifests import cluster, queue, units, write
from tests.controllers.hyperjob.objects import document, replicated, task, template

GPUS = {**units(100), "nvidia.com/gpu": "8"}
TASK = replicated("t", task(replicas=12), splitPolicy={"mode": "auto"})
CLUSTERS = cluster("m1", GPUS), cluster("m2", GPUS)


@pytest.fixture
def explained(run, tmp_path):
    def explained(*documents, output="json"):
        path = write(tmp_path, queue("ml"), *documents)
        return run("explain", "hyperjob", "llm", "-n", "ml", "-f", path, "-o", output)

    return explained


def test_undecided_hyperjob_shows_expected_split(explained):
    answer = explained(*CLUSTERS, document(TASK)).answer
    assert (answer["decided"], answer["reason"]) == (False, "")
    assert [(part["name"], part["cluster"], part["pods"]) for part in answer["parts"]] == [
        ("llm-t-0", "m1", 8),
        ("llm-t-1", "m2", 4),
    ]
    assert answer["parts"][0]["why"] == "fewest parts; preferred clusters first, then the largest"


def test_pending_hyperjob_shows_reason(explained):
    full = explained(cluster("m1", GPUS, used=GPUS), cluster("m2", GPUS), document(TASK)).answer
    assert (full["reason"], full["message"]) == (
        "HyperJobDoesNotFit",
        "part Job ml/llm-t-0 (InsufficientCapacity) of its HyperJob does not fit: it requests 8 cpu, 0 are left",
    )
    assert {part["reason"] for part in full["parts"]} == {"HyperJobDoesNotFit"}


def test_pending_hyperjob_without_uid_shows_reason(explained):
    written = document(TASK)
    del written["metadata"]["uid"]
    answer = explained(cluster("m1", GPUS, used=GPUS), cluster("m2", GPUS), written).answer
    assert answer["reason"] == "HyperJobDoesNotFit"
    assert {part["reason"] for part in answer["parts"]} == {"HyperJobDoesNotFit"}


def test_decided_hyperjob_shows_recorded_split(explained):
    hyperjob = document(TASK)
    part = {"name": "llm-t-0", "replicatedJob": "t", "index": 0, "cluster": "m2", "pods": [12], "phase": "Running"}
    split = {"specification": read_hyperjob(hyperjob).split_fingerprint, "parts": [part]}
    hyperjob["status"] = {"phase": "Running", "split": split, "message": "1 of 1 parts run"}
    ended = explained(cluster("m1", GPUS), hyperjob, output="table")
    assert "HyperJob ml/llm is Running: it has 1 part, of which 1 must be admitted together." in ended.out
    assert "llm-t-0" in ended.out


def test_suspended_hyperjob_says_so(explained):
    assert explained(*CLUSTERS, document(TASK, suspend=True)).answer["message"].startswith("spec.suspend is set")


def test_hyperjobs_of_one_name_in_both_api_groups_are_separate(run, tmp_path):
    spec = {"template": {"spec": template(task(replicas=4))}, "splitPolicy": {"strategy": "ByReplicas", "parts": 2}}
    other = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "HyperJob", "spec": spec}
    documents = [document(TASK), other | {"metadata": {"name": "llm", "namespace": "ml"}}]
    del documents[0]["metadata"]["uid"]
    big = cluster("m", {**units(100), "nvidia.com/gpu": "80"})
    admitted = run("plan", "-f", write(tmp_path, queue("ml"), big, *documents), "-o", "json").clusters()
    assert set(admitted) == {"llm-0", "llm-1", "llm-t-0"}


def test_shortage_of_a_hyperjob_part_is_listed_once(run, tmp_path):
    full = cluster("m1", GPUS, used=GPUS), cluster("m2", GPUS), document(TASK)
    lines = run("explain", "job", "ml/llm-t-0", "-f", write(tmp_path, queue("ml"), *full)).out.splitlines()
    assert lines.count("  - cluster 'm1': requests 8 cpu, free 0, lacks 8") == 1


@pytest.mark.parametrize("command", [["plan"], ["queues"], ["explain", "hyperjob", "ml/llm"]], ids=" ".join)
def test_hyperjob_that_cannot_be_split_is_noted(run, tmp_path, command):
    policy = {"mode": "auto", "accelerators": 8, "acceleratorType": "nvidia.com/gpu"}
    path = write(tmp_path, queue("ml"), *CLUSTERS, document(replicated("t", task(gpu=0), splitPolicy=policy)))
    ended = run(*command, "-f", path)
    assert ended.code == 0
    assert ended.err == (
        f"note: {path}: document 4 (HyperJob ml/llm): no Jobs are created from it: it cannot be split: replicated job "
        "'t': splitPolicy.accelerators: no task that could be divided asks for nvidia.com/gpu; name it in a task's "
        "resources\n"
    )


def test_missing_hyperjob_is_reported(explained):
    ended = explained()
    assert (ended.code, ended.err) == (1, "HyperJob ml/llm is not in the files\n")
