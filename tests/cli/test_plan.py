"""Plans from files, and the fields of the JSON report."""

import pytest

from controller.api.configuration import VolcanoGlobalConfiguration, configuration_revision
from localup.karmada.member import Node
from tests.cli.manifests import (
    ONE,
    VOLCANO_JOB,
    binding,
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
from tests.clusters import with_models

CPU = {"cpu": 1}
DEPLOYMENT = ("apps/v1", "Deployment")
EAST = {"clusterAffinity": {"clusterNames": ["east"]}}
WEST = {"clusterAffinity": {"clusterNames": ["west"]}}


DEFAULTS = VolcanoGlobalConfiguration()


def test_json_report_has_the_documented_fields(plan):
    ended = plan(
        cluster("member1", {"cpu": 8}),
        queue("a", capability={"cpu": 6}),
        *running("j0", {"cpu": 2}, on="member1", queue="a"),
        job("j1", {"cpu": 2}, queue="a"),
        job("j2", {"cpu": 3}, queue="a"),
    )
    answer = ended.answer
    assert answer.pop("configuration") == {"revision": configuration_revision(DEFAULTS), "source": "Defaults"}
    assert answer == {
        "apiVersion": "cli.volcano-global.io/v1alpha1",
        "decisions": [
            {
                "kind": "Job",
                "namespace": "ml",
                "name": "j1",
                "queue": "a",
                "action": "Admit",
                "clusters": [{"name": "member1"}],
                "reason": None,
                "message": "",
            },
            {
                "kind": "Job",
                "namespace": "ml",
                "name": "j2",
                "queue": "a",
                "action": "Wait",
                "clusters": [],
                "reason": "QueueLimitReached",
                "message": "it requests 3 cpu, queue 'a' has 2 left below its limit",
            },
        ],
        "queues": [
            {
                "name": "a",
                "fairShare": {"cpu": "6"},
                "allocated": {"cpu": "4"},
                "limit": {"cpu": "6"},
                "limited": ["cpu"],
                "share": 0.667,
            },
            {
                "name": "root",
                "fairShare": {"cpu": "8"},
                "allocated": {"cpu": "4"},
                "limit": {"cpu": "8"},
                "limited": ["cpu"],
                "share": 0.5,
            },
        ],
    }
    assert list(ended.answer["decisions"][0]) == [
        *("kind", "namespace", "name", "queue", "action", "clusters", "reason", "message")
    ]


IDLE = {"cpu": 128, "memory": "2Ti", "nvidia.com/gpu": 8}
ONE_GPU = {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 1}


def test_gpu_job_fits_a_cluster_with_default_models(plan):
    ended = plan(cluster("member1", IDLE), queue("a"), job("j", ONE_GPU, queue="a"))
    assert ended.clusters() == {"j": ["member1"]}


@pytest.mark.parametrize(
    "used",
    [
        pytest.param({"cpu": 8, "nvidia.com/gpu": 8}, id="no-gpu-free"),
        pytest.param({"cpu": 121, "nvidia.com/gpu": 7}, id="too-little-cpu-free"),
    ],
)
def test_gpu_job_on_a_busy_node_waits_for_capacity(plan, used):
    ended = plan(cluster("member1", IDLE, used=used), queue("a"), job("j", ONE_GPU, queue="a"))
    assert ended.reasons() == {"j": "InsufficientCapacity"}


def test_pod_larger_than_any_free_node_waits_for_capacity(plan):
    nodes = [
        Node(
            {"cpu": 16_000, "memory": 64 * 2**30, "pods": 110_000}, {"cpu": 9_000, "memory": 33 * 2**30, "pods": 1_000}
        )
    ] * 4
    has = {"cpu": 64, "memory": "256Gi"}
    crowded = with_models(cluster("member1", has, used={"cpu": 36, "memory": "132Gi"}), nodes)
    ended = plan(crowded, queue("a"), job("j", {"cpu": 8, "memory": "32Gi"}, queue="a"))
    (wait,) = ended.answer["decisions"]
    assert (wait["reason"], wait["message"]) == (
        "InsufficientCapacity",
        "no candidate cluster has a node for each of its pods",
    )


def test_pending_jobs_are_sorted_by_queue_and_position(plan):
    waiting = [
        job("late", {"cpu": 9}, queue="b", created="2026-03-01T09:00:00Z"),
        job("early", {"cpu": 9}, queue="b", created="2026-03-01T08:00:00Z"),
        job("urgent", {"cpu": 9}, queue="b", created="2026-03-01T09:30:00Z", priority="high"),
        job("other", {"cpu": 9}, queue="a"),
    ]
    ended = plan(cluster("m", {"cpu": 8}), queue("a"), queue("b"), priority_class("high", 10), *waiting)
    assert list(ended.reasons()) == ["other", "urgent", "early", "late"]


def test_fair_shares_are_rounded_down(plan):
    queues = [queue(name) for name in "abc"]
    waiting = [each for name in "abc" for each in jobs(name, 4, {"cpu": 1, "memory": "3Gi"}, queue=name)]
    ended = plan(cluster("m", {"cpu": 10, "memory": "10Gi"}), *queues, *waiting)
    assert ended.queue("a")["fairShare"] == {"cpu": "3333m", "memory": "3579139413"}


@pytest.mark.parametrize(
    ("documents", "share"),
    [
        pytest.param([], None, id="nothing-asked"),
        pytest.param([job("big", {"cpu": 4}, queue="a")], 1.0, id="one-of-one"),
        pytest.param(running("old", {"gpu": 1}, on="m", queue="a"), None, id="infinite"),
    ],
)
def test_share_is_a_number_or_null(plan, documents, share):
    ended = plan(cluster("m", {"cpu": 4}), queue("a"), *documents)
    assert ended.queue("a")["share"] == share


def test_pods_are_listed_only_if_the_queue_names_them(plan):
    ended = plan(cluster("m", CPU), queue("a", capability={"pods": 3}), queue("b"), job("j", CPU, queue="a"))
    assert ended.queue("a")["allocated"] == {"cpu": "1", "pods": "1"}
    assert ended.queue("a")["fairShare"] == {"cpu": "1"}
    assert ended.queue("b")["allocated"] == {"cpu": "0"}


def test_queue_outside_the_hierarchy_is_listed_with_usage(plan):
    ended = plan(
        cluster("m", {"cpu": 4}),
        queue("a", parent="gone"),
        *running("old", CPU, on="m", queue="a"),
        job("j", CPU, queue="a"),
    )
    assert ended.reasons() == {"j": "QueueHierarchyInvalid"}
    assert ended.queue("a") == {
        "name": "a",
        "fairShare": {"cpu": "0"},
        "allocated": {"cpu": "1"},
        "limit": {"cpu": "0"},
        "limited": [],
        "share": None,
    }


# -- placed jobs ------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "admitted"),
    [
        pytest.param("Running", 6, id="running"),
        pytest.param("Pending", 4, id="not-yet"),
        pytest.param(None, 4, id="silent"),
    ],
)
def test_cluster_summary_includes_running_jobs_only(plan, phase, admitted):
    there = cluster("m", {"cpu": 8}, used={"cpu": 2})
    placed = [job("old", {"cpu": 2}, queue="a"), binding("old", clusters=["m"], phase=phase)]
    ended = plan(there, queue("a"), *placed, *jobs("j", 8, CPU, queue="a"))
    assert len(ended.clusters()) == admitted


