"""Generates hostile objects: those of `objects.yaml` with few optional fields, some of them with extreme values."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import yaml

from controller.api import keys
from tests.unusual_values import UNUSUAL_VALUES, mutate, places

Object = dict[str, Any]
JOB = "batch.volcano.sh/v1alpha1"
SOUND: list[Object] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
#: The other fields are left out of most objects.
REQUIRED = {
    *("action", "apiVersion", "data", "kind", "metadata", "spec", "target", "template", "workload", "manifests"),
    *("containers", "cpu", "image", "memory", "minAvailable", "name", "queue", "replicas", "requests", "resources"),
    *(
        "tasks",
        "replicatedJobs",
        "templateSpec",
        "accelerators",
        "acceleratorType",
        "resource",
        "uid",
        "clusters",
        "labels",
        "selector",
    ),
    *("matchLabels", "app", "a", "resourceSelectors", "placement", "overrideRules", "overriders", "plaintext"),
    *("operator", "path", "value", "component", "mountPath", "exitCode", "key", "affinityName"),
}
LARGE = 1_200_000
"""The bytes of a large object; etcd takes 1.5 MiB."""
DEPTH = 400
"""A JSON text of this depth is stored by the API server and read by all of its clients."""
COUNTS = (0, 1, 2, 7, 1000, 10**6, 2**31 - 1, 2**31, 2**63 - 1, -1, -(2**31), "3", 1.5, None)
SIZES = (0, 1, 2, 30, 900, 4000)
"""Lengths of repeated lists; the last one is rare."""
QUANTITIES = (
    *("1", "1m", "1n", "0", "0.1", "-5", "1e30", "1E", "8Ei", "1e-30", "9" * 110, "1" + "0" * 60, "1.0000000001"),
    *(1, 2**63 - 1, 10**40, 0.5, "", "NaN", "1 Gi", "0x10", None, [], {}),
)
NAMES = (
    *("", " ", "x", "x" * 63, "x" * 253, "x" * 4000, "a.b", "a/b", "..", "\u202e", "\U0001f4a5", "UPPER", "%s{}", "~1"),
    *("root", "default", "kube-system", "null", "true", "0", "\x00", "a\nb"),
)
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "pods", "ephemeral-storage", "hugepages-2Mi", *NAMES)
QUEUES = ("wild-a", "wild-b", "wild-a", "wild-b", "default", "calm", "root", "nowhere", *NAMES)
CLASSES = ("", "calm-high", "system-node-critical", "nowhere", *NAMES)
CLUSTERS = ("c1", "c2", "c3", "nowhere", *NAMES)
#: Values of the fields with these names.
VALUES: dict[str, tuple[Any, ...]] = {
    "queue": QUEUES,
    "priorityClassName": CLASSES,
    "kind": ("Queue", "Job", "HyperJob", "Deployment", "x"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "replace", "add", "remove", "x"),
    "action": ("OpenQueue", "CloseQueue", "AbortJob", "RestartJob", "x"),
    "path": ("/spec/queue", "/spec/tasks/0/replicas", "/spec", "", "/metadata/annotations/a", "x" * 4000, "/spec/~2"),
    "strategy": ("ByCluster", "ByReplicas", "x"),
    "mode": ("static", "auto", "hard", "x"),
    "replicas": (1, 2, 3, 100, 400_000, *COUNTS),
    **dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), QUANTITIES),
}
FORGED = (
    *("", "{}", "[]", "null", "0", "{", '"x"', "[" * 500, '{"uid":1}', "1970-01-01T00:00:00Z", "x" * 20_000),
    '{"uid":"u","parts":1,"minAvailable":1,"since":"0001-01-01T00:00:00+23:59"}',
    '{"uid":"u","parts":99999999999,"minAvailable":-1,"since":"1970-01-01T00:00:00Z","split":9}',
    '{"uid":"u","queue":"calm","clusters":["c1"],"charge":{"cpu":"-1e9"},"rank":-1}',
    '["c3","c3","nowhere"]',
)
KEYS = (
    *(keys.ADMISSION_ANNOTATION, keys.GROUP_ANNOTATION, keys.PART_ANNOTATION, keys.PREFERRED_CLUSTERS_ANNOTATION),
    *(keys.RUNTIME_ANNOTATION, keys.SUBMIT_ANNOTATION, keys.HYPERJOB_NAME_LABEL, keys.REPLICATED_JOB_NAME_LABEL),
    *(*keys.QUEUE_NAME_KEYS, *keys.POLICY_LABELS, "resourcebinding.karmada.io/permanent-id"),
    *("scheduling.k8s.io/group-name", "volcano.sh/preemptable", "policy.karmada.io/namespace"),
    *("resourcetemplate.karmada.io/uid", "x" * 253),
)


def hostile_object(dice: random.Random, kind: str, name: str) -> Object:
    """Return an object of *kind*; about a half have no extreme values, so that they are stored."""
    sound = dice.choice([obj for obj in SOUND if obj["kind"] == kind])
    fields = _thinned(dice, {key: value for key, value in sound.items() if key not in {"apiVersion", "kind"}})
    if dice.random() < 0.08:
        mutate(fields, dice)
    for parent, key in dice.choices(list(places(fields)) or [(fields, "spec")], k=dice.choice((0, 0, 0, 1, 2, 6))):
        parent[key] = _extreme(dice, key, parent.get(key) if isinstance(parent, dict) else parent[key])
    return {"apiVersion": sound["apiVersion"], "kind": kind, "metadata": _metadata(dice, name), **fields}


def _thinned(dice: random.Random, node: Any) -> Any:
    """Return a copy of *node* without most of the optional fields."""
    if isinstance(node, dict):
        return {key: _thinned(dice, value) for key, value in node.items() if key in REQUIRED or dice.random() < 0.15}
    return [_thinned(dice, value) for value in node] if isinstance(node, list) else node


def _extreme(dice: random.Random, key: str | int, value: Any) -> Any:
    """Return an extreme value for a field that has *value*."""
    if dice.random() < 0.05:
        return copy.deepcopy(dice.choice(UNUSUAL_VALUES))
    if key in VALUES:
        return dice.choice(VALUES[str(key)])
    if isinstance(value, dict):
        amounts = {name: dice.choice(QUANTITIES) for name in dice.sample(RESOURCES, 3)}
        return dice.choice((_deep(), {**value, "unknown": _deep()}, amounts, dict.fromkeys(NAMES, "1")))
    if isinstance(value, list):
        return _repeated(dice, value or ["x"])
    texts = ("x" * LARGE,) if dice.random() < 0.02 else CLUSTERS
    return dice.choice(COUNTS if isinstance(value, int) else texts)


def _repeated(dice: random.Random, items: list[Any]) -> list[Any]:
    """Return many copies of *items*; named ones have one name or depend on each other in a chain, as tasks may."""
    count, is_renamed = SIZES[-1] if dice.random() < 0.04 else dice.choice(SIZES[:-1]), dice.random() < 0.8
    count = min(count, LARGE // len(json.dumps(items)))
    copies = [copy.deepcopy(dice.choice(items)) for _ in range(count)]
    for number, item in enumerate(copies):
        if is_renamed and isinstance(item, dict) and "name" in item:
            item["name"] = f"t{number}"
            if number and "replicas" in item:
                item["dependsOn"] = {"name": [f"t{number - 1}"]}
    return copies


def _deep() -> Object:
    """Return a deeply nested object."""
    nested: Object = {}
    for _ in range(DEPTH):
        nested = {"a": nested}
    return nested


def _metadata(dice: random.Random, name: str) -> Object:
    """Return metadata with annotations, labels, owners and finalizers that a tenant may write."""
    metadata: Object = {"name": name}
    if dice.random() < 0.4:
        metadata["annotations"] = {
            dice.choice(KEYS): dice.choice((*FORGED, *QUEUES)) for _ in range(dice.choice((1, 3)))
        }
    if dice.random() < 0.2:
        metadata["labels"] = {dice.choice(KEYS): dice.choice(("x", "wild-a", "calm", "1")) for _ in range(2)}
    if dice.random() < 0.1:
        metadata["ownerReferences"] = [_owner(dice, number) for number in range(dice.choice((1, 1, 200)))]
    if dice.random() < 0.02:
        metadata["finalizers"] = ["example.com/never"]
    return metadata


def _owner(dice: random.Random, number: int) -> Object:
    """Return a reference to an owner that is not there, or is not what it says."""
    kind = dice.choice(("HyperJob", "Job", "CronFederatedHPA", "x"))
    version = dice.choice(("training.volcano.sh/v1alpha1", JOB, "v1", "x/y"))
    named = {"apiVersion": version, "kind": kind, "name": f"owner-{number}", "uid": f"uid-{number}"}
    return named | ({"controller": True, "blockOwnerDeletion": True} if not number else {})


def binding_patch(dice: random.Random) -> Object:
    """Return a merge patch of a binding's spec, status or metadata."""
    label = dice.choice(("a", "propagationpolicy.karmada.io/permanent-id", "volcano.sh/queue-name"))
    patches: tuple[Object, ...] = (
        {"spec": {"suspension": None}},
        {"spec": {"suspension": {"scheduling": False}, "clusters": [{"name": "c1"}]}},
        {"spec": {"clusters": [{"name": dice.choice(CLUSTERS)} for _ in range(1000)]}},
        {"spec": {"components": [{"name": "x", "replicas": 2**31 - 1}], "placement": {"clusterAffinity": _deep()}}},
        {"spec": {"gracefulEvictionTasks": [{"fromCluster": "c1", "reason": "x", "producer": "x"}] * 500}},
        {"spec": {"resource": {"name": "other", "uid": "x", "kind": "Deployment", "apiVersion": "apps/v1"}}},
        {"metadata": {"labels": {label: "x"}}},
        {"metadata": {"annotations": {"volcano-global.io/admission": "{}"}}},
        {"metadata": {"annotations": {"a": "x" * 100_000}}},
        {"metadata": {"finalizers": ["example.com/never"]}},
        {"status": {"aggregatedStatus": [{"clusterName": "c1", "status": {"state": {"phase": "Completed"}}}]}},
    )
    return dice.choice(patches)
