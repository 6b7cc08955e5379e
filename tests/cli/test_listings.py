"""Selection, order and formats of lists, and current usage."""

import csv
import io
import json
from dataclasses import replace

import pytest

from controller.api.visibility import VisibleQueue, VisibleWorkload, VisibleWorkloads
from controller.cli.input.offline import read_offline_state
from controller.cli.render.output import PLAIN, Format, serialize
from controller.cli.render.plan import plan_table
from controller.cli.render.visibility import pending_listing
from controller.cli.reports.plan import plan_report
from controller.engine.plan import Evict, Plan
from controller.engine.reasons import EvictionReason
from tests.cli.manifests import (
    NOW,
    binding,
    cluster,
    configuration,
    job,
    priority_class,
    queue,
    reclaim_due,
    running,
    write,
)


def test_usage_is_the_current_one_with_the_next_cycle_on_request(run, state):
    queues = run("queues", "-f", state, "-o", "json", "--now", NOW).answer["queues"]
    usage = {report["name"]: (report["allocated"]["cpu"], report["pending"], report["admitted"]) for report in queues}
    assert usage == {"a": ("0", 2, 0), "b": ("1", 0, 1), "root": ("1", 2, 1)}
    assert {report["nextCycle"] for report in queues} == {None}
    [report] = run("queues", "a", "--next-cycle", "-f", state, "-o", "json", "--now", NOW).answer["queues"]
    after = report["nextCycle"]
    assert (report["allocated"]["cpu"], after["allocated"]["cpu"]) == ("0", "2")
    assert (after["admitted"], after["pending"]) == (1, 1)
    [report] = run("clusters", "--next-cycle", "-f", state, "-o", "json", "--now", NOW).answer["clusters"]
    assert (report["usage"]["cpu"], report["free"]["cpu"], report["nextCycle"]["free"]["cpu"]) == ("1", "3", "1")


def test_csv_has_one_value_in_each_column(run, state):
    rows = list(csv.DictReader(io.StringIO(run("queues", "-f", state, "-o", "csv").out)))
    assert {row["QUEUE"]: row["CPU LIMIT"] for row in rows} == {"root": "4", "a": "none", "b": "4"}
    root = next(row for row in rows if row["QUEUE"] == "root")
    assert [root[f"CPU {title}"] for title in ("USED", "FAIR SHARE", "LIMIT")] == ["1", "4", "4"]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_csv_has_no_dash_for_an_unknown_time(run, state):
    [row] = csv.DictReader(io.StringIO(run("pending", "-f", state, "-o", "csv").out))
    assert (row["NAME"], row["SINCE (UTC)"], row["PRIORITY CLASS"]) == ("ml/big", "", "")


BIG, OLD = "job.batch.volcano.sh/ml/big", "job.batch.volcano.sh/ml/old"
ROOT, A, B = (f"queue.scheduling.volcano.sh/{name}" for name in ("root", "a", "b"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["queues", "b"], [B], id="name"),
        pytest.param(["queues", "queue/b"], [B], id="queue-with-kind"),
        pytest.param(["queues", "--sort-by", ".allocated.cpu"], [B, ROOT, A], id="sorted"),
        pytest.param(["pending", "-l", "app=train"], [BIG], id="label"),
        pytest.param(["pending", "-l", "app!=train"], [], id="other-label"),
        pytest.param(["pending", "-l", "app in (train, test),app"], [BIG], id="label-in-a-set"),
        pytest.param(["pending", "-l", "app notin (train)"], [], id="label-not-in-a-set"),
        pytest.param(["pending", "-l", "!app"], [], id="no-label"),
        pytest.param(["pending", "-n", "ml"], [BIG], id="namespace"),
        pytest.param(["pending", "-n", "lab"], [], id="other-namespace"),
        pytest.param(["pending", "-n", "lab", "-A"], [BIG], id="all-namespaces"),
        pytest.param(["pending", "ml/big"], [BIG], id="workload"),
        pytest.param(["pending", BIG], [BIG], id="workload-with-kind"),
        pytest.param(["clusters", "cluster.cluster.karmada.io/m"], ["cluster.cluster.karmada.io/m"], id="cluster"),
        pytest.param(["pending", "-q", A], [BIG], id="queue-option-with-kind"),
        pytest.param(["top"], [OLD], id="admitted"),
    ],
)
def test_listing_is_selected_and_sorted(run, state, arguments, expected):
    ended = run(*arguments, "-f", state, "-o", "name", "--now", NOW)
    assert (ended.code, ended.out) == (0, "".join(f"{name}\n" for name in expected))


def test_top_lists_workloads_that_the_next_cycle_evicts(run, tmp_path):
    path = write(tmp_path, *reclaim_due())
    decisions = run("plan", "-f", path, "-o", "json", "--now", NOW).answer["decisions"]
    assert [decision["name"] for decision in decisions if decision["action"] == "Evict"] == ["a-1"]
    workloads = run("top", "-f", path, "-o", "json", "--now", NOW).answer["workloads"]
    assert [(workload["name"], workload["clusters"]) for workload in workloads] == [("a-1", ["m"]), ("a-2", ["m"])]