def test_finished_job_has_no_usage(plan):
    ended = plan(
        cluster("m", {"cpu": 2}),
        queue("a"),
        *running("old", {"cpu": 2}, on="m", phase="Completed"),
        job("j", {"cpu": 2}, queue="a"),
    )
    assert ended.clusters() == {"j": ["m"]}
    assert ended.queue("a")["allocated"] == {"cpu": "2"}


@pytest.mark.parametrize(
    ("record_uid", "uid", "charged"),
    [
        pytest.param("rb-old", "rb-old", "6", id="of-the-binding"),
        pytest.param("other", "rb-old", "2", id="of-another-binding"),
        pytest.param("whatever", None, "6", id="binding-without-uid"),
        pytest.param(None, "rb-old", "6", id="record-without-uid"),
    ],
)
def test_charge_is_that_of_the_record_of_the_same_uid(plan, record_uid, uid, charged):
    record = {"queue": "a", "charge": {"cpu": "6", "pods": "1"}, "clusters": ["m"]}
    record |= {"uid": record_uid} if record_uid else {}
    placed = binding("old", clusters=["m"], phase="Running", record=record, uid=uid)
    ended = plan(cluster("m", {"cpu": 8}), queue("a"), placed, job("old", {"cpu": 2}, queue="a"))
    assert ended.queue("a")["allocated"] == {"cpu": charged}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(
            {"charge": {"cpu": "lots"}}, "the admission record's charge: cpu: 'lots' is not a quantity", id="charge"
        ),
        pytest.param({"admittedAt": "once"}, "annotation volcano-global.io/admission is unreadable", id="time"),
        pytest.param({"evictions": -1}, "annotation volcano-global.io/admission has negative counters", id="count"),
    ],
)
def test_invalid_record_exits_with_bad_input(plan, record, expected):
    ended = plan(queue("a"), binding("old", clusters=["m"], record=record))
    assert (ended.code, ended.out) == (2, "")
    assert f"document 2 (ResourceBinding ml/old-job): {expected}" in ended.err


def test_job_with_aborted_record_is_pending(plan):
    record = {"uid": "u", "queue": "a", "aborted": True}
    ended = plan(
        cluster("m", {"cpu": 8}),
        queue("a"),
        job("j", CPU, queue="a"),
        binding("j", suspended=True, record=record, uid="u"),
    )
    assert ended.reasons() == {"j": "Aborted"}


