"""Startup timeouts, for events that scenarios cannot express (R1)."""

from dataclasses import replace

import pytest

from controller.engine.engine import Engine
from controller.engine.lifecycle.startup import backoff_ms
from controller.engine.plan import Evict, Plan
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import HyperJobGang, WorkloadState, WorkloadUid
from tests.engine.objects import workload
from tests.scenario import Scenario
from tests.workloads import changed

HOUR = 3_600_000


def late() -> Scenario:
    """Return a job that was requeued in Karmada and still does not start."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 1}, "on": "m", "ran": 600}],
        }
    )
    assert [workload.name for workload in scenario.engine.plan(scenario.now).reschedules] == ["j"]
    scenario.now += 600_000
    return scenario


def evicted(scenario: Scenario) -> list[str]:
    plan = scenario.engine.plan(scenario.now)
    return [decision.workload.name for decision in plan.decisions if isinstance(decision, Evict)]


def test_rejected_startup_eviction_is_retried_after_its_backoff():
    scenario = late()
    before = scenario.by_name("j")
    assert evicted(scenario) == ["j"]
    scenario.engine.workload_changed(changed(before, eviction_retry_at=scenario.now + 5_000), scenario.now)
    scenario.now += 4_999
    assert evicted(scenario) == []
    scenario.now += 1
    assert evicted(scenario) == ["j"]


def test_orphaned_hyperjob_part_is_missed_in_time():
    group = {"key": "h/1", "parts": 2, "minimum": 2}
    job = {"queue": "q", "asks": {"u": 1}, "on": "m", "ran": 10, "started": True, "group": group}
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "first", **job}, {"name": "second", **job}],
        }
    )
    scenario.engine.plan(scenario.now)
    second = scenario.by_name("second")
    scenario.engine.workload_changed(replace(second, details=replace(second.details, gang=None)), scenario.now)
    assert scenario.engine.plan(scenario.now).wake_at == scenario.now + 600_000
    scenario.now += 600_000
    assert evicted(scenario) == ["first"]


def of_two_parts() -> Scenario:
    """Return a scenario in which the first part runs and the second one, without which it is evicted, waits."""
    job = {"queue": "q", "asks": {"u": 1}, "group": {"key": "h/1", "parts": 2, "minimum": 2}}
    return Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [
                {"name": "first", **job, "on": "m", "ran": 10, "started": True},
                {"name": "second", **job, "hold": "DataNotReady"},
            ],
        }
    )


def test_backoff_grows_while_too_few_parts_run():
    """As where a webhook of others denies the admission of one part (G1)."""
    scenario = of_two_parts()
    first, counts, backoffs = scenario.by_name("first"), [], []
    for _ in range(3):
        # Its record has the number of failed starts, also while it runs.
        counts.append(scenario.by_name("first").details.failed_starts)
        running = replace(first, details=replace(first.details, failed_starts=counts[-1]))
        scenario.engine.workload_changed(running, scenario.now)
        scenario.engine.plan(scenario.now)
        scenario.now += 600_000
        (eviction,) = scenario.engine.plan(scenario.now).decisions
        backoffs.append(((eviction.back_off.until - scenario.now) // 1000, eviction.has_run))
        scenario.engine.plan(scenario.now)
    assert (counts, scenario.by_name("first").details.evictions) == ([0, 1, 2], 0)
    assert backoffs == [(300, False), (600, False), (1200, False)]


def test_parts_that_ran_together_have_not_failed_to_start():
    """Here both have run, and then Karmada had no cluster for the second one."""
    scenario = of_two_parts()
    first, second = scenario.by_name("first"), scenario.by_name("second")
    unplaced = replace(first.details, has_run=False, has_run_before=True, unplaced=True)
    scenario.engine.workload_changed(replace(first, uid=second.uid, name="second", details=unplaced), scenario.now)
    scenario.engine.workload_changed(replace(first, details=replace(first.details, failed_starts=3)), scenario.now)
    scenario.engine.plan(scenario.now)
    scenario.now += 600_000
    decisions = scenario.engine.plan(scenario.now).decisions
    assert {eviction.workload.name: eviction.has_run for eviction in decisions} == {"first": True, "second": False}
    assert scenario.by_name("first").details.failed_starts == 0


def test_readmitted_workload_gets_the_whole_startup_timeout():
    scenario = late()
    assert evicted(scenario) == ["j"]
    gone = replace(scenario.by_name("j"), admission=None, hold=None)
    scenario.engine.workload_changed(
        replace(gone, requirements=replace(gone.requirements, excluded_clusters=frozenset())), scenario.now
    )
    scenario.engine.plan(scenario.now)
    assert scenario.by_name("j").state is WorkloadState.ADMITTED
    scenario.now += 600_000
    assert [workload.name for workload in scenario.engine.plan(scenario.now).reschedules] == ["j"]


def test_changed_startup_timeout_counts_from_the_admission():
    scenario = late()
    scenario.engine.policy_changed(replace(scenario.engine.policy, startup_timeout_ms=1_200_000))
    assert evicted(scenario) == []
    scenario.now += 600_000
    assert evicted(scenario) == ["j"]
    scenario.engine.policy_changed(replace(scenario.engine.policy, startup_timeout_ms=None))
    assert scenario.engine.plan(scenario.now).reschedules == ()


def test_deleted_gangs_are_forgotten_without_startup_timeout():
    engine, gang = Engine(), HyperJobGang("h/1", 2, 2)
    for part in ("a", "b"):
        engine.workload_changed(workload(part, {"cpu": 1}, gang=gang), 1)
    engine.plan(1)
    for part in ("a", "b"):
        engine.workload_removed(WorkloadUid(part), 2)
    engine.plan(2)
    assert not engine.index.gangs.unchecked


def test_startup_backoff_ends_at_an_hour_or_a_longer_timeout():
    assert [backoff_ms(attempts, 60_000) for attempts in (0, 3, 10**6)] == [30_000, 240_000, HOUR]
    assert backoff_ms(5, 2 * HOUR) == 2 * HOUR


def moving(near: int) -> Scenario:
    """Return a job that Karmada moves from ``near`` to ``far``, and still evicts from ``near``."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "near", "has": {"u": near}}, {"name": "far", "has": {"u": 3}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 3}, "on": ["far", "near"], "ran": 60, "moved": True}],
        }
    )
    job = scenario.by_name("j")
    shape = replace(job.requirements, evicting_from=frozenset({"near"}))
    scenario.engine.workload_changed(replace(job, requirements=shape), scenario.now)
    return scenario


