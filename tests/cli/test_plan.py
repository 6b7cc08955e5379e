"""The fields, notes and amounts of `plan`, from files in every format."""

import json

import pytest

from tests.cli.manifests import (
    binding,
    cluster,
    configuration,
    job,
    jobs,
    priority_class,
    queue,
    running,
    units,
    write,
)
from tests.controllers.hyperjob.objects import document, replicated, task

CPU = {"cpu": 1}
THIRDS = [manifest for name in "abc" for manifest in (queue(name), *jobs(name, 4, CPU, queue=name))]
OUTSIDE = {"fairShare": {"cpu": "0"}, "allocated": {"cpu": "1"}, "limit": {"cpu": "0"}, "limited": [], "share": None}


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param(THIRDS, {"fairShare": {"cpu": "3333m"}}, id="rounded-down"),
        pytest.param([queue("a")], {"share": None}, id="no-requests"),
        pytest.param([queue("a"), job("j", {"cpu": 4}, queue="a")], {"share": 1.0}, id="all-of-the-fair-share"),
        pytest.param([queue("a"), *running("j", {"gpu": 1}, on="m", queue="a")], {"share": None}, id="infinite-share"),
        pytest.param(
            [queue("a", capability={"pods": 3}), job("j", CPU, queue="a")],
            {"allocated": {"cpu": "1", "pods": "1"}, "fairShare": {"cpu": "1"}},
            id="pods-where-the-queue-names-them",
        ),
        pytest.param(
            [queue("a"), queue("g", guarantee={"resource": {"cpu": 3}})],
            {"limit": {"cpu": "7"}, "limited": ["cpu"]},
            id="limited-by-a-guarantee-of-a-sibling",
        ),
        pytest.param(
            [queue("a", parent="gone"), *running("j", CPU, on="m", queue="a")], OUTSIDE, id="outside-the-hierarchy"
        ),
    ],
)
def test_queue_has_amounts_as_quantities(plan, documents, expected):
    shown = plan(cluster("m", {"cpu": 10}), *documents).queue("a")
    assert {name: shown[name] for name in expected} == expected


def test_decisions_are_independent_of_document_order(plan):
    documents = [
        *(queue(name, weight=place) for place, name in enumerate("abc", start=1)),
        cluster("m", {"cpu": 8}),
        cluster("n", {"cpu": 8}, used={"cpu": 3}),
        *running("old", CPU, on="n", queue="b"),
        *(manifest for name in "abc" for manifest in jobs(name, 9, CPU, queue=name)),
    ]
    assert plan(*documents).answer == plan(*reversed(documents)).answer


def test_missing_creation_time_counts_as_oldest(plan):
    new = job("a-new", {"cpu": 8}, queue="a", created="2026-03-01T09:00:00Z")
    ended = plan(cluster("m", {"cpu": 8}), queue("a"), new, job("b-undated", {"cpu": 8}, queue="a"))
    assert list(ended.clusters()) == ["b-undated"]


def test_configuration_and_priority_classes_are_applied(plan):
    tenants = configuration(tenants=[{"namespaces": ["ml"], "priorityClasses": ["normal"]}])
    documents = cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), tenants
    assert plan(*documents).reasons() == {}
    [step] = plan(*documents, priority_class("high", 1000, globalDefault=True)).answer["decisions"]
    message = "PriorityClass 'high' may not be used by this namespace"
    assert (step["reason"], step["message"]) == ("PriorityClassNotAllowed", message)


def test_placed_binding_without_job_is_noted(run, tmp_path):
    path = write(tmp_path, queue("default"), binding("old", clusters=["m"], phase="Running"))
    note = "note: Job ml/old: it is placed, but the job is not in the files, so its usage is counted as zero\n"
    assert run("plan", "-f", path).err == note


def test_missing_priority_class_is_noted(plan):
    documents = cluster("m", CPU), queue("a"), priority_class("known", 5)
    jobs = [job(f"j-{name}", CPU, queue="a", priority=name) for name in ("known", "gone")]
    note = "note: PriorityClass 'gone' does not exist: 1 job has the default priority instead\n"
    assert plan(*documents, *jobs).err == note
    assert plan(*documents, jobs[0]).err == ""


def high_before_low(**more):
    queues = [queue("high", priority=5, deserved=units(1)), queue("low", deserved=units(7))]
    waiting = [*jobs("h", 8, units(1), queue="high"), *jobs("l", 8, units(1), queue="low")]
    return [cluster("m", units(8)), *queues, *waiting, *([configuration(**more)] if more else [])]


