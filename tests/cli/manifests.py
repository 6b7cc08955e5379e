"""Builders of manifests as dictionaries with only the given fields."""

import json
from pathlib import Path
from typing import Any

import yaml

from controller.api.keys import ADMISSION_ANNOTATION
from tests.clusters import with_models

POLICY_LABEL = {"propagationpolicy.karmada.io/permanent-id": "policy-1"}
ONE = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
VOLCANO_JOB = "batch.volcano.sh/v1alpha1"
NOW = "2026-03-01T10:00:00Z"


def units(count: int) -> dict[str, str]:
    """Return requests of *count* CPUs and *count* GiB of memory."""
    return {"cpu": str(count), "memory": f"{count}Gi"}


def queue(name: str, *, state: str = "", **spec: Any) -> dict[str, Any]:
    status = {"status": {"state": state}} if state else {}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    } | (status)


def cluster(
    name: str,
    allocatable: dict[str, Any] | None,
    *,
    used: dict[str, Any] | None = None,
    ready: bool = True,
    labels: dict[str, str] | None = None,
    kinds: tuple[tuple[str, str], ...] = ((VOLCANO_JOB, "Job"),),
    **spec: Any,
) -> dict[str, Any]:
    status: dict[str, Any] = {
        "apiEnablements": [{"groupVersion": group, "resources": [{"kind": kind}]} for group, kind in kinds],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    if allocatable is not None:
        status["resourceSummary"] = {"allocatable": {"pods": "1000", **allocatable}, "allocated": used or {}}
    return with_models(
        {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"syncMode": "Push", **spec},
            "status": status,
        }
    )


def pod(requests: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}


def job(
    name: str,
    requests: dict[str, Any],
    *,
    queue: str | None = None,
    namespace: str | None = "ml",
    replicas: int = 1,
    created: str | None = None,
    labels: dict[str, str] | None = None,
    priority: str | None = None,
    **meta: Any,
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created, "labels": labels, **meta}
    spec = {"queue": queue, "priorityClassName": priority}
    return {
        "apiVersion": VOLCANO_JOB,
        "kind": "Job",
        "metadata": _present(metadata),
        "spec": _present(spec) | {"tasks": [{"name": "t", "replicas": replicas, "template": pod(requests)}]},
    }


def jobs(prefix: str, count: int, requests: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [job(f"{prefix}-{number:02}", requests, **more) for number in range(1, count + 1)]


def cluster_scoped(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration that gates a cluster-scoped kind, and the suspended binding of its object *name*."""
    kind = {"apiVersion": "example.com/v1", "kind": "Trainer"}
    bound = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ClusterResourceBinding",
        "metadata": {"name": f"{name.replace(':', '.')}-trainer", "uid": "b"},
        "spec": {"resource": {**kind, "name": name, "uid": "t"}, "suspension": {"scheduling": True}, "placement": {}},
    }
    return configuration(integrations=[kind]), bound


def binding(
    name: str,
    *,
    clusters: list[str] | None = None,
    suspended: bool | None = None,
    phase: str | None = None,
    record: dict[str, Any] | None = None,
    namespace: str = "ml",
    labels: dict[str, str] | None = POLICY_LABEL,
    placement: dict[str, Any] | None = ONE,
    **meta: Any,
) -> dict[str, Any]:
    annotations = {ADMISSION_ANNOTATION: json.dumps(record)} if record else None
    spec = {
        "resource": {"apiVersion": VOLCANO_JOB, "kind": "Job", "namespace": namespace, "name": name},
        "placement": placement,
        "clusters": [{"name": cluster_name} for cluster_name in clusters] if clusters is not None else None,
        "suspension": {"scheduling": suspended} if suspended is not None else None,
    }
    statuses = (
        [{"clusterName": cluster_name, "status": {"state": {"phase": phase}}} for cluster_name in clusters or ()]
        if phase
        else []
    )
    metadata = {"name": f"{name}-job", "namespace": namespace, "labels": labels, "annotations": annotations, **meta}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": _present(metadata),
        "spec": _present(spec),
        "status": {"aggregatedStatus": statuses},
    }


def running(
    name: str, requests: dict[str, Any], *, on: str, phase: str = "Running", **more: Any
) -> list[dict[str, Any]]:
    """Return a running job and its binding, without an admission record."""
    return [job(name, requests, **more), binding(name, clusters=[on], phase=phase)]


def admitted(
    name: str, requests: dict[str, Any], *, on: str, queue: str, namespace: str = "ml"
) -> list[dict[str, Any]]:
    """Return a running job and its binding, with an admission record."""
    record = {"uid": name, "queue": queue, "charge": {**requests, "pods": "1"}, "clusters": [on]}
    placed = binding(name, clusters=[on], phase="Running", record=record, namespace=namespace, uid=name)
    return [job(name, requests, queue=queue, namespace=namespace), placed]


def reclaim_due() -> list[dict[str, Any]]:
    """Return a state in which the next cycle evicts the running job a-1 for b-1; a-2 runs on."""
    return [
        configuration(reclaim={"enabled": True}),
        cluster("m", units(2)),
        *(queue(name, deserved=units(1)) for name in "ab"),
        *admitted("a-1", units(1), on="m", queue="a"),
        *admitted("a-2", units(1), on="m", queue="a"),
        job("b-1", units(1), queue="b"),
    ]


def policy(name: str, placement: dict[str, Any], *selectors: dict[str, Any], **spec: Any) -> dict[str, Any]:
    chosen = selectors or ({"apiVersion": VOLCANO_JOB, "kind": "Job"},)
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"resourceSelectors": list(chosen), "placement": placement, **spec},
    }


def cluster_policy(name: str, placement: dict[str, Any], *selectors: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = policy(name, placement, *selectors, **spec)
    return made | {"kind": "ClusterPropagationPolicy", "metadata": {"name": name}}


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    about = {"metadata": {"name": name}, "value": value}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **about, **more}


def configuration(**keys: Any) -> dict[str, Any]:
    return {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration", **keys}


_DATA = "datadependency.volcano.sh/v1alpha1"


def claim(
    name: str, data: str, workload: str = "train", kind: str = "Job", namespace: str = "ml", **attributes: str
) -> dict[str, Any]:
    """Return a DataSourceClaim of *workload*."""
    group = "training" if kind == "HyperJob" else "batch"
    reference = {"apiVersion": f"{group}.volcano.sh/v1alpha1", "kind": kind, "name": workload}
    spec = {"system": "lake", "dataSourceType": "dir", "dataSourceName": data, "workload": reference}
    metadata = {"name": name, "namespace": namespace}
    spec |= {"attributes": attributes} if attributes else {}
    return {"apiVersion": _DATA, "kind": "DataSourceClaim", "metadata": metadata, "spec": spec}


def source(data: str, *clusters: str) -> dict[str, Any]:
    """Return the DataSource of data that *clusters* hold."""
    spec = {"system": "lake", "type": "dir", "name": data, "locality": {"clusterNames": list(clusters)}}
    return {"apiVersion": _DATA, "kind": "DataSource", "metadata": {"name": data}, "spec": spec}


def write(folder: Path, *documents: dict[str, Any], name: str = "objects.yaml") -> str:
    """Write *documents* into one file and return its path."""
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
