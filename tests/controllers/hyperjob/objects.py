"""Builders of HyperJobs and of clusters with free capacity, with defaults."""

from typing import Any

from controller.api.hyperjobs import HyperJob, read_hyperjob
from controller.controllers.hyperjob.split import CapacitySnapshot
from controller.engine.placement.fit import capacities_when_empty, free_capacities
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ApiKind, Cluster, ClusterName
from controller.engine.state.workloads import VOLCANO_JOB

GPU = "nvidia.com/gpu"


def task(name: str = "worker", replicas: int = 4, *, gpu: int = 1, cpu: str = "1", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu} | ({GPU: str(gpu)} if gpu else {})
    container = {"name": "main", "image": "train", "resources": {"requests": amounts}}
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container]}}, **more}


def template(*tasks: dict[str, Any], queue: str = "ml", **more: Any) -> dict[str, Any]:
    return {"queue": queue, "schedulerName": "volcano", "tasks": list(tasks or (task(),)), **more}


def replicated(name: str = "trainer", *tasks: dict[str, Any], spec: dict | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "replicas": 1, "templateSpec": template(*tasks, **(spec or {})), **more}


def document(*jobs: dict[str, Any], name: str = "llm", uid: str = "uid-1", **more: Any) -> dict[str, Any]:
    """Return a HyperJob as JSON; *more* belongs to its spec."""
    return {
        "apiVersion": "training.volcano.sh/v1alpha1",
        "kind": "HyperJob",
        "metadata": {"name": name, "namespace": "ml", "uid": uid, "generation": 1},
        "spec": {"replicatedJobs": list(jobs or (replicated(),)), **more},
    }


def split_in_two(**more: Any) -> dict[str, Any]:
    """Return a HyperJob of two parts, each with its cluster."""
    clusters = [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}]
    job = replicated("t", task(replicas=4), splitPolicy={"strategy": "ByCluster", "clusters": clusters})
    return document(job, **more)


def two_copies(**more: Any) -> dict[str, Any]:
    """Return a HyperJob of two parts that may run in any cluster."""
    return document(replicated("t", task(replicas=4), replicas=2), **more)


def hyperjob(*jobs: dict[str, Any], **more: Any) -> HyperJob:
    return read_hyperjob(document(*jobs, **more))


def auto(*tasks: dict[str, Any], policy: dict | None = None, **more: Any) -> HyperJob:
    """Return a HyperJob of one job that is split automatically."""
    job = replicated("trainer", *tasks, splitPolicy={"mode": "auto", **(policy or {})}, **more.pop("job", {}))
    return hyperjob(job, **more)


def cluster(name: str, gpu: int = 0, *, used: int = 0, **more: Any) -> Cluster:
    amounts = {"cpu": 10**9, "memory": 10**15, "pods": 10**9, GPU: gpu * 1000}
    enabled = frozenset({ApiKind(VOLCANO_JOB.group_version, VOLCANO_JOB.kind)})
    taken = {GPU: used * 1000} if used else {}
    return Cluster(ClusterName(name), enablements=enabled, allocatable=amounts, used=taken, **more)


def capacity(*clusters: Cluster, **more: Any) -> CapacitySnapshot:
    ledger = ClusterUsage()
    for member in clusters:
        ledger.update(member, 0, 0)
    return CapacitySnapshot(free_capacities(ledger), capacities_when_empty(ledger), **more)


def gpus(**free: int) -> CapacitySnapshot:
    """Return clusters with the given number of free GPUs."""
    return capacity(*(cluster(name, count) for name, count in free.items()))
