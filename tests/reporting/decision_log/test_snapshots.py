"""A file that begins with a snapshot is replayed to the same decisions, whatever the plans before it left over."""

from dataclasses import replace

from controller.engine.plan import Plan
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Admission, Workload
from controller.reporting.decision_log.replay import replay
from tests.engine import objects
from tests.history.logs import START, Log
from tests.reporting.decision_log.recording import encode

OLD = START - 1_000_000


def log_of(*workloads: Workload) -> Log:
    log = Log(policy=Policy(preemption=EvictionPolicy(enabled=True, min_runtime_ms=0, max_evictions=50), settle_ms=0))
    log.world([Queue(QueueName("q"))], [objects.cluster("m", cpu=4)])
    log.submit(*workloads)
    return log


def plan_in_new_file(log: Log) -> Plan:
    """Return the next plan, the first one of a file that is replayed to it."""
    log.start_file()
    plan = log.plan(after=0)
    result, _ = replay(encode(log.items))
    assert not result.differences
    return plan


def test_cut_plan_continues_in_a_new_file():
    log = log_of(
        objects.workload("running", {"cpu": 2}, on="m", admitted_at=OLD, has_run=True),
        objects.workload("high", {"cpu": 3}, priority=10, created_at=OLD),
        objects.workload("low", {"cpu": 2}, created_at=OLD),
    )
    assert [decision.workload.name for decision in log.plan(most=1).decisions] == ["low"]
    assert not plan_in_new_file(log).decisions  # what a plan has admitted is no victim in it


def test_moved_workload_that_was_accepted_stays_in_a_new_file():
    moved = objects.workload("moved", {"cpu": 4}, on="m", admitted_at=OLD)
    assert isinstance(moved.admission, Admission)
    log = log_of(replace(moved, admission=replace(moved.admission, moved=True)))
    assert not log.plan().decisions
    full = objects.cluster("m", cpu=4)
    log.handler.cluster_changed(replace(full, used={"cpu": 6}), log.now)
    assert not plan_in_new_file(log).decisions
