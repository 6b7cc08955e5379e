"""What `explain` says about a job and about a queue, and about those that do not exist."""

from types import SimpleNamespace

import msgspec
import pytest

from controller.api.clusters import decode_cluster
from controller.cache.start_failures import cluster_fingerprint
from controller.cache.translate.clusters import translate_cluster
from controller.cli.render.explain import Explanation, explanation_text
from controller.cli.render.output import PLAIN
from controller.cli.reports.explain import candidate_reports
from controller.engine.policy import Policy
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.workloads import SchedulingRequirements
from tests.cli.manifests import (
    admitted,
    binding,
    cluster,
    cluster_scoped,
    configuration,
    job,
    jobs,
    priority_class,
    queue,
    reclaim_due,
    running,
    units,
    write,
)
from tests.engine import objects, worlds

CPU = {"cpu": 1}
QUEUE, JOB = queue("a"), job("j", {"cpu": 2}, queue="a")
CLOSED = queue("a", state="Closed"), JOB
COPIED = JOB, binding("j", suspended=True, placement={})
CLUSTER, TAINTED = cluster("m", CPU), cluster("m", {"cpu": 2}, taints=[{"key": "a", "effect": "NoSchedule"}])
USUAL = priority_class("usual", 7, globalDefault=True)
REFUSED = {"aggregatedStatus": [{"clusterName": "m", "appliedMessage": "denied: no queue 'a'", "health": "Unknown"}]}
EXPLAINED = {
    "refused-by-its-cluster": (
        [QUEUE, job("j", CPU, queue="a"), binding("j", clusters=["m"]) | {"status": REFUSED}],
        "m does not accept it, or its last change, and reports no status: denied: no queue 'a'.",
    ),
    "unknown-priority-class": (
        [QUEUE, job("j", CPU, queue="a", priority="gone"), USUAL],
        "Priority 7, the default, because PriorityClass 'gone' does not exist",
    ),
    "adopted": (
        [QUEUE, *running("j", CPU, on="m", queue="a")],
        "It was not admitted: it ran before the installation, or others started it. It is never evicted.",
    ),
    "duplicated": (
        [QUEUE, CLUSTER, cluster("n", CPU), *COPIED],
        "Its placement duplicates it to 2 clusters; each copy is charged.",
    ),
    "full-cluster": ([*CLOSED, CLUSTER], "m: lacks 1 cpu (1 free)."),
    "almost-free-cluster": ([*CLOSED, cluster("m", {"cpu": "1999m"})], "m: lacks 1m cpu (1.99 free)."),
    "small-charge": (
        [QUEUE, CLUSTER, job("j", {"cpu": "5m"}, queue="a")],
        "m, charged with 5m cpu in 1 pod.\n  That is 5m of 5m cpu used by queue 'a'.",
    ),
    "free-cluster": ([*CLOSED, cluster("m", {"cpu": 2})], "m: has free capacity for it."),
    "not-ready": ([*CLOSED, cluster("m", {"cpu": 2}, ready=False)], "m: a candidate, but it is not ready."),
    "no-summary": ([*CLOSED, cluster("m", None)], "m: a candidate, but it has no resource summary."),
    "nodes-too-small": (
        [
            configuration(nodeShapes=[{"clusters": ["m"], "nodes": [{"count": 2, "allocatable": {"cpu": 1}}]}]),
            *CLOSED,
            cluster("m", {"cpu": 2}),
        ],
        "m: a candidate, but it cannot hold its gang on its nodes, even empty ones.",
    ),
    "kind-not-served": (
        [*CLOSED, cluster("m", {"cpu": 2}, kinds=())],
        "m: not a candidate: it does not serve batch.volcano.sh/v1alpha1 Job (ApiNotEnabled).",
    ),
    "tolerated-taint": (
        [
            *CLOSED,
            cluster("m", {"cpu": 2}, taints=[{"key": key, "effect": "NoSchedule"} for key in "ab"]),
            binding("j", suspended=True, placement={"clusterTolerations": [{"key": "a", "operator": "Exists"}]}),
        ],
        "the placement does not tolerate its taint b:NoSchedule (UntoleratedTaint).",
    ),
    "tainted-cluster": (
        [*CLOSED, TAINTED],
        "m: not a candidate: the placement does not tolerate its taint a:NoSchedule (UntoleratedTaint).",
    ),
}


