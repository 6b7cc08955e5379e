"""An engine retains nothing of objects that no longer exist, whether it plans or only follows the events of others."""

from collections import Counter
from dataclasses import replace

import pytest

from controller.engine import engine as engine_module
from controller.engine.engine import Engine
from controller.engine.lifecycle import startup
from controller.engine.policy import Ageing, EvictionPolicy, HeadReservationPolicy, Policy
from controller.engine.reasons import Reason, Refusal
from controller.engine.state import workload_index
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import Admission, ClusterCharge, HyperJobGang, Workload, WorkloadState
from tests.engine.objects import cluster, workload
from tests.retained import retained
from tests.workloads import changed

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
EVICTIONS = EvictionPolicy(enabled=True)
POLICY = Policy(
    startup_timeout_ms=5 * MINUTE,
    reclaim=EVICTIONS,
    preemption=EVICTIONS,
    head_reservation=HeadReservationPolicy(after_ms=MINUTE),
    ageing=Ageing(MINUTE, 10, 100),
    tenant_fairness="Namespace",
)


class Churn:
    """Objects with new names that come and go; *leads*: the engine plans."""

    def __init__(self, policy: Policy, *, leads: bool) -> None:
        self.engine, self.leads = Engine(policy), leads
        self.now, self.number = HOUR, 0
        self.decisions = 0

    def plan(self, *, after: int = SECOND) -> None:
        """Let time pass; the leader plans, and its admissions and evictions take effect."""
        self.now += after
        while self.leads:
            plan = self.engine.plan(self.now)
            self.decisions += len(plan.decisions)
            if not plan.is_cut:
                break
        else:
            self.engine.forget_deleted()

    def round(self) -> None:
        """Create a cluster, queues and workloads of each state, and delete them again."""
        self.number += 1
        number, engine = self.number, self.engine
        name, parent, leaf = f"m{number}", QueueName(f"p{number}"), QueueName(f"q{number}")
        engine.cluster_changed(cluster(name, cpu=8, **{f"r{number}": 4}), self.now)
        engine.queue_changed(Queue(parent, parent=ROOT, capability={"cpu": 100}))
        engine.queue_changed(Queue(leaf, parent=parent, fifo=number % 2 == 0))
        gang = HyperJobGang(f"h{number}/1", 2, 2)
        jobs = [
            *(self.job(f"a{index}-{number}", leaf, cpu=2) for index in range(3)),
            *(self.job(f"b{index}-{number}", leaf, priority=index, cpu=3, **{f"r{number}": 1}) for index in range(3)),
            *(self.job(f"g{index}-{number}", leaf, gang=gang, cpu=1) for index in range(2)),
            self.job(f"large-{number}", leaf, cpu=8),
            self.job(f"never-{number}", leaf, cpu=80),
            self.job(f"other-{number}", QueueName(f"absent{number}"), cpu=1),
            self.job(f"late-{number}", leaf, hold=Refusal(Reason.STARTUP_BACKOFF, until=self.now + MINUTE), cpu=1),
        ]
        for job in jobs:
            engine.workload_changed(job, self.now)
        self.plan()
        self.plan(after=2 * MINUTE)
        if not self.leads:
            for job in jobs[:3]:
                self.admit(job, name)
        for job in jobs[:2]:
            self.admit(job, name)
            engine.workload_changed(changed(engine.workloads[job.uid], has_run=True), self.now)
        self.plan(after=10 * MINUTE)
        engine.workload_changed(replace(jobs[0], state=WorkloadState.FINISHED), self.now)
        engine.cluster_removed(ClusterName(name)) if number % 2 else None
        self.plan()
        for job in jobs:
            engine.workload_removed(job.uid, self.now)
        if number % 2 == 0:
            engine.cluster_removed(ClusterName(name))
        engine.queue_removed(leaf)
        engine.queue_removed(parent)
        self.plan()

    def admit(self, job: Workload, name: str) -> None:
        charge = job.requirements.requests
        admission = Admission(charge, (ClusterCharge(ClusterName(name), charge),), admitted_at=self.now)
        self.engine.workload_changed(replace(job, state=WorkloadState.ADMITTED, admission=admission), self.now)

    def job(self, name: str, queue: QueueName, *, priority: int = 0, gang=None, hold=None, **requests: int) -> Workload:
        made = workload(name, requests, queue=queue, priority=priority, gang=gang, hold=hold, created_at=self.now)
        return replace(made, namespace=f"ns{self.number % 7}")

    def retained(self) -> Counter[str]:
        """Return what is retained after a day."""
        self.plan(after=24 * HOUR)
        self.plan(after=24 * HOUR)
        return retained([self.engine])


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    """Let what is dropped in batches be dropped at once."""
    monkeypatch.setattr(engine_module, "_MIN_CHANGES", 0)
    monkeypatch.setattr(workload_index, "_MIN_EXPIRATIONS", 0)
    monkeypatch.setattr(startup, "_MAX_OUTDATED", 0)


@pytest.mark.parametrize("leads", [pytest.param(True, id="leader"), pytest.param(False, id="standby")])
@pytest.mark.parametrize("estimates", [pytest.param(False, id="summaries"), pytest.param(True, id="node-estimates")])
def test_engine_retains_nothing_of_deleted_objects(estimates, leads):
    churn = Churn(replace(POLICY, node_estimates=estimates), leads=leads)
    counts = list[Counter[str]]()
    for _ in range(2):
        for _ in range(8):
            churn.round()
        counts.append(churn.retained())
    assert not churn.engine.workloads
    assert bool(churn.decisions) is leads
    assert {name: count for name, count in counts[1].items() if count > counts[0][name]} == {}


def test_cluster_without_summary_forgets_what_was_freed():
    engine, unknown = Engine(POLICY), replace(cluster("m"), allocatable=None)
    engine.cluster_changed(unknown, 0)
    for number in range(50):
        job = workload(f"j{number}", {"cpu": 1}, on="m", has_run=True)
        engine.workload_changed(job, number * MINUTE)
        engine.workload_removed(job.uid, number * MINUTE)
        engine.plan(number * MINUTE)
    assert len(engine.cluster_usage.cluster_state(unknown.name).recently_freed.charges) == 1
