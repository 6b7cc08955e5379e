"""Exercises everything that the processes do in a control plane, so that one run uses every permission."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localup.api import Api, ApiError
from localup.apply import apply_files, create_namespace
from localup.controlplane import ControlPlane
from localup.demo.scenario import volcano_job
from localup.stack import Stack

WORLD = Path(__file__).parent / "smoke.yaml"
GROUPS = {
    "jobs": "/apis/batch.volcano.sh/v1alpha1",
    "hyperjobs": "/apis/training.volcano.sh/v1alpha1",
    "queues": "/apis/scheduling.volcano.sh/v1beta1",
    "clusters": "/apis/cluster.karmada.io/v1alpha1",
    "resourcebindings": "/apis/work.karmada.io/v1alpha2",
    "propagationpolicies": "/apis/policy.karmada.io/v1alpha1",
    "commands": "/apis/bus.volcano.sh/v1alpha1",
    "datasources": "/apis/datadependency.volcano.sh/v1alpha1",
    "datasourceclaims": "/apis/datadependency.volcano.sh/v1alpha1",
}
NAMESPACE = "smoke"


class Smoke:
    """One smoke run; `check` is called repeatedly and raises to end the run early."""

    def __init__(self, plane: ControlPlane, stack: Stack, check: Callable[[], None]) -> None:
        self.plane, self.stack, self._check = plane, stack, check
        self.api: Api = plane.admin

    def run(self) -> None:
        create_namespace(self.api, NAMESPACE)
        apply_files(self.api, WORLD)
        evicted = self._evicted_cluster_binding()
        self.stack.start()
        self.until(lambda: _scheduled(self.api.get(evicted)) == "False", "its stale status put right")
        self._admit()
        self._repeat_an_event()
        self._deny_a_patch()
        self._evict()
        self._split_a_hyperjob()
        self._close_a_queue()
        self._locate_data()
        self._change_webhook_configurations()

    def path(self, kind: str, name: str = "") -> str:
        namespaced = kind not in {"queues", "clusters", "datasources"}
        folder = f"{GROUPS[kind]}/namespaces/{NAMESPACE}" if namespaced else GROUPS[kind]
        return f"{folder}/{kind}/{name}".rstrip("/")

    def until(self, question: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
        ends = time.monotonic() + seconds
        while True:
            self._check()
            try:
                if answer := question():
                    return answer
            except (ApiError, KeyError):
                pass
            assert time.monotonic() < ends, f"{what}: not within {seconds:g} s"
            time.sleep(0.1)

    def _job(self, name: str, queue: str = "q", *, runtime: str = "1s", **more: Any) -> dict[str, Any]:
        return volcano_job(f"{NAMESPACE}/{name}", queue, pods=1, cpu=1, memory="1Gi", runtime=runtime, **more)

    def _record(self, name: str) -> dict[str, Any]:
        binding = self.api.get(self.path("resourcebindings", f"{name}-job"))
        return json.loads(binding["metadata"]["annotations"]["volcano-global.io/admission"])

    def _events(self, name: str) -> list[dict[str, Any]]:
        events = self.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        return [event for event in events if event.get("regarding", {}).get("name") == name]

    def _admit(self) -> None:
        self.api.create(self.path("jobs"), self._job("first"))
        self.until(lambda: self._record("first")["queue"] == "q", "a job admitted")

    def _repeat_an_event(self) -> None:
        """Let a job wait and restart the controller, which finds and repeats its earlier event."""
        self.api.create(self.path("jobs"), self._job("waits", queue="missing"))
        self.until(lambda: self._events("waits"), "an event")
        self.stack.controller.start()
        self.until(lambda: any(event.get("series") for event in self._events("waits")), "the repeated event")

    def _deny_a_patch(self) -> None:
        """Deny an admission by a policy: the error does not say why, so the controller reads the binding."""
        policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "smoke-denies"}}
        rule = {
            "apiGroups": ["work.karmada.io"],
            "apiVersions": ["*"],
            "operations": ["UPDATE"],
            "resources": ["resourcebindings", "clusterresourcebindings"],
        }
        names = "['denied-job', 'all-job']"
        expression = f"!(object.metadata.name in {names}) || request.userInfo.username != 'volcano-global-controller'"
        root = "/apis/admissionregistration.k8s.io/v1"
        spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}
        bound = {"policyName": "smoke-denies", "validationActions": ["Deny"]}
        kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        self.api.create(f"{root}/{kinds[0]}", {**policy, "kind": "ValidatingAdmissionPolicy", "spec": spec})
        self.api.create(f"{root}/{kinds[1]}", {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
        time.sleep(2)  # a policy takes about a second to become active
        self.api.create(self.path("jobs"), self._job("denied"))
        path = self._cluster_binding(clusters=[{"name": "member1"}])
        for name in ("denied-job", "all-job"):
            self.until(lambda name=name: name in self.stack.log("controller").read_text(), "the denial in the log")
        for kind in kinds:
            self.api.delete(f"{root}/{kind}/smoke-denies")
        self.until(lambda: self._record("denied")["queue"] == "q", "the denied job admitted")
        self.until(lambda: not self.api.get(path)["spec"].get("clusters"), "its clusters taken away")

    def _cluster_binding(self, name: str = "all", **spec: Any) -> str:
        """Create a suspended cluster-scoped binding and return its path."""
        path = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
        # Not a Volcano Job: the status of a binding whose job does not exist is left alone.
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": "u"}
        head = {"name": f"{name}-job", "labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "p"}}
        manifest = {"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding", "metadata": head}
        self.api.create(path, {**manifest, "spec": {"resource": target, "suspension": {"scheduling": True}}})
        if spec:  # after the webhook has removed preset clusters
            self.api.merge(f"{path}/{name}-job", {"spec": spec})
        return f"{path}/{name}-job"

    def _evicted_cluster_binding(self) -> str:
        """Create a cluster-scoped binding that another leader evicted, with the status of a scheduled one."""
        path = self._cluster_binding("evicted")
        record = {"uid": self.api.get(path)["metadata"]["uid"], "queue": "q", "evictions": 1}
        self.api.merge(path, {"metadata": {"annotations": {"volcano-global.io/admission": json.dumps(record)}}})
        conditions = {"type": "Scheduled", "status": "True", "reason": "Success", "message": ""}
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.api.merge(f"{path}/status", {"status": {"conditions": [{**conditions, **since}]}})
        return path

    def _evict(self) -> None:
        """Let a job of higher priority evict another, whose status is corrected."""
        self.api.create(self.path("jobs"), self._job("low", "small", runtime="10m"))
        low = self.path("jobs", "low")
        self.until(lambda: self.api.get(low)["status"]["state"]["phase"] == "Running", "a job to evict")
        # The preemptor stays, since the evicted job might be admitted again before its status is cleaned up.
        high = self._job("high", "small", runtime="10m", priority="smoke-high")
        self.api.create(self.path("jobs"), high)
        self.until(lambda: self.api.get(low)["status"]["state"].get("reason") == "Evicted", "its status cleaned up")
        bound = self.path("resourcebindings", "low-job")
        self.until(lambda: _scheduled(self.api.get(bound)) == "False", "the status of its binding cleaned up")
        self.until(lambda: self._record("high")["clusters"], "the other one admitted")

    def _split_a_hyperjob(self) -> None:
        path = self.path("hyperjobs", "hyper")
        self.until(lambda: self.api.get(path)["status"]["phase"], "a status")
        self.until(lambda: self._record("hyper-part-1"), "both parts admitted")
        # With one part less, its Job and policy are deleted.
        self.api.merge(path, {"spec": {"replicatedJobs": [self._part(1)]}})
        self.until(lambda: len(self._children()) == 1, "one part less")
        for spelling, name in (("training", "brief"), ("batch", "short")):
            finished = f"/apis/{spelling}.volcano.sh/v1alpha1/namespaces/{NAMESPACE}/hyperjobs/{name}"
            self.until(lambda finished=finished: _is_gone(self.api, finished), f"{spelling}: gone after its time")

    def _part(self, replicas: int) -> dict[str, Any]:
        replicated_job = self.api.get(self.path("hyperjobs", "hyper"))["spec"]["replicatedJobs"][0]
        return {**replicated_job, "replicas": replicas}

    def _children(self) -> list[Any]:
        jobs = self.api.get(self.path("jobs"))["items"]
        return [job for job in jobs if job["metadata"]["labels"].get("volcano.sh/hyperjob-name") == "hyper"]

    def _close_a_queue(self) -> None:
        """Close a queue with a child by Volcano's Command."""
        queue = self.api.get(self.path("queues", "parent"))
        identity = {"name": "parent", "uid": queue["metadata"]["uid"]}
        owner = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **identity}
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": "close", "ownerReferences": [owner]},
            "action": "CloseQueue",
            "target": owner,
        }
        self.api.create("/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", command)
        self.until(
            lambda: self.api.get(self.path("queues", "child"))["status"]["state"] == "Closed", "the child closed"
        )

    def _locate_data(self) -> None:
        """Claim data before and after their location became wrong, then delete the claims; the source is reclaimed."""
        first = self._claim("first")
        self.until(lambda: self.api.get(first)["status"]["phase"] == "Bound", "a claim bound")
        (created,) = self.api.get(self.path("datasources"))["items"]
        source = self.path("datasources", created["metadata"]["name"])
        self.until(lambda: self.api.get(source)["status"]["boundClaims"], "the claim in the status of its source")
        self.api.merge(source, {"spec": {"locality": {"clusterNames": ["elsewhere"]}}})
        second = self._claim("second")
        self.until(lambda: self.api.get(source)["spec"] == created["spec"], "the location put right")
        self.until(lambda: self.api.get(source)["status"]["boundClaims"] == 2, "both claims bound")
        for claim in (first, second):
            self.api.delete(claim)
            self.until(lambda claim=claim: _is_gone(self.api, claim), "the finalizer removed")
        self.until(lambda: _is_gone(self.api, source), "an unused source deleted")

    def _claim(self, name: str) -> str:
        """Create a claim with a finalizer of upstream's controller, and return its path."""
        workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "namespace": NAMESPACE}
        claim = {
            "apiVersion": "datadependency.volcano.sh/v1alpha1",
            "kind": "DataSourceClaim",
            "metadata": {"name": name, "finalizers": ["datadependency.volcano.sh/finalizer"]},
            "spec": {"system": "lake", "dataSourceType": "table", "dataSourceName": "text", "workload": workload},
        }
        self.api.create(self.path("datasourceclaims"), claim)
        return self.path("datasourceclaims", name)

    def _change_webhook_configurations(self) -> None:
        """Delete and change the webhook configurations, which the controller repairs."""
        root = "/apis/admissionregistration.k8s.io/v1"
        for kind in ("mutating", "validating"):
            path = f"{root}/{kind}webhookconfigurations/volcano-global"
            wanted = self.api.get(path)
            self.api.delete(path)
            self.until(lambda path=path: self.api.get(path), f"the {kind} configuration made again")
            self.api.merge(path, {"webhooks": [{**webhook, "timeoutSeconds": 29} for webhook in wanted["webhooks"]]})
            self.until(
                lambda path=path, desired=wanted["webhooks"]: self.api.get(path)["webhooks"] == desired,
                f"the {kind} configuration put right",
            )


def _scheduled(binding: dict[str, Any]) -> str:
    return next(
        condition["status"] for condition in binding["status"]["conditions"] if condition["type"] == "Scheduled"
    )


def _is_gone(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        return error.status == 404
    return False
