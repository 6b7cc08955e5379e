"""Tests of ``plan`` and ``simulate --what-if``, and of the changes that ``explain`` proposes for it."""

import json
import shlex
from itertools import count
from pathlib import Path

import pytest

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cli.errors import InputError
from controller.cli.input.what_if import Changes, parse_what_if
from tests.cli.manifests import (
    NOW,
    VOLCANO_JOB,
    admitted,
    binding,
    cluster,
    configuration,
    job,
    pod,
    priority_class,
    queue,
    units,
    write,
)

EXAMPLE = str(Path(__file__).parents[2] / "docs" / "examples" / "two-teams.yaml")
WORLD = str(Path(__file__).parent / "queues_and_clusters.yaml")


def applied(text, kind, body):
    return Changes(parse_what_if([text])).apply(kind, body)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        pytest.param("queue/a.spec.weight=3", {"weight": 3}, id="number"),
        pytest.param("queue.scheduling.volcano.sh/a.spec.weight=3", {"weight": 3}, id="kind-with-group"),
        pytest.param("queue/a.spec.capability.cpu=20", {"weight": 1, "capability": {"cpu": 20}}, id="new-mapping"),
        pytest.param(
            "queue/a.spec.capability.'nvidia.com/gpu'=8",
            {"weight": 1, "capability": {"nvidia.com/gpu": 8}},
            id="quoted-name",
        ),
        pytest.param("queue/a.spec.weight=null", {}, id="removed"),
        pytest.param("queue/a.spec.parent=b", {"weight": 1, "parent": "b"}, id="text"),
        pytest.param("queue/b.spec.weight=3", {"weight": 1}, id="other-object"),
        pytest.param("cluster/a.spec.weight=3", {"weight": 1}, id="other-kind"),
    ],
)
def test_what_if_changes_one_field(text, spec):
    body = {"metadata": {"name": "a"}, "spec": {"weight": 1}}
    assert applied(text, "Queue", body)["spec"] == spec
    assert body["spec"] == {"weight": 1}


def test_what_if_finds_names_with_dots_and_list_items():
    body = {"metadata": {"name": "a.b", "namespace": "ml"}, "spec": {"tasks": [{"replicas": 1}, {"replicas": 2}]}}
    changed = applied("job/ml/a.b.spec.tasks[1].replicas=5", "Job", body)
    assert changed["spec"]["tasks"] == [{"replicas": 1}, {"replicas": 5}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("weight=3", "is not a change; write KIND/NAME.FIELD=VALUE", id="no-object"),
        pytest.param("queue/a.spec.weight", "is not a change", id="no-value"),
        pytest.param("job.batch/a.spec.weight=3", "write job.batch.volcano.sh", id="other-group"),
        pytest.param("queue/a.spec.x[=3", "cannot read the field path at '[", id="bad-path"),
        pytest.param("queue/a.spec.weight.x=3", "x is not a field of 1", id="field-of-a-number"),
        pytest.param("queue/a.spec.parent=\udcff", "'queue/a.spec.parent=\\udcff' is not UTF-8 text", id="not-utf-8"),
        pytest.param("queue/a.metadata.name=b", "queue/a: metadata.name names an object", id="name"),
        pytest.param("queue/a.metadata.namespace=null", "metadata.namespace names an object", id="no-namespace"),
        pytest.param("queue/a.spec.tasks[0].x=3", "there is no item [0]; the list has 0", id="missing-item"),
    ],
)
def test_what_if_names_what_it_cannot_change(text, message):
    with pytest.raises(InputError) as error:
        applied(text, "Queue", {"metadata": {"name": "a"}, "spec": {"weight": 1}})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("change", "unread"),
    [
        pytest.param(
            "queue/team-a.spec.weigth=3", "no decision depends on spec.weigth; did you mean weight?", id="typo"
        ),
        pytest.param("queue/team-a.spec.color=red", "no decision depends on spec.color\n", id="unknown"),
        pytest.param("job/team-a/train-1.spec.tasks[0].size=4", "depends on spec.tasks[0].size\n", id="in-a-list"),
    ],
)
def test_what_if_notes_fields_that_no_decision_depends_on(run, change, unread):
    ended = run("plan", "-f", EXAMPLE, "--what-if", change)
    assert ended.code == 0
    assert unread in ended.err


