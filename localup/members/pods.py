"""The pods of something that runs in a member cluster, as they are created.

Pure. Pods that have found room have the node; those that wait have none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from localup.karmada.kinds import VOLCANO_JOB, is_a
from localup.karmada.member import Phase, Run
from localup.karmada.objects import Object, annotations_of, key_of, spec_of, uid_of
from localup.members.fake_node import node_name

OWNER: Final = "members.volcano-global.io/owner"

#: What of a pod template needs something that is not there: classes, accounts, and a kubelet that pulls images.
_LEFT_OUT: Final = frozenset({"priorityClassName", "priority", "serviceAccountName", "serviceAccount"})
_NAME: Final = 40


def pods_of(found: Object, run: Run, nodes: Sequence[Sequence[int]], *, owner: str) -> list[Object]:
    """Return the pods that are there while it runs, on *nodes* by task, and none before and after."""
    return list(_pods(found, run, nodes, owner)) if run.phase is Phase.RUNNING else []


def belongs_to(pod: Object, owner: str) -> bool:
    """Say whether a pod is one of those made for *owner*."""
    return annotations_of(pod).get(OWNER) == owner


def _pods(found: Object, run: Run, nodes: Sequence[Sequence[int]], owner: str) -> Iterator[Object]:
    key = key_of(found)
    for index, (template, task, bound) in enumerate(zip(_templates(found), run.workload.tasks, nodes, strict=True)):
        for number in range(task.count):
            name = f"{key.name[:_NAME]}-{uid_of(found)[:6]}-{index}-{number}"
            node = node_name(bound[number]) if number < len(bound) else ""
            yield _pod(template, name, key.namespace, owner=owner, node=node)


def _templates(found: Object) -> list[Object]:
    spec = spec_of(found)
    if is_a(found, VOLCANO_JOB):
        return [task.get("template") or {} for task in spec.get("tasks") or ()]
    return [spec.get("template") or {}]


def _pod(template: Object, name: str, namespace: str, *, owner: str, node: str) -> dict[str, Any]:
    spec = {field: value for field, value in (template.get("spec") or {}).items() if field not in _LEFT_OUT}
    labels = (template.get("metadata") or {}).get("labels") or {}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": {OWNER: owner}}
    placed = {"nodeName": node} if node else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **placed}}
