"""Helpers for tests of the stand-in."""

import json

from localup.api import ApiError
from localup.apply import wait_until

CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
JOBS = "/apis/batch.volcano.sh/v1alpha1"
WORKS = "/apis/work.karmada.io"
POLICIES = "/apis/policy.karmada.io/v1alpha1"


def create_cluster(api, name, allocatable, **annotations):
    told = {"standin.volcano-global.io/allocatable": json.dumps(allocatable)}
    told |= {f"standin.volcano-global.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name, "annotations": told},
        "spec": {"syncMode": "Push"},
    }
    return api.create(CLUSTERS, manifest)


def is_ready(cluster):
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def job(name, *, replicas=2, cpu="1", annotations=None, **spec):
    pods = {"spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}]}}
    tasks = [{"name": "worker", "replicas": replicas, "template": pods}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"minAvailable": replicas, "tasks": tasks, **spec},
    }


def policy(name="jobs", *, clusters=("member1", "member2"), spread=True, kind="Job", **spec):
    placement = {"clusterAffinity": {"clusterNames": list(clusters)}}
    placement |= {"spreadConstraints": [{"maxGroups": 1, "minGroups": 1}]} if spread else {}
    version = "batch.volcano.sh/v1alpha1" if kind == "Job" else "apps/v1"
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name},
        "spec": {"placement": placement, "resourceSelectors": [{"apiVersion": version, "kind": kind}], **spec},
    }


class Harness:
    """Creates and reads objects in one namespace."""

    def __init__(self, api, namespace):
        self.api = api
        self.namespace = namespace
        self.bindings = f"{WORKS}/v1alpha2/namespaces/{namespace}/resourcebindings"
        self.jobs = f"{JOBS}/namespaces/{namespace}/jobs"
        self.policies = f"{POLICIES}/namespaces/{namespace}/propagationpolicies"

    def propagate(self, *args, **options):
        self.api.create(self.policies, policy(*args, **options))

    def submit(self, *args, **options):
        self.api.create(self.jobs, job(*args, **options))

    def look(self, path):
        try:
            return self.api.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def job(self, name="train"):
        return self.api.get(f"{self.jobs}/{name}")

    def phase(self, name="train"):
        return self.job(name).get("status", {}).get("state", {}).get("phase")

    def binding(self, name="train"):
        return self.look(f"{self.bindings}/{name}-job")

    def change_binding(self, name="train", **spec):
        self.api.merge(f"{self.bindings}/{name}-job", {"spec": spec})

    def targets(self, name="train"):
        return [cluster["name"] for cluster in self.binding(name)["spec"].get("clusters", ())]

    def conditions(self, name="train"):
        status = (self.binding(name) or {}).get("status", {})
        return {condition["type"]: condition["reason"] for condition in status.get("conditions", ())}

    def works(self, cluster):
        found = self.api.get(f"{WORKS}/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        note = "resourcebinding.karmada.io/namespace"
        return [item for item in found if item["metadata"].get("annotations", {}).get(note) == self.namespace]

    def wait_for_phase(self, phase, name="train"):
        wait_until(lambda: self.phase(name) == phase, f"job {name} {phase}")

    def wait_for_binding(self, name="train"):
        return wait_until(lambda: self.binding(name), f"binding of {name}")

    def wait_for_conditions(self, name="train", **reasons):
        wait_until(lambda: self.conditions(name) == reasons, f"conditions of {name}: {reasons}")
