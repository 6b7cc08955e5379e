"""Changes of the state that scenarios cannot express: echoes of own writes, and what needs no cycle."""

from dataclasses import replace

from controller.engine.engine import Engine
from controller.engine.plan import Evict
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import Nomination, WorkloadState
from tests.engine import objects
from tests.engine.worlds import build
from tests.scenario import Scenario, cluster, workloads
from tests.workloads import changed

WORLD = {
    "clusters": [{"name": "m", "has": {"cpu": 4}}],
    "queues": [{"name": "q"}],
    "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}, "count": 2}],
}


def test_admission_changes_only_state_admission_and_nomination():
    scenario = Scenario(WORLD)
    scenario.play({})
    admission, pending = scenario.by_name("j-1").admission, scenario.by_name("j-2")
    details = replace(
        pending.details, evictions=2, nomination=Nomination("m", scenario.now, rank=0, requests={"cpu": 3})
    )
    nominated = replace(pending, priority=3, created_at=5, details=details)
    expected = replace(nominated, state=WorkloadState.ADMITTED, admission=admission).nominated_as(None)
    assert nominated.admitted(admission) == expected


def test_observed_admission_triggers_no_cycle():
    scenario = Scenario(WORLD)
    scenario.play({})
    admitted = scenario.by_name("j-1")
    echo = replace(admitted, admission=replace(admitted.admission, admitted_at=7, reported=True))
    scenario.engine.workload_changed(echo, scenario.now)
    assert not scenario.engine._has_changed
    assert scenario.engine.cluster_usage.cluster_state("m").reported == {"cpu": 3000}


def test_refused_admission_explains_no_usage_of_its_cluster():
    """C2: what the summary shows next belongs to others, for it has never contained these pods."""
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}}]})
    pending = scenario.by_name("j")
    assert scenario.play({}).order == ["j"]
    refused = replace(pending, hold=Refusal(Reason.STARTUP_BACKOFF, until=scenario.now + 60_000))
    scenario.engine.workload_changed(refused, scenario.now)
    scenario.engine.cluster_changed(cluster({**WORLD["clusters"][0], "used": {"cpu": 2}}), scenario.now)
    assert scenario.engine.cluster_usage.cluster_state("m").headroom["cpu"] == 2000


def test_observed_admission_that_ends_explains_usage():
    """C2: the summary may include its pods for a settle period."""
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}}]})
    pending = scenario.by_name("j")
    scenario.play({})
    admitted = scenario.by_name("j")
    scenario.engine.workload_changed(
        replace(admitted, admission=replace(admitted.admission, assumed=False)), scenario.now
    )
    scenario.engine.workload_changed(pending, scenario.now)
    scenario.engine.cluster_changed(cluster({**WORLD["clusters"][0], "used": {"cpu": 2}}), scenario.now)
    assert scenario.engine.cluster_usage.cluster_state("m").headroom["cpu"] == 4000


def test_summary_without_headroom_change_triggers_no_cycle():
    scenario = Scenario(WORLD)
    scenario.play({})
    scenario.engine.cluster_changed(cluster({**WORLD["clusters"][0], "used": {"cpu": 2}}), scenario.now)
    assert not scenario.engine._has_changed


def test_aborted_workload_is_evicted_once_and_frees_its_capacity():
    scenario = Scenario(WORLD)
    scenario.play({})
    job = replace(scenario.by_name("j-1"), hold=Refusal(Reason.ABORTED))
    adopted = replace(job, admission=replace(job.admission, adopted=True))
    scenario.engine.workload_changed(adopted, scenario.now)
    assert scenario.play({}).reasons == {}, "it ran before the installation"
    scenario.engine.workload_changed(job, scenario.now)
    assert scenario.play({}).reasons == {"j-1": EvictionReason.ABORTED}
    again = replace(scenario.by_name("j-1"), hold=Refusal(Reason.ABORTED), priority=7)
    scenario.engine.workload_changed(again, scenario.now)
    assert scenario.play({}).evicted == []
    scenario.engine.workload_changed(replace(job, state=WorkloadState.PENDING, admission=None), scenario.now)
    assert scenario.play({}).order == ["j-2"]
    assert scenario.engine.refusal(job.uid).reason is Reason.ABORTED


