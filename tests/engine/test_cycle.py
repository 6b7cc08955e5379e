"""Properties of a cycle for every random state, invalid queue trees and unusable clusters included."""

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.state.resources import add, positive
from controller.engine.state.workloads import WorkloadState
from tests.draws import draws
from tests.engine.worlds import NOW, build, crowded, quota_of, states, total_by_queue

worlds = draws(100)


@worlds
@given(states())
def test_every_workload_is_admitted_or_waits_with_a_reason(objects):
    engine = objects.engine()
    plan = engine.plan(NOW)
    admitted = {decision.workload.uid for decision in plan.decisions}
    told = {wait.workload.uid for wait in plan.waits}
    assert admitted | told == {
        workload.uid for workload in objects.workloads if workload.state is WorkloadState.PENDING
    }
    assert not admitted & told
    assert all(engine.refusal(uid) is not None for uid in told)
    for queue in objects.queues:
        engine.queue_removed(queue.name)
    removed = {queue.name for queue in objects.queues}
    # Readers may come between the removal and the next cycle.
    assert all(engine.refusal(wait.workload.uid) is not None for wait in plan.waits if wait.workload.queue in removed)


@worlds
@given(states())
def test_no_admission_raises_a_queue_above_its_limit(objects):
    engine = objects.engine()
    before = quota_of(engine)
    plan = engine.plan(NOW)
    after = quota_of(engine)
    for decision in plan.decisions:
        for node in after.tree.nodes[decision.workload.queue].path():
            asked = {name for name, amount in decision.charge.items() if amount > 0 and node.limits_resource(name)}
            for resource in asked:
                assert after.usage(node.name, resource) <= before.limits[node.name].limit.get(resource, 0)


@worlds
@given(states() | crowded(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(objects, random):
    mixed = [*objects.workloads, *objects.queues]
    random.shuffle(mixed)
    # A cluster's first summary is compared with the workloads known to run then.
    clusters = random.sample(objects.clusters, len(objects.clusters))
    assert build(objects.policy, *mixed, *clusters).plan(NOW) == objects.engine().plan(NOW)


@worlds
@given(states())
def test_usage_equals_the_charges_of_all_workloads(objects):
    engine = objects.engine()
    engine.plan(NOW)
    by_queue = total_by_queue(engine)
    assert all(positive(held) == positive(by_queue.get(name, {})) for name, held in engine.current_usage.items())
    by_cluster = {}
    for workload in engine.workloads.values():
        for booking in workload.admission.cluster_charges if workload.admission else ():
            by_cluster[booking.cluster] = add(by_cluster.get(booking.cluster, {}), booking.charge)
    assert all(
        positive(cluster_state.charged) == positive(by_cluster.get(cluster_state.name, {}))
        for cluster_state in engine.cluster_usage
    )
