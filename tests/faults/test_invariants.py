"""Each invariant check reports its violation in a short history; simulated hours show that correct ones have none."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.api.keys import DATA_EXCLUDED_ANNOTATION, DATA_PLACEMENT_ANNOTATION, PART_ANNOTATION
from tests.benchmarks import seed
from tests.clusters import with_models
from tests.rig import fake_karmada
from tests.rig.admission_order import find_admissions
from tests.rig.audit import Request
from tests.rig.binding_state import RECORD
from tests.rig.history import Change
from tests.rig.invariants import Evidence, InvariantChecker, violations
from tests.rig.observed_usage import ObservedUsage


@dataclass
class HistoryBuilder:
    """Builds a history of queue ``q`` and cluster ``m1``, with ten seconds between changes by default."""

    changes: list[Change] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    now: dict[tuple[str, str], Any] = field(default_factory=dict)
    at: float = 1000

    def __post_init__(self) -> None:
        self.cluster("m1", cpu="2")
        self.queue("q")

    def change(self, kind: str, name: str, after: dict[str, Any] | None, *, seconds: float = 10) -> None:
        self.at += seconds
        key = ("" if kind in {"queues", "clusters", "priorityclasses"} else "ns", name)
        self.changes.append(Change(len(self.changes) + 1, kind, key, self.now.get((kind, name)), after, self.at))
        self.now[kind, name] = after

    def cluster(self, name: str, *, cpu: str, used: str = "0") -> None:
        summary = {"allocatable": {"cpu": cpu, "memory": "1Ti", "pods": "100"}, "allocated": {"cpu": used}}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "resourceSummary": summary}
        self.change("clusters", name, with_models({"metadata": {"name": name}, "spec": {}, "status": status}))

    def queue(self, name: str, *, state: str = "Open", **spec: Any) -> None:
        self.change("queues", name, {"metadata": {"name": name}, "spec": spec, "status": {"state": state}})

    def job(self, name: str, queue: str = "q", *, born: int = 0, affinity: Any = None, **more: Any) -> None:
        made = fake_karmada.job(name, queue, **more)
        made["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{born:02}Z"}
        self.change("jobs", name, made)
        bound = seed.binding("ns", name, "t")
        bound["metadata"] |= {"uid": f"u-{name}", "namespace": "ns"}
        bound["spec"]["placement"] |= {"clusterAffinity": affinity or {}}
        self.change("resourcebindings", f"{name}-job", bound)

    def hyperjob(self, name: str, phase: str) -> None:
        self.change("hyperjobs", name, {"metadata": {"name": name, "uid": f"u-{name}"}, "status": {"phase": phase}})

    def part(self, name: str, of: str, *, index: int) -> None:
        owner = {"kind": "HyperJob", "uid": f"u-{of}", "controller": True}
        annotations = {PART_ANNOTATION: json.dumps({"index": index})}
        self.change("jobs", name, {"metadata": {"ownerReferences": [owner], "annotations": annotations}})

    def change_binding(self, name: str, *, of: str = "job", **spec: Any) -> None:
        binding = self.now["resourcebindings", f"{name}-{of}"]
        self.change("resourcebindings", f"{name}-{of}", {**binding, "spec": {**binding["spec"], **spec}})

    def change_status(self, kind: str, name: str, **status: Any) -> None:
        self.change(kind, name, {**self.now[kind, name], "status": status})

    def admit(self, name: str, *, on: str = "m1", seconds: float = 10, **record: Any) -> None:
        binding = json.loads(json.dumps(self.now["resourcebindings", f"{name}-job"]))
        record = {"uid": f"u-{name}", "charge": {"cpu": "1"}, **record}
        binding["metadata"]["annotations"][RECORD] = json.dumps(record)
        binding["spec"] |= {"suspension": {"scheduling": False}, "clusters": [{"name": on}]}
        self.change("resourcebindings", f"{name}-job", binding, seconds=seconds)

    def report(self, name: str, phase: str, *, seconds: float = 10) -> None:
        binding = self.now["resourcebindings", f"{name}-job"]
        reported = [{"clusterName": "m1", "status": {"state": {"phase": phase}}}]
        reporting = {**binding, "status": {"aggregatedStatus": reported}}
        self.change("resourcebindings", f"{name}-job", reporting, seconds=seconds)

    def fail_start(self, name: str, *on: str) -> None:
        """Evict a job that did not start in the last of the clusters *on*, and earlier not in the others."""
        record = {"uid": f"u-{name}", "excludedClusters": dict.fromkeys(on, "x")}
        binding = json.loads(json.dumps(self.now["resourcebindings", f"{name}-job"]))
        binding["metadata"]["annotations"][RECORD] = json.dumps(record)
        binding["spec"] |= {"suspension": {"scheduling": True}, "clusters": []}
        self.change("resourcebindings", f"{name}-job", binding)

    def mark_ours(self, *, status: int = 200, seconds: float = 10, body: Any = None) -> None:
        """Mark the last change as a write of the controller."""
        change = self.changes[-1]
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=change.at + seconds * len(self.requests))
        revision = change.revision if status == 200 else 0
        self.requests.append(Request(at, "c", "patch", change.kind, *change.key, status, revision, body or []))


def exceed_queue_limit(history: HistoryBuilder) -> None:
    history.queue("q", capability={"cpu": "1"})
    history.job("a", cpu=2)
    history.admit("a")


def exceed_cluster(history: HistoryBuilder) -> None:
    for name in ("a", "b"):
        history.job(name, cpu=2)
        history.admit(name)


def exceed_cluster_by_gangs_of_one_plan(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="9")
    for name in ("a", "b"):
        history.job(name, replicas=2, minimum=1)
        history.admit(name, admittedAt="2026-01-01T00:00:01.000Z")


def admit_to_closed_queue(history: HistoryBuilder) -> None:
    history.queue("q", state="Closed")
    history.job("a")
    history.admit("a")


def change_foreign_field(history: HistoryBuilder) -> None:
    history.job("a")
    history.change_binding("a", conflictResolution="Overwrite")
    history.mark_ours()


def remove_eviction_task_of_karmada(history: HistoryBuilder) -> None:
    history.job("a")
    history.change_binding("a", gracefulEvictionTasks=[{"fromCluster": "m1", "producer": "TaintManager"}])
    history.change_binding("a", gracefulEvictionTasks=[])
    history.mark_ours()


def change_condition_of_admitted_workload(history: HistoryBuilder) -> None:
    history.job("a")
    history.admit("a")
    history.change_status("resourcebindings", "a-job", conditions=[{"type": "Scheduled", "status": "False"}])
    history.mark_ours()


def exclude_cluster_without_annotation(history: HistoryBuilder) -> None:
    history.job("a", affinity={"exclude": ["m2"]})
    placement = history.now["resourcebindings", "a-job"]["spec"]["placement"]
    history.change_binding("a", placement={**placement, "clusterAffinity": {"exclude": ["m1", "m2"]}})
    history.mark_ours()


def change_pod_numbers_of_reporting_job(history: HistoryBuilder) -> None:
    history.job("a")
    history.admit("a")
    history.change_status("jobs", "a", state={"phase": "Pending"}, pending=4)
    history.change_status("jobs", "a", state={"phase": "Pending"}, pending=0)
    history.mark_ours()


def resume_without_record(history: HistoryBuilder) -> None:
    history.job("a")
    history.change_binding("a", suspension={"scheduling": False})


def resume_with_record_of_another(history: HistoryBuilder) -> None:
    history.job("a")
    history.admit("a", uid="u-b")


def create_work_before_admission(history: HistoryBuilder) -> None:
    history.job("a")
    names = {"resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "a-job"}
    history.change("works", "a-work", {"metadata": {"annotations": names}})


def create_part_twice(history: HistoryBuilder) -> None:
    history.hyperjob("h", "Pending")
    history.part("h-0", "h", index=0)
    history.part("h-1", "h", index=0)


def create_part_of_finished_hyperjob(history: HistoryBuilder) -> None:
    history.hyperjob("h", "Completed")
    history.part("h-0", "h", index=0)


def admit_younger_first(history: HistoryBuilder) -> None:
    history.job("old", cpu=2)
    history.job("young", cpu=2, born=9)
    history.admit("young")


def admit_lower_queue_first(history: HistoryBuilder) -> None:
    history.queue("important", priority=9)
    history.job("low", cpu=2)
    history.job("high", "important", cpu=2, born=9)
    history.admit("low")


def give_freed_capacity_to_younger(history: HistoryBuilder) -> None:
    history.job("runs", cpu=2)
    history.admit("runs")
    history.job("old", cpu=2)
    history.job("young", cpu=2, born=9)
    history.report("runs", "Completed")
    history.admit("young", seconds=0.1)


def pass_over_after_an_end(history: HistoryBuilder) -> None:
    """R1: equal jobs are tried again where a job has ended since, also if one does not start elsewhere then."""
    history.cluster("m1", cpu="3")
    history.cluster("m2", cpu="2")
    history.job("runs")
    history.admit("runs")
    history.report("runs", "Running")
    fail_start_of_an_equal_one(history)
    history.report("runs", "Completed")
    history.job("old", cpu=2)
    history.admit("failed", on="m2", excludedClusters={"m1": "x"})
    history.fail_start("failed", "m1", "m2")
    history.job("young", replicas=2, born=9)
    history.admit("young")


def fail_start_of_an_equal_one(history: HistoryBuilder) -> None:
    history.job("failed", cpu=2)
    history.admit("failed")
    history.fail_start("failed", "m1")


def write_without_change(history: HistoryBuilder) -> None:
    history.job("a")
    history.admit("a")
    history.mark_ours()
    history.mark_ours()


def retry_at_once(history: HistoryBuilder) -> None:
    history.job("a")
    history.mark_ours(status=403)
    history.mark_ours(status=403, seconds=0)


VIOLATIONS: dict[Callable[[HistoryBuilder], None], str] = {
    exceed_queue_limit: "I1",
    exceed_cluster: "I1",
    exceed_cluster_by_gangs_of_one_plan: "I1",
    admit_to_closed_queue: "I1",
    change_foreign_field: "I2",
    remove_eviction_task_of_karmada: "I2",
    change_condition_of_admitted_workload: "I2",
    exclude_cluster_without_annotation: "I2",
    change_pod_numbers_of_reporting_job: "I2",
    resume_without_record: "I3",
    resume_with_record_of_another: "I3",
    create_work_before_admission: "I3",
    create_part_twice: "I5",
    create_part_of_finished_hyperjob: "I5",
    admit_younger_first: "I6",
    admit_lower_queue_first: "I6",
    give_freed_capacity_to_younger: "I6",
    pass_over_after_an_end: "I6",
    write_without_change: "I7",
    retry_at_once: "I7",
}


@pytest.mark.parametrize(
    ("violate", "invariant"),
    [
        pytest.param(violate, invariant, id=f"{invariant}-{violate.__name__}")
        for violate, invariant in VIOLATIONS.items()
    ],
)
def test_violation_is_reported_by_its_invariant(violate, invariant):
    history = HistoryBuilder()
    violate(history)
    reported = violations(Evidence(history.changes, history.requests))
    assert {violation.split()[0] for violation in reported} == {invariant}


def admit_past_one_for_another_cluster(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="1")
    history.job("old", cpu=2, affinity={"exclude": ["m1"]})
    history.job("young", cpu=2, born=9)
    history.admit("young")


def admit_by_changed_class(history: HistoryBuilder) -> None:
    for name, value in (("low", 5), ("high", 9), ("low", 10)):
        history.change("priorityclasses", name, {"metadata": {"name": name}, "value": value})
    history.job("old", cpu=2, priority="high")
    history.job("young", cpu=2, born=9, priority="low")
    history.admit("young")


def edit_annotation_of_part(history: HistoryBuilder) -> None:
    owner = {"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "uid": "h", "controller": True}
    history.change("hyperjobs", "h", {"metadata": {"name": "h", "uid": "h"}})
    for number, mark in enumerate((None, "x", "[]", "{}")):
        annotations = {} if mark is None else {PART_ANNOTATION: mark}
        history.change("jobs", f"h-{number}", {"metadata": {"ownerReferences": [owner], "annotations": annotations}})


def admit_beside_cluster_where_finished_job_runs_again(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="2")
    history.job("again", cpu=2)
    history.admit("again")
    history.report("again", "Completed")
    history.job("next", cpu=2)
    history.admit("next")
    history.report("again", "Running")
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def admit_beside_job_that_ran_again_and_lost_its_cluster(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="2")
    history.job("again", cpu=2)
    history.admit("again", clusters=["m1"])
    history.report("again", "Completed")
    history.job("next", cpu=2)
    history.admit("next")
    history.report("again", "Running")
    history.change_binding("again", clusters=[])
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def admit_after_a_gang_that_was_decided_within_the_same_second(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="2")
    history.job("first")
    history.job("gang", replicas=2, minimum=1)
    history.admit("gang", on="m2", admittedAt="2026-01-01T00:00:01.005Z")
    history.admit("first", on="m2", admittedAt="2026-01-01T00:00:01Z", seconds=0.01)


def admit_with_gangs_that_request_no_cpu(history: HistoryBuilder) -> None:
    history.cluster("m2", cpu="3")
    history.job("idle", cpu=2)
    job = history.now["jobs", "idle"]
    coordinator = {"replicas": 1, "template": {"spec": {"containers": [{}]}}}
    spec = {**job["spec"], "tasks": [coordinator, *job["spec"]["tasks"]], "minAvailable": 1}
    history.change("jobs", "idle", {**job, "spec": spec})
    history.job("gang", replicas=2, minimum=1)
    history.job("all")
    for name in ("idle", "gang", "all"):
        history.admit(name, admittedAt="2026-01-01T00:00:01.005Z")


def admit_before_an_end_is_seen_beside_a_gang_of_the_plan(history: HistoryBuilder) -> None:
    history.cluster("m1", cpu="4")
    history.queue("important", priority=9, capability={"cpu": "2"})
    history.job("ends", "important")
    history.admit("ends")
    history.job("high", "important", cpu=2)
    history.job("low", cpu=2, born=9)
    history.job("gang", replicas=2, minimum=1, born=9)
    decided = history.at + 10 + time.time() - time.monotonic()
    plan = {"charge": {"cpu": "2"}, "admittedAt": datetime.fromtimestamp(decided, UTC).isoformat()}
    history.admit("gang", **plan)
    history.report("ends", "Completed", seconds=0.1)
    history.admit("low", seconds=0.1, **plan)


def pass_over_where_an_equal_one_did_not_start(history: HistoryBuilder) -> None:
    fail_start_of_an_equal_one(history)
    history.job("old", cpu=2)
    history.job("young", born=9)
    history.admit("young")


def exclude_clusters_without_data(history: HistoryBuilder) -> None:
    history.job("a", affinity={"exclude": ["m2"]})
    before = history.now["resourcebindings", "a-job"]
    annotations = {DATA_PLACEMENT_ANNOTATION: "true", DATA_EXCLUDED_ANNOTATION: "m1"}
    metadata = {**before["metadata"], "annotations": {**before["metadata"]["annotations"], **annotations}}
    placement = {**before["spec"]["placement"], "clusterAffinity": {"exclude": ["m2", "m1"]}}
    spec = {**before["spec"], "placement": placement}
    history.change("resourcebindings", "a-job", {**before, "metadata": metadata, "spec": spec})
    history.mark_ours()
    history.change("resourcebindings", "a-job", before)
    history.mark_ours()


def correct_status_after_eviction(history: HistoryBuilder) -> None:
    history.job("a")
    history.change_status("resourcebindings", "a-job", conditions=[{"type": "Scheduled", "status": "True"}])
    history.change_status("resourcebindings", "a-job", conditions=[{"type": "Scheduled", "status": "False"}])
    history.mark_ours()
    history.change_status("jobs", "a", state={"phase": "Running"}, running=4)
    history.change_status("jobs", "a", state={"phase": "Pending"}, running=0)
    history.mark_ours()


def admit_beside_resized_job_on_a_shrunken_cluster(history: HistoryBuilder) -> None:
    history.cluster("m1", cpu="4")
    history.cluster("m2", cpu="2")
    for name in ("grows", "stays"):
        history.job(name, cpu=2)
        history.admit(name, charge={"cpu": "2", "pods": "1"})
    history.change("jobs", "grows", fake_karmada.job("grows", "q", cpu=4))
    history.cluster("m1", cpu="2")
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def add_deployment(history: HistoryBuilder, *, replicas: int, cpu: str, **record: Any) -> None:
    """Add an admitted Deployment with all its replicas on the only cluster of its *record*, if it has one."""
    container = {"resources": {"requests": {"cpu": cpu}}}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    history.change("deployments", "web", {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})
    binding = seed.binding("ns", "web", "t")
    binding["metadata"] |= {"uid": "u-web", "namespace": "ns"}
    binding["metadata"]["annotations"][RECORD] = json.dumps({"uid": "u-web", "queue": "q", **record})
    clusters = [{"name": name, "replicas": replicas} for name in record["clusters"]]
    binding["spec"] |= {"replicas": replicas, "clusters": clusters, "suspension": {"scheduling": False}}
    binding["spec"]["resource"] |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    binding["metadata"]["labels"]["propagationpolicy.karmada.io/permanent-id"] = "p"
    history.change("resourcebindings", "web-deployment", binding)


def admit_beside_finished_job_that_a_taint_evicted(history: HistoryBuilder) -> None:
    history.job("ended", cpu=2)
    history.admit("ended", clusters=["m1"])
    history.report("ended", "Completed")
    history.change_binding("ended", clusters=[], gracefulEvictionTasks=[{"fromCluster": "m1"}])
    history.job("other", cpu=2)
    history.admit("other")


def admit_gang_that_was_smaller_before(history: HistoryBuilder) -> None:
    history.job("before", cpu=1)
    history.admit("before")
    history.job("grows", replicas=2, minimum=1)
    history.change("jobs", "grows", fake_karmada.job("grows", "q", replicas=2, minimum=2))
    history.admit("grows", seconds=1, charge={"cpu": "2", "memory": "2Gi", "pods": "2"})


def admit_beside_finished_job_whose_work_was_removed(history: HistoryBuilder) -> None:
    history.job("again", cpu=2)
    history.admit("again")
    history.report("again", "Completed")
    history.job("other", cpu=2)
    history.change("resourcebindings", "again-job", {**history.now["resourcebindings", "again-job"], "status": {}})
    history.admit("other", seconds=1)


def admit_deployment_without_replicas_above_the_limit(history: HistoryBuilder) -> None:
    history.job("before", cpu=2)
    history.admit("before")
    history.queue("q", capability={"cpu": "1"})
    add_deployment(history, replicas=0, cpu="1", charge={"pods": "0"}, clusters=["m1"])


def admit_beside_deployment_that_no_cluster_runs(history: HistoryBuilder) -> None:
    add_deployment(history, replicas=1, cpu="2", charge={"pods": "0"}, clusters=[])
    history.job("other", cpu=2)
    history.admit("other")


def admit_beside_scaled_up_deployment_that_lost_its_cluster(history: HistoryBuilder) -> None:
    for replicas in (2, 4):
        add_deployment(history, replicas=replicas, cpu="1", charge={"cpu": "2", "pods": "2"}, clusters=["m1"])
    history.change_binding("web", of="deployment", clusters=[])
    history.cluster("m2", cpu="2")
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def admit_beside_scaled_down_deployment_on_a_shrunken_cluster(history: HistoryBuilder) -> None:
    history.cluster("m1", cpu="4")
    for replicas in (4, 2):
        add_deployment(history, replicas=replicas, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.cluster("m1", cpu="1")
    history.cluster("m2", cpu="2")
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def admit_beside_replicas_without_clusters_on_a_silent_cluster(history: HistoryBuilder) -> None:
    add_deployment(history, replicas=2, cpu="1", charge={"cpu": "2", "pods": "2"}, clusters=["m1"])
    history.change_binding("web", of="deployment", clusters=[])
    history.change_status("clusters", "m1")
    history.cluster("m2", cpu="2")
    history.job("other", cpu=2)
    history.admit("other", on="m2")


def write_counts_state_and_annotation_of_a_queue_in_turn(history: HistoryBuilder) -> None:
    history.queue("q")
    for body in (
        {"status": {"running": 1}},
        {"status": {"state": "Closed"}},
        {"metadata": {"annotations": {"volcano.sh/closed-by-parent": "true"}}},
    ):
        history.mark_ours(status=409, seconds=0, body=body)


PERMITTED = [
    exclude_clusters_without_data,
    correct_status_after_eviction,
    admit_past_one_for_another_cluster,
    pass_over_where_an_equal_one_did_not_start,
    admit_by_changed_class,
    edit_annotation_of_part,
    admit_beside_cluster_where_finished_job_runs_again,
    admit_beside_job_that_ran_again_and_lost_its_cluster,
    admit_after_a_gang_that_was_decided_within_the_same_second,
    admit_with_gangs_that_request_no_cpu,
    admit_before_an_end_is_seen_beside_a_gang_of_the_plan,
    admit_beside_resized_job_on_a_shrunken_cluster,
    admit_beside_finished_job_that_a_taint_evicted,
    admit_gang_that_was_smaller_before,
    admit_beside_finished_job_whose_work_was_removed,
    admit_deployment_without_replicas_above_the_limit,
    admit_beside_deployment_that_no_cluster_runs,
    admit_beside_scaled_up_deployment_that_lost_its_cluster,
    admit_beside_scaled_down_deployment_on_a_shrunken_cluster,
    admit_beside_replicas_without_clusters_on_a_silent_cluster,
    write_counts_state_and_annotation_of_a_queue_in_turn,
]


@pytest.mark.parametrize("act", PERMITTED)
def test_permitted_history_has_no_violation(act):
    history = HistoryBuilder()
    act(history)
    evidence = Evidence(history.changes, history.requests, classes={"low": 5, "high": 9})
    assert violations(evidence) == []
    # That leaves out Deployments.
    checker = InvariantChecker(evidence, find_admissions(history.changes, 0))
    assert [violation for change in history.changes for violation in checker.apply(change)] == []


def usage_after(history: HistoryBuilder) -> ObservedUsage:
    """Return the usage after all changes."""
    usage = ObservedUsage()
    for change in history.changes:
        usage.apply(change)
    return usage


def test_replicas_without_clusters_explain_usage_until_they_end():
    history = HistoryBuilder()
    add_deployment(history, replicas=4, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.cluster("m1", cpu="6", used="4")
    history.change_binding("web", of="deployment", clusters=[])
    history.at += 60
    history.cluster("m1", cpu="6", used="5")
    assert usage_after(history).external.least("m1", "cpu", history.at + 4) == 1


def test_more_and_smaller_replicas_share_what_is_charged():
    history = HistoryBuilder()
    for cpu, replicas in (("500m", 2), ("250m", 2), ("250m", 4)):
        add_deployment(history, replicas=replicas, cpu=cpu, charge={"cpu": "1"}, clusters=["m1"])
    assert usage_after(history).held_on("m1")["cpu"] == 1


def test_scaled_down_replicas_explain_usage_while_charged():
    history = HistoryBuilder()
    for replicas in (4, 1):
        add_deployment(history, replicas=replicas, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.at += 60
    history.cluster("m1", cpu="6", used="4")
    history.change("resourcebindings", "web-deployment", None)
    history.at += 20
    history.cluster("m1", cpu="6", used="3")
    assert usage_after(history).external.least("m1", "cpu", history.at + 4) == 0


def test_replicas_in_a_refusing_cluster_explain_usage():
    history = HistoryBuilder()
    add_deployment(history, replicas=4, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.cluster("m1", cpu="6", used="4")
    history.change_status(
        "resourcebindings", "web-deployment", aggregatedStatus=[{"clusterName": "m1", "applied": False}]
    )
    clusters = [{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}]
    history.change_binding("web", of="deployment", clusters=clusters)
    history.at += 60
    history.cluster("m1", cpu="6", used="5")
    assert usage_after(history).external.least("m1", "cpu", history.at + 4) == 1


def test_external_usage_falls_while_replicas_are_scaled_down():
    history = HistoryBuilder()
    add_deployment(history, replicas=4, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.at += 60
    history.cluster("m1", cpu="9", used="6")
    add_deployment(history, replicas=1, cpu="1", charge={"cpu": "4", "pods": "4"}, clusters=["m1"])
    history.cluster("m1", cpu="9", used="4")
    assert usage_after(history).external.least("m1", "cpu", history.at + 4) == 0