@pytest.mark.parametrize(("documents", "expected"), EXPLAINED.values(), ids=EXPLAINED)
def test_job_and_clusters_are_explained(explain, documents, expected):
    assert expected in explain(*documents).out


def test_free_capacity_excludes_what_is_set_aside_for_others(explain):
    """Of 3 units 1 is free; b-1 waits for the end of a victim, and 2 are set aside for it."""
    documents = (
        configuration(reclaim={"enabled": True}),
        cluster("m", units(3)),
        *(queue(name, deserved=units(count)) for name, count in (("a", 1), ("b", 2), ("c", 0))),
        *(manifest for name in ("a-1", "a-2") for manifest in admitted(name, units(1), on="m", queue="a")),
        job("b-1", units(2), queue="b"),
        job("c-1", units(1), queue="c"),
    )
    assert "m: lacks 1 cpu (1 free) and 1Gi memory (1Gi free)." in explain(*documents, name="ml/b-1").text
    assert "m: lacks 1 cpu (0 free) and 1Gi memory (0 free)." in explain(*documents, name="ml/c-1").text


def test_refusal_of_an_estimator_is_shown_for_its_cluster():
    pods = PodSet((("cpu", 1000), ("pods", 1000)), 6, 6, "")
    requests = {"cpu": 6000, "pods": 6000}
    gang = SchedulingRequirements(requests, requests, objects.ONE_CLUSTER, pod_sets=(pods,))
    job = objects.workload("j", gang)
    engine = worlds.build(
        Policy(node_estimates=True), Queue(QueueName("q")), objects.cluster("m", cpu=8000), job, now=0
    )
    [query] = engine.plan(0).queries
    engine.cluster_estimated(Estimate(query, 4), 0)
    engine.plan(0)
    [report] = candidate_reports(SimpleNamespace(engine=engine), job)
    assert (report.problem, report.lacks) == (
        "has no nodes free for its gang, according to its scheduler estimator",
        {},
    )


def test_number_of_listed_workloads_ahead_is_limited(explain):
    ended = explain(cluster("m", {"cpu": 4}), queue("a"), *jobs("j", 9, {"cpu": 9}, queue="a"), name="ml/j-08")
    assert "And 2 more." in ended.out
    assert "at position 8 of 9" in ended.out


def test_pending_job_without_a_reason_is_decided_later(explain):
    answer = explain(CLUSTER, QUEUE, JOB, output="json").answer
    not_decided = msgspec.convert({**answer, "waiting": None}, Explanation)
    text = explanation_text(not_decided, PLAIN)
    assert text.startswith("Job ml/j is pending in queue 'a'; a later cycle decides about it.")


def test_priority_raised_by_waiting_is_shown(run, explain, tmp_path):
    documents = (
        cluster("m", {"cpu": 4}),
        queue("a"),
        priority_class("high", 15),
        configuration(ageing={"after": "10m", "step": 10, "max": 100}),
        *running("old", {"cpu": 4}, on="m", queue="a"),
        job("low", {"cpu": 4}, queue="a", created="2026-01-01T00:00:00Z"),
        job("high", {"cpu": 4}, queue="a", created="2026-01-01T00:30:00Z", priority="high"),
    )
    now = "2026-01-01T00:40:00Z"
    listed = run("pending", "-f", write(tmp_path, *documents), "--now", now, "-o", "csv").out.splitlines()
    place = listed[0].split(",").index("PRIORITY")
    assert [row.split(",")[place] for row in listed[1:]] == ["40 (0)", "25 (15)"]
    explained = explain(*documents, name="ml/high", now=now).text
    assert "Priority 15 of PriorityClass 'high', raised to 25 by waiting" in explained
    assert "Job ml/low with priority 0, raised to 40 by waiting" in explained


# -- unmet requirements and remedies ---------------------------------------------


