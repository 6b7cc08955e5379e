"""Properties of preemption in random states with HyperJobs, played until all preemptions have finished (P5, G1).

``tests/reference`` compares which workloads are evicted; here are the parts of a HyperJob and what happens afterwards.
"""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from controller.engine.plan import Admit, Evict
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import fits, positive, subtract, total
from controller.engine.state.workloads import HyperJobGang, SchedulingRequirements, Workload, WorkloadState
from tests.draws import draws
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.engine.worlds import CLUSTERS, NOW, build, total_by_queue

crowds = draws(100)
LEAVES = [QueueName(name) for name in ("a1", "a2", "b1", "c")]
PARENTS = {"a1": "a", "a2": "a", "b1": "b"}


def few(draw, most):
    return {name: draw(st.integers(0, most)) for name in draw(st.sampled_from([("cpu",), ("cpu", "memory")]))}


@st.composite
def crowded(draw):
    """State in which borrowing workloads fill the clusters, with up to three gangs among the pending workloads."""
    sites = [cluster(name, cpu=draw(st.integers(8, 20)), memory=draw(st.integers(8, 20))) for name in CLUSTERS[:2]]
    sites = sites[: draw(st.integers(1, 2))]
    tree = [queue(draw, QueueName(name)) for name in ("a", "b", *LEAVES)]
    free = {each.name: dict(each.allocatable) for each in sites}
    jobs = [random_job(draw, number, free) for number in range(draw(st.integers(4, 18)))]
    for number in range(draw(st.integers(0, 3))):
        jobs += gang(draw, number)
    return policy(draw), [*jobs, *tree, *sites]


@st.composite
def grouped(draw):
    """A queue full of borrowing gangs, and another queue within its fair share."""
    jobs, room = [], 0
    for number in range(draw(st.integers(1, 3))):
        size, cpu = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        group = HyperJobGang(f"h{number}/1", size, draw(st.integers(1, size)))
        jobs += [job("a", f"h{number}-{part}", {"cpu": cpu}, on=CLUSTERS[0], gang=group) for part in range(size)]
        room += size * cpu
    jobs += [job("b", f"b-{number}", {"cpu": draw(st.integers(1, 4))}) for number in range(draw(st.integers(1, 4)))]
    due = draw(st.integers(0, room))
    tree = [Queue(QueueName("a"), deserved={"cpu": room - due}), Queue(QueueName("b"), deserved={"cpu": due})]
    return policy(draw), [*jobs, *tree, cluster(CLUSTERS[0], cpu=room)]


def policy(draw):
    rules = EvictionPolicy(enabled=True, min_runtime_ms=1000, max_evictions=9)
    return Policy(
        queue_order=draw(st.sampled_from(["PriorityFirst", "FairShareFirst"])),
        reclaim=replace(rules, enabled=draw(st.sampled_from([True, True, True, False]))),
        preemption=replace(rules, enabled=draw(st.booleans())),
    )


def queue(draw, name):
    return Queue(
        name=name,
        parent=QueueName(PARENTS.get(name, ROOT)),
        weight=draw(st.integers(1, 3)),
        priority=draw(st.sampled_from([0, 0, 5])),
        deserved=draw(st.sampled_from([{}, few(draw, 10)])),
        guarantee=draw(st.sampled_from([{}, {}, few(draw, 3)])),
        capability=draw(st.sampled_from([{}, {}, {"cpu": 12}])),
        fifo=draw(st.sampled_from([False, False, True])),
        reclaimable=draw(st.sampled_from([True, True, True, False])),
    )


def job(queue, name, amounts, *, minimum=4, number=0, **fields):
    """A job whose gang minimum is *minimum* quarters of its requests."""
    asks = {"pods": 1000, **positive(amounts)}
    least = {name: amount * minimum // 4 for name, amount in asks.items()}
    shape = SchedulingRequirements(asks, least, ONE_CLUSTER)
    return workload(name, shape, queue=queue, admitted_at=number, created_at=number * 1000, **fields)


def random_job(draw, number, free):
    """A job, admitted if it came early and fits."""
    amounts, early = few(draw, 6), draw(st.booleans())
    where = next((name for name in sorted(free) if early and fits({"pods": 1000, **amounts}, free[name])), None)
    if where is not None:
        free[where] = subtract(free[where], {"pods": 1000, **amounts})
    return job(
        draw(st.sampled_from(["a1", "a1", "c"] if early else LEAVES)),
        f"job-{number}",
        amounts,
        minimum=draw(st.sampled_from([4, 4, 2])),
        on=where,
        number=number,
        preserved=draw(st.sampled_from([False] * 7 + [True])),
        preempts=draw(st.sampled_from([True] * 5 + [False])),
        priority=draw(st.sampled_from([0, 0, 10])),
    )


def gang(draw, number):
    size = draw(st.integers(2, 4))
    group = HyperJobGang(f"h{number}/1", size, draw(st.sampled_from([size, size, size - 1, 2])))
    leaf, priority, same = draw(st.sampled_from(LEAVES)), draw(st.sampled_from([0, 5, 10])), few(draw, 4)
    for part in range(size):
        amounts, age = same if draw(st.booleans()) else few(draw, 4), draw(st.integers(0, 9))
        yield job(leaf, f"h{number}-{part}", amounts, gang=group, number=age, priority=priority)


def play(state):
    """Finish all evictions, plan and yield the plans, until no eviction is left."""
    now = NOW
    for _ in range(12):
        now += 10_000
        leaving = [each for each in state.workloads.values() if each.is_leaving]
        for each in leaving:
            state.workload_changed(replace(each, admission=None), now)
        plan = state.plan(now)
        yield plan
        if not leaving and not plan.decisions:
            return


def evictions(plan):
    return [decision for decision in plan.decisions if isinstance(decision, Evict)]


def admissions(plan):
    return {decision.workload.uid for decision in plan.decisions if isinstance(decision, Admit)}


def unit(each: Workload) -> object:
    """Return what is admitted together."""
    return each.gang or each.uid


def elastic():
    """A preemptor with an empty gang, whose queue reaches its limit only after an older preemption."""
    amounts = [{"cpu": cpu} for cpu in (1, 3, 5)]
    jobs = [job("a1", f"a1-{at}", each, on=CLUSTERS[0], number=at) for at, each in enumerate(amounts)]
    jobs += [job("b1", f"b1-{at}", each, number=3 + at) for at, each in enumerate(amounts[:2])]
    none_at_once = SchedulingRequirements({"pods": 1000, "cpu": 1}, {"pods": 1000, "cpu": 0}, ONE_CLUSTER)
    jobs.append(replace(job("a2", "elastic", amounts[0], number=5), requirements=none_at_once))
    tree = [Queue(QueueName(name), parent=QueueName(PARENTS.get(name, ROOT))) for name in ("a", "b", "a1", "a2", "b1")]
    rules = Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=1000))
    return rules, [*jobs, *tree, cluster(CLUSTERS[0], cpu=12, memory=8)]


