"""What estimators answer is taken down, so that a replay decides as they made the World decide."""

from controller.decision_log.entries import Header, PlanEntry
from controller.decision_log.log import RecordingHandler
from controller.decision_log.records import RecordBuilder
from controller.decision_log.replay import replay
from controller.decision_log.writer import NewFile, PlanRecord
from controller.engine.checkpoint import take_checkpoint
from controller.engine.estimates import ANSWER_TTL_MS, Estimate
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.state import State
from controller.engine.workloads import WorkloadUid
from tests.decision_log.recording import encode
from tests.engine.test_estimate_tracker import START, gang, job, pods, site

POLICY = Policy(node_estimates=True, startup_timeout_ms=None)


class Taken:
    """A World whose events and plans are taken down in files."""

    def __init__(self) -> None:
        self.state, self.now, self.plans = State(POLICY), START, 0
        self.files = [[NewFile(Header(POLICY, self.now))]]
        self.hears = RecordingHandler(self.state, self.take)

    def take(self, item) -> None:
        self.files[-1].append(item)

    def plan(self, after: int = 0):
        self.now += after
        self.plans += 1
        plan, bench = self.state.plan(self.now), RecordBuilder(self.state)
        verdicts = (*bench.plan_records(plan), *bench.pending_records(plan.waits))
        self.files[-1].append(PlanRecord(PlanEntry(self.plans, self.now, None, "0" * 12, len(verdicts)), verdicts))
        return plan

    def another_file(self) -> None:
        self.files.append([NewFile(Header(POLICY, self.now, is_whole=False), take_checkpoint(self.state))])


def test_estimates_are_replayed_from_every_file():
    life = Taken()
    life.hears.queue_changed(Queue(QueueName("q")))
    life.hears.cluster_changed(site("m1", 100), life.now)
    for name in "abcd":
        life.hears.workload_changed(job(name, gang(pods(2, cpu=5)), created_at=ord(name)), life.now)
    asked = life.plan().queries
    life.another_file()
    life.hears.cluster_estimated(Estimate(asked[0], 4), life.now)
    assert len(life.plan().decisions) == 2
    life.another_file()
    assert not life.plan(after=10).decisions
    asked = life.plan(after=ANSWER_TTL_MS).queries
    life.hears.cluster_estimated(Estimate(asked[0], 6), life.now)
    assert [each.workload.uid for each in life.plan().decisions] == [WorkloadUid("c")]

    for number, items in enumerate(life.files):
        result, _ = replay(encode(items))
        assert not result.notes, number
        assert result.is_identical, result.differences