@pytest.mark.parametrize(
    "change",
    [
        "queue/team-a.spec.capability.cpu=2",
        "cluster/member1.metadata.labels.zone=b",
        "job/team-a/train-1.spec.tasks[0].template.spec.nodeSelector.zone=b",
    ],
)
def test_what_if_has_no_note_about_fields_that_are_read(run, change):
    ended = run("plan", "-f", EXAMPLE, "--what-if", change)
    assert (ended.code, ended.err) == (0, "")


def test_what_if_notes_that_a_pending_job_cannot_finish(run):
    ended = run("plan", "-f", EXAMPLE, "--what-if", "job/team-a/train-1.status.state.phase=Completed")
    assert ended.code == 0
    assert "the job is not admitted, so it cannot finish" in ended.err


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("x", id="text"),
        pytest.param({"resource": "x", "clusters": ["m"]}, id="resource-is-a-text"),
        pytest.param({"clusters": ["m", {"name": 1}]}, id="clusters-without-names"),
        pytest.param({"clusters": {"name": "m"}}, id="clusters-are-a-mapping"),
    ],
)
def test_completion_with_an_invalid_binding_is_bad_input(run, tmp_path, spec):
    [training, placed] = admitted("j", units(1), on="m", queue="a")
    placed["spec"] = {**placed["spec"], **spec} if isinstance(spec, dict) else spec
    path = write(tmp_path, queue("a"), cluster("m", units(4)), training, placed)
    ended = run("plan", "-f", path, "--what-if", "job/ml/j.status.state.phase=Completed")
    assert ended.code == 2
    assert "(ResourceBinding ml/j-job): spec" in ended.err


def test_requested_completions_teach_no_run_times(run, tmp_path):
    names = [f"r-{number}" for number in range(4)]
    old = [admitted(name, units(1), on="m", queue="a") for name in names]
    for _, bound in old:
        record = json.loads(bound["metadata"]["annotations"][ADMISSION_ANNOTATION])
        record["admittedAt"] = "2026-03-01T09:00:00Z"
        bound["metadata"]["annotations"][ADMISSION_ANNOTATION] = json.dumps(record)
    short = job("short", units(1), queue="a")
    short["spec"]["runningEstimate"] = "10m"
    window = {"name": "w", "clusters": ["m"], "from": "2026-03-01T10:30:00Z", "until": "2026-03-01T11:00:00Z"}
    state = [configuration(advanceReservations=[window]), cluster("m", units(4)), queue("a"), short]
    path = write(tmp_path, *state, *(document for pair in old for document in pair))
    changes = ";".join(f"job/ml/{name}.status.state.phase=Completed" for name in names)
    assert "short" in run("plan", "-f", path, "--now", NOW, "--what-if", changes, "-o", "json").clusters()


def test_too_many_changes_are_refused():
    with pytest.raises(InputError, match="101 changes"):
        parse_what_if([";".join(["queue/a.spec.weight=1"] * 101)])


@pytest.mark.parametrize(
    ("command", "change", "message"),
    [
        pytest.param("plan", "queue/none.spec.weight=3", "queue/none does not exist", id="plan"),
        pytest.param("simulate", "queue/none.spec.weight=3", "--what-if: queue/none does not exist", id="simulate"),
        pytest.param(
            "plan",
            "queue/team-a.spec.weight=lots",
            f'--what-if: {EXAMPLE}: document 1 (Queue team-a): spec.weight: "lots" is not a whole number',
            id="invalid-value",
        ),
    ],
)
def test_impossible_change_exits_with_bad_input(run, command, change, message):
    ended = run(command, "-f", EXAMPLE, "--what-if", change)
    assert ended.code == 2
    assert message in ended.err


