"""The fields of decision records and their documentation."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from controller.engine.engine import Engine
from controller.engine.plan import Evict, Plan, StartupBackoff
from controller.engine.policy import AdvanceReservation, Policy, Tenant
from controller.engine.reasons import RULES, EvictionReason, Reason, Refusal
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.hierarchy import Queue, QueueName, QueueState
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.reporting.decision_log.codec import _TYPES
from controller.reporting.decision_log.records import Fields, RecordBuilder, record_fields
from tests.engine import objects
from tests.engine.worlds import build
from tests.reporting.decision_log.recording import RecordedRun

GIB = 1 << 30
DEFAULT = Policy()
AUDIT = (Path(__file__).parents[3] / "docs" / "operations" / "decision-log.md").read_text()


def cluster(name: str, cpu: int, *, used: int = 0, ready: bool = True) -> Cluster:
    made = objects.cluster(name, cpu=cpu * 1000, memory=100 * GIB, pods=100_000)
    return replace(made, used={"cpu": used * 1000}, ready=ready)


def workload(name: str, cpu: int, queue: str = "q") -> Workload:
    demand = {"cpu": cpu * 1000, "memory": GIB, "pods": 1000}
    return objects.workload(name, demand, queue=queue, uid=WorkloadUid(f"uid-{name}"), namespace="ml")


def decided(engine: Engine, *workloads: Workload, now: int = 1_000) -> dict[str, Fields]:
    """Return the record of each decision about *workloads* by name."""
    for submitted in workloads:
        engine.workload_changed(submitted, now)
    plan, builder = engine.plan(now), RecordBuilder(engine)
    records = [*builder.plan_records(plan), *builder.pending_records(plan.waits)]
    return {record.workload.name: record_fields(record, 7, "abc") for record in records}


def state_with(*things: Cluster | Queue | Policy) -> Engine:
    policy = next((thing for thing in things if isinstance(thing, Policy)), DEFAULT)
    return build(policy, *things, now=0)


def queue(name: str = "q", **more) -> Queue:
    return Queue(QueueName(name), **more)


def test_admission_record_has_queue_usage_and_limit():
    records = decided(state_with(queue(capability={"cpu": 5000}), cluster("m", 9, used=1)), workload("a", 2))
    assert records["a"] == {
        "action": "Admit",
        "uid": "uid-a",
        "kind": "Job",
        "namespace": "ml",
        "name": "a",
        "queue": "q",
        "request": {"cpu": "2", "memory": "1Gi", "pods": "1"},
        "of": "queue q",
        "used": {"cpu": "2", "memory": "1Gi", "pods": "1"},
        "limit": {"cpu": "5", "memory": "100Gi", "pods": "100"},
        "rule": "C3",
        "reason": None,
        "message": "",
        "position": None,
        "clusters": [{"name": "m", "replicas": None, "charge": {"cpu": "2", "memory": "1Gi", "pods": "1"}}],
        "revision": "abc",
        "plan": 7,
        "admittedAt": 1_000,
    }


@pytest.mark.parametrize(
    ("things", "asked", "expected"),
    [
        pytest.param(
            [queue(capability={"cpu": 3000}), cluster("m", 9)],
            [2, 2],
            ("QueueLimitReached", "Q2", "queue q", "2", "3"),
            id="ceiling",
        ),
        pytest.param(
            [queue(), cluster("m", 4), cluster("n", 4)],
            [3, 3, 2],
            ("InsufficientCapacity", "C2", "cluster m", "3", "4"),
            id="room",
        ),
        pytest.param(
            [queue(capability={"cpu": 2000}), cluster("m", 9)],
            [1, 3],
            ("ExceedsQueueLimit", "C5", "queue q", "0", "2"),
            id="never",
        ),
        pytest.param(
            [queue(), cluster("m", 4), cluster("n", 9, ready=False)],
            [1, 12],
            ("ExceedsEveryCluster", "C5", "cluster n", "0", "9"),
            id="nowhere",
        ),
        pytest.param([cluster("m", 4)], [1], ("QueueNotFound", "Q5", None, None, None), id="no-queue"),
        pytest.param(
            [queue(state=QueueState.CLOSED), cluster("m", 4)],
            [1],
            ("QueueClosed", "Q5", "queue q", "0", "4"),
            id="closed",
        ),
        pytest.param(
            [Policy(tenants=(Tenant(("ml",), queues=("x",)),)), queue(), cluster("m", 4)],
            [1],
            ("QueueNotAllowed", "Q7", "queue q", "0", "4"),
            id="not-allowed",
        ),
    ],
)
def test_pending_record_has_rule_usage_and_limit(things, asked, expected):
    records = decided(state_with(*things), *(workload(f"j{number}", cpu) for number, cpu in enumerate(asked)))
    refused = records[f"j{len(asked) - 1}"]
    assert refused["action"] == "Wait"
    amounts = refused["used"].get("cpu"), refused["limit"].get("cpu")
    assert (refused["reason"], refused["rule"], refused["of"], *amounts) == expected


def test_guarantee_refusal_names_parent_queue():
    engine = state_with(queue(), queue("p"), queue("other", guarantee={"cpu": 4000}), cluster("m", 10))
    records = decided(engine, workload("a", 5), workload("b", 5, "p"))
    [refused] = [record for record in records.values() if record["action"] == "Wait"]
    fields = (refused["reason"], refused["rule"], refused["of"], refused["used"]["cpu"], refused["limit"]["cpu"])
    assert fields == ("BlockedByGuarantee", "Q3", "queue root", "5", "10")
    assert refused["facts"]["available"] == "1"


@pytest.mark.parametrize(
    ("back_off", "expected"),
    [
        (StartupBackoff(0, 1, (ClusterName("m"),)), "it did not start on m in time"),
        (StartupBackoff(0, 1, caused_failure=False), "a part that its HyperJob needs did not start in time"),
    ],
)
def test_eviction_record_says_which_start_failed(back_off, expected):
    evicted = Evict(workload("a", 1), EvictionReason.STARTUP_TIMEOUT, back_off=back_off)
    [record] = RecordBuilder(state_with()).plan_records(Plan((evicted,)))
    assert record_fields(record, 7, "abc")["message"] == expected


def test_refusal_by_an_advance_reservation_has_its_rule():
    maintenance = AdvanceReservation("upgrade", (ClusterName("m"),), since=0, until=10_000)
    engine = state_with(Policy(advance_reservations=(maintenance,)), queue(), cluster("m", 4))
    records = decided(engine, workload("a", 1))
    assert (records["a"]["reason"], records["a"]["rule"]) == ("BlockedByReservation", "O11")


def test_refusal_to_borrow_names_the_fair_share():
    builder = RecordBuilder(state := state_with(queue(), cluster("m", 4)))
    state.workload_changed(waiting := workload("a", 1), 0)
    state.plan(0)
    record = builder.pending_record(waiting, Refusal(Reason.BLOCKED_BY_FAIR_SHARE, resource="cpu"), 1)
    assert record_fields(record, 1, "r")["of"] == "fair share of queue q"


def test_every_reason_has_a_documented_rule():
    assert set(RULES) == {*Reason, *EvictionReason}
    section = AUDIT[AUDIT.index("| rule | about |") : AUDIT.index("## The decision log")]
    listed = set(re.findall(r"\b[A-Z]\d{1,2}\b", section))
    assert {*RULES.values(), "C3", "C4", "G1", "P5", "O6", "R1"} == listed


def test_every_field_and_every_type_of_line_is_documented():
    told = set()
    for seed in range(4):
        random_run = RecordedRun(seed, exchanges=True)
        for _ in range(100):
            random_run.apply_event()
            random_run.plan()
            random_run.now += 10
        for item in random_run.files[0]:
            for verdict in getattr(item, "records", ()):
                told |= set(record_fields(verdict, 1, "r"))
    table = AUDIT[AUDIT.index("| field | meaning |") : AUDIT.index("| rule | about |")]
    assert {"forWhom", "facts", "nominatedCluster"} <= told
    assert told <= set(re.findall(r"`(\w+)`", table))
    types = AUDIT[AUDIT.index("| type | what it is |") :]
    assert {*_TYPES, "requirements"} <= set(re.findall(r"`([a-z-]+)`", types))