def test_unmet_queues_and_closest_cluster_are_listed(explain):
    waiting = explain(
        cluster("m", {"cpu": 4, "memory": "4Gi"}),
        queue("p", capability={"cpu": 3}),
        queue("a", parent="p", capability={"cpu": 2}),
        *running("old", {"cpu": 3, "memory": "3Gi"}, on="m", queue="a"),
        job("j", {"cpu": 2, "memory": "2Gi"}, queue="a"),
        output="json",
    ).answer["waiting"]
    assert [missing["message"] for missing in waiting["missing"]] == [
        "queue 'a': requests 2 cpu, free -1, lacks 3",
        "queue 'p': requests 2 cpu, free 0, lacks 2",
        "all clusters together: requests 2 cpu, free 1, lacks 1",
        "all clusters together: requests 2Gi memory, free 1Gi, lacks 1Gi",
        "cluster 'm': requests 2 cpu, free 1, lacks 1",
        "cluster 'm': requests 2Gi memory, free 1Gi, lacks 1Gi",
    ]
    assert [change["change"] for change in waiting["changes"]] == [
        "queue/a.spec.capability.cpu=5",
        "queue/p.spec.capability.cpu=5",
        "cluster/m.status.resourceSummary.allocatable.cpu=5",
        "cluster/m.status.resourceSummary.allocatable.memory=5Gi",
    ]
    assert waiting["remedy"].startswith("raise capability of queue 'a' from 2 to 5 cpu and ")
    assert waiting["complete"]


@pytest.mark.parametrize(
    ("shapes", "member", "expected"),
    [
        pytest.param([], TAINTED, ["NoMatchingCluster"], id="no-cluster"),
        pytest.param(
            [{"count": 2, "allocatable": {"cpu": 1}}], cluster("m", {"cpu": 2}), ["ExceedsEveryCluster"], id="no-nodes"
        ),
        pytest.param(
            [],
            cluster("m", CPU, ready=False),
            ["ExceedsTotalCapacity", "InsufficientCapacity", "InsufficientCapacity"],
            id="not-ready",
        ),
    ],
)
def test_unusable_clusters_are_listed_only_where_all_are(explain, shapes, member, expected):
    nodes = [{"clusters": ["m"], "nodes": shapes}] if shapes else []
    documents = configuration(nodeShapes=nodes), QUEUE, member, JOB
    ended = explain(*documents, output="json")
    assert [missing["reason"] for missing in ended.answer["waiting"]["missing"]] == expected


def test_sibling_guarantees_that_lower_a_limit_are_listed(explain):
    guaranteed = (queue(name, guarantee={"resource": {"cpu": cpu}}) for name, cpu in (("b", 3), ("c", 4)))
    documents = cluster("m", {"cpu": 10}), queue("a"), *guaranteed, job("j", {"cpu": 5}, queue="a")
    waiting = explain(*documents, output="json").answer["waiting"]
    first = waiting["missing"][0]
    assert (
        first["message"] == "queue 'a': requests 5 cpu, free 3 even while idle, lacks 2; guaranteed to others: b 3, c 4"
    )
    assert first["guaranteedToOthers"] == [{"queue": "b", "amount": "3"}, {"queue": "c", "amount": "4"}]
    assert waiting["remedy"] == "add 2 cpu to cluster 'm' (10 allocatable)"


def test_own_guarantee_is_available_and_not_for_others(explain):
    guaranteed = (queue(name, guarantee={"resource": {"cpu": cpu}}) for name, cpu in (("a", 1), ("b", 3)))
    old = running("old", {"cpu": 4}, on="m", queue="c")
    documents = cluster("m", {"cpu": 10}), *guaranteed, queue("c"), *old, job("j", {"cpu": 4}, queue="a")
    waiting = explain(*documents, output="json").answer["waiting"]
    assert waiting["reason"] == "BlockedByGuarantee"
    assert [shortfall["message"] for shortfall in waiting["missing"]] == [
        "all clusters together: requests 4 cpu, free 3, lacks 1; guaranteed to others: b 3"
    ]
    assert waiting["remedy"] == "add 1 cpu to cluster 'm' (10 allocatable)"


