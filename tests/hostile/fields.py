"""Extreme values for the fields of objects, drawn from a seeded generator."""

import random
from typing import Any

from controller.api import keys

COUNTS: tuple[Any, ...] = (0, 1, 2, 7, 1000, 10**6, 2**31 - 1, 2**31, 2**63 - 1, -1, -(2**31), "3", 1.5, None)
QUANTITIES: tuple[Any, ...] = (
    *("1", "1m", "1n", "0", "0.1", "-5", "1e30", "1E", "8Ei", "1e-30", "9" * 110, "1" + "0" * 60, "1.0000000001"),
    *(1, 2**63 - 1, 10**40, 0.5, "", "NaN", "1 Gi", "0x10", None, [], {}),
)
SOUND = ("1", "2", "0", 1)
NAMES: tuple[str, ...] = (
    *("", " ", "x", "x" * 63, "x" * 253, "x" * 4000, "a.b", "a/b", "..", "\u202e", "\U0001f4a5", "UPPER", "%s{}", "~1"),
    *("root", "default", "kube-system", "null", "true", "0", "\x00", "a\nb"),
)
QUEUES: tuple[str, ...] = ("wild-a", "wild-b", "wild-a", "wild-b", "default", "calm", "root", "nowhere", *NAMES)
CLASSES: tuple[str, ...] = ("", "calm-high", "system-node-critical", "nowhere", *NAMES)
CLUSTERS: tuple[str, ...] = ("c1", "c2", "c3", "nowhere", *NAMES)
FORGED: tuple[str, ...] = (
    *("", "{}", "[]", "null", "0", "{", '"x"', "[" * 500, '{"uid":1}', "1970-01-01T00:00:00Z", "x" * 20_000),
    '{"uid":"u","parts":1,"minAvailable":1,"since":"0001-01-01T00:00:00+23:59"}',
    '{"uid":"u","parts":99999999999,"minAvailable":-1,"since":"1970-01-01T00:00:00Z","split":9}',
    '{"uid":"u","queue":"calm","clusters":["c1"],"charge":{"cpu":"-1e9"},"rank":-1}',
    '["c3","c3","nowhere"]',
)
KEYS: tuple[str, ...] = (
    *(keys.ADMISSION_ANNOTATION, keys.GROUP_ANNOTATION, keys.PART_ANNOTATION, keys.PREFERRED_CLUSTERS_ANNOTATION),
    *(keys.RUNTIME_ANNOTATION, keys.SUBMIT_ANNOTATION, keys.HYPERJOB_NAME_LABEL, keys.REPLICATED_JOB_NAME_LABEL),
    *(*keys.QUEUE_NAME_KEYS, *keys.POLICY_LABELS, "resourcebinding.karmada.io/permanent-id"),
    *("scheduling.k8s.io/group-name", "volcano.sh/preemptable", "policy.karmada.io/namespace"),
    *("resourcetemplate.karmada.io/uid", "x" * 253),
)
RESOURCES: tuple[str, ...] = ("cpu", "memory", "nvidia.com/gpu", "pods", "ephemeral-storage", "hugepages-2Mi", *NAMES)
DEPTH = 400
"""A JSON text of this depth is stored by the API server and read by all of its clients."""


def size(dice: random.Random, *counts: int) -> int:
    """Return one of *counts*, the last one rarely."""
    return counts[-1] if dice.random() < 0.04 else dice.choice(counts[:-1])


def odd(dice: random.Random, oddities: dict[str, Any], *counts: int) -> dict[str, Any]:
    """Return some of *oddities*, as many as one of *counts*; functions return the value."""
    names = dice.sample(sorted(oddities), dice.choice(counts))
    return {name: oddities[name]() if callable(oddities[name]) else oddities[name] for name in names}


def deep(depth: int = DEPTH) -> dict[str, Any]:
    """Return an object nested so deep."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def container(dice: random.Random, name: str = "main", **amounts: Any) -> dict[str, Any]:
    """Return a container, of odd requests and limits unless *amounts* are given."""
    asked = amounts or {
        dice.choice((*RESOURCES[:3], *RESOURCES[4:5])): dice.choice(SOUND if dice.random() < 0.9 else QUANTITIES)
        for _ in range(size(dice, 0, 1, 2, 3))
    }
    if dice.random() < 0.03:
        asked |= {f"example.com/r{number}": dice.choice(QUANTITIES) for number in range(dice.choice((1, 300)))}
    found: dict[str, Any] = {"name": name, "image": "busybox", "resources": {"requests": asked}}
    if dice.random() < 0.2:
        found["resources"]["limits"] = {name: dice.choice(QUANTITIES) for name in asked}
    return found


def pod(dice: random.Random) -> dict[str, Any]:
    """Return the spec of a pod with odd fields."""
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [container(dice, f"c{n}") for n in range(size(dice, 1, 1, 2, 60))],
    }
    terms = [{"matchExpressions": [expression(dice)]} for _ in range(size(dice, 0, 1, 30, 1000))]
    oddities: dict[str, Any] = {
        "initContainers": [container(dice, "i") | {"restartPolicy": dice.choice(("Always", "x"))}],
        "overhead": {dice.choice(RESOURCES): dice.choice(QUANTITIES)},
        "resources": {"requests": {dice.choice(RESOURCES): dice.choice(QUANTITIES)}},
        "priorityClassName": dice.choice(CLASSES),
        "nodeSelector": {name: name for name in NAMES},
        "tolerations": [{"key": name, "operator": "Exists"} for name in NAMES * 20],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "resourceClaims": [
            {"name": f"c{n}", dice.choice(("resourceClaimName", "resourceClaimTemplateName")): "one-gpu"}
            for n in range(size(dice, 1, 3, 200))
        ],
        "schedulingGates": [{"name": "x"}],
        "unknown": deep(),
    }
    return found | odd(dice, oddities, 0, 0, 1, 1, 3)


def expression(dice: random.Random) -> dict[str, Any]:
    """Return one requirement of a label selector."""
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "x"))
    return {"key": dice.choice(NAMES), "operator": operator, "values": list(NAMES[: dice.randrange(9)])}


def metadata(dice: random.Random, name: str) -> dict[str, Any]:
    """Return metadata with annotations, labels, owners and finalizers that a tenant may write."""
    found: dict[str, Any] = {"name": name}
    if dice.random() < 0.4:
        found["annotations"] = {dice.choice(KEYS): dice.choice((*FORGED, *QUEUES)) for _ in range(dice.choice((1, 3)))}
    if dice.random() < 0.2:
        found["labels"] = {dice.choice(KEYS): dice.choice(("x", "wild-a", "calm", "1")) for _ in range(2)}
    if dice.random() < 0.1:
        found["ownerReferences"] = [owner(dice, number) for number in range(size(dice, 1, 1, 200))]
    if dice.random() < 0.02:
        found["finalizers"] = ["example.com/never"]
    return found


def owner(dice: random.Random, number: int) -> dict[str, Any]:
    """Return a reference to an owner that is not there, or is not what it says."""
    kind = dice.choice(("HyperJob", "Job", "CronFederatedHPA", "x"))
    version = dice.choice(("training.volcano.sh/v1alpha1", "batch.volcano.sh/v1alpha1", "v1", "x/y"))
    named = {"apiVersion": version, "kind": kind, "name": f"owner-{number}", "uid": f"uid-{number}"}
    return named | ({"controller": True, "blockOwnerDeletion": True} if not number else {})
