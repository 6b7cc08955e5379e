"""Properties of preemption in random states with HyperJobs, played until all preemptions have finished (P5, G1).

``tests/reference`` compares which workloads are evicted; here are the parts of a HyperJob and what happens afterwards.
"""

from dataclasses import replace

from hypothesis import example, given

from controller.engine.plan import Admit, Evict
from controller.engine.policy import EvictionPolicy, Policy
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import positive, total
from controller.engine.state.workloads import (
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadState,
)
from controller.engine.steps import finish
from tests.draws import draws
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.engine.worlds import (
    CLUSTERS,
    NOW,
    PARENTS,
    QUEUES,
    Objects,
    RandomObjects,
    build,
    crowded,
    drawn,
    evicting_policy,
    total_by_queue,
)

crowds = draws(200)


def full_queue(objects: RandomObjects) -> Objects:
    """Return a queue full of borrowing gangs, and another queue within its fair share."""
    random = objects.random
    workloads, room = [], 0
    for number in range(random.randint(1, 3)):
        size, cpu = random.randint(1, 4), random.randint(1, 3)
        group = HyperJobGang(f"h{number}/1", size, random.randint(1, size))
        workloads += [job("a", f"h{number}-{part}", cpu, on=CLUSTERS[0], gang=group) for part in range(size)]
        room += size * cpu
    workloads += [job("b", f"b-{number}", random.randint(1, 4)) for number in range(random.randint(1, 4))]
    due = random.randint(0, room)
    queues = Queue(QueueName("a"), deserved={"cpu": room - due}), Queue(QueueName("b"), deserved={"cpu": due})
    return Objects(evicting_policy(objects), queues, (cluster(CLUSTERS[0], cpu=room),), tuple(workloads))


def job(queue: str, name: str, cpu: int, **fields: object) -> Workload:
    return workload(name, {"cpu": cpu, "pods": 1000}, queue=queue, **fields)


def play(state):
    """Finish all evictions, plan and yield the plans, until no eviction is left."""
    now = NOW
    for _ in range(12):
        now += 10_000
        stopping = [evicted for evicted in state.workloads.values() if evicted.is_being_evicted]
        for evicted in stopping:
            state.workload_changed(replace(evicted, admission=None), now)
        plan = state.plan(now)
        yield plan
        if not stopping and not plan.decisions:
            return


def evictions(plan):
    return [decision for decision in plan.decisions if isinstance(decision, Evict)]


def admissions(plan):
    return {decision.workload.uid for decision in plan.decisions if isinstance(decision, Admit)}


def unit(part: Workload) -> object:
    """Return what is admitted together."""
    return part.gang or part.uid


def elastic() -> Objects:
    """Return a preemptor with an empty gang, whose queue reaches its limit only after an older preemption."""
    jobs = [job("q2", f"q2-{at}", cpu, on=CLUSTERS[0], created_at=at) for at, cpu in enumerate((1, 3, 5))]
    jobs += [job("q5", f"q5-{at}", cpu, created_at=3000 + at) for at, cpu in enumerate((1, 3))]
    none_at_once = SchedulingRequirements({"pods": 1000, "cpu": 1}, {"pods": 1000, "cpu": 0}, ONE_CLUSTER)
    jobs.append(workload("elastic", none_at_once, queue="q3", created_at=5000))
    queues = [Queue(name, parent=PARENTS.get(name, ROOT)) for name in QUEUES if name not in {"q4", "q6"}]
    rules = Policy(reclaim=EvictionPolicy(enabled=True, min_runtime_ms=1000))
    return Objects(rules, tuple(queues), (cluster(CLUSTERS[0], cpu=12, memory=8),), tuple(jobs))


grouped = drawn().map(full_queue)


@crowds
@given(crowded())
def test_gang_fits_after_its_victims_are_evicted(crowd):
    engine = crowd.engine()
    plan = engine.plan(NOW)
    preemptors = {decision.preemptor for decision in evictions(plan)} - admissions(plan)
    holders = dict(engine.nominated)
    assert preemptors <= set(holders)
    assert {unit(holder) for holder in holders.values()} == {unit(holders[uid]) for uid in preemptors}
    for group in {holder.gang for holder in holders.values()} - {None}:
        held = sum(holder.gang == group for holder in holders.values())
        assert held == engine.index.gangs.missing(group) or engine.index.gangs.missing(group) <= 1
    plan = next(play(engine))
    assert set(holders) <= admissions(plan)
    assert not {note.workload.uid for note in plan.record_updates} & set(holders)


