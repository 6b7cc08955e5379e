"""Builders of raw API objects, with the defaults of a pending Volcano Job."""

import itertools
import json
from typing import Any

from controller.api.configuration import IntegrationRule, VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.store import Store
from controller.engine.state.clusters import ApiKind
from tests.clusters import with_models

CREATED = "2026-01-02T03:04:05Z"
CREATED_MS = 1767323045000
POLICY_LABEL = {"propagationpolicy.karmada.io/permanent-id": "policy-1"}
ONE_CLUSTER = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}

DEPLOYMENT = ApiKind("apps/v1", "Deployment")
DEPLOYMENTS = VolcanoGlobalConfiguration(integrations=(IntegrationRule(api_version="apps/v1", kind="Deployment"),))
"""The configuration that gates Deployments."""

_versions = itertools.count(1000)


def complete_store() -> Store:
    """Return a cache for which every kind was listed, without objects."""
    store = Store()
    for kind in (store.bindings, store.cluster_bindings, store.queues, store.clusters, store.jobs):
        kind.replace([])
    store.priority_classes.replace([])
    return store


def raw(obj: dict[str, Any]) -> bytes:
    """Return *obj* as JSON."""
    return json.dumps(obj).encode()


def _meta(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "creationTimestamp": CREATED, "generation": 1, **more}
    meta.setdefault("uid", f"uid-{name}")
    meta["resourceVersion"] = str(more.get("resourceVersion") or next(_versions))
    return {key: value for key, value in meta.items() if value not in ("", None)}


def admission_record(uid: str, **fields: Any) -> str:
    """Return the record of the binding *uid* as JSON; *fields* are named as in Python, times are datetimes."""
    written = {
        "".join([first, *(word.title() for word in rest)]): value
        for name, value in fields.items()
        for first, *rest in [name.split("_")]
    }
    return json.dumps({"uid": uid, **written}, default=lambda time: time.isoformat())


def job(
    name: str = "j1",
    *,
    namespace: str = "ml",
    uid: str | None = None,
    version: int | None = None,
    queue: str = "a",
    replicas: int = 1,
    requests: dict[str, Any] | None = None,
    priority: str = "",
    meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> bytes:
    """Return a Volcano Job with one task."""
    task = {
        "name": "worker",
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests or {"cpu": "1"}}}]}},
    }
    return raw(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": _meta(name, namespace, uid=uid or f"job-{name}", resourceVersion=version, **(meta or {})),
            "spec": {"queue": queue, "priorityClassName": priority, "tasks": [task], **(spec or {})},
        }
    )


def binding(
    name: str = "j1",
    *,
    namespace: str = "ml",
    uid: str | None = None,
    version: int | None = None,
    paused: bool | None = True,
    clusters: list[Any] | None = None,
    phases: dict[str, str] | None = None,
    since: str = CREATED,
    statuses: dict[str, Any] | None = None,
    refused: dict[str, str] | None = None,
    record: str | None = None,
    template_uid: str | None = None,
    kind: str = "Job",
    api_version: str = "batch.volcano.sh/v1alpha1",
    meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> bytes:
    """Return the binding of the template *name*; its status reports *phases* since a time, or *statuses*.

    In the clusters *refused* its Work cannot be applied, with a message each.
    """
    about = {
        "labels": POLICY_LABEL,
        **({"annotations": {ADMISSION_ANNOTATION: record}} if record else {}),
        **(meta or {}),
    }
    resource = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}
    body: dict[str, Any] = {
        "resource": {**resource, "uid": f"job-{name}" if template_uid is None else template_uid},
        "placement": ONE_CLUSTER,
    }
    if paused is not None:
        body["suspension"] = {"scheduling": paused}
    if clusters is not None:
        body["clusters"] = [{"name": target} if isinstance(target, str) else target for target in clusters]
    told = statuses or {
        cluster_name: {"state": {"phase": phase, "lastTransitionTime": since}}
        for cluster_name, phase in (phases or {}).items()
    }
    aggregated = [{"clusterName": cluster_name, "status": status} for cluster_name, status in told.items()]
    aggregated += [
        {"clusterName": cluster_name, "appliedMessage": message, "health": "Unknown"}
        for cluster_name, message in (refused or {}).items()
    ]
    full = f"{name}-{kind.lower()}"
    return raw(
        {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": _meta(full, namespace, uid=uid or f"rb-{name}", resourceVersion=version, **about),
            "spec": {**body, **(spec or {})},
            "status": {"aggregatedStatus": aggregated} if aggregated else {},
        }
    )


def deployment(name: str = "web", *, spec: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """Return a Deployment."""
    return raw({"metadata": {"name": name, "namespace": "ml", "uid": f"job-{name}", **meta}, "spec": spec or {}})


def deployment_binding(*, cpu: str = "500m", spec: dict[str, Any] | None = None, **more: Any) -> bytes:
    """Return the binding of the Deployment ``web``, by default with four replicas."""
    divisible = {"replicas": 4, "replicaRequirements": {"resourceRequest": {"cpu": cpu}}, **(spec or {})}
    return binding("web", kind="Deployment", api_version="apps/v1", spec=divisible, **more)


def queue(name: str = "a", *, version: int | None = None, state: str = "", **spec: Any) -> bytes:
    """Return a Queue."""
    status = {"state": state} if state else {}
    return raw({"metadata": _meta(name, resourceVersion=version), "spec": spec, "status": status})


def cluster(
    name: str = "m1",
    *,
    version: int | None = None,
    ready: str = "True",
    used: dict[str, str] | None = None,
    **allocatable: Any,
) -> bytes:
    """Return a Cluster that serves Volcano Jobs."""
    enablement = {"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}
    summary = {"allocatable": allocatable or {"cpu": "8", "pods": "110"}, **({"allocated": used} if used else {})}
    status = {
        "apiEnablements": [enablement],
        "conditions": [{"type": "Ready", "status": ready}],
        "resourceSummary": summary,
    }
    return raw(with_models({"metadata": _meta(name, resourceVersion=version), "spec": {}, "status": status}))


def priority_class(name: str, value: int, *, default: bool = False, version: int | None = None) -> bytes:
    """Return a PriorityClass."""
    return raw({"metadata": _meta(name, resourceVersion=version), "value": value, "globalDefault": default})
