"""Helpers for tests against a control plane with Karmada."""

from contextlib import suppress

from localup.api import ApiError
from localup.apply import wait_until
from tests.localup.karmada import harness as plain
from tests.localup.karmada.harness import CLUSTERS, WORKS, create_cluster, policy

SECONDS = 40
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
LONG = {"volcano-global.io/runtime": "1h"}


class Harness(plain.Harness):
    """A namespace in which every binding of a Volcano Job is created suspended."""

    def __init__(self, api, namespace):
        super().__init__(api, namespace)
        self._labelled = set()
        self._made = []

    def run(self, name="train", cluster="member1", **options):
        """Submit a job, admit it to a cluster as the controller does, and wait until it runs."""
        self.submit(name, annotations=options.pop("annotations", LONG), **options)
        self.wait_for_binding(name)
        self.resume(name, cluster)
        self.wait_for_phase("Running", name)
        self.wait_for_conditions(name, Scheduled="Success", FullyApplied="FullyAppliedSuccess")

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
            found = self.binding(name)
            return found and int(found["spec"]["resource"]["resourceVersion"]) >= int(version)

        self.wait(has_seen, f"{name} seen by the detector")

    def label(self, cluster, **labels):
        self._labelled.add((cluster, *labels))
        self.api.merge(f"{CLUSTERS}/{cluster}", {"metadata": {"labels": labels}})

    def taint(self, cluster, *taints):
        """Set the taints of a cluster except those that Karmada sets."""
        found = self.cluster(cluster)["spec"].get("taints", [])
        kept = [item for item in found if item["key"].startswith("cluster.karmada.io/")]
        self._labelled.add((cluster,))
        self.api.merge(f"{CLUSTERS}/{cluster}", {"spec": {"taints": [*kept, *taints]}})

    def describe(self, cluster, **annotations):
        told = {f"standin.volcano-global.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.merge(f"{CLUSTERS}/{cluster}", {"metadata": {"annotations": told}})

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

    def make(self, path, manifest):
        """Create a cluster-scoped object for this test only."""
        made = self.api.create(path, manifest)
        self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def condition(self, type_, name="train"):
        found = (self.binding(name) or {}).get("status", {}).get("conditions", ())
        return next((item for item in found if item["type"] == type_), None)

    def allocated(self, cluster):
        summary = self.cluster(cluster).get("status", {}).get("resourceSummary", {})
        return summary.get("allocated", {}).get("cpu", "0")

    def wait(self, question, what, seconds=SECONDS):
        return wait_until(question, what, seconds=seconds)

    def wait_for_phase(self, phase, name="train"):
        self.wait(lambda: self.phase(name) == phase, f"job {name} {phase}")

    def wait_for_binding(self, name="train"):
        return self.wait(lambda: self.binding(name), f"binding of {name}")

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
        found = self.api.get(f"{WORKS}/v1alpha1/namespaces/karmada-es-{cluster}/works")["items"]
        note = "resourcebinding.karmada.io/namespace"
        ours = [item for item in found if item["metadata"].get("annotations", {}).get(note) == self.namespace]
        return [our for our in ours if "deletionTimestamp" not in our["metadata"]]

    def clear(self):
        """Revert changes outside of the namespace and delete what remains in the members."""
        for cluster, *labels in tuple(self._labelled):
            self.api.merge(f"{CLUSTERS}/{cluster}", {"metadata": {"labels": dict.fromkeys(labels)}})
            self.taint(cluster)
        for path in reversed(self._made):
            with suppress(ApiError):
                self.api.delete(path)
        for collection in (self.policies, self.jobs, DEPLOYMENTS.format(self.namespace)):
            self.api.delete(collection)
        wait_until(lambda: not self.api.get(self.bindings)["items"], "bindings gone", seconds=SECONDS)


def cluster_policy(name, *resources, clusters=("member1", "member2")):
    """Return a ClusterPropagationPolicy."""
    made = policy(name, clusters=clusters, spread=False)
    made["kind"] = "ClusterPropagationPolicy"
    made["spec"]["resourceSelectors"] = list(resources)
    return made