@crowds
@given(crowded())
def test_preemption_terminates_and_is_never_reverted(crowd):
    engine = crowd.engine()
    units = {item.uid: unit(item) for item in engine.workloads.values()}
    plans = [engine.plan(NOW), *play(engine)]
    preempted = set()
    for plan in plans:
        made = {(units[item.workload.uid], units[item.preemptor]) for item in evictions(plan)}
        assert not {(preemptor, victim) for victim, preemptor in made} & preempted
        preempted |= made
    assert evictions(plans[-1]) == []


@crowds
@given(crowded() | grouped)
def test_no_gang_runs_with_fewer_parts_than_its_minimum(crowd):
    engine = crowd.engine()
    groups = {part.gang for part in engine.workloads.values() if part.gang}
    for plan in (engine.plan(NOW), *play(engine)):
        together: dict[HyperJobGang, set[str]] = {}
        for decision in plan.decisions:
            if isinstance(decision, Admit) and decision.plan_id:
                together.setdefault(decision.workload.gang, set()).add(decision.plan_id)
        assert all(len(plans) == 1 for plans in together.values())
        for group in groups:
            parts = [part for part in engine.workloads.values() if part.gang == group]
            running = sum(part.state is WorkloadState.ADMITTED for part in parts)
            assert running == 0 or running >= group.minimum


@crowds
@given(crowded())
@example(elastic())
def test_second_plan_after_preemption_decides_nothing(crowd):
    """Unless an evicted workload is not pending for capacity: then other fair shares grow."""
    engine = crowd.engine()
    waiting = [engine.refusal(decision.workload.uid) for decision in evictions(engine.plan(NOW))]
    if any(refusal.reason is not Reason.PREEMPTION_IN_PROGRESS for refusal in waiting):
        assert engine._has_changed
        return
    again = finish(engine.cycle.steps(NOW))
    assert (again.decisions, again.waits, again.record_updates) == ((), (), ())


@crowds
@given(crowded())
def test_restart_during_gang_preemption_loses_nothing(crowd):
    """Each part's own record holds its nomination; the victims' evictions are observed."""
    engine = crowd.engine()
    engine.plan(NOW)
    again = build(crowd.policy, *engine.workloads.values(), *engine.queues.values(), *engine.cluster_usage.clusters)
    assert not evictions(again.plan(NOW))
    assert {uid: holder.nomination for uid, holder in again.nominated.items()} == {
        uid: holder.nomination for uid, holder in engine.nominated.items()
    }


@crowds
@given(crowded())
def test_charges_are_complete_until_victims_have_stopped(crowd):
    engine = crowd.engine()
    # Only what exceeds the gang minimum may exceed capacity (D11).
    is_elastic = any(
        observed.requirements.gang_requests != observed.requirements.requests for observed in engine.workloads.values()
    )
    for _ in (engine.plan(NOW), *play(engine)):
        by_queue = {name: positive(charges) for name, charges in total_by_queue(engine).items()}
        assert {name: positive(held) for name, held in engine.current_usage.items() if positive(held)} == by_queue
        assert positive(total(by_queue.values())) == positive(total(site.charged for site in engine.cluster_usage))
        for site in engine.cluster_usage:
            left = [*site.headroom.values(), *site.headroom_after_evictions.values()]
            assert is_elastic or min(left) >= 0
    for uid in list(engine.workloads):
        engine.workload_removed(uid, NOW)
    assert not any(site.being_evicted or site.nominated or any(site.charged.values()) for site in engine.cluster_usage)
    # Charges of preserved workloads end with the clusters that still run them.
    for name in [site.cluster.name for site in engine.cluster_usage if site.cluster]:
        engine.cluster_removed(name)
    assert not any(any(charged.values()) for charged in engine.queue_usage.settled.values())
    assert not engine.queue_usage.has_transitions
