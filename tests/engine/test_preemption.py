"""Properties of preemption for random states, played until all preemptions have finished."""

from dataclasses import replace
from itertools import groupby

from hypothesis import example, given
from hypothesis import strategies as st

from controller.engine.plan import Admit, Evict
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.clusters import Cluster, Placement
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import fits, scale, subtract
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from tests.draws import draws
from tests.engine.worlds import CLUSTERS, NOW, ONE, build, quota_of, total_by_queue

crowds = draws(60)
LEAVES = [QueueName(name) for name in ("a1", "a2", "b1", "c")]
PARENTS = {"a1": "a", "a2": "a", "b1": "b"}


def few(draw, most):
    return {name: draw(st.integers(0, most)) for name in draw(st.sampled_from([("cpu",), ("cpu", "memory")]))}


@st.composite
def crowded(draw):
    """State in which borrowing workloads fill the clusters while others are pending."""
    sites = [
        Cluster(
            name=name,
            enablements=frozenset({VOLCANO_JOB}),
            allocatable={"pods": 1_000_000, "cpu": draw(st.integers(8, 20)), "memory": draw(st.integers(8, 20))},
        )
        for name in CLUSTERS[: draw(st.integers(1, 2))]
    ]
    tree = [queue(draw, QueueName(name)) for name in ("a", "b", *LEAVES)]
    free = {site.name: dict(site.allocatable) for site in sites}
    jobs = [job(draw, number, free) for number in range(draw(st.integers(4, 18)))]
    return policy(draw), [*jobs, *tree, *sites]


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


def job(draw, number, free):
    """A job, admitted if it came early and fits."""
    asks = {"pods": 1000, **{name: amount for name, amount in few(draw, 6).items() if amount}}
    gang = {name: amount * draw(st.sampled_from([4, 4, 2])) // 4 for name, amount in asks.items()}
    early = draw(st.booleans())
    where = next((name for name in sorted(free) if early and fits(asks, free[name])), None)
    if where is not None:
        free[where] = dict(subtract(free[where], asks))
    return Workload(
        uid=WorkloadUid(f"uid-{number}"),
        namespace="one",
        name=f"job-{number}",
        kind="Job",
        queue=draw(st.sampled_from(["a1", "a1", "c"] if early else LEAVES)),
        requirements=SchedulingRequirements(asks, gang, Placement(spread=ONE)),
        priority=draw(st.sampled_from([0, 0, 10])),
        created_at=number * 1000,
        state=WorkloadState.ADMITTED if where else WorkloadState.PENDING,
        admission=Admission(asks, (ClusterCharge(where, asks),), admitted_at=number) if where else None,
        details=WorkloadDetails(
            preserved=draw(st.sampled_from([False] * 7 + [True])),
            preempts=draw(st.sampled_from([True] * 5 + [False])),
        ),
    )


def one_of(queue, name, asks, admission, group=None):
    return Workload(
        uid=WorkloadUid(f"uid-{name}"),
        namespace="one",
        name=name,
        kind="Job",
        queue=QueueName(queue),
        requirements=SchedulingRequirements(asks, asks, Placement(spread=ONE)),
        state=WorkloadState.ADMITTED if admission else WorkloadState.PENDING,
        admission=admission,
        details=WorkloadDetails(gang=group),
    )


def play(state, now):
    """Finish all evictions, plan and yield the plans, until no eviction is left."""
    for _ in range(12):
        now += 10_000
        leaving = [workload for workload in state.workloads.values() if workload.is_leaving]
        for workload in leaving:
            state.workload_changed(replace(workload, admission=None), now)
        plan = state.plan(now)
        yield plan
        if not leaving and not plan.decisions:
            return


def evictions(plan):
    return [decision for decision in plan.decisions if isinstance(decision, Evict)]


def admissions(plan):
    return {decision.workload.uid for decision in plan.decisions if isinstance(decision, Admit)}


def elastic():
    """A preemptor with an empty gang, whose queue reaches its limit only after an older preemption."""
    asks = [{"pods": 1000, "cpu": cpu} for cpu in (1, 3, 5)]
    jobs = [
        one_of("a1", f"a1-{at}", each, Admission(each, (ClusterCharge(CLUSTERS[0], each),), admitted_at=at))
        for at, each in enumerate(asks)
    ]
    jobs += [one_of("b1", f"b1-{at}", each, None) for at, each in enumerate(asks[:2])]
    none_at_once = SchedulingRequirements({"pods": 1000, "cpu": 1}, {"pods": 1000, "cpu": 0}, Placement(spread=ONE))
    jobs.append(replace(one_of("a2", "elastic", asks[0], None), requirements=none_at_once))
    jobs = [replace(job, created_at=number) for number, job in enumerate(jobs)]
    tree = [Queue(QueueName(name), parent=QueueName(PARENTS.get(name, ROOT))) for name in ("a", "b", "a1", "a2", "b1")]
    room = {"pods": 1_000_000, "cpu": 12, "memory": 8}
    site = Cluster(name=CLUSTERS[0], enablements=frozenset({VOLCANO_JOB}), allocatable=room)
    return Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=1000)), [*jobs, *tree, site]