def test_names_have_the_group_of_the_kind(run, tmp_path):
    batch = job("nightly", {"cpu": 9}, queue="a") | {"apiVersion": "batch/v1"}
    batch["metadata"]["labels"] = {"scheduling.volcano.sh/queue-name": "a"}
    batch["spec"] = {"parallelism": 1, "template": batch["spec"]["tasks"][0]["template"]}
    bound = binding("nightly", suspended=True)
    bound["spec"]["resource"]["apiVersion"] = "batch/v1"
    bound["spec"] |= {"replicas": 1, "replicaRequirements": {"resourceRequest": {"cpu": "9"}}}
    rule = configuration(integrations=[{"apiVersion": "batch/v1", "kind": "Job"}])
    path = write(tmp_path, rule, queue("a"), cluster("m", {"cpu": 4}), batch, bound)
    assert run("pending", "-f", path, "-o", "name").out == "job.batch/ml/nightly\n"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        pytest.param(["queues", "bb"], 1, "queue bb does not exist; there is b", id="queue"),
        pytest.param(["clusters", "n"], 1, "cluster n does not exist; there is m", id="cluster"),
        pytest.param(["queues", "--sort-by", "size"], 2, "--sort-by size: there is no such field", id="field"),
        pytest.param(["pending", "-l", "a b"], 2, "-l 'a b': 'a b' is not a requirement", id="selector"),
        pytest.param(["queues", "-o", "jsonn"], 2, "'jsonn' is unknown; write table, wide", id="unknown-format"),
        pytest.param(["explain", "job", "a/b/c/d"], 2, "'a/b/c/d' is not a name", id="name"),
        pytest.param(["plan", "-o", "csv"], 2, "-o csv is for lists of objects", id="format"),
        pytest.param(["explain", "job", "ml/old", "-n", "x"], 2, "is not in namespace 'x'", id="two-namespaces"),
    ],
)
def test_wrong_selection_is_reported(run, state, arguments, code, expected):
    ended = run(*arguments, "-f", state)
    assert ended.code == code
    assert expected in ended.err


def pending_by(run, tmp_path, field, *documents):
    path = write(tmp_path, cluster("m", {"cpu": 4}), queue("a"), *documents)
    ended = run("pending", "--sort-by", field, "-f", path, "-o", "name", "--now", NOW)
    return ended, [name.rpartition("/")[2] for name in ended.out.split()]


def test_largest_age_is_sorted_first(run, tmp_path):
    times = {"12d": "02-17T10:00:00", "5h": "03-01T05:00:00", "59d": "01-01T00:00:00", "45s": "03-01T09:59:15"}
    jobs = [job(name, {"cpu": 9}, queue="a", created=f"2026-{time}Z") for name, time in times.items()]
    assert pending_by(run, tmp_path, "age", *jobs)[1] == ["59d", "12d", "5h", "45s"]


def test_job_without_a_raised_priority_is_sorted_last(run, tmp_path):
    old = running("old", {"cpu": 4}, on="m", queue="a")
    raised = job("raised", {"cpu": 4}, queue="a", created="2026-03-01T00:00:00Z", priority="low")
    rules = configuration(ageing={"after": "10m", "step": 1, "max": 100}), priority_class("low", -1000)
    new = job("new", {"cpu": 4}, queue="a", created=NOW)
    assert pending_by(run, tmp_path, "raisedPriority", *old, *rules, new, raised)[1] == ["raised", "new"]
    ended, names = pending_by(run, tmp_path, "raisedPriority", *old, new)
    assert (ended.code, names) == (0, ["new"])


def test_title_of_a_column_is_no_resource_to_sort_by(run, tmp_path):
    path = write(tmp_path, cluster("m", {"cpu": 4, "nvidia.com/gpu": 2}))
    ended = run("clusters", "--sort-by", "allocatable.gpu", "-f", path)
    assert (ended.code, ended.err) == (2, "--sort-by allocatable.gpu: did you mean allocatable.nvidia.com/gpu?\n")
    assert run("clusters", "--sort-by", "allocatable.nvidia.com/gpu", "-f", path).code == 0


def test_job_with_a_resource_of_the_same_ending_spoils_no_order(run, tmp_path):
    jobs = {"other": {"example.com/cpu": 1}, "small": {"cpu": 1}, "large": {"cpu": 2}}
    manifests = [manifest for name, requests in jobs.items() for manifest in running(name, requests, on="m")]
    ended = run("top", "--sort-by", "charge.cpu", "-o", "name", "-f", write(tmp_path, queue("a"), *manifests))
    assert (ended.code, [name.rpartition("/")[2] for name in ended.out.split()]) == (0, ["large", "small", "other"])


def test_labels_that_select_nothing_print_no_legend(run, state):
    assert run("queues", "-l", "app=none", "-f", state).out == "No queue is selected.\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["pending", "ml/old"], "No selected workload is pending.", id="pending-name"),
        pytest.param(["pending", "-n", "lab"], "No selected workload is pending.", id="pending-namespace"),
        pytest.param(["top", "big"], "No selected workload is admitted.", id="top"),
        pytest.param(["clusters", "-l", "zone=none"], "No cluster is selected.", id="clusters"),
    ],
)
def test_empty_selection_is_not_reported_as_an_empty_list(run, state, arguments, text):
    assert run(*arguments, "-f", state).out == f"{text}\n"


