"""Compares the sets of requests that fit with checks of each request."""

from random import Random

import pytest

from controller.engine.placement.feasibility_cache import FeasibilityCache, ReservedCapacity
from controller.engine.state.request_index import RequestIndex, slots_in
from controller.engine.state.resources import Resources, fits
from tests.engine.test_incremental import CLUSTERS, RESOURCES, Life

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
            above = {other for other, each in known.items() if any(0 < each.get(name, 0) > free[name] for name in free)}
            assert {*slots_in(index.exceeding(free))} == above
            assert {*slots_in(index.not_fitting(free))} == {
                other for other, each in known.items() if not fits(each, free)
            }
    for slot, each in known.items():
        index.remove(slot, each)
    assert not index.resources


def check_sets(life: Life) -> None:
    """Compare what the index returns for the pending requirements with a check of each."""
    context = life.state.context
    index, cache = context.fitting_index, FeasibilityCache(context.cluster_usage)
    quota, shares = context.queue_usage.latest_quota, context.shares.current
    assert quota is not None
    assert shares is not None
    pending = {key: cache.get(classes[0].requirements) for key, classes in context.pending.by_requirements.items()}
    root = quota.tree.root
    assert index.keys_of(index.feasible(quota)) == [
        key
        for key, each in pending.items()
        if each.candidates.refusal is None and quota.has_free(root, each.charge) and cache.fits(each)
    ]
    assert all(index.fits(each.requirements) == cache.fits(each) for each in pending.values())
    reserved = ReservedCapacity({CLUSTERS[0]: {"cpu": 1000, "memory": 1}, CLUSTERS[2]: {"cpu": 5000}})
    assert {*index.keys_of(index.fitting_next_to(reserved))} == {
        key
        for key, each in pending.items()
        if each.needs_one_cluster
        and any(cache.fits_on(each, name, reserved.by_cluster.get(name)) for name in each.candidates.names)
    }
    for leaf in quota.tree.leaves():
        within = {*index.keys_of(index.within_limits(quota, leaf))}
        for key, each in pending.items():
            if key in within:
                assert quota.refusal(leaf, each.charge) is None
            elif not quota.guaranteed:
                assert quota.refusal(leaf, each.charge) is not None
        above = {*index.keys_of(shares.above_fair_share(leaf, index.charges))}
        assert above == {key for key, each in pending.items() if shares.first_above_fair_share(leaf, each.charge)}


@pytest.mark.parametrize("seed", range(12))
def test_sets_agree_with_checks_of_each_requirement(seed):
    life = Life(seed, exchanges=seed % 2 == 1, groups=seed % 3 == 0)
    for step in range(120):
        life.happen()
        if step % 3 == 0:
            life.state.plan(life.now)
            check_sets(life)
        life.now += 10
