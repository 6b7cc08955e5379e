"""Helpers for tests against a control plane with Karmada."""

import json
from contextlib import contextmanager, suppress

from localup.api import ApiError
from localup.apply import wait_until
from tests.rig.objects import cluster, volcano_job
from tests.rig.stacks import new_namespace

SIZES = {
    "member1": {"cpu": "8", "memory": "32Gi", "pods": "110"},
    "member2": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"},
}
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
LONG = {"volcano-global.io/runtime": "1h"}
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
JOBS = "/apis/batch.volcano.sh/v1alpha1"
WORKS = "/apis/work.karmada.io"
POLICIES = "/apis/policy.karmada.io/v1alpha1"


def create_cluster(api, name, allocatable, **annotations):
    described = description(allocatable=json.dumps(allocatable), **annotations)
    return api.create(CLUSTERS, cluster(name, annotations=described))


def description(**annotations):
    """Return the annotations that describe a simulated cluster."""
    return {f"standin.volcano-global.io/{key.replace('_', '-')}": value for key, value in annotations.items()}


def is_ready(cluster):
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def create_members(api):
    """Create the members and wait until they are ready."""
    for name, allocatable in SIZES.items():
        create_cluster(api, name, allocatable)
    wait_until(lambda: all(is_ready(item) for item in api.get(CLUSTERS)["items"]), "members")