def test_unstarted_moved_job_excludes_only_its_new_cluster():
    scenario = moving(near=1)
    assert evicted(scenario) == []
    scenario.now += 600_000
    assert [workload.name for workload in scenario.engine.plan(scenario.now).reschedules] == ["j"]
    scenario.now += 600_000
    plan = scenario.engine.plan(scenario.now)
    (eviction,) = (decision for decision in plan.decisions if isinstance(decision, Evict))
    assert eviction.back_off is not None
    assert eviction.back_off.excluded_clusters == ("far",)


def test_eviction_tells_present_failure_from_earlier_ones():
    """A workload that has ended in an earlier cluster since lets it be tried there again (R1)."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 1}, "on": "m", "ran": 3_600}],
        }
    )
    job = scenario.by_name("j")
    requirements = replace(job.requirements, excluded_clusters=frozenset({"earlier"}))
    scenario.engine.workload_changed(replace(job, requirements=requirements), scenario.now)
    assert evicted(scenario) == []
    scenario.now += 600_000
    (eviction,) = scenario.engine.plan(scenario.now).decisions
    assert isinstance(eviction, Evict)
    assert eviction.back_off is not None
    assert (eviction.back_off.excluded_clusters, eviction.back_off.failed_clusters) == (("earlier", "m"), ("m",))


def test_eviction_of_moved_job_names_the_cluster_it_does_not_fit():
    scenario = moving(near=4)
    scenario.engine.cluster_changed(
        replace(scenario.engine.cluster_usage.cluster_state("far").cluster, allocatable={"u": 2}), 0
    )
    (eviction,) = (decision for decision in scenario.engine.plan(scenario.now).decisions if isinstance(decision, Evict))
    assert eviction.back_off is not None
    assert eviction.back_off.moved_to == ("far",)


def test_scaled_up_from_zero_it_gets_the_whole_startup_timeout():
    """Until Karmada places it again it has no cluster, and its charge did not change."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 1}, "on": "m", "ran": 600}],
        }
    )
    admitted = scenario.by_name("j")
    scenario.engine.workload_changed(changed(admitted, has_run=True, unplaced=True), scenario.now)
    assert scenario.engine.plan(scenario.now).wake_at is None
    scenario.now += HOUR
    scenario.engine.workload_changed(changed(admitted, has_run=False, unplaced=True), scenario.now)
    plan = scenario.engine.plan(scenario.now)
    assert (plan.decisions, plan.reschedules, plan.wake_at) == ((), (), scenario.now + 600_000)
    scenario.now += 600_000
    assert evicted(scenario) == ["j"]