def test_cached_refusal_is_dropped_when_a_cluster_changes():
    scenario = Scenario(
        {
            "policy": {"reclaim": {"minRuntime": 1_000_300}},
            "clusters": [{"name": "m", "has": {"cpu": 5, "memory": 5}}, {"name": "n", "has": {"cpu": 2, "memory": 4}}],
            "queues": [{"name": "a", "deserved": {"memory": 4}}, {"name": "b", "deserved": {"memory": 4}}],
            "jobs": [
                {"name": "a-on-m", "queue": "a", "asks": {"cpu": 1, "memory": 3}, "on": "m"},
                {"name": "a-on-n", "queue": "a", "asks": {"cpu": 1, "memory": 3}, "on": "n"},
                {"name": "b-waits", "queue": "b", "asks": {"cpu": 2, "memory": 4}},
                {"name": "a-waits", "queue": "a", "asks": {"cpu": 4, "memory": 1}},
                {"name": "a-large", "queue": "a", "asks": {"cpu": 5, "memory": 1}},
            ],
        }
    )
    scenario.play({})
    asked = scenario.engine.refusal(scenario.by_name("a-waits").uid)
    assert (asked.reason, asked.available) == (Reason.BLOCKED_BY_FAIR_SHARE, 3000)
    scenario.engine.cluster_changed(cluster({"name": "m", "has": {"cpu": "6500m", "memory": 5}}), scenario.now)
    [told] = scenario.engine.plan(scenario.now).waits
    assert told.workload.name == "a-large"
    assert (told.refusal.reason, told.refusal.available) == (Reason.BLOCKED_BY_FAIR_SHARE, 4500)


def test_changed_workload_keeps_its_published_reason():
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}, "count": 4}]})
    scenario.play({})
    before = scenario.engine.last_reasons
    assert set(before) == {f"uid-j-{number}" for number in (2, 3, 4)}
    moved = scenario.by_name("j-3")
    requirements = replace(moved.requirements, gang_requests={"cpu": 2000})
    [fresh] = workloads({"name": "fresh", "queue": "q", "asks": {"cpu": 3}}, 9)
    for workload in (replace(moved, requirements=requirements), fresh):
        scenario.engine.workload_changed(workload, scenario.now)
    assert scenario.engine.last_reasons == before
    assert [wait.workload.name for wait in scenario.engine.plan(scenario.now).waits] == ["fresh"]
    assert scenario.engine.last_reasons == {**before, fresh.uid: before["uid-j-2"]}


def test_deleted_workloads_leave_nothing_of_their_queues_behind():
    engine = Engine()
    engine.queue_changed(Queue(QueueName("q")))
    engine.cluster_changed(objects.cluster(cpu=1), 0)
    for number in range(3):
        for queue in ("q", f"missing-{number}"):
            made = objects.workload(f"{queue}-{number}", {"cpu": 1}, queue=queue, namespace=f"ns-{number}")
            engine.workload_changed(made, number)
        assert len(engine.plan(number).decisions) == 1
        for uid in list(engine.workloads):
            engine.workload_removed(uid, number)
        engine.plan(number)
    assert set(engine.requested) <= {"q"}
    assert not engine.queue_usage.by_namespace


def test_new_state_reclaims_nothing_soon_after_an_outage():
    """The process has not seen the outage, which may also have ended the leader before it (P5)."""
    now = 10_000_000
    policy = Policy(startup_timeout_ms=None, reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0))
    gone = replace(objects.cluster("n", cpu=1000), ready=False, ready_changed_at=now - 60_000)
    running = [changed(objects.workload(f"a-{at}", {"cpu": 1000}, queue="a", on="m"), has_run=True) for at in (1, 2)]
    pending = objects.workload("b", {"cpu": 1000}, queue="b")
    queues = [Queue(QueueName(name), ROOT, deserved={"cpu": 1000}) for name in "ab"]
    engine = build(policy, *queues, *running, pending, objects.cluster("m", cpu=2000), gone, now=now)
    plan = engine.plan(now)
    assert (plan.decisions, plan.wake_at) == ((), now + 240_000)
    assert [type(decision) for decision in engine.plan(now + 240_000).decisions] == [Evict]
