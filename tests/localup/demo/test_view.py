import itertools

import pytest

from controller.api.keys import CLUSTERS, JOBS, QUEUES, RESOURCE_BINDINGS
from localup.demo.scenario import DemoJob, volcano_job
from localup.demo.view import View
from tests.clusters import with_models

_versions = itertools.count(1)


def event(resource, found):
    version = next(_versions)
    metadata = {"uid": f"u-{version}", "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return resource, {**found, "metadata": metadata | found["metadata"]}


def observe(view, added, at):
    resource, item = added
    return view.on_change(resource, None, item, at)


def delete(view, added, at):
    resource, item = added
    view.on_change(resource, item, None, at)


def queue(name, weight):
    return event(QUEUES, {"metadata": {"name": name}, "spec": {"weight": weight}})


def cluster(name, cpus):
    enabled = [{"groupVersion": "batch.volcano.sh/v1alpha1", "resources": [{"kind": "Job", "name": "jobs"}]}]
    summary = {"allocatable": {"cpu": str(cpus), "pods": "100"}, "allocated": {"cpu": "3"}}
    status = {
        "apiEnablements": enabled,
        "conditions": [{"type": "Ready", "status": "True"}],
        "resourceSummary": summary,
    }
    cluster = {"metadata": {"name": name}, "spec": {"syncMode": "Push"}, "status": status}
    return event(CLUSTERS, with_models(cluster))


def job(name, team):
    demo_job = DemoJob(volcano_job(f"{team}/{name}", team, pods=10, cpu=1, runtime="1s"))
    return demo_job, event(JOBS, demo_job.manifest)


def suspended_binding(found):
    metadata = found[1]["metadata"]
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
    return event(RESOURCE_BINDINGS, binding)


@pytest.fixture
def view():
    """Return a view of one cluster with 10 CPUs and of two jobs that each request all of them."""
    (first, first_job), (second, second_job) = job("x", "team-a"), job("y", "team-b")
    view = View({first.name: first, second.name: second}, {}, ["team-a", "team-b"])
    view.timeline.on_submitted(first, 0.0)
    view.timeline.on_submitted(second, 0.0)
    for item in (cluster("member1", 10), queue("team-a", 1), queue("team-b", 3), first_job, second_job):
        assert observe(view, item, 0.1) == []
    view.bindings = [suspended_binding(first_job), suspended_binding(second_job)]
    return view


def test_fair_shares_are_computed_from_watched_objects(view):
    for binding in view.bindings:
        observe(view, binding, 0.2)
    usages = view.update_usage(0.3)
    assert [(usage.queue, float(usage.fair_share["cpu"]), usage.pending) for usage in usages] == [
        ("team-a", 2500.0, 1),
        ("team-b", 7500.0, 1),
    ]
    assert view.usage.moments == [(0.3, usages)]


def test_fair_share_is_empty_without_objects():
    assert [item.fair_share for item in View({}, {}, ["team-a"]).update_usage(0.0)] == [{}]


def test_observed_binding_gets_an_entry(view):
    assert [line.job for line in observe(view, view.bindings[0], 0.2)] == ["team-a/x"]


def test_deleted_binding_is_removed(view):
    observe(view, view.bindings[0], 0.2)
    delete(view, view.bindings[0], 0.3)
    assert float(view.update_usage(0.4)[0].fair_share.get("cpu", 0)) == 0


def part(name, **metadata):
    """Return the Job of a HyperJob part, or with other *metadata* a user-submitted job."""
    _, found = job(name, "team-a")
    return event(JOBS, {**found[1], "metadata": found[1]["metadata"] | metadata})


OWNER = {"kind": "HyperJob", "name": "llm", "uid": "u", "controller": True}


@pytest.mark.parametrize("binding_first", [True, False], ids=["binding-first", "job-first"])
def test_hyperjob_parts_get_entries_like_jobs(view, binding_first):
    found = part("llm-0", ownerReferences=[OWNER])
    events = [found, suspended_binding(found)]
    lines = [line for item in (events[::-1] if binding_first else events) for line in observe(view, item, 0.2)]
    assert [(line.job, line.stage) for line in lines] == [("team-a/llm-0", "suspended")]
    assert view.timeline.jobs["team-a/llm-0"].spec.hyperjob == "team-a/llm"


def test_user_submitted_jobs_get_entries_and_are_settled(view):
    found = part("mine")
    observe(view, found, 0.2)
    assert [line.text for line in observe(view, suspended_binding(found), 0.3)] == ["queue team-a: 10 cpu"]
    assert view.timeline.jobs["team-a/mine"].is_settled
    delete(view, found, 0.4)
    assert "team-a/mine" not in view.timeline.jobs


def test_joining_cluster_counts_once_it_has_a_summary(view):
    assert view.have_summaries(["member1"])
    assert not view.have_summaries(["member1", "late"])
    observe(view, event(CLUSTERS, {"metadata": {"name": "late"}, "spec": {}}), 0.2)
    assert not view.have_summaries(["late"])
