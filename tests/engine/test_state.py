from dataclasses import replace

from controller.engine.plan import Evict, Plan
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.workloads import Admission, ClusterCharge, WorkloadState
from tests.scenario import Scenario, cluster, workloads

WORLD = {
    "clusters": [{"name": "m", "has": {"cpu": 4}}],
    "queues": [{"name": "q"}],
    "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}, "count": 2}],
}


def test_plan_without_changes_is_empty():
    scenario = Scenario(WORLD)
    scenario.play({})
    patience_ends_at = scenario.now + 600_000
    assert scenario.state.plan(scenario.now) == Plan(wake_at=patience_ends_at)


def test_observed_admission_triggers_no_cycle():
    scenario = Scenario(WORLD)
    scenario.play({})
    admitted = scenario.by_name("j-1")
    echo = replace(admitted, admission=replace(admitted.admission, admitted_at=7, reported=True))
    scenario.state.workload_changed(echo, scenario.now)
    assert not scenario.state._has_changed
    assert scenario.state.cluster_usage.cluster_state("m").reported == {"cpu": 3000}


def test_failed_admission_patch_frees_its_capacity():
    scenario = Scenario(WORLD)
    scenario.play({})
    failed = replace(
        scenario.by_name("j-1"), state=WorkloadState.PENDING, admission=None, hold=Refusal(Reason.SUSPENDED)
    )
    scenario.state.workload_changed(failed, scenario.now)
    plan = scenario.state.plan(scenario.now)
    assert [decision.workload.name for decision in plan.decisions] == ["j-2"]


def test_workload_in_backoff_is_retried_when_it_ends():
    scenario = Scenario({**WORLD, "jobs": []})
    [job] = workloads({"name": "j", "queue": "q", "asks": {"cpu": 3}}, 0)
    until = scenario.now + 5_000
    scenario.state.workload_changed(replace(job, hold=Refusal(Reason.STARTUP_BACKOFF, until=until)), scenario.now)
    plan = scenario.state.plan(scenario.now)
    assert (plan.decisions, plan.wake_at) == ((), until)
    assert scenario.state.plan(until - 1).decisions == ()
    assert [decision.workload.name for decision in scenario.state.plan(until).decisions] == ["j"]


def test_summary_without_headroom_change_triggers_no_cycle():
    scenario = Scenario(WORLD)
    scenario.play({})
    scenario.state.cluster_changed(cluster({**WORLD["clusters"][0], "used": {"cpu": 2}}), scenario.now)
    assert not scenario.state._has_changed


def test_moved_workload_is_charged_on_its_new_cluster():
    scenario = Scenario({**WORLD, "clusters": [{"name": "m", "has": {"cpu": 4}}, {"name": "n", "has": {"cpu": 4}}]})
    scenario.play({})
    job = scenario.by_name("j-1")
    moved = Admission(job.requirements.requests, (ClusterCharge("n", job.requirements.requests),))
    scenario.state.workload_changed(replace(job, admission=moved), scenario.now)
    booked = {site.name: site.charged["cpu"] for site in scenario.state.cluster_usage}
    assert booked == {"m": 0, "n": 6000}


def aborted(scenario, **changes):
    job = scenario.by_name("j-1")
    return replace(job, hold=Refusal(Reason.ABORTED), **changes)


def test_aborted_admitted_workload_is_evicted_once():
    scenario = Scenario(WORLD)
    scenario.play({})
    scenario.state.workload_changed(aborted(scenario), scenario.now)
    [decision] = scenario.state.plan(scenario.now).decisions
    assert isinstance(decision, Evict)
    assert (decision.workload.name, decision.reason) == ("j-1", EvictionReason.ABORTED)
    scenario.state.workload_changed(aborted(scenario, priority=7), scenario.now)
    assert scenario.state.plan(scenario.now).decisions == ()


def test_workload_aborted_before_installation_is_not_evicted():
    scenario = Scenario(WORLD)
    scenario.play({})
    admission = replace(scenario.by_name("j-1").admission, adopted=True)
    scenario.state.workload_changed(aborted(scenario, admission=admission), scenario.now)
    assert scenario.state.plan(scenario.now).decisions == ()


def test_aborted_workload_frees_capacity_after_its_eviction():
    scenario = Scenario(WORLD)
    scenario.play({})
    scenario.state.workload_changed(aborted(scenario), scenario.now)
    scenario.state.plan(scenario.now)
    gone = aborted(scenario, state=WorkloadState.PENDING, admission=None)
    scenario.state.workload_changed(gone, scenario.now)
    assert [each.workload.name for each in scenario.state.plan(scenario.now).decisions] == ["j-2"]
    assert scenario.state.refusal(gone.uid).reason is Reason.ABORTED


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
    asked = scenario.state.refusal(scenario.by_name("a-waits").uid)
    assert (asked.reason, asked.available) == (Reason.BLOCKED_BY_FAIR_SHARE, 3000)
    scenario.state.cluster_changed(cluster({"name": "m", "has": {"cpu": "6500m", "memory": 5}}), scenario.now)
    [told] = scenario.state.plan(scenario.now).waits
    assert told.workload.name == "a-large"
    assert (told.refusal.reason, told.refusal.available) == (Reason.BLOCKED_BY_FAIR_SHARE, 4500)


def test_workload_blocked_by_guarantee_is_retried_on_freed_quota():
    scenario = Scenario(
        {
            "clusters": [{"name": "m", "has": {"cpu": 12}}],
            "queues": [
                {"name": "own", "guarantee": {"cpu": 4}},
                {"name": "idle", "guarantee": {"cpu": 2}},
                {"name": "busy"},
            ],
            "jobs": [
                {"name": "stays", "queue": "busy", "asks": {"cpu": 4}, "on": "m"},
                {"name": "ends", "queue": "busy", "asks": {"cpu": 2}, "on": "m"},
                {"name": "waits", "queue": "own", "asks": {"cpu": 6}},
            ],
        }
    )
    scenario.play({})
    assert scenario.state.refusal(scenario.by_name("waits").uid).reason is Reason.BLOCKED_BY_GUARANTEE
    scenario.state.workload_removed(scenario.by_name("ends").uid, scenario.now)
    plan = scenario.state.plan(scenario.now)
    assert [decision.workload.name for decision in plan.decisions] == ["waits"]


def test_changed_workload_keeps_its_published_reason():
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}, "count": 4}]})
    scenario.play({})
    before = scenario.state.last_reasons
    assert set(before) == {f"uid-j-{number}" for number in (2, 3, 4)}
    moved = scenario.by_name("j-3")
    requirements = replace(moved.requirements, gang_requests={"cpu": 2000})
    [fresh] = workloads({"name": "fresh", "queue": "q", "asks": {"cpu": 3}}, 9)
    for workload in (replace(moved, requirements=requirements), fresh):
        scenario.state.workload_changed(workload, scenario.now)
    assert scenario.state.last_reasons == before
    assert [wait.workload.name for wait in scenario.state.plan(scenario.now).waits] == ["fresh"]
    assert scenario.state.last_reasons == {**before, fresh.uid: before["uid-j-2"]}
