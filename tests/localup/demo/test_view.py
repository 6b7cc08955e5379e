import itertools

import pytest

from controller.api.keys import CLUSTERS, JOBS, QUEUES, RESOURCE_BINDINGS
from localup.demo.scenario import DemoJob, Limits, volcano_job
from localup.demo.view import WORKS, View
from localup.watch import ObservedChange
from tests.clusters import with_models

_versions = itertools.count(1)


def event(path, found, change="ADDED"):
    version = next(_versions)
    metadata = {"uid": f"u-{version}", "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return ObservedChange(path, change, {**found, "metadata": metadata | found["metadata"]})


def queue(name, weight):
    return event(QUEUES.path, {"metadata": {"name": name}, "spec": {"weight": weight}})


def cluster(name, cpus):
    enabled = [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}]
    summary = {"allocatable": {"cpu": str(cpus), "pods": "100"}, "allocated": {"cpu": "3"}}
    status = {
        "apiEnablements": enabled,
        "conditions": [{"type": "Ready", "status": "True"}],
        "resourceSummary": summary,
    }
    cluster = {"metadata": {"name": name}, "spec": {"syncMode": "Push"}, "status": status}
    return event(CLUSTERS.path, with_models(cluster))


def job(name, team):
    demo_job = DemoJob(volcano_job(f"{team}/{name}", team, pods=10, cpu=1, runtime="1s"))
    return demo_job, event(JOBS.path, demo_job.manifest)


def suspended_binding(found):
    metadata = found.object["metadata"]
    resource = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    labels = {"propagationpolicy.karmada.io/permanent-id": "p"}
    binding = {
        "metadata": {"name": f"{metadata['name']}-job", "namespace": metadata["namespace"], "labels": labels},
        "spec": {"resource": resource, "suspension": {"scheduling": True}, "placement": {}},
    }
    return event(RESOURCE_BINDINGS.path, binding)


@pytest.fixture
def view():
    """Return a view of one cluster with 10 CPUs and of two jobs that each request all of them."""
    (first, first_job), (second, second_job) = job("x", "team-a"), job("y", "team-b")
    view = View(({first.name: first, second.name: second}, {}), Limits({}, {}), ["team-a", "team-b"])
    view.timeline.on_submitted(first, 0.0)
    view.timeline.on_submitted(second, 0.0)
    for item in (cluster("member1", 10), queue("team-a", 1), queue("team-b", 3), first_job, second_job):
        assert view.on_event(item, 0.1) == []
    view.bindings = [suspended_binding(first_job), suspended_binding(second_job)]
    return view


def test_fair_shares_are_computed_from_watched_objects(view):
    for binding in view.bindings:
        view.on_event(binding, 0.2)
    usages = view.update_usage(0.3)
    assert [(usage.queue, float(usage.fair_share["cpu"]), usage.pending) for usage in usages] == [
        ("team-a", 2500.0, 1),
        ("team-b", 7500.0, 1),
    ]
    assert view.usage.moments == [(0.3, usages)]


def test_fair_share_is_empty_without_objects():
    assert [item.fair_share for item in View(({}, {}), Limits({}, {}), ["team-a"]).update_usage(0.0)] == [{}]


def test_observed_binding_gets_an_entry_and_is_checked(view):
    assert [line.job for line in view.on_event(view.bindings[0], 0.2)] == ["team-a/x"]
    assert view.invariants.versions_observed == 1


def test_deleted_binding_is_removed(view):
    view.on_event(view.bindings[0], 0.2)
    view.on_event(ObservedChange(RESOURCE_BINDINGS.path, "DELETED", view.bindings[0].object), 0.3)
    assert view.invariants.last == {}
    assert float(view.update_usage(0.4)[0].fair_share.get("cpu", 0)) == 0


def test_created_work_is_recorded(view):
    view.on_event(view.bindings[0], 0.2)
    annotations = {
        "resourcebinding.karmada.io/namespace": "team-a",
        "resourcebinding.karmada.io/name": "x-job",
    }
    view.on_event(event(WORKS, {"metadata": {"name": "x-1", "namespace": "es", "annotations": annotations}}), 0.3)
    assert view.invariants.unadmitted_works() == ["binding team-a/x-job was sent to a cluster before it was admitted"]


def part(name, **metadata):
    """Return the Job of a HyperJob part, or with other *metadata* a user-submitted job."""
    _, found = job(name, "team-a")
    return event(JOBS.path, {**found.object, "metadata": found.object["metadata"] | metadata})


OWNER = {"kind": "HyperJob", "name": "llm", "uid": "u", "controller": True}


@pytest.mark.parametrize("binding_first", [True, False], ids=["binding-first", "job-first"])
def test_hyperjob_parts_get_entries_like_jobs(view, binding_first):
    found = part("llm-0", ownerReferences=[OWNER])
    events = [found, suspended_binding(found)]
    lines = [line for item in (events[::-1] if binding_first else events) for line in view.on_event(item, 0.2)]
    assert [(line.job, line.stage) for line in lines] == [("team-a/llm-0", "suspended")]
    assert view.timeline.jobs["team-a/llm-0"].spec.hyperjob == "team-a/llm"
    assert view.invariants.count("team-a") == (0, 1)


def test_user_submitted_jobs_get_entries_and_are_settled(view):
    found = part("mine")
    view.on_event(found, 0.2)
    assert [line.text for line in view.on_event(suspended_binding(found), 0.3)] == ["queue team-a: 10 cpu"]
    assert view.timeline.jobs["team-a/mine"].is_settled
    view.on_event(ObservedChange(JOBS.path, "DELETED", found.object), 0.4)
    assert "team-a/mine" not in view.timeline.jobs


def test_joining_cluster_counts_once_it_has_a_summary(view):
    assert view.have_summaries(["member1"])
    assert not view.have_summaries(["member1", "late"])
    view.on_event(event(CLUSTERS.path, {"metadata": {"name": "late"}, "spec": {}}), 0.2)
    assert not view.have_summaries(["late"])
