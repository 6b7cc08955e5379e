from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from controller.engine.state.workloads import HyperJobGang, WorkloadState
from tests.scenario import Scenario
from tests.scenario_parser import cluster, workloads
from tests.workloads import changed


def play(cpus: list[int], *, room: dict[str, int], minimum: int | None = None, parts: int | None = None) -> Scenario:
    """Return a gang whose parts request *cpus*, and clusters with *room*; fewer parts than *parts* may exist."""
    count = parts or len(cpus)
    group = HyperJobGang("hyper/1", count, minimum or count)
    scenario = Scenario(
        {
            "clusters": [{"name": name, "has": {"cpu": cpu}} for name, cpu in room.items()],
            "queues": [{"name": "q"}],
        }
    )
    for number, cpu in enumerate(cpus):
        [part] = workloads({"name": f"part-{number}", "queue": "q", "asks": {"cpu": cpu}}, number)
        scenario.state.workload_changed(changed(part, gang=group), scenario.now)
    return scenario


def admitted(scenario: Scenario) -> dict[str, str]:
    plan = scenario.state.plan(scenario.now)
    return {each.workload.name: each.clusters[0].name for each in plan.decisions}


def reason(scenario: Scenario, name: str):
    return scenario.state.refusal(scenario.by_name(name).uid)


def test_hyperjob_parts_are_admitted_together():
    assert admitted(play([4, 3], room={"m1": 4, "m2": 3})) == {"part-0": "m1", "part-1": "m2"}


def test_all_admissions_of_a_gang_carry_its_plan_id():
    scenario = play([4, 3], room={"m1": 4, "m2": 3})
    plans = {each.plan_id for each in scenario.state.plan(scenario.now).decisions}
    assert plans == {f"hyper/1@{scenario.now}"}


def test_no_part_is_admitted_if_one_does_not_fit():
    scenario = play([4, 4], room={"m1": 4, "m2": 3})
    assert admitted(scenario) == {}
    told = reason(scenario, "part-0")
    assert told.reason is Reason.HYPERJOB_DOES_NOT_FIT
    assert told.subject == "Job ml/part-1 (InsufficientCapacity)"


def test_failed_gang_trial_leaves_usage_unchanged():
    scenario = play([4, 4], room={"m1": 4, "m2": 3})
    scenario.state.plan(scenario.now)
    assert not any(any(site.charged.values()) or site.recently_freed for site in scenario.state.cluster_usage)
    assert not any(any(held.values()) for held in scenario.state.queue_shares.quota.allocated.values())


def test_gang_is_admitted_with_its_minimum_of_parts():
    scenario = play([4, 4, 4], room={"m1": 4, "m2": 4}, minimum=2)
    assert admitted(scenario) == {"part-0": "m1", "part-1": "m2"}
    assert reason(scenario, "part-2").reason is Reason.INSUFFICIENT_CAPACITY


def test_parts_beyond_the_minimum_are_admitted_one_by_one():
    scenario = play([4, 4, 4], room={"m1": 4, "m2": 4}, minimum=2)
    scenario.state.plan(scenario.now)
    scenario.state.workload_changed(
        replace(scenario.by_name("part-0"), state=WorkloadState.FINISHED, admission=None), scenario.now
    )
    assert admitted(scenario) == {"part-2": "m1"}


def test_gang_waits_until_its_minimum_of_parts_exists():
    scenario = play([2], room={"m1": 8}, parts=2)
    assert admitted(scenario) == {}
    assert reason(scenario, "part-0").reason is Reason.HYPERJOB_INCOMPLETE
    [part] = workloads({"name": "part-1", "queue": "q", "asks": {"cpu": 2}}, 1)
    scenario.state.workload_changed(changed(part, gang=HyperJobGang("hyper/1", 2, 2)), scenario.now)
    assert admitted(scenario) == {"part-0": "m1", "part-1": "m1"}


def test_incomplete_gang_blocks_no_other_workload():
    scenario = play([2], room={"m1": 8}, parts=2)
    [other] = workloads({"name": "other", "queue": "q", "asks": {"cpu": 8}, "since": 99}, 1)
    scenario.state.workload_changed(other, scenario.now)
    assert admitted(scenario) == {"other": "m1"}


def test_deleting_a_part_makes_its_gang_incomplete_again():
    scenario = play([6, 6], room={"m1": 8})
    scenario.state.plan(scenario.now)
    scenario.state.workload_removed(scenario.by_name("part-1").uid, scenario.now)
    scenario.state.plan(scenario.now)
    assert reason(scenario, "part-0").reason is Reason.HYPERJOB_INCOMPLETE


@pytest.mark.parametrize("room", [pytest.param(3, id="less"), pytest.param(4, id="enough")])
def test_added_capacity_admits_the_whole_gang(room):
    scenario = play([4, 4], room={"m1": 4, "m2": 0})
    scenario.state.plan(scenario.now)
    scenario.state.cluster_changed(cluster({"name": "m2", "has": {"cpu": room}}), scenario.now)
    assert len(admitted(scenario)) == (2 if room == 4 else 0)