def test_plans_with_and_without_changes_are_of_the_same_time(run, tmp_path, monkeypatch):
    times = {"from": "2026-01-02T00:00:00Z", "until": "2026-01-02T04:00:00Z"}
    kept = configuration(advanceReservations=[{"name": "launch", "clusters": ["m"], **times}])
    path = write(tmp_path, kept, cluster("m", units(4)), queue("a"), job("j", units(1), queue="a"))
    hours = count(1_767_312_000, 3600)  # from 2026-01-02 00:00
    monkeypatch.setattr("time.time_ns", lambda: next(hours) * 10**9)
    difference = run("plan", "-f", path, "-o", "json", "--what-if", "queue/a.spec.weight=3").answer["whatIf"]
    assert difference["decisions"] == {"added": [], "removed": []}


def test_plan_lists_the_difference(run):
    result = run("plan", "-f", EXAMPLE, "-o", "json", "--what-if", "queue/team-a.spec.weight=3")
    difference = result.answer["whatIf"]
    assert difference["changes"] == ["queue/team-a.spec.weight=3"]
    added, removed = (
        {(decision["action"], decision["namespace"], decision["name"]) for decision in difference["decisions"][part]}
        for part in ("added", "removed")
    )
    assert added == {("Admit", "team-a", "train-3"), ("Wait", "team-b", "train-4")}
    assert removed == {("Wait", "team-a", "train-3"), ("Admit", "team-b", "train-4")}


def test_difference_is_shown_where_no_decision_is_left(run, tmp_path):
    path = write(tmp_path, queue("a"), cluster("m", units(4)), job("j", units(1), queue="a"))
    change = "job/ml/j.metadata.deletionTimestamp=2026-03-01T10:00:00Z"
    shown = run("plan", "-f", path, "--what-if", change).text
    assert shown.startswith(f"With {change}: ")
    assert "- Admit Job ml/j a m" in shown
    assert "No workload is pending." in shown


@pytest.mark.parametrize(
    ("file", "namespace", "name"),
    [
        pytest.param(EXAMPLE, "team-a", "train-3", id="full-cluster"),
        pytest.param(WORLD, "ml", "pretrain", id="large-job"),
        pytest.param(WORLD, "ml", "backfill", id="behind-its-head"),
        pytest.param(WORLD, "lab", "sweep", id="missing-queue"),
    ],
)
def test_every_counterfactual_of_explain_admits_the_job(run, file, namespace, name):
    options = ["-f", file, "--now", NOW, "-o", "json"]
    explained = run("explain", "job", f"{namespace}/{name}", *options).answer
    assert explained["counterfactuals"]
    for counterfactual in explained["counterfactuals"]:
        planned = run("plan", *options, "--what-if", counterfactual["change"]).answer
        admitted = {
            (decision["namespace"], decision["name"])
            for decision in planned["decisions"]
            if decision["action"] == "Admit"
        }
        assert (namespace, name) in admitted, counterfactual


def test_every_counterfactual_of_an_evicted_job_keeps_it(run, tmp_path):
    grown, placed = admitted("j", {"cpu": "2"}, on="m", queue="a")
    grown["spec"]["tasks"][0]["replicas"] = 3
    policy = configuration(resize={"gracePeriod": "0s"})
    path = write(
        tmp_path, policy, queue("a", capability={"cpu": "4"}), queue("b"), cluster("m", units(9)), grown, placed
    )
    explained = run("explain", "job", "ml/j", "-f", path, "-o", "json").answer
    assert (explained["evicted"], bool(explained["counterfactuals"])) == ("ResizeRejected", True)
    for counterfactual in explained["counterfactuals"]:
        planned = run("plan", "-f", path, "-o", "json", "--what-if", counterfactual["change"]).answer
        assert planned["decisions"] == [], counterfactual