def test_remedy_behind_a_queue_head_is_not_complete(explain):
    waiting = explain(
        cluster("m", {"cpu": 8}),
        queue("a", dequeueStrategy="fifo"),
        *running("old", {"cpu": 5}, on="m", queue="a"),
        job("first", {"cpu": 6}, queue="a", created="2026-01-01T00:00:00Z"),
        job("j", {"cpu": 4}, queue="a", created="2026-01-02T00:00:00Z"),
        output="json",
    ).answer["waiting"]
    assert [missing["reason"] for missing in waiting["missing"]] == [
        "BlockedByQueueHead",
        *["InsufficientCapacity"] * 2,
    ]
    assert not waiting["complete"]
    assert waiting["remedy"] == (
        "add 1 cpu to cluster 'm' (8 allocatable); not included: "
        "queue 'a' is strict FIFO, and Job ml/first is ahead of it"
    )


def test_remedy_without_changes_says_it_is_incomplete(explain):
    documents = cluster("m", {"cpu": 4}), job("j", {"cpu": 9}, queue="none")
    waiting = explain(*documents, output="json").answer["waiting"]
    assert waiting["changes"] is None
    assert waiting["remedy"].endswith("; other shortages are not included")


# -- admission records -------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "is_resized", "is_over"),
    [
        pytest.param("12", True, True, id="beyond-the-limit"),
        pytest.param("6", True, False, id="within-the-limit"),
        pytest.param("4", False, False, id="unchanged"),
    ],
)
def test_resize_since_the_admission_is_explained(explain, requested, is_resized, is_over):
    record = {"uid": "rb-j", "queue": "a", "charge": {"cpu": "4", "pods": "1"}, "clusters": ["m"]}
    text = explain(
        cluster("m", units(20)),
        queue("a", capability={"cpu": "8"}),
        job("j", {"cpu": requested}, queue="a"),
        binding("j", clusters=["m"], phase="Running", record=record, uid="rb-j"),
    ).text
    resized = "It was admitted with 4 cpu in 1 pod and resized since; the current charge counts."
    exceeded = "Queue 'a' uses 12 cpu of 8; it admits nothing that requests cpu while usage exceeds the limit."
    assert (resized in text, exceeded in text) == (is_resized, is_over)


def test_failover_is_not_explained_as_a_resize(explain):
    """It is charged on both clusters until the eviction task ends."""
    record = {"uid": "rb-j", "queue": "a", "charge": {"cpu": "4", "pods": "1"}, "clusters": ["m"]}
    moving = binding("j", clusters=["n"], phase="Running", record=record, uid="rb-j")
    moving["spec"]["gracefulEvictionTasks"] = [{"fromCluster": "m", "reason": "TaintUntolerated", "producer": "p"}]
    documents = cluster("m", units(20)), cluster("n", units(20)), queue("a"), job("j", {"cpu": "4"}, queue="a"), moving
    text = explain(*documents).text
    assert "resized" not in text
    assert "8 cpu" in text


def recorded(record, member=None):
    """Return a pending job with *record*, which requests a whole cluster of 4 CPUs."""
    pending = job("j", {"cpu": 4}, queue="a"), binding("j", suspended=True, record={"uid": "u", **record}, uid="u")
    return [member or cluster("m", {"cpu": 4}), queue("a"), *pending]


@pytest.mark.parametrize("promised", [None, "2026-01-01T01:30:00Z"])
def test_reservation_and_promised_start_are_explained(explain, promised):
    record = {
        "queue": "a",
        "reservedSince": "2026-01-01T00:00:00Z",
        "reservedClusters": {"m": {"cpu": "4", "pods": "1"}},
        "nominatedRequests": {"cpu": "4", "pods": "1"},
        **({"promisedStart": promised} if promised else {}),
    }
    documents = recorded(record, cluster("m", {"cpu": 4}, used={"cpu": 2}))
    waiting = explain(*documents, now="2026-01-01T00:05:00Z", output="json").answer["waiting"]
    assert waiting["reservation"] == {
        "since": "2026-01-01T00:00:00Z",
        "clusters": ["m"],
        "promisedStart": promised,
    }
    text = explain(*documents, now="2026-01-01T00:05:00Z").text
    assert "Capacity is reserved for it on m since 2026-01-01 00:00 UTC." in text
    said = "When it was reserved, the start was expected by 2026-01-01 01:30 UTC." in text
    assert said is (promised is not None)


