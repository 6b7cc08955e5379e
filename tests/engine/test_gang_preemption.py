"""Preemption for a gang: victims are evicted for all the parts that it needs to start, or for none (P5, G1)."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from controller.engine.plan import Admit
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import total
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    HyperJobGang,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.draws import draws
from tests.engine.test_preemption import (
    LEAVES,
    admissions,
    crowded,
    decides_all_at_once,
    elastic,
    evictions,
    few,
    one_of,
    play,
)
from tests.engine.worlds import CLUSTERS, NOW, build
from tests.workloads import changed

crowds = draws(120)


@st.composite
def gathered(draw):
    """State in which borrowing workloads fill the clusters, with up to three gangs among the pending workloads."""
    rules, things = draw(crowded())
    for number in range(draw(st.integers(0, 3))):
        size = draw(st.integers(2, 4))
        group = HyperJobGang(f"h{number}/1", size, draw(st.sampled_from([size, size, size - 1, 2])))
        queue, priority = draw(st.sampled_from(LEAVES)), draw(st.sampled_from([0, 5, 10]))
        same = few(draw, 4)
        for part in range(size):
            asks = {"pods": 1000, **(same if draw(st.booleans()) else few(draw, 4))}
            waiting = one_of(
                queue, f"h{number}-{part}", {name: each for name, each in asks.items() if each}, None, group
            )
            things.append(replace(waiting, priority=priority, created_at=draw(st.integers(0, 9)) * 1000))
    return rules, things


def unit(workload: Workload) -> object:
    """Return what is admitted together."""
    return workload.gang or workload.uid


@crowds
@given(gathered())
def test_gang_fits_after_its_victims_are_evicted(crowd):
    state = build(crowd[0], *crowd[1])
    plan = state.plan(NOW)
    preemptors = {decision.preemptor for decision in evictions(plan)} - admissions(plan)
    holders = dict(state.nominated)
    assert preemptors <= set(holders)
    assert {unit(each) for each in holders.values()} == {unit(holders[uid]) for uid in preemptors}
    for group in {each.gang for each in holders.values()} - {None}:
        held = sum(each.gang == group for each in holders.values())
        assert held == state.index.gangs.missing(group) or state.index.gangs.missing(group) <= 1
    plan = next(play(state, NOW))
    assert set(holders) <= admissions(plan)
    assert not {note.workload.uid for note in plan.record_updates} & set(holders)


@crowds
@given(gathered())
def test_no_preemption_is_ever_reverted(crowd):
    state = build(crowd[0], *crowd[1])
    units = {item.uid: unit(item) for item in state.workloads.values()}
    preempted = {(units[item.workload.uid], units[item.preemptor]) for item in evictions(state.plan(NOW))}
    for plan in play(state, NOW):
        made = {(units[item.workload.uid], units[item.preemptor]) for item in evictions(plan)}
        assert not {(preemptor, victim) for victim, preemptor in made} & preempted
        preempted |= made


@crowds
@given(gathered())
def test_preemption_terminates(crowd):
    state = build(crowd[0], *crowd[1])
    state.plan(NOW)
    assert evictions(list(play(state, NOW))[-1]) == []


@crowds
@given(gathered())
def test_no_gang_runs_with_fewer_parts_than_its_minimum(crowd):
    state = build(crowd[0], *crowd[1])
    groups = {each.gang for each in state.workloads.values() if each.gang}
    for plan in (state.plan(NOW), *play(state, NOW)):
        together: dict[HyperJobGang, set[str]] = {}
        for decision in plan.decisions:
            if isinstance(decision, Admit) and decision.plan_id:
                together.setdefault(decision.workload.gang, set()).add(decision.plan_id)
        assert all(len(plans) == 1 for plans in together.values())
        for group in groups:
            running = sum(
                each.state is WorkloadState.ADMITTED for each in state.workloads.values() if each.gang == group
            )
            assert running == 0 or running >= group.minimum


@crowds
@given(gathered())
@example(elastic())
def test_second_plan_after_preemption_decides_nothing(crowd):
    decides_all_at_once(build(crowd[0], *crowd[1]))


@crowds
@given(gathered())
def test_restart_during_gang_preemption_loses_nothing(crowd):
    """Each part's own record holds its nomination; the victims' evictions are observed."""
    state = build(crowd[0], *crowd[1])
    state.plan(NOW)
    things = [*state.workloads.values(), *state.queues.values(), *state.cluster_usage.clusters]
    again = build(crowd[0], *things)
    assert not evictions(again.plan(NOW))
    assert {uid: each.nomination for uid, each in again.nominated.items()} == {
        uid: each.nomination for uid, each in state.nominated.items()
    }


@crowds
@given(gathered())
def test_usage_is_zero_without_workloads(crowd):
    state = build(crowd[0], *crowd[1])
    for _ in (state.plan(NOW), *play(state, NOW)):
        charged = total(each.admission.charge for each in state.workloads.values() if each.admission)
        booked = total(site.charged for site in state.cluster_usage)
        assert {name: each for name, each in charged.items() if each} == {
            name: each for name, each in booked.items() if each
        }
    for uid in list(state.workloads):
        state.workload_removed(uid, NOW)
    assert not any(site.leaving or site.nominated or any(site.charged.values()) for site in state.cluster_usage)
    # Charges of preserved workloads end with the clusters that still run them.
    for name in [site.cluster.name for site in state.cluster_usage if site.cluster]:
        state.cluster_removed(name)
    assert not any(any(charged.values()) for charged in state.queue_usage.settled.values())
    assert not state.queue_usage.has_transitions


def test_lost_record_of_a_part_withdraws_the_gangs_nominations():
    rules, things = small()
    state = build(rules, *things)
    assert {each.workload.name for each in evictions(state.plan(NOW))} == {"a-0", "a-1"}
    lost = changed(state.workloads[WorkloadUid("uid-h-1")], nomination=None)
    state.workload_changed(lost, NOW)
    plan = state.plan(NOW)
    assert [note.workload.name for note in plan.record_updates if note.nomination is None] == ["h-0"]


def small():
    """A cluster filled by two jobs of a queue that borrows half of it, and a gang whose fair share covers both."""
    asks = {"pods": 1000, "cpu": 2}
    jobs = [
        one_of("a", f"a-{n}", asks, Admission(asks, (ClusterCharge(CLUSTERS[0], asks),), admitted_at=n))
        for n in range(2)
    ]
    jobs += [one_of("b", f"h-{n}", asks, None, HyperJobGang("h/1", 2, 2)) for n in range(2)]
    tree = [Queue(QueueName("a")), Queue(QueueName("b"), deserved={"cpu": 4})]
    room = {"pods": 1_000_000, "cpu": 4}
    site = Cluster(name=CLUSTERS[0], enablements=frozenset({VOLCANO_JOB}), allocatable=room)
    return Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0)), [*jobs, *tree, site]
