"""Our ResourceInterpreterCustomization in a real Karmada with the gate for components.

The stand-in does not run Lua, so these tests need a real Karmada.
"""

import os
import uuid
from pathlib import Path

import pytest

from localup.apply import apply, apply_files, wait_until
from localup.controlplane import CRDS, ControlPlane
from localup.processes import ProcessOptions
from localup.stack import CHART, Stack
from tests.karmada.harness import create_members, opened

OURS = CHART / "interpreter.yaml"
PATH = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations/volcano-global-jobs"
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "q"},
    "spec": {"weight": 1},
}
GATE = ProcessOptions(flags=["--feature-gates=MultiplePodTemplatesScheduling=true"])


@pytest.fixture(scope="module")
def gated(etcd, programs, karmada):
    """Yield a real Karmada with the gate for components and the whole system."""
    if programs is None or karmada < (1, 16):
        pytest.skip("needs a real Karmada 1.16 or newer: KARMADA_BIN names the folder of its programs")
    options = {"karmada-controller-manager": GATE, "karmada-scheduler": GATE}
    crds = Path(os.environ.get("KARMADA_CRDS", CRDS))
    with (
        ControlPlane(etcd, prefix="/interpreted", crds=crds) as plane,
        Stack(plane, karmada=programs, options=options) as running,
    ):
        create_members(plane.admin)
        apply(plane.admin, [QUEUE])
        yield running


@pytest.fixture
def harness(gated):
    """Yield a harness; tests install the customization themselves."""
    with opened(gated) as harness:
        harness.propagate()
        yield harness


def task(name, replicas, cpu, **more):
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}, **more.pop("container", {})}
    named = {"name": name} if name else {}
    return {**named, "replicas": replicas, "template": {"spec": {"containers": [container], **more}}}


TASKS = [
    task("master", 1, "500m", priorityClassName="system-cluster-critical"),
    task("worker", 3, "1", nodeSelector={"disk": "ssd"}) | {"minAvailable": 2},
    task("", 2, "250m", container={"resources": {"limits": {"memory": "1Gi"}}}),
]


def submit(harness, name, **more):
    harness.submit(name, tasks=TASKS, minAvailable=4, queue="q", **more)


def counted(harness, name):
    """Return the components of a job's binding."""
    components = harness.wait(lambda: harness.binding(name)["spec"].get("components"), f"components of {name}")
    return {
        component["name"]: (component["replicas"], component.get("replicaRequirements", {})) for component in components
    }


@pytest.fixture
def interpreted(gated, harness):
    """Yield a harness after Karmada has loaded the customization."""
    apply_files(gated.plane.admin, OURS)

    def is_taken_up():
        probe = f"probe-{uuid.uuid4().hex[:6]}"
        submit(harness, probe)
        components = counted(harness, probe)
        harness.api.delete(f"{harness.jobs}/{probe}")
        return components["worker"][0] == 3

    wait_until(is_taken_up, "our interpreter in use")
    yield harness
    gated.plane.admin.delete(PATH)


def test_components_have_all_replicas_and_pod_requests(interpreted):
    submit(interpreted, "train")
    components = counted(interpreted, "train")
    assert {name: replicas for name, (replicas, _) in components.items()} == {"master": 1, "worker": 3, "default2": 2}
    assert components["master"][1]["resourceRequest"] == {"cpu": "500m"}
    assert components["worker"][1]["resourceRequest"] == {"cpu": "1"}
    assert components["worker"][1]["nodeClaim"]["nodeSelector"] == {"disk": "ssd"}
    assert components["default2"][1]["resourceRequest"] == {"memory": "1Gi"}


def test_long_task_names_are_distinct_and_no_replicas_are_none(interpreted):
    long = "preprocessing-of-the-training-data"
    unset = {key: value for key, value in task("unset", 0, "1").items() if key != "replicas"}
    interpreted.submit(
        "train", tasks=[task(f"{long}-a", 1, "1"), task(f"{long}-b", 2, "1"), unset], minAvailable=3, queue="q"
    )
    components = counted(interpreted, "train")
    assert {name: replicas for name, (replicas, _) in components.items()} == {
        "preprocessing-of-the-train-1": 1,
        "preprocessing-of-the-train-2": 2,
        "unset": 0,
    }


def test_job_completes_and_is_healthy_with_customization(interpreted):
    submit(interpreted, "train", annotations={"volcano-global.io/runtime": "3s"})
    interpreted.wait_for_phase("Running")
    item = interpreted.wait(lambda: _applied(interpreted), "applied and told")
    assert item["status"]["state"]["phase"] in {"Running", "Completed"}
    assert item["health"] == "Healthy"
    assert not interpreted.binding()["spec"]["suspension"]["scheduling"]
    interpreted.wait_for_phase("Completed")
    interpreted.wait(lambda: _applied(interpreted)["status"]["state"]["phase"] == "Completed", "told upwards")
    assert _applied(interpreted)["health"] == "Healthy"


def _attached_to(binding):
    """Return the clusters of the workload that requires the object of *binding*."""
    return binding["spec"]["requiredBy"][0].get("clusters") if binding else None


def _applied(harness):
    told = (harness.binding("train") or {}).get("status", {}).get("aggregatedStatus") or [{}]
    return told[0] if told[0].get("applied") and told[0].get("status") and told[0].get("health") != "Unknown" else None


def test_dependencies_of_a_job_are_propagated_without_claims(interpreted):
    for plural in ("configmaps", "secrets"):
        interpreted.api.create(
            f"/api/v1/namespaces/{interpreted.namespace}/{plural}", {"metadata": {"name": "settings"}}
        )
    interpreted.change_policy(propagateDeps=True)
    volumes = [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "secret": {"secretName": "settings"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "settings"}},
    ]
    tasks = [task("first", 1, "1", volumes=volumes), task("second", 1, "1", volumes=volumes[:1])]
    interpreted.submit("train", tasks=tasks, minAvailable=2, queue="q")
    interpreted.wait_for_phase("Running")
    targets = interpreted.binding("train")["spec"]["clusters"]
    for kind in ("configmap", "secret"):
        path = f"{interpreted.bindings}/settings-{kind}"
        interpreted.wait(lambda path=path: _attached_to(interpreted.look(path)) == targets, f"placed {kind}")
    assert interpreted.look(f"{interpreted.bindings}/settings-persistentvolumeclaim") is None


def test_elastic_job_runs_if_only_its_gang_fits(interpreted):
    """All replicas together fit no cluster, but Karmada accepts the preset cluster."""
    interpreted.submit("train", tasks=[task("worker", 20, "1") | {"minAvailable": 4}], minAvailable=4, queue="q")
    assert counted(interpreted, "train")["worker"][0] == 20
    interpreted.wait_for_phase("Running")
    interpreted.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedSuccess")
