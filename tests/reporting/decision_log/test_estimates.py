"""Estimates are recorded, so that a replay makes the same decisions."""

from controller.engine.checkpoint import take_checkpoint
from controller.engine.engine import Engine
from controller.engine.policy import Policy
from controller.engine.state.estimates import ANSWER_TTL_MS, Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import WorkloadUid
from controller.reporting.decision_log.codec import Header, PlanEntry
from controller.reporting.decision_log.log import RecordingHandler
from controller.reporting.decision_log.records import RecordBuilder
from controller.reporting.decision_log.replay import replay
from controller.reporting.decision_log.writer import NewFile, PlanRecord
from tests.engine.test_estimate_tracker import START, gang, job, pods, site
from tests.reporting.decision_log.recording import encode

POLICY = Policy(node_estimates=True, startup_timeout_ms=None)


class RecordedPlans:
    """A state whose events and plans are recorded in files."""

    def __init__(self) -> None:
        self.state, self.now, self.plans = Engine(POLICY), START, 0
        self.files = [[NewFile(Header(POLICY, self.now))]]
        self.handler = RecordingHandler(self.state, self.take)

    def take(self, item) -> None:
        self.files[-1].append(item)

    def plan(self, after: int = 0):
        self.now += after
        self.plans += 1
        plan, builder = self.state.plan(self.now), RecordBuilder(self.state)
        records = (*builder.plan_records(plan), *builder.pending_records(plan.waits))
        self.files[-1].append(PlanRecord(PlanEntry(self.plans, self.now, None, "0" * 12, len(records)), records))
        return plan

    def start_file(self) -> None:
        self.files.append([NewFile(Header(POLICY, self.now, is_whole=False), take_checkpoint(self.state))])


def test_estimates_are_replayed_from_every_file():
    recorded = RecordedPlans()
    recorded.handler.queue_changed(Queue(QueueName("q")))
    recorded.handler.cluster_changed(site("m1", 100), recorded.now)
    for name in "abcd":
        recorded.handler.workload_changed(job(name, gang(pods(2, cpu=5)), created_at=ord(name)), recorded.now)
    asked = recorded.plan().queries
    recorded.start_file()
    recorded.handler.cluster_estimated(Estimate(asked[0], 4), recorded.now)
    assert len(recorded.plan().decisions) == 2
    recorded.start_file()
    assert not recorded.plan(after=10).decisions
    asked = recorded.plan(after=ANSWER_TTL_MS).queries
    recorded.handler.cluster_estimated(Estimate(asked[0], 6), recorded.now)
    assert [each.workload.uid for each in recorded.plan().decisions] == [WorkloadUid("c")]

    for number, items in enumerate(recorded.files):
        result, _ = replay(encode(items))
        assert not result.notes, number
        assert result.is_identical, result.differences