def decides_all_at_once(state):
    """Check that a second plan decides nothing, unless an evicted workload is not pending for capacity.

    In that case other fair shares grow, and the engine plans again.
    """
    waiting = [state.refusal(decision.workload.uid) for decision in evictions(state.plan(NOW))]
    if any(refusal.reason is not Reason.PREEMPTION_IN_PROGRESS for refusal in waiting):
        assert state._has_changed
        return
    again = state.cycle.run(NOW)
    assert (again.decisions, again.waits, again.record_updates) == ((), (), ())


def full(winner):
    """A cluster full of a1's jobs, the newest of which holds the memory that a2, and so a, is guaranteed."""
    light, loaded = {"pods": 1000, "cpu": 2}, {"pods": 1000, "cpu": 2, "memory": 1}
    jobs = [one_of(winner, "waiting", light, None)]
    for number, asks in enumerate((light, loaded)):
        jobs.append(
            one_of("a1", f"a1-{number}", asks, Admission(asks, (ClusterCharge(CLUSTERS[0], asks),), admitted_at=number))
        )
    tree = [Queue(QueueName(name), parent=QueueName(PARENTS.get(name, ROOT))) for name in ("a", "a1", "c")]
    tree.append(Queue(QueueName("a2"), parent=QueueName("a"), guarantee={"memory": 1}))
    room = {"pods": 1_000_000, "cpu": 4, "memory": 4}
    site = Cluster(name=CLUSTERS[0], enablements=frozenset({VOLCANO_JOB}), allocatable=room)
    return Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=1000)), [*jobs, *tree, site]


def replayed(quota, state, decisions):
    """Yield each preemption and its preemptor, with usage before it and after its evictions.

    At the end *quota* is the usage after all evictions and nominated admissions.
    """
    nodes = quota.tree.nodes
    preemptors = {decision.preemptor for decision in decisions if isinstance(decision, Evict)}
    for preemptor_uid, decided in groupby(
        decisions, key=lambda decision: decision.preemptor if isinstance(decision, Evict) else None
    ):
        if preemptor_uid is None:
            for decision in decided:
                if decision.workload.uid not in preemptors:
                    quota.add_usage(nodes[decision.workload.queue], decision.charge)
            continue
        preemption, after, preemptor = list(decided), quota.overlay(), state.workloads[preemptor_uid]
        for decision in preemption:
            after.add_usage(nodes[decision.workload.queue], scale(decision.workload.admission.charge, -1))
        yield preemption, preemptor, quota, after
        for decision in preemption:
            quota.add_usage(nodes[decision.workload.queue], scale(decision.workload.admission.charge, -1))
        quota.add_usage(
            nodes[preemptor.queue],
            preemptor.nomination.requests if preemptor.nomination else preemptor.admission.charge,
        )


@crowds
@given(crowded())
@example(full("c"))
@example(full("a2"))
def test_reclaim_keeps_victim_queues_at_their_guarantees(crowd):
    """Preemption by preemption; at the common ancestor and above, usage may fall below the guarantee."""
    state = build(crowd[0], *crowd[1])
    quota = quota_of(state)
    plan = state.plan(NOW)
    for preemption, preemptor, before, after in replayed(quota, state, plan.decisions):
        above = {node.name for node in quota.tree.nodes[preemptor.queue].path()}
        losing = {eviction.workload.queue for eviction in preemption if eviction.reason is EvictionReason.RECLAIMED}
        for node in (node for name in losing for node in quota.tree.nodes[name].path() if node.name not in above):
            for resource, guarantee in quota.limits[node.name].guarantee.items():
                least = min(guarantee, before.usage(node.name, resource))
                assert after.usage(node.name, resource) >= least
    for name, amounts in state.queue_shares.quota.allocated.items():
        assert all(quota.usage(name, resource) == amount for resource, amount in amounts.items())


