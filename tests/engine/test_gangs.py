"""HyperJob parts that are admitted together (G1); scenarios have their reservations, preemptions and failed starts."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.fairness.pending_order import FifoHeads
from controller.engine.lifecycle.gangs import GangPlacer
from controller.engine.policy import Policy, Tenant
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import HyperJobGang, WorkloadState
from tests.scenario import Scenario
from tests.scenario_parser import cluster, workloads
from tests.workloads import changed


def submit(scenario: Scenario, number: int, cpu: int, group: HyperJobGang, *, on: str = "") -> None:
    """Submit a part for any cluster, or for the cluster *on*."""
    where = {"placement": {"affinity": {"names": [on]}}} if on else {}
    [part] = workloads({"name": f"part-{number}", "queue": "q", "asks": {"cpu": cpu}, **where}, number)
    scenario.engine.workload_changed(changed(part, gang=group), scenario.now)


def play(cpus: list[int], *, room: dict[str, int], minimum: int = 2, parts: int | None = None) -> Scenario:
    """Return a gang whose parts request *cpus*, and clusters with *room*; fewer parts than *parts* may exist."""
    scenario = Scenario(
        {
            "clusters": [{"name": name, "has": {"cpu": cpu}} for name, cpu in room.items()],
            "queues": [{"name": "q"}],
        }
    )
    for number, cpu in enumerate(cpus):
        submit(scenario, number, cpu, HyperJobGang("hyper/1", parts or len(cpus), minimum))
    return scenario


def admitted(scenario: Scenario) -> dict[str, str]:
    decisions = scenario.engine.plan(scenario.now).decisions
    return {decision.workload.name: decision.clusters[0].name for decision in decisions}


def reason(scenario: Scenario, name: str):
    return scenario.engine.refusal(scenario.by_name(name).uid)


def test_gang_is_admitted_with_its_minimum_of_parts():
    scenario = play([4, 3, 4], room={"m1": 4, "m2": 3})
    decisions = scenario.engine.plan(scenario.now).decisions
    assert {decision.workload.name: decision.plan_id for decision in decisions} == dict.fromkeys(
        ("part-0", "part-1"), f"hyper/1@{scenario.now}"
    )
    assert reason(scenario, "part-2").reason is Reason.INSUFFICIENT_CAPACITY
    scenario.engine.workload_changed(
        replace(scenario.by_name("part-0"), state=WorkloadState.FINISHED, admission=None), scenario.now
    )
    assert admitted(scenario) == {"part-2": "m1"}


def test_refused_gangs_are_not_tried_again_after_each_admission(monkeypatch):
    tried = []
    place = GangPlacer.place
    monkeypatch.setattr(GangPlacer, "place", lambda placer, gang: tried.append(gang.key) or place(placer, gang))
    jobs = [
        {"name": f"{kind}-{number}-{queue}", "queue": f"{kind}{queue}", "asks": asks(number)}
        | {"group": {"key": f"{kind}/{number}", "parts": 2, "minimum": 2}}
        for kind, asks in (
            ("refused", lambda number: {"gpu": 1, "cpu": 1 + number}),
            ("fits", lambda number: {"cpu": 1 + number}),
        )
        for number in range(8)
        for queue in "ab"
    ]
    names = ["refuseda", "refusedb", "fitsa", "fitsb"]
    queues = [{"name": name, "priority": 5 * name.startswith("refused")} for name in names]
    clusters = [{"name": "m", "has": {"cpu": 200, "gpu": 1}}, {"name": "n", "has": {"cpu": 200, "gpu": 1}}]
    running = {"name": "running", "queue": "fitsa", "asks": {"gpu": 1}, "on": "n"}
    scenario = Scenario({"clusters": clusters, "queues": queues, "jobs": [running, *jobs]})
    assert len(scenario.engine.plan(scenario.now).decisions) == 16
    assert 0 < tried.count("refused/7") < 8


@pytest.mark.parametrize(("room", "names"), [(3, set()), (4, {"part-0", "part-1"})], ids=["less", "enough"])
def test_no_part_is_admitted_until_all_fit(room, names):
    scenario = play([4, 4], room={"m1": 4, "m2": 0})
    assert admitted(scenario) == {}
    told = reason(scenario, "part-0")
    assert (told.reason, told.subject) == (Reason.HYPERJOB_DOES_NOT_FIT, "Job ml/part-1 (InsufficientCapacity)")
    scenario.engine.cluster_changed(cluster({"name": "m2", "has": {"cpu": room}}), scenario.now)
    assert set(admitted(scenario)) == names


@pytest.mark.parametrize(
    ("cpus", "room", "minimum", "names"),
    [
        pytest.param([3, 3, 4], {"m1": 6, "m2": 4}, 3, "m1 m1 m2", id="the-largest-first"),
        pytest.param([8, 4, 4], {"m1": 8}, 2, "- m1 m1", id="the-smallest-first"),
        pytest.param([9, 4, 9], {"m1": 8}, 2, "- - -", id="no-order"),
    ],
)
def test_parts_are_placed_in_the_order_in_which_enough_fit(cpus, room, minimum, names):
    where = admitted(play(cpus, room=room, minimum=minimum))
    assert " ".join(where.get(f"part-{number}", "-") for number in range(len(cpus))) == names


def test_part_for_one_cluster_is_placed_before_one_for_any():
    scenario, gang = play([], room={"m1": 4, "m2": 4}), HyperJobGang("hyper/1", 2, 2)
    submit(scenario, 0, 4, gang)
    submit(scenario, 1, 4, gang, on="m1")
    assert admitted(scenario) == {"part-0": "m2", "part-1": "m1"}


def test_incomplete_gang_waits_and_blocks_no_other_workload():
    scenario = play([2], room={"m1": 8}, parts=2)
    [other] = workloads({"name": "other", "queue": "q", "asks": {"cpu": 4}, "since": 99}, 1)
    scenario.engine.workload_changed(other, scenario.now)
    assert admitted(scenario) == {"other": "m1"}
    assert reason(scenario, "part-0").reason is Reason.HYPERJOB_INCOMPLETE
    submit(scenario, 1, 2, HyperJobGang("hyper/1", 2, 2))
    assert set(admitted(scenario)) == {"part-0", "part-1"}


def test_deleting_a_part_makes_its_gang_incomplete_again():
    scenario = play([6, 6], room={"m1": 8})
    scenario.engine.plan(scenario.now)
    scenario.engine.workload_removed(scenario.by_name("part-1").uid, scenario.now)
    scenario.engine.plan(scenario.now)
    assert reason(scenario, "part-0").reason is Reason.HYPERJOB_INCOMPLETE


def test_gang_is_tried_once_all_its_parts_may_use_their_class():
    scenario = play([2, 2], room={"m1": 8})
    scenario.engine.policy_changed(Policy(tenants=(Tenant(("*",), priority_classes=("normal",)),)))
    parts = [changed(scenario.by_name(f"part-{number}"), priority_class="high") for number in range(2)]
    for part in parts:
        scenario.engine.workload_changed(part, scenario.now)
    assert admitted(scenario) == {}
    assert reason(scenario, "part-0").reason is Reason.PRIORITY_CLASS_NOT_ALLOWED
    scenario.engine.workload_changed(changed(parts[0], priority_class="normal"), scenario.now)
    assert admitted(scenario) == {}
    assert reason(scenario, "part-0").reason is Reason.HYPERJOB_INCOMPLETE
    scenario.engine.workload_changed(changed(parts[1], priority_class="normal"), scenario.now)
    assert set(admitted(scenario)) == {"part-0", "part-1"}


def test_query_before_the_next_plan_leaves_no_charge():
    """A part names a queue that does not exist, and the gang was not evaluated yet."""
    scenario = play([], room={"m": 10})
    scenario.engine.plan(scenario.now)
    gang = HyperJobGang("hyper/1", 2, 2)
    submit(scenario, 0, 4, gang)
    [lost] = workloads({"name": "part-1", "queue": "nowhere", "asks": {"cpu": 1}}, 1)
    scenario.engine.workload_changed(changed(lost, gang=gang), scenario.now)
    for _ in range(3):
        assert reason(scenario, "part-0") is None
    assert not scenario.engine.cluster_usage.cluster_state("m").charged


class NeverBorrow:
    """Borrowing rules that refuse every part, and count how often they are asked."""

    asked = 0

    def refusal(self, *_: object) -> Refusal:
        self.asked += 1
        return Refusal(Reason.BLOCKED_BY_FAIR_SHARE)


@pytest.mark.parametrize(("minimum", "asked"), [(4, 1), (3, 2), (2, 3)])
def test_borrowing_is_evaluated_until_too_few_parts_are_left(minimum, asked):
    scenario, borrowing = play([1, 1, 1, 1], room={"m": 4}, minimum=minimum), NeverBorrow()
    gang = scenario.by_name("part-0").gang
    context = scenario.engine.context
    quotas = [context.queue_usage.quota()]
    placer = GangPlacer(FifoHeads(context.order), context.feasibility_cache, quotas, None, borrowing)
    trial = placer.place(gang)
    assert trial.refusal is not None
    assert trial.refusal.subject == "Job ml/part-0 (BlockedByFairShare)"
    assert borrowing.asked == asked


@cache
def most_parts(sizes: tuple[tuple[int, int], ...], free: tuple[int, ...]) -> int:
    """Return how many parts, each with the size of its gang and of all its pods, fit clusters in the best order."""
    return max(
        (
            1 + most_parts((*sizes[:number], *sizes[number + 1 :]), (*free[:at], left - whole, *free[at + 1 :]))
            for number, (gang, whole) in enumerate(sizes)
            for at, left in enumerate(free)
            if gang <= left
        ),
        default=0,
    )


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=2, max_size=4),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(2, 4),
)
def test_hyperjob_never_fits_only_if_no_order_of_parts_does(sizes, rooms, minimum):
    sizes = tuple((gang, gang + more) for gang, more in sizes)
    minimum = min(minimum, len(sizes))
    group = {"key": "h/1", "parts": len(sizes), "minimum": minimum}
    clusters = [{"name": f"m{number}", "has": {"u": room}} for number, room in enumerate(rooms)]
    placement = {"affinity": {"names": [cluster["name"] for cluster in clusters]}}
    jobs = [
        {"name": f"part-{number}", "queue": "q", "asks": {"u": whole}, "gang": {"u": gang}}
        | {"group": group, "placement": placement}
        for number, (gang, whole) in enumerate(sizes)
    ]
    # The limit of the root, the sum of all clusters, is to refuse no part.
    clusters.append({"name": "other", "has": {"u": 99}})
    scenario = Scenario({"clusters": clusters, "queues": [{"name": "q"}], "jobs": jobs})
    scenario.engine.plan(scenario.now)
    refusals = [reason(scenario, job["name"]) for job in jobs]
    is_refused = any(refusal and "the empty clusters hold" in (refusal.subject or "") for refusal in refusals)
    fits = most_parts(sizes, tuple(rooms)) >= minimum
    assert not (fits and is_refused)
    if len({*sizes}) == 1 and sizes[0][0] <= max(rooms):
        assert is_refused is not fits
