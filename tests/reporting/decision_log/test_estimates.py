"""Estimates are recorded, so that a replay makes the same decisions."""

from controller.engine.policy import Policy
from controller.engine.state.estimates import ANSWER_TTL_MS, Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import WorkloadUid
from controller.reporting.decision_log.replay import replay
from tests.engine.test_estimate_tracker import START, gang, job, pods, site
from tests.history.logs import Log
from tests.reporting.decision_log.recording import encode

POLICY = Policy(node_estimates=True, startup_timeout_ms=None)


def test_estimates_are_replayed_from_every_file():
    log = Log(now=START, policy=POLICY)
    files = [log.items]
    log.world([Queue(QueueName("q"))], [site("m1", 100)])
    log.submit(*(job(name, gang(pods(2, cpu=5)), created_at=ord(name)) for name in "abcd"))
    asked = log.plan(after=0).queries
    log.start_file()
    files.append(log.items)
    log.handler.cluster_estimated(Estimate(asked[0], 4), log.now)
    assert len(log.plan(after=0).decisions) == 2
    log.start_file()
    files.append(log.items)
    assert not log.plan(after=10).decisions
    asked = log.plan(after=ANSWER_TTL_MS).queries
    log.handler.cluster_estimated(Estimate(asked[0], 6), log.now)
    assert [decision.workload.uid for decision in log.plan(after=0).decisions] == [WorkloadUid("c")]

    for number, items in enumerate(files):
        result, _ = replay(encode(items))
        assert not result.notes, number
        assert result.is_identical, result.differences