def pods(cpu="1", **spec):
    """Return a pod template."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], **spec}}


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
    """A namespace in which every binding of a Volcano Job is created suspended."""

    def __init__(self, api, namespace):
        self.api = api
        self.namespace = namespace
        self.bindings = f"{WORKS}/v1alpha2/namespaces/{namespace}/resourcebindings"
        self.jobs = f"{JOBS}/namespaces/{namespace}/jobs"
        self.policies = f"{POLICIES}/namespaces/{namespace}/propagationpolicies"
        self._labelled = set()
        self._made = []

    def propagate(self, *args, **options):
        self.api.create(self.policies, policy(*args, **options))

    def submit(self, name="train", **options):
        """Create a job of two pods that run long, and return its binding."""
        usual = {"replicas": 2, "memory": "", "annotations": LONG}
        self.api.create(self.jobs, volcano_job(name, **usual | options))
        return self.wait(lambda: self.binding(name), f"binding of {name}")

    def admit(self, name="train", *clusters, **options):
        """Submit a job and resume its binding as the controller does."""
        self.submit(name, **options)
        self.resume(name, *clusters)

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
        """Return the phase that a cluster reports; Karmada 1.15 and older do not copy it to the job."""
        return next((item["status"].get("state", {}).get("phase") for item in self.reported(name)), None)

    def reported(self, name="train"):
        """Return what clusters report, without those that report no status."""
        status = (self.binding(name) or {}).get("status", {})
        return [item for item in status.get("aggregatedStatus", ()) if item.get("status")]

    def shown_phase(self, name="train"):
        """Return the phase in the job's own status."""
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

    def run(self, name="train", cluster="member1", **options):
        """Admit a job to a cluster and wait until it runs."""
        self.admit(name, cluster, **options)
        self.wait_for_phase("Running", name)
        # Not FullyApplied: Karmada's scheduler patches all conditions without a version, and may undo another write.
        self.wait_for_conditions(name, Scheduled="Success")

    def resume(self, name="train", *clusters):
        """Resume a binding, with preset clusters if given."""
        picked = {"clusters": [{"name": cluster} for cluster in clusters]} if clusters else {}
        self.change_binding(name, suspension={"scheduling": False}, **picked)

    def pause(self, name="train"):
        self.change_binding(name, suspension={"scheduling": True})

    def evict(self, name="train", **more):
        """Suspend a binding and clear its clusters in one patch."""
        self.change_binding(name, suspension={"scheduling": True}, clusters=None, **more)

    def change_policy(self, name="jobs", **spec):
        self.api.merge(f"{self.policies}/{name}", {"spec": spec})

    def touch(self, name="train", value="1"):
        """Change a template without effect on the running job."""
        self.api.merge(f"{self.jobs}/{name}", {"metadata": {"labels": {"touched": value}}})

    def wait_for_detector(self, name="train"):
        """Wait until the detector has processed the current template."""
        version = self.job(name)["metadata"]["resourceVersion"]

        def has_seen():
            binding = self.binding(name)
            return binding and int(binding["spec"]["resource"]["resourceVersion"]) >= int(version)

        self.wait(has_seen, f"{name} seen by the detector")

    def label(self, cluster, **labels):
        self._labelled.add((cluster, *labels))
        self.api.merge(f"{CLUSTERS}/{cluster}", {"metadata": {"labels": labels}})

    def taint(self, cluster, *taints):
        """Set the taints of a cluster except those that Karmada sets."""
        present = self.cluster(cluster)["spec"].get("taints", [])
        kept = [item for item in present if item["key"].startswith("cluster.karmada.io/")]
        self._labelled.add((cluster,))
        self.api.merge(f"{CLUSTERS}/{cluster}", {"spec": {"taints": [*kept, *taints]}})

    def describe(self, cluster, **annotations):
        self.api.merge(f"{CLUSTERS}/{cluster}", {"metadata": {"annotations": description(**annotations)}})

    def targets_of(self, binding):
        return (self.look(f"{self.bindings}/{binding}") or {}).get("spec", {}).get("clusters")

    def cluster(self, name):
        return self.api.get(f"{CLUSTERS}/{name}")

    def join(self, name, *, ready="True", **capacity):
        """Add a member for this test only."""
        create_cluster(self.api, name, {"memory": "64Gi", "pods": "110", **capacity}, ready=ready)
        self._made.append(f"{CLUSTERS}/{name}")

    def leave(self, name):
        """Delete a member."""
        self.api.delete(f"{CLUSTERS}/{name}")

    def taints_of(self, cluster):
        return [taint["key"] for taint in self.cluster(cluster)["spec"].get("taints", ())]

    def tasks(self, name="train"):
        return self.binding(name)["spec"].get("gracefulEvictionTasks", [])

    def observed(self, name="train"):
        status = (self.binding(name) or {}).get("status", {})
        return status.get("schedulerObservingAffinityName")

    def allocated(self, cluster):
        summary = self.cluster(cluster).get("status", {}).get("resourceSummary", {})
        return summary.get("allocated", {}).get("cpu", "0")

    def wait(self, question, what):
        return wait_until(question, what)

    def wait_for_phase(self, phase, name="train"):
        self.wait(lambda: self.phase(name) == phase, f"job {name} {phase}")

    def wait_for_conditions(self, name="train", **reasons):
        wanted = reasons.items()
        self.wait(lambda: wanted <= self.conditions(name).items(), f"conditions of {name}: {reasons}")

    def wait_for_targets(self, *clusters, name="train"):
        self.wait(lambda: self.targets(name) == list(clusters), f"targets of {name}: {clusters}")

    def works_of(self, name, cluster="member1"):
        note = "resourcebinding.karmada.io/name"
        return [work for work in self.works(cluster) if work["metadata"]["annotations"].get(note) == f"{name}-job"]

    def works(self, cluster):
        """Return the works of the namespace that are not terminating."""
        items = self.api.get(f"{WORKS}/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        note = "resourcebinding.karmada.io/namespace"
        ours = [item for item in items if item["metadata"].get("annotations", {}).get(note) == self.namespace]
        return [our for our in ours if "deletionTimestamp" not in our["metadata"]]

    def clear(self):
        """Revert changes outside of the namespace and delete what remains in the members."""
        for name, *labels in tuple(self._labelled):
            self.api.merge(f"{CLUSTERS}/{name}", {"metadata": {"labels": dict.fromkeys(labels)}})
            self.taint(name)
        for path in reversed(self._made):
            with suppress(ApiError):
                self.api.delete(path)
        dependencies = (f"/api/v1/namespaces/{self.namespace}/{plural}" for plural in ("configmaps", "secrets"))
        for collection in (self.policies, self.jobs, DEPLOYMENTS.format(self.namespace), *dependencies):
            self.api.delete(collection)
        wait_until(lambda: not self.api.get(self.bindings)["items"], "bindings gone")


@contextmanager
def opened(stack):
    """Yield a harness in a new namespace, and clear it."""
    with new_namespace(stack) as name:
        harness = Harness(stack.plane.admin, name)
        yield harness
        harness.clear()