@pytest.mark.parametrize(
    ("parent", "names"), [("org", ["j1", "j2"]), ("root", ["j1", "j2", "j3", "lost"]), ("x", ["j1"])]
)
def test_queue_selects_the_workloads_of_queues_below_it(run, tmp_path, parent, names):
    tree = queue("org"), queue("x", parent="org"), queue("y", parent="org"), queue("other")
    queues = {"j1": "x", "j2": "y", "j3": "other", "lost": "gone"}
    path = write(tmp_path, *tree, *(job(name, {"cpu": "1"}, queue=of) for name, of in queues.items()))
    ended = run("pending", "--queue", parent, "-f", path, "-o", "json")
    assert sorted(workload["name"] for workload in ended.answer["pending"]) == names


def test_unknown_queue_is_reported_with_the_number_of_queues(run, tmp_path):
    path = write(tmp_path, *map(queue, "abcdefg"))
    assert run("queues", "nothing", "-f", path).err == (
        "queue nothing does not exist; there is a, b, c, d, e and 2 more\n"
    )


def test_fair_share_of_the_root_is_its_limit_without_requests(run, tmp_path):
    answer = run("queues", "-f", write(tmp_path, cluster("m", {"cpu": 4, "nvidia.com/gpu": 2})), "-o", "json").answer
    root = next(report for report in answer["queues"] if report["name"] == "root")
    assert root["fairShare"] == {name: root["limit"][name] for name in ("cpu", "nvidia.com/gpu")}


def test_queues_show_devices_of_clusters_that_are_not_used(run, tmp_path):
    fleet = cluster("m", {"cpu": 4, "nvidia.com/gpu": 2, "ephemeral-storage": "9Gi"}, ready=False)
    out = run("queues", "-f", write(tmp_path, fleet, queue("a"), job("j", {"cpu": 1}, queue="a"))).out
    assert out.splitlines()[0].split() == ["QUEUE", "STATE", "PENDING", "ADMITTED", "CPU", "MEMORY", "GiB", "GPU"]


@pytest.mark.parametrize("reason", EvictionReason)
def test_eviction_and_its_end_have_reasons_and_messages(tmp_path, reason):
    documents = [
        *(cluster("m", {"cpu": 4}), queue("a")),
        *running("victim", {"cpu": 1}, on="m", queue="a"),
        *(job("leaving", {"cpu": 1}, queue="a"), binding("leaving", suspended=True, clusters=["m"])),
    ]
    snapshot = read_offline_state([write(tmp_path, *documents)], 10**12).snapshot(10**12)
    victim = next(workload for workload in snapshot.engine.workloads.values() if workload.name == "victim")
    report = plan_report(replace(snapshot, plan=Plan((Evict(victim, reason),))))
    evicted, leaving = json.loads(serialize(report, Format.JSON) or "")["decisions"]
    assert evicted["message"]
    assert (evicted["name"], evicted["action"], evicted["reason"]) == ("victim", "Evict", reason)
    assert plan_table(report, PLAIN).splitlines()[1].split() == ["Evict", "Job", "ml/victim", "a", "-", reason]
    assert (leaving["reason"], leaving["clusters"]) == ("PreemptionInProgress", [])
    assert leaving["message"] == "it was evicted and is still terminating on its clusters"


def test_root_counts_workloads_outside_the_hierarchy(run, tmp_path):
    documents = (
        *(cluster("m", {"cpu": 4}), queue("a"), queue("orphan", parent="gone")),
        *(job(name, {"cpu": 1}, queue=name) for name in ("a", "orphan", "none")),
    )
    listed = run("queues", "--next-cycle", "-f", write(tmp_path, *documents), "-o", "json").answer["queues"]
    root = next(report for report in listed if report["name"] == "root")
    assert (root["pending"], root["nextCycle"]["admitted"], root["nextCycle"]["pending"]) == (3, 1, 2)


def test_list_of_tenant_has_all_formats():
    amounts = {"cpu": "1"}
    report = VisibleWorkloads(
        "ml",
        (
            VisibleWorkload("Job", "a", "q", "Pending", 0, None, 2, 3, "InQueue", group="batch.volcano.sh"),
            VisibleWorkload("Job", "runs", "q", "Admitted", 0, None, group="batch.volcano.sh"),
        ),
        queues=(VisibleQueue("q", 1, 2, amounts, amounts, amounts, amounts),),
    )
    listing = pending_listing(report)
    assert listing.format(Format.NAME) == "job.batch.volcano.sh/ml/a"
    assert listing.format(Format.CSV) == "QUEUE,POSITION,KIND,NAME,SINCE,REASON\nq,2 of 3,Job,a,,InQueue"
    assert listing.format(Format.TABLE).split("\n\n")[1].startswith("QUEUE")
