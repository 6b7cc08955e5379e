"""Patches as tables, and on a real API server."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from controller.cache.store import Store
from controller.kube.client import Api
from controller.kube.errors import Invalid
from controller.scheduling import patches
from tests.cache import objects

BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/{}/resourcebindings"
RECORD = '{"uid":"u1"}'

SAME = {"op": "test", "path": "/metadata/uid", "value": "u1"}
PAUSED = {"op": "test", "path": "/spec/suspension/scheduling", "value": True}
RESUME = {"op": "replace", "path": "/spec/suspension/scheduling", "value": False}
ADMITTED_TO_NONE = [SAME, PAUSED, RESUME]
SUSPEND = {"op": "add", "path": "/spec/suspension/scheduling", "value": True}
CLEAR = {"op": "remove", "path": "/spec/clusters"}
TASKS = "/spec/gracefulEvictionTasks"
# Without a purge mode, since Karmada 1.14 and 1.19 have no name in common for the graceful one.
TASK = {"fromCluster": "member1", "reason": "Reclaimed", "gracePeriodSeconds": 30, "producer": "volcano-global"}
ANNOTATE = {"op": "add", "path": "/metadata/annotations/volcano-global.io~1admission", "value": RECORD}


@dataclass
class Seen:
    uid: str = "u1"
    has_annotations: bool = True
    has_suspension: bool = True
    has_clusters: bool = False
    has_eviction_tasks: bool = False


@pytest.mark.parametrize(
    ("patch", "operations"),
    [
        pytest.param(
            patches.admit(Seen(), [("member1", None)], RECORD),
            [*ADMITTED_TO_NONE, {"op": "add", "path": "/spec/clusters", "value": [{"name": "member1"}]}, ANNOTATE],
            id="admit",
        ),
        pytest.param(
            patches.admit(Seen(), [("a", 2), ("b", 1)], RECORD),
            [
                *ADMITTED_TO_NONE,
                {
                    "op": "add",
                    "path": "/spec/clusters",
                    "value": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}],
                },
                ANNOTATE,
            ],
            id="admit-divided",
        ),
        pytest.param(
            patches.admit(Seen(), [], RECORD), [*ADMITTED_TO_NONE, ANNOTATE], id="admit-where-karmada-chooses"
        ),
        pytest.param(
            patches.admit(Seen(has_annotations=False), [], RECORD),
            [
                *ADMITTED_TO_NONE,
                {"op": "test", "path": "/metadata/annotations", "value": None},
                {"op": "add", "path": "/metadata/annotations", "value": {"volcano-global.io/admission": RECORD}},
            ],
            id="admit-without-annotations",
        ),
        pytest.param(patches.evict(Seen(has_clusters=True), RECORD), [SAME, SUSPEND, CLEAR, ANNOTATE], id="evict"),
        pytest.param(
            patches.evict(Seen(has_suspension=False), RECORD),
            [
                SAME,
                {"op": "test", "path": "/spec/suspension", "value": None},
                {"op": "add", "path": "/spec/suspension", "value": {"scheduling": True}},
                {"op": "test", "path": "/spec/clusters", "value": None},
                ANNOTATE,
            ],
            id="evict-without-suspension-or-clusters",
        ),
        pytest.param(
            patches.evict(Seen(has_clusters=True), RECORD, tasks=[patches.EvictionTask("member1", "Reclaimed", 30)]),
            [
                SAME,
                SUSPEND,
                CLEAR,
                {"op": "test", "path": TASKS, "value": None},
                {"op": "add", "path": TASKS, "value": [TASK]},
                ANNOTATE,
            ],
            id="evict-after-a-while",
        ),
        pytest.param(
            patches.evict(
                Seen(has_clusters=True, has_eviction_tasks=True),
                RECORD,
                tasks=[patches.EvictionTask("member1", "Reclaimed", 30)],
            ),
            [SAME, SUSPEND, CLEAR, {"op": "add", "path": f"{TASKS}/-", "value": TASK}, ANNOTATE],
            id="evict-after-a-while-beside-other-tasks",
        ),
        pytest.param(patches.resume(Seen()), [SAME, PAUSED, RESUME], id="resume"),
        pytest.param(patches.clear_clusters(Seen(has_clusters=True)), [SAME, PAUSED, CLEAR], id="clear"),
        pytest.param(
            patches.reprocess(Seen()),
            [SAME, {"op": "test", "path": TASKS, "value": None}, {"op": "add", "path": TASKS, "value": []}],
            id="process-again",
        ),
        pytest.param(
            patches.reprocess(Seen(has_eviction_tasks=True)),
            [SAME, {"op": "test", "path": TASKS, "value": []}, {"op": "remove", "path": TASKS}],
            id="process-again-with-empty-tasks",
        ),
        pytest.param(patches.update_pending_record(Seen(), RECORD), [SAME, PAUSED, ANNOTATE], id="note"),
    ],
)
def test_patch_tests_its_basis_and_changes_own_fields_only(patch, operations):
    assert json.loads(patch) == operations


def test_eviction_task_is_added_to_an_empty_list_of_tasks():
    """The list stays in the binding after its last task was removed by hand."""
    store = Store()
    store.bindings.upsert(store.bindings.decode(objects.binding(clusters=["m1"], spec={"gracefulEvictionTasks": []})))
    (binding,) = store.bindings
    operations = json.loads(patches.evict(binding, RECORD, tasks=[patches.EvictionTask("m1", "Reclaimed", 30)]))
    assert [(step["op"], step["path"]) for step in operations if TASKS in step["path"]] == [("add", f"{TASKS}/-")]


@pytest.fixture
async def api(control_plane):
    async with Api.connect(control_plane.kubeconfig("admin")) as api:
        yield api


async def stored(api: Api, namespace: str, **spec: Any) -> dict[str, Any]:
    """Create a suspended binding as Karmada and the webhook do."""
    body = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "b"} | spec.pop("metadata", {}),
        "spec": {
            "resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "namespace": namespace},
            "replicas": 3,
            "suspension": {"scheduling": True, "dispatching": True},
        }
        | spec,
    }
    return json.loads(await api.create(BINDINGS.format(namespace), json.dumps(body).encode()))


def seen(binding: dict[str, Any]) -> Seen:
    return Seen(
        binding["metadata"]["uid"],
        has_annotations="annotations" in binding["metadata"],
        has_suspension="suspension" in binding["spec"],
        has_clusters="clusters" in binding["spec"],
    )


@pytest.mark.parametrize("annotations", [None, {"policy": "p"}], ids=["without-annotations", "with-annotations"])
async def test_admission_and_eviction_leave_other_fields_unchanged(api, namespace, annotations):
    item = f"{BINDINGS.format(namespace)}/b"
    born = await stored(api, namespace, metadata={"annotations": annotations} if annotations else {})
    admitted = json.loads(await api.patch(item, patches.admit(seen(born), [("member1", None)], "first")))
    evicted = json.loads(await api.patch(item, patches.evict(seen(admitted), "second")))
    again = json.loads(await api.patch(item, patches.admit(seen(evicted), [("member2", 3)], "third")))

    ours = {"volcano-global.io/admission": "first"}
    assert admitted["metadata"]["annotations"] == (annotations or {}) | ours
    assert admitted["spec"] == born["spec"] | {
        "suspension": {"scheduling": False, "dispatching": True},
        "clusters": [{"name": "member1"}],
    }
    assert evicted["spec"] == born["spec"]
    assert again["spec"]["clusters"] == [{"name": "member2", "replicas": 3}]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"suspension": {"scheduling": False}}}, id="resumed-by-another"),
        pytest.param({"spec": {"suspension": None}}, id="suspension-taken-away"),
        pytest.param({"metadata": {"annotations": {"other": "first"}}}, id="annotated-meanwhile"),
    ],
)
@pytest.mark.smoke
async def test_patch_fails_on_changed_binding(api, namespace, change):
    item = f"{BINDINGS.format(namespace)}/b"
    born = await stored(api, namespace)
    changed = json.loads(await api.patch(item, json.dumps(change).encode(), kind="merge"))
    with pytest.raises(Invalid):
        await api.patch(item, patches.admit(seen(born), [("member1", None)], RECORD))
    assert json.loads(await api.get(item)) == changed


async def test_patch_fails_on_recreated_binding(api, namespace):
    item = f"{BINDINGS.format(namespace)}/b"
    born = await stored(api, namespace)
    await api.delete(item)
    await stored(api, namespace)
    with pytest.raises(Invalid):
        await api.patch(item, patches.admit(seen(born), [("member1", None)], RECORD))