@crowds
@given(crowded())
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
    plan = next(play(state))
    assert set(holders) <= admissions(plan)
    assert not {note.workload.uid for note in plan.record_updates} & set(holders)


@crowds
@given(crowded())
def test_preemption_terminates_and_is_never_reverted(crowd):
    state = build(crowd[0], *crowd[1])
    units = {item.uid: unit(item) for item in state.workloads.values()}
    plans = [state.plan(NOW), *play(state)]
    preempted = set()
    for plan in plans:
        made = {(units[item.workload.uid], units[item.preemptor]) for item in evictions(plan)}
        assert not {(preemptor, victim) for victim, preemptor in made} & preempted
        preempted |= made
    assert evictions(plans[-1]) == []


@crowds
@given(crowded() | grouped())
def test_no_gang_runs_with_fewer_parts_than_its_minimum(crowd):
    state = build(crowd[0], *crowd[1])
    groups = {each.gang for each in state.workloads.values() if each.gang}
    for plan in (state.plan(NOW), *play(state)):
        together: dict[HyperJobGang, set[str]] = {}
        for decision in plan.decisions:
            if isinstance(decision, Admit) and decision.plan_id:
                together.setdefault(decision.workload.gang, set()).add(decision.plan_id)
        assert all(len(plans) == 1 for plans in together.values())
        for group in groups:
            parts = [each for each in state.workloads.values() if each.gang == group]
            running = sum(each.state is WorkloadState.ADMITTED for each in parts)
            assert running == 0 or running >= group.minimum


@crowds
@given(crowded())
@example(elastic())
def test_second_plan_after_preemption_decides_nothing(crowd):
    """Unless an evicted workload is not pending for capacity: then other fair shares grow."""
    state = build(crowd[0], *crowd[1])
    waiting = [state.refusal(decision.workload.uid) for decision in evictions(state.plan(NOW))]
    if any(refusal.reason is not Reason.PREEMPTION_IN_PROGRESS for refusal in waiting):
        assert state._has_changed
        return
    again = state.cycle.run(NOW)
    assert (again.decisions, again.waits, again.record_updates) == ((), (), ())


@crowds
@given(crowded())
def test_restart_during_gang_preemption_loses_nothing(crowd):
    """Each part's own record holds its nomination; the victims' evictions are observed."""
    state = build(crowd[0], *crowd[1])
    state.plan(NOW)
    again = build(crowd[0], *state.workloads.values(), *state.queues.values(), *state.cluster_usage.clusters)
    assert not evictions(again.plan(NOW))
    assert {uid: each.nomination for uid, each in again.nominated.items()} == {
        uid: each.nomination for uid, each in state.nominated.items()
    }


@crowds
@given(crowded(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter_for_preemption(crowd, random):
    rules, things = crowd
    jobs = [each for each in things if not isinstance(each, Cluster)]
    sites = [each for each in things if isinstance(each, Cluster)]
    mixed = [*random.sample(jobs, len(jobs)), *random.sample(sites, len(sites))]
    assert build(rules, *mixed).plan(NOW) == build(rules, *things).plan(NOW)


@crowds
@given(crowded())
def test_charges_are_complete_until_victims_have_stopped(crowd):
    state = build(crowd[0], *crowd[1])
    # Only what exceeds the gang minimum may exceed capacity (D11).
    is_elastic = any(each.requirements.gang_requests != each.requirements.requests for each in state.workloads.values())
    for _ in (state.plan(NOW), *play(state)):
        by_queue = {name: positive(charges) for name, charges in total_by_queue(state).items()}
        assert {name: positive(held) for name, held in state.current_usage.items() if positive(held)} == by_queue
        assert positive(total(by_queue.values())) == positive(total(each.charged for each in state.cluster_usage))
        for site in state.cluster_usage:
            left = [*site.headroom.values(), *site.headroom_after_evictions.values()]
            assert is_elastic or min(left) >= 0
    for uid in list(state.workloads):
        state.workload_removed(uid, NOW)
    assert not any(each.leaving or each.nominated or any(each.charged.values()) for each in state.cluster_usage)
    # Charges of preserved workloads end with the clusters that still run them.
    for name in [each.cluster.name for each in state.cluster_usage if each.cluster]:
        state.cluster_removed(name)
    assert not any(any(charged.values()) for charged in state.queue_usage.settled.values())
    assert not state.queue_usage.has_transitions