def test_proposals_of_explain_can_be_pasted_into_a_shell(run):
    options = ["explain", "job", "train-3", "-n", "team-a", "-f", EXAMPLE]
    shown = [line for line in run(*options).out.splitlines() if line.lstrip().startswith("- ")]
    words = {word for line in shown if ": " in line and "'nvidia.com/gpu'=" in line for word in shlex.split(line)}
    changes = {counterfactual["change"] for counterfactual in run(*options, "-o", "json").answer["counterfactuals"]}
    assert "cluster/member1.status.resourceSummary.allocatable.'nvidia.com/gpu'=7" in words & changes


DEPLOYED = {"apiVersion": "apps/v1", "kind": "Deployment"}


def deployment(*clusters):
    """Return a Deployment of 4 CPUs in queue a, its binding, the configuration that gates it, and a cluster of 4."""
    labels = {"scheduling.volcano.sh/queue-name": "a"}
    metadata = {"name": "d", "namespace": "ml", "labels": labels, "creationTimestamp": "2026-02-01T00:00:00Z"}
    placed = binding("d", clusters=[*clusters], suspended=not clusters)
    placed["metadata"]["name"] = "d-deployment"
    placed["spec"] |= {
        "resource": {**DEPLOYED, "namespace": "ml", "name": "d"},
        "replicas": 2,
        "replicaRequirements": {"resourceRequest": {"cpu": "2"}},
        "clusters": [{"name": name, "replicas": 2} for name in clusters],
    }
    return (
        {**DEPLOYED, "metadata": metadata, "spec": {"replicas": 2, "template": pod({"cpu": 2})}},
        placed,
        configuration(integrations=[DEPLOYED]),
        cluster("m", {"cpu": 4}, kinds=((VOLCANO_JOB, "Job"), ("apps/v1", "Deployment"))),
    )


def test_no_counterfactual_lets_a_deployment_finish(run, tmp_path):
    path = write(tmp_path, queue("a"), *deployment("m"), job("j", {"cpu": 2}, queue="a"))
    assert [workload["name"] for workload in run("top", "-f", path, "-o", "json").answer["workloads"]] == ["d"]
    explained = run("explain", "job", "ml/j", "-f", path, "-o", "json").answer
    assert {counterfactual["dimension"] for counterfactual in explained["counterfactuals"]} == {"capacity"}


def test_no_counterfactual_raises_the_priority_of_a_deployment(run, tmp_path):
    before = job("j", {"cpu": 2}, queue="a", created="2026-01-01T00:00:00Z")
    path = write(tmp_path, queue("a"), priority_class("high", 9), *deployment(), before)
    explained = run("explain", "job", "ml/d", "-f", path, "-o", "json").answer
    assert "priority" not in {counterfactual["dimension"] for counterfactual in explained["counterfactuals"]}


def test_no_counterfactual_removes_all_accelerators(explain):
    documents = cluster("m", {"cpu": 4}), queue("a"), job("j", {"cpu": 1, "nvidia.com/gpu": 2}, queue="a")
    counterfactuals = explain(*documents, output="json").answer["counterfactuals"]
    assert counterfactuals
    assert "requests" not in {counterfactual["dimension"] for counterfactual in counterfactuals}


def test_simulation_is_compared_with_the_one_without_changes(run):
    options = ("-f", EXAMPLE, "--runtime", "30m")
    change = "cluster/member1.status.resourceSummary.allocatable.cpu=200"
    answer = run("simulate", *options, "--what-if", change, "-o", "json").answer
    plain = run("simulate", *options, "-o", "json").answer
    assert answer["whatIf"] == {"changes": [change], "before": plain["summary"]}
    assert answer["summary"]["utilisation"]["cpu"] < plain["summary"]["utilisation"]["cpu"]
    table = run("simulate", *options, "--what-if", change).out
    assert table.startswith(f"What if {change}:")
    assert {"BEFORE", "AFTER"} <= {*table.split()}