@crowds
@given(crowded())
def test_only_evictable_workloads_are_evicted(crowd):
    rules, things = crowd
    state = build(rules, *things)
    by_uid = {each.uid: each for each in things if isinstance(each, Workload)}
    for each in evictions(state.plan(NOW)):
        victim, preemptor = each.workload, by_uid[each.preemptor]
        assert not victim.preserved
        if each.reason is EvictionReason.PREEMPTED:
            assert rules.preemption.enabled
            assert victim.queue == preemptor.queue
            assert victim.priority < preemptor.priority
            assert preemptor.details.preempts
        else:
            assert rules.reclaim.enabled
            assert victim.queue != preemptor.queue
            assert state.queues[victim.queue].reclaimable


@crowds
@given(crowded())
def test_charges_stay_until_evicted_workloads_have_stopped(crowd):
    state = build(crowd[0], *crowd[1])
    evicted = {each.workload.uid: each.workload for each in evictions(state.plan(NOW))}
    held = total_by_queue(state)
    for name, charged in state.current_usage.items():
        assert {key: amount for key, amount in charged.items() if amount} == {
            key: amount for key, amount in held.get(name, {}).items() if amount
        }
    for uid, before in evicted.items():
        assert state.workloads[uid].is_leaving
        assert state.workloads[uid].admission == before.admission
        refusal = state.refusal(uid)
        # A reason why it would not be admitted even then takes precedence.
        assert refusal.reason is Reason.PREEMPTION_IN_PROGRESS or not refusal.is_about_room


@crowds
@given(crowded())
def test_admissions_fit_next_to_evictions_and_nominations(crowd):
    state = build(crowd[0], *crowd[1])
    for plan in (state.plan(NOW), *play(state, NOW)):
        assert plan is not None
        for site in state.cluster_usage:
            over = {name: -amount for name, amount in site.headroom.items() if amount < 0}
            beyond = {name: -amount for name, amount in site.headroom_after_evictions.items() if amount < 0}
            # Only what exceeds the gang minimum may exceed capacity (D11).
            extra = sum(
                1 for each in state.workloads.values() if each.requirements.gang_requests != each.requirements.requests
            )
            assert extra or not (over or beyond)


@crowds
@given(crowded(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(crowd, random):
    rules, things = crowd
    plan = build(rules, *things).plan(NOW)
    jobs = [each for each in things if not isinstance(each, Cluster)]
    sites = [each for each in things if isinstance(each, Cluster)]
    mixed = random.sample(jobs, len(jobs))
    assert build(rules, *mixed, *random.sample(sites, len(sites))).plan(NOW) == plan


@st.composite
def grouped(draw):
    """A queue full of borrowing gangs, and another queue within its fair share."""
    jobs, room = [], 0
    for number in range(draw(st.integers(1, 3))):
        size, each = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        group = HyperJobGang(f"h{number}/1", size, draw(st.integers(1, size)))
        for part in range(size):
            asks = {"pods": 1000, "cpu": each}
            admission = Admission(asks, (ClusterCharge(CLUSTERS[0], asks),), admitted_at=draw(st.integers(0, 99)))
            jobs.append(one_of("a", f"h{number}-{part}", asks, admission, group))
            room += each
    waiting = [{"pods": 1000, "cpu": draw(st.integers(1, 4))} for _ in range(draw(st.integers(1, 4)))]
    jobs.extend(one_of("b", f"b-{number}", asks, None) for number, asks in enumerate(waiting))
    site = Cluster(name=CLUSTERS[0], enablements=frozenset({VOLCANO_JOB}), allocatable={"pods": 1_000_000, "cpu": room})
    due = draw(st.integers(0, room))
    tree = [Queue(QueueName("a"), deserved={"cpu": room - due}), Queue(QueueName("b"), deserved={"cpu": due})]
    return policy(draw), [*jobs, *tree, site]


@crowds
@given(grouped())
def test_no_gang_runs_with_fewer_parts_than_its_minimum(crowd):
    state = build(crowd[0], *crowd[1])
    groups = {each.gang for each in state.workloads.values() if each.gang}
    for plan in (state.plan(NOW), *play(state, NOW)):
        assert plan is not None
        for group in groups:
            parts = [each for each in state.workloads.values() if each.gang == group]
            running = sum(each.state is WorkloadState.ADMITTED for each in parts)
            assert running == 0 or running >= group.minimum
