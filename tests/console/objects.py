"""Manifests for consoles."""

from typing import Any


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def cluster(name: str, cpu: int = 4) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Push"},
        "status": {
            "apiEnablements": [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job"}]}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceSummary": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}},
        },
    }


def pending_job(namespace: str, name: str, queue: str, *, cpu: int = 8) -> list[dict[str, Any]]:
    """Return a job that fits nowhere by default, so that it stays pending."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}
    task = {"name": "main", "replicas": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": "2026-09-01T00:00:00Z"}
    return [
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"queue": queue, "minAvailable": 1, "tasks": [task]},
        }
    ]