@pytest.mark.parametrize("command", ["plan", "queues"])
def test_borrowing_before_lower_priority_queue_is_noted(run, tmp_path, command):
    written = write(tmp_path, *high_before_low())
    [note] = run(command, "-f", written, "-o", "json").answer["notes"]
    assert note.startswith(
        "after the next cycle queue 'high' (priority 5) uses more cpu, memory than its fair share, and queue 'low'"
    )
    assert "Note: after the next cycle queue 'high' (priority 5)" in run(command, "-f", written).out


@pytest.mark.parametrize("command", [["plan"], ["queues"], ["explain", "queue", "child"]])
def test_guarantee_that_is_scaled_down_is_noted(run, tmp_path, command):
    child = queue("child", parent="p", guarantee={"resource": {"cpu": 8, "memory": 1}})
    written = write(tmp_path, cluster("m", {"cpu": 5, "memory": 1}), queue("p"), child)
    [note] = run(*command, "-f", written, "-o", "json").answer["notes"]
    assert note.startswith("queue 'child' has only 5 of 8 cpu of its guarantee: guarantees exceed the capacity")


def test_guarantee_that_counts_partly_by_rule_is_not_noted(plan):
    limited = queue("a", guarantee={"resource": {"cpu": 8}}, capability={"cpu": 1})
    closed = queue("b", guarantee={"resource": {"cpu": 8}}, state="Closed")
    assert "notes" not in plan(cluster("m", {"cpu": 5}), limited, closed).answer


@pytest.mark.parametrize("more", [{"queueOrder": "FairShareFirst"}, {"reclaim": {"enabled": True}}])
def test_no_borrowing_note_if_fair_shares_come_first(plan, more):
    assert "notes" not in plan(*high_before_low(**more)).answer


# -- advance reservations -------------------------------------------------------


def reserved(tmp_path, **fields):
    """Return the path of a cluster of 4 CPUs, reserved on 2026-01-02 from 00:00 to 04:00, of which a job uses 3."""
    times = {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T04:00:00Z"}
    kept = {"name": "launch", "clusters": ["m"], **times, **fields}
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        *(queue("a"), queue("b")),
        configuration(advanceReservations=[kept]),
        *running("old", {"cpu": 3}, on="m", queue="a"),
        job("new", CPU, queue="a"),
    )


def test_maintenance_is_listed_until_it_ends(run, tmp_path):
    path = reserved(tmp_path)
    before, at_end = (("-f", path, "--at", f"2026-01-{time}:00:00Z") for time in ("01T12", "02T04"))
    [listed] = run("plan", *before, "-o", "json").answer["reservedInAdvance"]
    assert (listed["name"], listed["inForce"], listed["overlapping"]) == ("launch", False, 1)
    row = "launch maintenance m all 2026-01-02 00:00 2026-01-02 04:00 1 -"
    assert row in " ".join(run("plan", *before).out.split())
    explained = run("explain", "job", "new", "-n", "ml", *before).out
    assert "its clusters are kept free for advance reservation 'launch'" in explained
    # The note about queues whose placement matches some clusters only does not apply.
    assert "their placement" not in explained
    later = run("plan", *at_end, "-o", "json").answer
    assert "reservedInAdvance" not in later
    assert [decision["action"] for decision in later["decisions"]] == ["Admit"]


def test_estimated_job_is_admitted_before_the_maintenance(run, tmp_path):
    path = reserved(tmp_path)
    estimated = job("quick", CPU, queue="a")
    estimated["spec"]["runningEstimate"] = "10m"
    (tmp_path / "more").mkdir()
    files = ("-f", path, "-f", write(tmp_path / "more", estimated))
    answer = run("plan", *files, "--at", "2026-01-01T20:00:00Z", "-o", "json").answer
    admitted = [decision["name"] for decision in answer["decisions"] if decision["action"] == "Admit"]
    assert admitted == ["quick"]