def test_rerun_after_finish_gets_the_whole_startup_timeout():
    """A taint evicts also finished jobs, and Karmada takes a moment to place them elsewhere."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 1}, "on": "m", "ran": 3_600, "started": True}],
        }
    )
    admitted = scenario.by_name("j")
    finished = changed(admitted, state=WorkloadState.FINISHED, admission=None)
    scenario.engine.workload_changed(finished, scenario.now)
    assert scenario.engine.plan(scenario.now) == Plan()
    scenario.engine.workload_changed(changed(admitted, has_run=False, unplaced=True), scenario.now)
    plan = scenario.engine.plan(scenario.now)
    assert (plan.decisions, plan.reschedules, plan.wake_at) == ((), (), scenario.now + 600_000)
    scenario.now += 600_000
    assert evicted(scenario) == ["j"]


def test_resumed_workload_gets_the_whole_startup_timeout():
    scenario = late()
    admitted = scenario.by_name("j")
    scenario.engine.workload_changed(replace(admitted, hold=Refusal(Reason.SUSPENDED)), scenario.now)
    scenario.now += HOUR
    assert scenario.engine.plan(scenario.now) == Plan()
    scenario.engine.workload_changed(admitted, scenario.now)
    plan = scenario.engine.plan(scenario.now)
    assert (plan.decisions, plan.reschedules, plan.wake_at) == ((), (), scenario.now + 600_000)
    scenario.now += 600_000
    assert [workload.name for workload in scenario.engine.plan(scenario.now).reschedules] == ["j"]


def test_unknown_requests_do_not_end_the_startup_timeout():
    """With ``resize.action: Report`` nothing else would evict it (D7)."""
    scenario = late()
    unknown = replace(scenario.by_name("j"), hold=Refusal(Reason.REQUESTS_UNKNOWN))
    scenario.engine.workload_changed(unknown, scenario.now)
    assert evicted(scenario) == ["j"]


@pytest.mark.parametrize(("has_run", "excluded"), [(True, ()), (False, ("m",))])
def test_cluster_that_was_lost_after_a_run_is_not_excluded(has_run, excluded):
    """R1: it did start there, so it and equal workloads may be tried there again."""
    scenario = Scenario(
        {
            "policy": {"startupTimeout": 600},
            "clusters": [{"name": "m", "has": {"u": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"u": 1}, "on": "m", "ran": 3_600, "started": True}],
        }
    )
    lost = changed(scenario.by_name("j"), has_run=False, unplaced=True, has_run_before=has_run)
    scenario.engine.workload_changed(lost, scenario.now)
    scenario.now += 600_000
    (eviction,) = scenario.engine.plan(scenario.now).decisions
    assert isinstance(eviction, Evict)
    assert eviction.back_off is not None
    assert eviction.back_off.excluded_clusters == excluded
