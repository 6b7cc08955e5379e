"""Pods of workloads in a member cluster.

Pods with capacity have a node; the others have none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from localup.karmada.kinds import VOLCANO_JOB, is_a
from localup.karmada.member import Phase, Run
from localup.karmada.objects import Object, annotations_of, key_of, spec_of, uid_of
from localup.members.fake_node import node_name

OWNER: Final = "members.volcano-global.io/owner"

#: Fields that refer to absent priority classes and service accounts.
_LEFT_OUT: Final = frozenset({"priorityClassName", "priority", "serviceAccountName", "serviceAccount"})
_NAME: Final = 40


def pods_of(found: Object, run: Run, nodes: Sequence[Sequence[int]], *, owner: str) -> list[Object]:
    """Return the pods of a running workload on *nodes* by task; none if it does not run."""
    return list(_pods(found, run, nodes, owner)) if run.phase is Phase.RUNNING else []


def belongs_to(pod: Object, owner: str) -> bool:
    """Return whether a pod was created for *owner*."""
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