def test_reserved_amounts_are_listed_and_explained(run, tmp_path):
    at = ("-f", reserved(tmp_path, clusters=["m", "gone"], amounts={"cpu": 2}, queue="b"), "--at", "2026-01-01T12:00Z")
    report = run("plan", *at, "-o", "json").answer
    [listed] = report["reservedInAdvance"]
    assert (listed["amounts"], listed["missing"], listed["overlapping"]) == ({"cpu": "2"}, {"cpu": "3"}, 1)
    assert report["notes"] == ["advanceReservations 'launch' names cluster 'gone' in clusters, which does not exist"]
    row = "launch queue b m,gone cpu=2 2026-01-02 00:00 2026-01-02 04:00 1 cpu=3"
    assert row in " ".join(run("plan", *at).out.split())
    explained = " ".join(run("explain", "job", "new", "-n", "ml", *at).out.split())
    assert "it requests 1 cpu, but only 0 of 'm' are not kept free for advance reservation 'launch'" in explained
    assert "m: a candidate, but it keeps 2 cpu of its free capacity free for advance reservations" in explained


def test_reservation_that_no_workload_of_its_queue_uses_is_noted(run, tmp_path):
    def notes(path):
        return run("plan", "-f", path, "--at", "2026-01-01T12:00:00Z", "-o", "json").answer["notes"]

    missing = notes(reserved(tmp_path, queue="bb"))
    assert missing == ["advanceReservations 'launch' is for queue 'bb', which does not exist"]
    path = reserved(tmp_path, queue="b")
    child = write(tmp_path, queue("c", parent="b"), name="child.yaml")
    ended = run("plan", "-f", path, "-f", child, "--at", "2026-01-01T12:00:00Z", "-o", "json")
    assert ended.answer["notes"] == [
        "advanceReservations 'launch' is for queue 'b', which takes no workloads: name one of the queues below it"
    ]


@pytest.mark.parametrize(("resource", "has"), [("cpu", "4"), ("nvidia.com/gpu", "0")])
def test_reserved_amounts_that_a_cluster_lacks_are_noted(run, tmp_path, resource, has):
    path = reserved(tmp_path, amounts={resource: 16}, queue="b")
    notes = run("plan", "-f", path, "--at", "2026-01-01T12:00:00Z", "-o", "json").answer["notes"]
    assert f"advanceReservations 'launch' reserves 16 {resource} in amounts, but cluster 'm' has {has}" in notes


# -- files and kinds ------------------------------------------------------------


def test_lists_folders_and_json_are_read(run, tmp_path):
    documents = [cluster("m", {"cpu": 8}), queue("a"), job("j", CPU, queue="a")]
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    typed = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "QueueList", "items": [{"metadata": {"name": "b"}}]}
    (tmp_path / "below" / "typed.yml").write_text(json.dumps(typed))
    (tmp_path / "notes.txt").write_text("not: [read")
    more = tmp_path / "more"
    more.mkdir()
    ended = run("plan", "-f", str(tmp_path), write(more, queue("c")), "-o", "json")
    assert ended.clusters() == {"j": ["m"]}
    assert [report["name"] for report in ended.answer["queues"]] == ["a", "b", "c", "root"]


@pytest.mark.parametrize("verbose", [False, True])
def test_ignored_kinds_are_listed_with_verbose_only(run, tmp_path, verbose):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    ended = run("plan", "-f", write(tmp_path, queue("a"), other), *(["-v"] if verbose else []))
    assert (ended.code, "ConfigMap c" in ended.err) == (0, verbose)


def test_cluster_without_status_is_not_usable(plan):
    bare = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m"}, "spec": {}}
    assert plan(bare, queue("a"), job("j", CPU, queue="a")).reasons() == {"j": "NoMatchingCluster"}


GPUS = {**units(100), "nvidia.com/gpu": "8"}


def hyperjob(replicas):
    return document(replicated("t", task(replicas=replicas), splitPolicy={"mode": "auto"}))


def test_hyperjob_is_planned_as_its_parts(plan):
    ended = plan(cluster("m1", GPUS), cluster("m2", GPUS), queue("ml"), hyperjob(12))
    assert ended.clusters() == {"llm-t-0": ["m1"], "llm-t-1": ["m2"]}


def test_existing_parts_are_not_created_again(plan):
    ended = plan(cluster("m1", GPUS), queue("ml"), hyperjob(8), job("llm-t-0", CPU, queue="ml"))
    assert ended.clusters() == {"llm-t-0": ["m1"]}
    assert ended.queue("ml")["allocated"]["nvidia.com/gpu"] == "0"


def test_hyperjob_that_fits_nowhere_is_noted(plan):
    ended = plan(cluster("m1", CPU), queue("ml"), hyperjob(8))
    assert ended.answer["decisions"] == []
    note = "(HyperJob ml/llm): no Jobs are created from it: even while empty, its candidate clusters have 0 nvidia"
    assert note in ended.err
