"""Compares the sets of requests that fit with checks of each request."""

from functools import reduce
from operator import or_
from random import Random

import pytest

from controller.engine.placement import fitting_index
from controller.engine.placement.feasibility_cache import FeasibilityCache, ReservedCapacity
from controller.engine.policy import Policy
from controller.engine.state import pending
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Queue, QueueName, Tree
from controller.engine.state.pending import PendingRequirements, PendingWorkloads, order_key
from controller.engine.state.request_index import ExceedingRequests, RequestIndex, SlotUnion, slots_in
from controller.engine.state.resources import Resources, fits, subtract
from controller.engine.state.workloads import Admission, ClusterCharge, SchedulingRequirements
from tests.engine.objects import ONE_CLUSTER, cluster, workload
from tests.engine.test_incremental import RandomRun
from tests.engine.worlds import CLUSTERS, NOW, RESOURCES, build
from tests.work import work_of

LARGEST = 50


def amounts(random: Random, *, least: int = 0) -> Resources:
    return {name: random.randint(least, LARGEST) for name in random.sample(RESOURCES, 2)}


@pytest.mark.parametrize("size", [10, 100, 2500])
def test_index_finds_the_requests_above_a_free_amount(size):
    random, index, known = Random(size), RequestIndex(), dict[int, Resources]()
    for slot in range(2 * size):
        if len(known) >= size:
            removed = random.choice(list(known))
            index.remove(removed, known.pop(removed))
        known[slot] = amounts(random)
        index.add(slot, known[slot])
        if slot % (size // 10) == 0:
            free = amounts(random, least=-5)
            above = {
                other
                for other, requests in known.items()
                if any(0 < requests.get(name, 0) > free[name] for name in free)
            }
            assert {*slots_in(index.exceeding(free))} == above
            assert {*slots_in(index.not_fitting(free))} == {
                other for other, requests in known.items() if not fits(requests, free)
            }
    for slot, requests in known.items():
        index.remove(slot, requests)
    assert not index.resources


def test_cached_exceeding_requests_follow_usage_and_requests():
    random, index, cached, known = Random(5), RequestIndex(), ExceedingRequests(), dict[int, Resources]()
    for slot in range(40):
        known[slot] = amounts(random)
        index.add(slot, known[slot])
    limit, taken = dict.fromkeys(RESOURCES, LARGEST), dict.fromkeys(RESOURCES, 0)
    for step in range(600):
        name = random.choice(list(RESOURCES))
        taken[name] = min(max(taken[name] + random.randint(-3, 3), -2), LARGEST + 2)
        if step % 50 == 49:
            index.remove(step // 50, known.pop(step // 50))
        assert cached.of(index, limit, taken, has_pods=True) == index.exceeding(subtract(limit, taken))
    index.add(40, {"pods": 2})
    assert not ExceedingRequests().of(index, limit, {}, has_pods=False) & 1 << 40
    assert ExceedingRequests().of(index, limit, {}, has_pods=True) & 1 << 40


def test_union_of_slots_follows_changes_of_single_clusters():
    random, union = Random(7), SlotUnion()
    names = [ClusterName(f"m{number}") for number in range(37)]
    for _ in range(400):
        for name in random.sample(names, random.choice([1, 1, 1, 30])):
            if random.random() < 0.3:
                union.remove(name)
            else:
                union.set(name, 1 << random.randrange(20))
        assert union.union() == reduce(or_, union.sets.values(), 0)


def check_sets(random_run: RandomRun) -> None:
    """Compare what the index returns for the pending requirements with a check of each."""
    context = random_run.engine.context
    index, cache = context.fitting_index, FeasibilityCache(context.cluster_usage)
    quota, shares = context.queue_usage.latest_quota, context.shares.current
    assert quota is not None
    assert shares is not None
    members = {
        key: cache.get(next(iter(classes)).requirements) for key, classes in context.pending.by_requirements.items()
    }
    root = quota.tree.root
    assert index.keys_of(index.feasible(quota)) == [
        key
        for key, feasibility in members.items()
        if feasibility.candidates.refusal is None
        and quota.has_free(root, feasibility.charge)
        and cache.fits(feasibility)
    ]
    assert all(index.fits(feasibility.requirements) == cache.fits(feasibility) for feasibility in members.values())
    reserved = ReservedCapacity({CLUSTERS[0]: {"cpu": 1000, "memory": 1}, CLUSTERS[2]: {"cpu": 5000}})
    assert {*index.keys_of(index.fitting_next_to(reserved))} == {
        key
        for key, feasibility in members.items()
        if feasibility.needs_one_cluster
        and any(
            cache.fits_on(feasibility, name, reserved.by_cluster.get(name)) for name in feasibility.candidates.names
        )
    }
    for leaf in quota.tree.leaves():
        within = {*index.keys_of(index.within_limits(quota, leaf))}
        for key, feasibility in members.items():
            if key in within:
                assert quota.refusal(leaf, feasibility.charge) is None
            elif not quota.guaranteed:
                assert quota.refusal(leaf, feasibility.charge) is not None
        above = {*index.keys_of(shares.above_fair_share(leaf, index.charges))}
        assert above == {
            key for key, feasibility in members.items() if shares.first_above_fair_share(leaf, feasibility.charge)
        }


@pytest.mark.parametrize("seed", range(12))
def test_sets_agree_with_checks_of_each_requirement(monkeypatch, seed):
    if seed % 4 == 0:
        # Slots are numbered anew after each change.
        monkeypatch.setattr(fitting_index, "_MAX_UNUSED_SLOTS", -(10**6))
    random_run = RandomRun(seed, exchanges=seed % 2 == 1, groups=seed % 3 == 0)
    for step in range(120):
        random_run.apply_event()
        if step % 3 == 0:
            random_run.engine.plan(random_run.now)
            check_sets(random_run)
        random_run.now += 10
        check_pending_requirements(random_run.engine.context.pending, random_run.engine.tree())


def check_pending_requirements(workloads: PendingWorkloads, tree: Tree) -> None:
    """Compare the sets that follow each change with sets from all classes, and slots with their requirements."""
    followed = [{name: slots for name, slots in level.items() if slots} for level in by_priority(workloads, tree)]
    assert [level for level in followed if level] == PendingRequirements(tree, workloads.classes()).by_priority()
    slots = {
        workload_class.slot: key for key, classes in workloads.by_requirements.items() for workload_class in classes
    }
    assert [slots[slot] for slot in sorted(slots)] == [*workloads.by_requirements]


def by_priority(workloads: PendingWorkloads, tree: Tree) -> list:
    return workloads.in_tree(tree).by_priority()


def test_cluster_between_the_last_fitting_and_a_freed_one():
    usage, full = ClusterUsage(), {"cpu": 2000}
    requirements = SchedulingRequirements(full, full, ONE_CLUSTER)
    for name in CLUSTERS[:3]:
        usage.update(cluster(name, **full), 0, 0)
    first, _, last = (Admission(full, (ClusterCharge(name, full),)) for name in CLUSTERS[:3])
    cache = FeasibilityCache(usage)
    assert cache.fits(cache.get(requirements))
    usage.add_usage(first, 0)
    usage.add_usage(last, 0)
    usage.remove_usage(last, 0)
    assert cache.fits(cache.get(requirements))
    usage.add_usage(last, 0)
    assert cache.fits(cache.get(requirements)), "the second cluster is still empty"


def test_resources_of_no_cluster_are_not_compared_with_each():
    fleet = [cluster(f"c{number}", cpu=1) for number in range(100)]
    jobs = [workload(f"w{job}", {f"a/{job}-{number}": 1 for number in range(100)}) for job in range(20)]
    engine = build(Policy(), Queue(QueueName("q")), *fleet, *jobs)
    engine.plan(NOW)
    engine.cluster_usage.add_usage(Admission({"cpu": 1}, (ClusterCharge(ClusterName("c1"), {"cpu": 1}),)), NOW)
    assert work_of(engine.context.fitting_index._synchronize) < 200


def test_feasibility_of_large_unused_requirements_is_dropped():
    usage, pods = ClusterUsage(), ({"cpu": 1},) * 1000
    usage.update(cluster(CLUSTERS[0], cpu=1000), 0, 0)
    cache = FeasibilityCache(usage)
    used = SchedulingRequirements(pods=pods)
    kept, evaluated = cache.get(used), set[int]()
    for _ in range(200):
        cache.get(SchedulingRequirements(pods=pods))
        cache.prune({id(used)}, 1)
        evaluated.add(len(cache._by_requirements))
    assert max(evaluated) <= 70
    assert cache.get(used) is kept


@pytest.mark.parametrize("most", [0, 2])
def test_positions_follow_the_order_of_each_queue(monkeypatch, most):
    monkeypatch.setattr(pending, "_MAX_COUNTED_CLASSES", most)
    random_run = RandomRun(7)
    for _ in range(120):
        random_run.apply_event()
        random_run.engine.plan(random_run.now)
        workloads = random_run.engine.context.pending
        for queue, classes in workloads.queues.items():
            ordered = sorted((workload for workload_class in classes for workload in workload_class), key=order_key)
            assert [*workloads.in_order(queue)] == ordered
            assert workloads.count(queue) == len(ordered)
            assert [workloads.count_before(queue, order_key(workload)) for workload in ordered] == [
                *range(len(ordered))
            ]
