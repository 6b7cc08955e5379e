"""Properties of a cycle for every random state, invalid queue trees and unusable clusters included."""

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.state.resources import add, positive
from controller.engine.state.workloads import WorkloadState
from tests.draws import draws
from tests.engine.worlds import NOW, build, clusters, policies, queues, quota_of, total_by_queue, workloads

worlds = draws(100)


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_every_workload_is_admitted_or_waits_with_a_reason(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    plan = state.plan(NOW)
    admitted = {decision.workload.uid for decision in plan.decisions}
    told = {wait.workload.uid for wait in plan.waits}
    assert admitted | told == {each.uid for each in jobs if each.state is WorkloadState.PENDING}
    assert not admitted & told
    assert all(state.refusal(uid) is not None for uid in told)
    for queue in tree:
        state.queue_removed(queue.name)
    removed = {queue.name for queue in tree}
    # Readers may come between the removal and the next cycle.
    assert all(state.refusal(wait.workload.uid) is not None for wait in plan.waits if wait.workload.queue in removed)


@worlds
@given(policies(), clusters(), queues(), workloads())
def test_no_admission_raises_a_queue_above_its_limit(policy, sites, tree, jobs):
    state = build(policy, *jobs, *tree, *sites)
    before = quota_of(state)
    plan = state.plan(NOW)
    after = quota_of(state)
    for decision in plan.decisions:
        for node in after.tree.nodes[decision.workload.queue].path():
            asked = {name for name, amount in decision.charge.items() if amount > 0 and node.limits_resource(name)}
            for resource in asked:
                assert after.usage(node.name, resource) <= before.limits[node.name].limit.get(resource, 0)


@worlds
@given(policies(), clusters(), queues(), workloads(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(policy, sites, tree, jobs, random):
    plan = build(policy, *jobs, *tree, *sites).plan(NOW)
    mixed = [*jobs, *tree]
    random.shuffle(mixed)
    # A cluster's first summary is compared with the workloads known to run then.
    assert build(policy, *mixed, *random.sample(sites, len(sites))).plan(NOW) == plan


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
    by_queue = total_by_queue(state)
    assert all(positive(held) == positive(by_queue.get(name, {})) for name, held in state.current_usage.items())
    by_cluster = {}
    for each in state.workloads.values():
        for booking in each.admission.cluster_charges if each.admission else ():
            by_cluster[booking.cluster] = add(by_cluster.get(booking.cluster, {}), booking.charge)
    assert all(positive(each.charged) == positive(by_cluster.get(each.name, {})) for each in state.cluster_usage)