def fingerprint(member):
    return cluster_fingerprint(translate_cluster(decode_cluster(msgspec.json.encode(member))).cluster)


FAILED = {
    "queue": "a",
    "attempts": 1,
    "startupFailedAt": "2026-01-01T00:00:00Z",
    "excludedClusters": {"m": fingerprint(cluster("m", {"cpu": 4}))},
    "backOffUntil": "2026-01-01T00:15:00Z",
}


def test_startup_failure_backoff_and_exclusion_are_explained(explain):
    text = explain(*recorded(FAILED), now="2026-01-01T00:01:00Z").text
    assert "its next attempt is delayed: it did not start on m in time" in text
    assert "it is retried automatically after 2026-01-01T00:15:00Z" in text
    assert "the workload or an equal one did not start on it, and it has not changed since" in text


def test_explained_queue_lists_its_first_workloads(run, tmp_path):
    path = write(tmp_path, cluster("m", CPU), queue("a"), job("big", {"cpu": 9}, queue="a"))
    answer = run("explain", "queue", "queue/a", "-f", path, "-o", "json").answer
    assert answer["queue"]["name"] == "a"
    assert [workload["name"] for workload in answer["first"]] == ["big"]
    assert "no limit" in run("explain", "queue", "a", "-f", path).out


# -- missing objects ---------------------------------------------------------------


MISSING = {
    "explain job trian -n ml": "Job ml/trian does not exist; did you mean train?",
    "explain job train": "Job default/train does not exist; there is one in ml",
    "explain job ml/xyz": "Job ml/xyz does not exist; namespace ml has train, tune",
    "explain job xyz -n lab": "Job lab/xyz does not exist; namespace lab has no job at all",
    "explain job ml/free": "Job ml/free is not managed: its binding is not suspended, so Karmada places it without "
    "admission",
    "explain queue reserch": "queue reserch does not exist; there is research",
    "pending --queue reserch": "queue reserch does not exist; there is research",
}


@pytest.mark.parametrize(("command", "expected"), MISSING.items(), ids=MISSING)
def test_missing_object_is_reported_with_similar_names(run, tmp_path, command, expected):
    waiting = [job(name, CPU, queue="research") for name in ("train", "tune", "free")]
    path = write(tmp_path, queue("research"), *waiting, binding("free", suspended=False))
    ended = run(*command.split(), "-f", path)
    assert (ended.code, ended.out, ended.err) == (1, "", f"{expected}\n")


def test_missing_queue_with_pending_jobs_is_accepted(run, tmp_path):
    ended = run("pending", "--queue", "gone", "-f", write(tmp_path, job("j", CPU, queue="gone")), "-o", "json")
    assert [workload["reason"] for workload in ended.answer["pending"]] == ["QueueNotFound"]


def test_workload_without_namespace_is_explained(explain):
    # Also as `pending -o name` prints it.
    for name in ("big", "trainer/big"):
        assert explain(*cluster_scoped("big"), name=name).out.startswith("Trainer big is pending")


def test_explain_says_that_this_cycle_evicts_the_job(run, tmp_path):
    path = write(tmp_path, *reclaim_due())
    head, _, _ = run("explain", "job", "ml/a-1", "-f", path).out.partition("\n")
    assert head == (
        "Job ml/a-1 is admitted, and evicted by this scheduling cycle (Reclaimed); "
        "then it is pending in queue 'a' at position 1 of 1."
    )
    answers = [run("explain", "job", f"ml/{name}", "-f", path, "-o", "json").answer for name in ("a-1", "a-2")]
    assert [answer["evicted"] for answer in answers] == ["Reclaimed", None]
