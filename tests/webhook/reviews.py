"""Builds reviews and objects, and applies patches like the API server."""

import base64
import json
from typing import Any

from tests.deterministic.json_patches import json_patch
from webhook.queue_cache import QueueCache, decode_cached
from webhook.review import AdmissionResponse, Request, read, review_response, write

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def job_binding(**spec: Any) -> dict[str, Any]:
    """Return a ResourceBinding of a Volcano Job, as Karmada's detector writes it."""
    return binding("batch.volcano.sh/v1alpha1", "Job", **spec)


def binding(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return a ResourceBinding of any kind."""
    resource = {"apiVersion": api_version, "kind": kind, "name": "train", "namespace": "ml", "uid": "u-1"}
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": f"train-{kind.lower()}", "namespace": "ml"},
        "spec": {"resource": resource, "schedulerName": "default-scheduler"} | spec,
    }


def review(new: Any, **request: Any) -> dict[str, Any]:
    """Return the AdmissionReview of creating *new*."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
            "resource": {"group": "work.karmada.io", "version": "v1alpha2", "resource": "resourcebindings"},
            "name": "train-job",
            "namespace": "ml",
            "operation": "CREATE",
            "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
            "object": new,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }
        | request,
    }


def wire(value: Any) -> bytes:
    """Return *value* encoded like the API server: without blanks, with a final line feed."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def stored_after(response: AdmissionResponse, new: dict[str, Any]) -> dict[str, Any]:
    """Return *new* as it is stored after *response*, which allows it."""
    answer = json.loads(write(review_response(response, UID)))["response"]
    assert (answer["uid"], answer["allowed"]) == (UID, True)
    return apply(answer, new)


GOOD = wire(review(job_binding()))
HEAD = b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def apply(answer: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the object that is stored after *answer*."""
    operations = []
    if "patch" in answer:
        assert answer["patchType"] == "JSONPatch"
        operations = json.loads(base64.b64decode(answer["patch"]))
    assert {operation["op"] for operation in operations} <= {"add", "remove"}
    return json_patch(before, operations)


def task(name: str = "worker", replicas: int = 1, *, cpu: str = "1", **members: Any) -> dict[str, Any]:
    """Return a task of a Volcano Job with one container."""
    pod = {"containers": [container(cpu=cpu)], "restartPolicy": "OnFailure"}
    return {"name": name, "replicas": replicas, "template": {"spec": pod}} | members


def container(name: str = "main", *, cpu: str = "1", **members: Any) -> dict[str, Any]:
    """Return a container that requests CPU."""
    return {"name": name, "image": "example.com/train:1", "resources": {"requests": {"cpu": cpu}}} | members


def volcano_job(*tasks: dict[str, Any], name: str = "train", **spec: Any) -> dict[str, Any]:
    """Return a Volcano Job, with one task unless others are given."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"queue": "a", "tasks": list(tasks) or [task()]} | spec,
    }


def volcano_queue(name: str = "q", *, annotations: dict[str, str] | None = None, state: str = "", **spec: Any):
    """Return a Volcano Queue."""
    metadata = {"name": name} | ({"annotations": annotations} if annotations else {})
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": metadata,
        "spec": {"weight": 1} | spec,
    } | ({"status": {"state": state}} if state else {})


def data_source_claim(**spec: Any) -> dict[str, Any]:
    """Return a DataSourceClaim of a Volcano Job."""
    workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train"}
    data = {"system": "amoro", "dataSourceType": "table", "dataSourceName": "a.b.c", "workload": workload}
    metadata = {"name": "c", "namespace": "ml"}
    kind = {"apiVersion": "datadependency.volcano.sh/v1alpha1", "kind": "DataSourceClaim"}
    return kind | {"metadata": metadata, "spec": data | spec}


def review_of(new: Any, *, old: Any = None, operation: str = "CREATE", **request: Any) -> dict[str, Any]:
    """Return the AdmissionReview of writing an object of any kind."""
    target = new or old
    group, _, version = target["apiVersion"].partition("/")
    group_version = {"group": group, "version": version}
    fields = {
        "kind": group_version | {"kind": target["kind"]},
        "resource": group_version | {"resource": f"{target['kind'].lower()}s"},
        "name": target["metadata"].get("name", ""),
        "namespace": target["metadata"].get("namespace", ""),
        "operation": operation,
        "oldObject": old,
    }
    return review(new, **(fields | request))


def decoded(new: Any, *, old: Any = None, operation: str = "", **request: Any) -> Request:
    """Return the decoded review of creating *new*, or of replacing *old*."""
    operation = operation or ("UPDATE" if old else "CREATE")
    return read(wire(review_of(new, old=old, operation=operation, **request)))


def cached_queues(*queues: str | dict[str, Any]) -> QueueCache:
    """Return the cache of *queues*; a name stands for an open queue without a parent."""
    cache = QueueCache()
    objects = [
        volcano_queue(name_or_queue) if isinstance(name_or_queue, str) else name_or_queue for name_or_queue in queues
    ]
    cache.replace([decode_cached(wire(queue_object)) for queue_object in objects])
    return cache