def test_placed_binding_without_job_is_noted(run, tmp_path):
    path = write(tmp_path, queue("default"), binding("old", clusters=["m"], phase="Running"))
    ended = run("plan", "-f", path)
    assert (ended.code, ended.err) == (
        0,
        "note: Job ml/old: it is placed, but the job is not in the files, so its usage is counted as zero\n",
    )


# -- pending jobs -------------------------------------------------------------


def test_suspended_binding_without_job_has_unknown_requests(plan):
    ended = plan(cluster("m", CPU), queue("default"), binding("j", suspended=True))
    assert ended.reasons() == {"j": "RequestsUnknown"}


def test_template_namespace_defaults_to_that_of_the_binding(plan):
    suspended = binding("j", suspended=True)
    del suspended["spec"]["resource"]["namespace"]
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), suspended)
    assert ended.clusters() == {"j": ["m"]}


def test_placement_of_the_binding_takes_precedence(plan, east_and_west):
    ended = plan(
        *east_and_west,
        queue("a"),
        job("j", CPU, queue="a"),
        binding("j", suspended=True, placement=ONE | WEST),
        policy("p", EAST),
    )
    assert ended.clusters() == {"j": ["west"]}


def test_binding_without_policy_has_no_matching_policy(plan):
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), binding("j", suspended=True, labels=None))
    assert ended.reasons() == {"j": "NoMatchingPolicy"}


def test_binding_gets_the_label_of_a_matching_policy(plan):
    documents = queue("a"), job("j", CPU, queue="a"), binding("j", suspended=True, labels=None)
    assert plan(cluster("m", CPU), *documents, policy("p", ONE)).clusters() == {"j": ["m"]}


def test_binding_that_is_not_suspended_is_not_pending(plan):
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), binding("j", suspended=False))
    assert ended.answer["decisions"] == []


def test_job_without_binding_and_policy_uses_any_one_cluster(plan, east_and_west):
    ended = plan(*east_and_west, queue("a"), job("j", CPU, queue="a"))
    assert ended.clusters() == {"j": ["east"]}


def test_policy_without_spread_constraint_charges_all_clusters(plan, east_and_west):
    ended = plan(*east_and_west, queue("a"), job("j", CPU, queue="a"), policy("p", {}))
    assert ended.clusters() == {"j": ["east", "west"]}
    assert ended.queue("a")["allocated"]["cpu"] == "2"


def test_terminating_job_gets_no_binding(plan):
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a", deletionTimestamp="2026-03-01T09:00:00Z"))
    assert ended.answer["decisions"] == []


def test_namespace_and_queue_default_to_default(plan):
    ended = plan(cluster("m", CPU), queue("default"), job("j", CPU, namespace=None))
    step = ended.answer["decisions"][0]
    assert (step["namespace"], step["queue"], step["action"]) == ("default", "default", "Admit")


def test_jobs_of_one_name_in_two_api_groups_are_distinct(plan):
    rule = {"apiVersion": "batch/v1", "kind": "Job", "queue": "spec.queue"}
    plain = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ml"}}
    plain["spec"] = {"queue": "a", "parallelism": 2, "completions": 3, "template": pod(CPU)}
    kinds = ((VOLCANO_JOB, "Job"), ("batch/v1", "Job"))
    ended = plan(
        cluster("m", {"cpu": 8}, kinds=kinds),
        queue("a"),
        job("j", CPU, queue="a"),
        plain,
        configuration(integrations=[rule]),
    )
    assert len(ended.answer["decisions"]) == 2
    assert ended.queue("a")["allocated"] == {"cpu": "3"}


def test_label_of_a_cluster_policy_is_accepted(plan):
    other = {"clusterpropagationpolicy.karmada.io/permanent-id": "x"}
    ended = plan(cluster("m", CPU), queue("a"), job("j", CPU, queue="a"), binding("j", suspended=True, labels=other))
    assert ended.clusters() == {"j": ["m"]}


def high_before_low(**more):
    queues = [queue("high", priority=5, deserved=units(1)), queue("low", deserved=units(7))]
    waiting = [*jobs("h", 8, units(1), queue="high"), *jobs("l", 8, units(1), queue="low")]
    return [cluster("m", units(8)), *queues, *waiting, *([configuration(**more)] if more else [])]


@pytest.mark.parametrize("command", ["plan", "queues"])
def test_borrowing_before_lower_priority_queue_is_noted(run, tmp_path, command):
    written = write(tmp_path, *high_before_low())
    [note] = run(command, "-f", written, "-o", "json").answer["notes"]
    assert note.startswith("queue 'high' (priority 5) uses more cpu, memory than its fair share, and queue 'low'")
    assert "Note: queue 'high' (priority 5)" in run(command, "-f", written).out


@pytest.mark.parametrize("more", [{"queueOrder": "FairShareFirst"}, {"reclaim": {"enabled": True}}])
def test_no_borrowing_note_if_fair_shares_come_first(run, tmp_path, more):
    assert "notes" not in run("plan", "-f", write(tmp_path, *high_before_low(**more)), "-o", "json").answer
