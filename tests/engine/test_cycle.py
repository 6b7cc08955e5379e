"""Properties of a cycle for every random state."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.plan import Admit
from controller.engine.state.resources import PODS, add, fits
from controller.engine.state.workloads import WorkloadState
from tests.draws import draws
from tests.engine.worlds import NOW, build, clusters, policies, queues, quota_of, total_by_queue, workloads

worlds = draws(20)


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_every_workload_is_admitted_or_waits_with_a_reason(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    plan = state.plan(NOW)
    admitted = {decision.workload.uid for decision in plan.decisions}
    told = {wait.workload.uid for wait in plan.waits}
    waiting = {each.uid for each in jobs if each.state is WorkloadState.PENDING}
    assert admitted | told == waiting
    assert not admitted & told
    assert all(state.refusal(uid) is not None for uid in told)


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_reasons_can_be_read_before_the_cycle_after_a_removal(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    told = [wait.workload for wait in state.plan(NOW).waits]
    for queue in tree:
        state.queue_removed(queue.name)
    removed = {queue.name for queue in tree}
    assert all(state.refusal(each.uid) is not None for each in told if each.queue in removed)


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_no_admission_raises_a_queue_above_its_limit(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    before = quota_of(state)
    plan = state.plan(NOW)
    after = quota_of(state)
    raised = {}
    for decision in plan.decisions:
        for node in after.tree.nodes[decision.workload.queue].path():
            asked = {name for name, amount in decision.charge.items() if amount > 0 and node.limits_resource(name)}
            raised.setdefault(node.name, set()).update(asked)
    for name, resources in raised.items():
        for resource in resources:
            ceiling = before.limits[name].limit.get(resource, 0)
            assert after.usage(name, resource) <= ceiling


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_guarantees_of_idle_queues_stay_reserved(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    before = quota_of(state)
    plan = state.plan(NOW)
    after = quota_of(state)
    for decision in plan.decisions:
        for node in after.tree.nodes[decision.workload.queue].path():
            if node.is_leaf:
                continue
            for resource in (
                name for name, amount in decision.charge.items() if amount > 0 and node.limits_resource(name)
            ):
                ceiling = after.limits[node.name].limit.get(resource, 0)
                assert reserved(after, node, resource) <= max(ceiling, reserved(before, node, resource))


def reserved(quota, node, resource):
    """Return the children's reservations and the direct charges, computed independently."""
    below = sum(reservation(quota, child, resource) for child in node.children)
    return below + quota.direct_usage(node.name, resource)


def reservation(quota, node, resource):
    held = reserved(quota, node, resource) if node.children else quota.usage(node.name, resource)
    return max(held, quota.limits[node.name].guarantee.get(resource, 0))


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_admitted_gangs_fit_their_clusters(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    state.cluster_usage.refresh(NOW, policy.settle_ms)
    headroom = {site.name: dict(site.headroom) for site in state.cluster_usage}
    usable = {site.name for site in state.cluster_usage if site.is_usable}
    for decision in state.plan(NOW).decisions:
        for booking in decision.admission.cluster_charges:
            assert booking.cluster in usable
            assert fits(decision.workload.requirements.gang_requests, headroom[booking.cluster])
            for name, amount in booking.charge.items():
                headroom[booking.cluster][name] = headroom[booking.cluster].get(name, 0) - amount


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_fair_shares_never_sum_above_the_parents_amount(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    state.plan(NOW)
    standing = state.queue_shares
    for node in standing.quota.tree.nodes.values():
        for resource, due in standing.fair_shares[node.name].items():
            amount = max(due - standing.quota.direct_usage(node.name, resource), Fraction(0))
            below = sum(standing.fair_shares[child.name].get(resource, 0) for child in node.children)
            if node.children:
                assert below <= amount


@worlds
@given(policies(), clusters(), queues(), workloads(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(policy, sites, tree, jobs, random):
    first = build(policy, *jobs, *tree, *sites)
    plan = first.plan(NOW)
    mixed = [*jobs, *tree]
    random.shuffle(mixed)
    # A cluster's first summary is compared with the workloads known to run then.
    again = build(policy, *mixed, *random.sample(sites, len(sites))).plan(NOW)
    assert again == plan


@worlds
@given(policies(), clusters(), queues(), workloads(), st.integers(1, 5))
def test_sliced_plans_together_equal_one_plan(policy, sites, tree, jobs, most):
    whole, sliced = (build(policy, *jobs, *tree, *sites) for _ in range(2))
    plan = whole.plan(NOW)
    slices = [sliced.plan(NOW, most=most)]
    while slices[-1].is_cut:
        slices.append(sliced.plan(NOW, most=most))
    assert [decision for each in slices for decision in each.decisions] == [*plan.decisions]
    assert sliced.last_reasons == whole.last_reasons


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_usage_equals_the_charges_of_all_workloads(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    state.plan(NOW)
    held = total_by_queue(state)
    for name, charged in state.current_usage.items():
        assert {key: amount for key, amount in charged.items() if amount} == {
            key: amount for key, amount in held.get(name, {}).items() if amount
        }
    booked = {}
    for each in state.workloads.values():
        for booking in each.admission.cluster_charges if each.admission else ():
            booked[booking.cluster] = add(booked.get(booking.cluster, {}), booking.charge)
    for site in state.cluster_usage:
        assert {key: amount for key, amount in site.charged.items() if amount} == {
            key: amount for key, amount in booked.get(site.name, {}).items() if amount
        }


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_equal_workloads_are_admitted_in_order(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    plan = state.plan(NOW)
    for decision in plan.decisions:
        assert isinstance(decision, Admit)
        ahead = [
            each
            for each in state.pending_workloads(decision.workload.queue)
            if each.requirements == decision.workload.requirements
            and each.namespace == decision.workload.namespace
            and (-each.priority, each.created_at, each.name)
            < (-decision.workload.priority, decision.workload.created_at, decision.workload.name)
        ]
        assert ahead == []
        assert PODS in decision.charge
