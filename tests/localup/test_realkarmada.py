"""Programs of a real Karmada and the fake kubelet's pods; Karmada's behaviour is tested in tests/karmada."""

import msgspec
import pytest

from controller.api.keys import JOBS
from controller.engine.state.resources import MILLI, PODS
from localup.karmada.member import Phase, Run
from localup.karmada.objects import key_of
from localup.karmada.workloads import IdenticalPods, Workload
from localup.members.members import FakeKubelet, ObjectRef, external_usage_pod, node_status, pods_of
from localup.processes import StepError
from localup.realkarmada.processes import KARMADA_BIN, Programs, programs_from_environment

NAMES = ("karmada-controller-manager", "karmada-scheduler", "karmada-webhook")


@pytest.fixture
def folder(tmp_path):
    """Return a folder with three programs that print their version."""
    for name in NAMES:
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho \'version: version.Info{GitVersion:"v9.9.9", GitCommit:"x"}\'\n')
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("prefix", ["karmada-", ""])
def test_environment_variable_names_the_folder_of_programs(folder, monkeypatch, prefix):
    monkeypatch.delenv(KARMADA_BIN, raising=False)
    assert programs_from_environment() is None
    for name in NAMES:
        (folder / name).rename(folder / name.replace("karmada-", prefix))
    monkeypatch.setenv(KARMADA_BIN, str(folder))
    programs = programs_from_environment()
    assert [programs.path(name).name for name in NAMES] == [name.replace("karmada-", prefix) for name in NAMES]
    assert programs.version == "v9.9.9"


def test_missing_or_unexecutable_programs_are_named(folder):
    (folder / NAMES[1]).unlink()
    (folder / NAMES[2]).chmod(0o644)
    with pytest.raises(StepError, match=r"has no karmada-scheduler, karmada-webhook; name a folder"):
        Programs.from_folder(folder)


def job(*, tasks=1, uid="123456789", generation=1, **requests):
    container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    pod = {"priorityClassName": "high", "restartPolicy": "Never", "containers": [container]}
    task = {"replicas": 3, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    spec = {"tasks": [{**task, "name": f"w{number}"} for number in range(tasks)]}
    metadata = {"name": "train", "namespace": "ml", "uid": uid, "generation": generation}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}


def run(phase, *, bound):
    return Run(Workload((IdenticalPods({"cpu": 1000}, 3, 2),)), phase, 0, (bound,))


def test_running_job_has_pods_with_and_without_node():
    pods = list(pods_of(job(), run(Phase.RUNNING, bound=2), [[0, 3]], "jobs/ml/train"))
    assert [pod["metadata"]["name"] for pod in pods] == [f"train-123456-0-{number}" for number in range(3)]
    assert [pod["spec"].get("nodeName") for pod in pods] == ["node", "node-3", None]
    assert {"jobs/ml/train"} == {owner for pod in pods for owner in pod["metadata"]["annotations"].values()}
    assert all("priorityClassName" not in pod["spec"] for pod in pods)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.COMPLETED])
def test_pending_or_finished_job_has_no_pods(phase):
    assert list(pods_of(job(), run(phase, bound=0), [[]], "x")) == []


@pytest.mark.parametrize(
    ("later", "pods"),
    [
        pytest.param(job(tasks=2, generation=2), 6, id="new-task"),
        pytest.param(job(tasks=2, uid="987654321"), 6, id="recreated-while-the-watch-was-interrupted"),
        pytest.param(job(tasks=2, generation=2, cpu="x"), 0, id="invalid"),
    ],
)
def test_pods_follow_the_tasks_of_a_changed_job(later, pods):
    kubelet, ref = FakeKubelet(None, run_time=60), ObjectRef(JOBS, key_of(job()))
    store, member = kubelet._cache.stores[JOBS], kubelet._member
    member.allocatable = {PODS: 110 * MILLI}
    for version, item in enumerate((job(), later), start=1):
        item["metadata"]["resourceVersion"] = str(version)
        store.upsert(store.decode(msgspec.json.encode(item)))
        member.advance(0)
    run, nodes = member.runs.get(ref), member.nodes_of(ref)
    assert len(list(pods_of(store.get(ref.key), run, nodes, str(ref))) if run else []) == pods


def test_node_has_the_capacity_and_external_usage():
    amounts = {"cpu": 8000, "nvidia.com/gpu": 4 * MILLI, PODS: 110 * MILLI}
    patch = {item["path"]: item["value"] for item in node_status(amounts)}
    assert patch["/status/allocatable"] == {"cpu": "8", "nvidia.com/gpu": "4", "pods": "110"}
    pod = external_usage_pod({"cpu": 1500, PODS: 3 * MILLI})
    assert (pod["metadata"]["name"], pod["spec"]["nodeName"]) == ("external-usage-0", "node")
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m"}
