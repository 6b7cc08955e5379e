"""Builds the objects in ``tests/data`` with the stand-in of Karmada.

``python -m tests.karmada_objects`` writes the files.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from localup.karmada.clusters import MemberDescription, with_summary
from localup.karmada.detector import binding_for
from localup.karmada.member import Member
from localup.karmada.objects import (
    APPLIED_PLACEMENT,
    POLICY_ID,
    Key,
    Object,
    annotations_of,
    seconds_of,
    timestamp,
    with_condition,
    with_metadata,
    with_spec,
    with_status,
)
from localup.karmada.scheduler import format_applied_placement, place
from localup.karmada.status import aggregate_status
from localup.karmada.workloads import amounts
from localup.karmada.works import with_applied_status, work_for
from tests.files import DATA

CREATED = "2026-01-02T03:04:05Z"
_NOW = seconds_of(CREATED)
_GPU = {"nvidia.com/gpu": "1"}
_ONE_CLUSTER = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
_WHOLE = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
_BY_CAPACITY = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
}


def build_objects() -> dict[str, Object]:
    """Return the objects by file name, without suffix."""
    clusters = [_cluster("member1", cpu="64", usage={"cpu": "1500m", "pods": "3"}), _cluster("member2", cpu="32")]
    job = _job("evaluate", [_task("worker", 2, _pod("3", "6Gi", limits=_GPU))])
    training = _job(
        "train",
        [_task("ps", 1, _pod("1", "2Gi")), _task("worker", 3, _pod("4", "8Gi", limits=_GPU), minAvailable=2)],
        minAvailable=4,
    )
    one, divided = _policy(_WHOLE, spread=_ONE_CLUSTER), _policy(_BY_CAPACITY)
    elsewhere = _policy(_WHOLE, spread=_ONE_CLUSTER, clusters=["member2"])
    running, work = _run(_propagate(training, elsewhere, clusters, components=True, scheduling=False), training)
    return {
        "cluster-member1": clusters[0],
        "cluster-member2": clusters[1],
        "binding-placed": _propagate(job, one, clusters),
        "binding-with-components": _propagate(training, one, clusters, components=True),
        "binding-running": running,
        "binding-suspended": _propagate(job, one, clusters, scheduling=True),
        "binding-of-deployment": _propagate(_deployment(), divided, clusters),
        "work-running": work,
        "job-evaluate": job,
        "job-train": training,
    }


def _stored(item: Mapping[str, Any], *, generation: int = 1) -> Object:
    """Return *item* with the metadata that an API server sets."""
    uid = f"uid-{item['kind'].lower()}-{item['metadata']['name']}"
    return with_metadata(item, creationTimestamp=CREATED, generation=generation, resourceVersion="1234", uid=uid)


def _pod(cpu: str, memory: str, *, limits: Mapping[str, str] | None = None) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": memory}, **({"limits": limits} if limits else {})}
    return {"spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}]}}


def _task(name: str, replicas: int, template: Object, **fields: int) -> Object:
    return {"name": name, "replicas": replicas, "template": template, **fields}


def _job(name: str, tasks: Sequence[Object], **fields: int) -> Object:
    return _stored(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"queue": "research", "priorityClassName": "high", "tasks": [*tasks], **fields},
        }
    )


def _deployment() -> Object:
    return _stored(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": "ml"},
            "spec": {"replicas": 6, "template": _pod("500m", "512Mi")},
        }
    )


def _policy(
    strategy: Object, *, clusters: Sequence[str] = ("member1", "member2"), spread: Sequence[Object] = ()
) -> Object:
    placement = {"clusterAffinity": {"clusterNames": [*clusters]}, "replicaScheduling": strategy}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "jobs", "namespace": "ml", "labels": {POLICY_ID: "policy-1"}},
        "spec": {"placement": {**placement, **({"spreadConstraints": [*spread]} if spread else {})}},
    }


def _cluster(name: str, *, cpu: str, usage: Mapping[str, str] | None = None) -> Object:
    bare = _stored(
        {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "labels": {"tier": "gpu"}},
            "spec": {"provider": "example", "region": "north", "zones": ["north-a"], "syncMode": "Push"},
        }
    )
    description = MemberDescription(
        amounts({"cpu": cpu, "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "220"}), amounts(usage or {})
    )
    member: Member[Key] = Member(description.allocatable, description.external_usage)
    return with_summary(bare, description, member, now=_NOW)


def _propagate(
    template: Object,
    policy: Object,
    clusters: Sequence[Object],
    *,
    components: bool = False,
    scheduling: bool | None = None,
) -> Object:
    """Return the binding of *template*, placed unless its scheduling is suspended."""
    made = binding_for(template, policy, permanent_id="binding-1", multi_template=components)
    bound = _stored(made if scheduling is None else with_spec(made, suspension={"scheduling": scheduling}))
    if scheduling:
        return bound
    outcome = place(bound, clusters)
    applied = format_applied_placement(bound["spec"]["placement"])
    placed = with_metadata(
        with_spec(bound, clusters=[*(outcome.targets or ())]),
        annotations={**annotations_of(bound), APPLIED_PLACEMENT: applied},
        generation=2,
    )
    conditions = with_condition((), outcome.condition, now=_NOW)
    return with_status(placed, conditions=conditions, lastScheduledTime=timestamp(_NOW), schedulerObservedGeneration=2)


def _run(binding: Object, template: Object) -> tuple[Object, Object]:
    """Return a placed binding and its Work, with the status of the running job."""
    (target,) = binding["spec"]["clusters"]
    pods = template["spec"]["minAvailable"]
    status = {"minAvailable": pods, "running": pods, "state": {"phase": "Running", "lastTransitionTime": CREATED}}
    work = _stored(work_for(binding, template, target, permanent_id="work-1"))
    applied = with_applied_status(work, status, "Healthy", now=_NOW)
    return aggregate_status(binding, [applied], now=_NOW), applied


def write_files() -> None:
    """Write the objects to ``tests/data``."""
    DATA.mkdir(exist_ok=True)
    for name, item in build_objects().items():
        (DATA / f"{name}.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(item)), sort_keys=False, width=120))


if __name__ == "__main__":
    write_files()
