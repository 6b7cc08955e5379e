"""Objects read from files: kinds, formats and ignored objects."""

import json

import pytest

from tests.cli.manifests import (
    cluster,
    configuration,
    job,
    jobs,
    pod,
    policy,
    priority_class,
    queue,
    running,
    units,
    write,
)
from tests.controllers.hyperjob.objects import document, replicated, task

CPU = {"cpu": 1}
DEPLOYMENT = ("apps/v1", "Deployment")


def deployment(name, replicas, *, queue_name="a"):
    about = {"name": name, "namespace": "ml", "labels": {"volcano.sh/queue-name": queue_name} if queue_name else {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": about,
        "spec": {"replicas": replicas, "template": pod(CPU)},
    }


SWITCHED_ON = configuration(integrations=[{"apiVersion": "apps/v1", "kind": "Deployment"}])


def test_integration_replicas_are_counted_and_divided(plan):
    placement = {"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}}
    chosen = policy("p", placement, {"apiVersion": "apps/v1", "kind": "Deployment"})
    members = [cluster(name, {"cpu": 3}, kinds=(DEPLOYMENT,)) for name in ("east", "west")]
    ended = plan(*members, queue("a"), deployment("web", 5), chosen, SWITCHED_ON)
    step = ended.answer["decisions"][0]
    assert step["clusters"] == [{"name": "east", "replicas": 3}, {"name": "west", "replicas": 2}]
    assert ended.queue("a")["allocated"] == {"cpu": "5"}


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param([deployment("web", 5)], id="not-switched-on"),
        pytest.param([deployment("web", 5, queue_name=""), SWITCHED_ON], id="without-a-queue"),
    ],
)
def test_kind_without_integration_is_not_managed(plan, documents):
    ended = plan(cluster("m", {"cpu": 8}, kinds=(DEPLOYMENT,)), queue("a"), *documents)
    assert ended.answer["decisions"] == []


def test_configuration_in_files_sets_the_policy(plan):
    tenants = configuration(tenants=[{"namespaces": ["ml"], "queues": ["other"]}])
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), tenants)
    assert ended.reasons() == {"j": "QueueNotAllowed"}


RESTRICTED = configuration(tenants=[{"namespaces": ["ml"], "priorityClasses": ["normal"]}])


@pytest.mark.parametrize(
    ("classes", "reasons"),
    [
        pytest.param([], {}, id="no-default"),
        pytest.param([priority_class("normal", 10, globalDefault=True)], {}, id="default-listed"),
        pytest.param(
            [priority_class("high", 1000, globalDefault=True)],
            {"j": "PriorityClassNotAllowed"},
            id="default-not-listed",
        ),
    ],
)
def test_default_priority_class_must_be_allowed(plan, classes, reasons):
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), RESTRICTED, *classes)
    assert ended.reasons() == reasons
    assert [step["message"] for step in ended.answer["decisions"] if step["reason"]] == (
        ["PriorityClass 'high' may not be used by this namespace"] if reasons else []
    )


def test_hyperjob_is_planned_as_its_parts(plan):
    accelerators = {**units(100), "nvidia.com/gpu": "8"}
    ended = plan(cluster("m1", accelerators), cluster("m2", accelerators), queue("ml"), hyperjob(12))
    assert ended.clusters() == {"llm-t-0": ["m1"], "llm-t-1": ["m2"]}


def test_existing_parts_are_not_created_again(run, tmp_path):
    accelerators = {**units(100), "nvidia.com/gpu": "8"}
    part = job("llm-t-0", CPU, queue="ml", namespace="ml")
    ended = run(
        "plan", "-f", write(tmp_path, cluster("m1", accelerators), queue("ml"), hyperjob(8), part), "-o", "json"
    )
    assert ended.clusters() == {"llm-t-0": ["m1"]}
    assert ended.queue("ml")["allocated"]["nvidia.com/gpu"] == "0"


def test_hyperjob_that_fits_nowhere_is_noted(run, tmp_path):
    ended = run("plan", "-f", write(tmp_path, cluster("m1", CPU), queue("ml"), hyperjob(8)), "-o", "json")
    assert ended.answer["decisions"] == []
    assert (
        "(HyperJob ml/llm): no Jobs are created from it: even while empty, its candidate clusters have 0 nvidia"
        in ended.err
    )


def test_invalid_hyperjob_exits_with_bad_input(run, tmp_path):
    found = hyperjob(8)
    found["spec"]["replicatedJobs"][0]["splitPolicy"]["mode"] = "dynamic"
    ended = run("plan", "-f", write(tmp_path, queue("ml"), found))
    assert ended.code == 2
    assert "(HyperJob ml/llm): spec.replicatedJobs[0].splitPolicy.mode: input should be 'static' or 'auto'" in ended.err


def hyperjob(replicas):
    return document(replicated("t", task(replicas=replicas), splitPolicy={"mode": "auto"}))


@pytest.mark.parametrize("verbose", [False, True])
def test_ignored_kinds_are_listed_with_verbose_only(run, tmp_path, verbose):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    ended = run("plan", "-f", write(tmp_path, queue("a"), other), *(["-v"] if verbose else []))
    assert (ended.code, "ConfigMap c" in ended.err) == (0, verbose)


def test_a_cluster_without_status_is_not_usable(plan):
    bare = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"}, "spec": {}}
    ended = plan(bare, queue("a"), job("j", CPU, queue="a"))
    assert ended.reasons() == {"j": "NoMatchingCluster"}


def test_lists_folders_and_json_are_read(run, tmp_path, monkeypatch):
    documents = [cluster("m", {"cpu": 8}), queue("a"), job("j", CPU, queue="a")]
    (tmp_path / "below").mkdir()
    whole = {"apiVersion": "v1", "kind": "List", "items": documents}
    (tmp_path / "below" / "list.json").write_text(json.dumps(whole))
    (tmp_path / "below" / "typed.yml").write_text(
        json.dumps(
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "QueueList", "items": [{"metadata": {"name": "b"}}]}
        )
    )
    (tmp_path / "notes.txt").write_text("not: [read")
    ended = run("plan", "-f", str(tmp_path), "-o", "json")
    assert ended.clusters() == {"j": ["m"]}
    assert [each["name"] for each in ended.answer["queues"]] == ["a", "b", "root"]


def test_one_option_accepts_several_files(run, tmp_path):
    first, second = write(tmp_path, queue("a"), name="1.yaml"), write(tmp_path, queue("b"), name="2.yaml")
    ended = run("plan", "-f", first, second, "-o", "json")
    assert [each["name"] for each in ended.answer["queues"]] == ["a", "b", "root"]


def test_plan_is_independent_of_document_order(plan):
    documents = [
        *(queue(name, weight=place) for place, name in enumerate("abc", start=1)),
        cluster("m", {"cpu": 8}),
        cluster("n", {"cpu": 8}, used={"cpu": 3}),
        *running("old", CPU, on="n", queue="b"),
        *(each for name in "abc" for each in jobs(name, 9, CPU, queue=name)),
    ]
    assert plan(*documents).answer == plan(*reversed(documents)).answer


def test_missing_creation_time_counts_as_oldest(plan):
    new = job("a-new", {"cpu": 8}, queue="a", created="2026-03-01T09:00:00Z")
    ended = plan(cluster("m", {"cpu": 8}), queue("a"), new, job("b-undated", {"cpu": 8}, queue="a"))
    assert list(ended.clusters()) == ["b-undated"]
