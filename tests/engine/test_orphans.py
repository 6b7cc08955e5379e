"""Charges of deleted workloads whose pods are preserved in their clusters."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.checkpoint import restore, take_checkpoint
from controller.engine.engine import Engine
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.orphans import Orphan, Orphans
from controller.engine.state.resources import add, positive, total
from controller.engine.state.workloads import WorkloadState
from tests.engine import objects
from tests.scenario import Scenario, cluster
from tests.workloads import changed

SETTLE_MS = 30_000
few = st.integers(0, 6)
amounts = st.fixed_dictionaries({}, optional={"cpu": few, "memory": few})


@given(st.lists(st.tuples(amounts, st.integers(0, 400_000)), max_size=12), st.lists(amounts, min_size=1, max_size=3))
def test_orphaned_charges_only_fall_and_none_is_lost(usages, charges):
    orphans, now = Orphans(), 0
    for number, charge in enumerate(charges):
        orphans = orphans.added(Orphan(QueueName("q"), f"team-{number}", charge), {}, now)
    for external, later in usages:
        now += later
        before = orphans
        orphans, ended = orphans.after(external, now, SETTLE_MS)
        assert positive(before.total) == positive(add(orphans.total, total(orphan.charge for orphan in ended)))
        assert all(amount <= external.get(name, 0) for name, amount in orphans.total.items())


def test_deleted_template_does_not_shorten_the_grace_period():
    """Karmada deletes the binding after its template, of which the pods' grace period is read."""
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 9}, "endsLate": True}]})
    assert scenario.play({}).admitted == {"j": ["m"]}
    scenario.engine.workload_changed(changed(scenario.by_name("j"), has_long_grace_period=False), scenario.now)
    scenario.play({"remove": ["j"]})
    assert scenario.engine.cluster_usage.cluster_state(ClusterName("m")).orphans.total["cpu"] == 9_000


def test_workload_deleted_after_its_cluster_orphans_no_charge():
    """No summary of a removed cluster would ever end the charge of the queue."""
    engine, m = Engine(), ClusterName("m")
    engine.cluster_changed(objects.cluster("m", cpu=8), 0)
    engine.queue_changed(Queue(QueueName("q")))
    kept = objects.workload("kept", {"cpu": 3}, on="m", has_run=True, preserved=True)
    engine.workload_changed(kept, 0)
    engine.plan(1)
    engine.cluster_removed(m)
    engine.plan(2)
    assert engine.current_usage[QueueName("q")] == {"cpu": 3}
    engine.workload_removed(kept.uid, 3)
    engine.plan(4)
    assert not engine.current_usage
    assert m not in engine.cluster_usage


def test_deleted_workload_orphans_no_more_than_its_cluster_holds():
    """D7: a resize that does not fit is charged, but its pods do not run."""
    grown = {"name": "j", "queue": "q", "asks": {"cpu": 1_000_000}, "on": "m", "resized": True, "endsLate": True}
    other, following = ({"name": name, "queue": "q", "asks": {"cpu": 3}} for name in ("other", "following"))
    world = {"clusters": [{"name": "m", "has": {"cpu": 8}}], "queues": [{"name": "q"}]}
    scenario = Scenario({**world, "jobs": [grown, {**other, "on": "m"}]})
    scenario.play({})
    scenario.play({"remove": ["j"]})
    usage = scenario.engine.cluster_usage.cluster_state(ClusterName("m"))
    assert usage.external_usage["cpu"] == usage.orphans.total["cpu"] == 5000
    assert scenario.engine.current_usage[QueueName("q")]["cpu"] == 8000
    assert not usage.recently_freed.total.get("cpu")
    assert scenario.play({"finish": ["other"], "jobs": [following]}).admitted == {"following": ["m"]}


@pytest.mark.parametrize("hidden", [{"cpu": 3}, {"cpu": 1_000_000}])
def test_resize_of_another_workload_hides_no_orphaned_charge(hidden):
    """C2: the pods of a deleted workload run on, whatever others on their cluster are charged."""
    grown = {"name": "grown", "queue": "q", "asks": {"cpu": 1_000_000}, "on": "m", "resized": True}
    late = {"name": "late", "queue": "q", "asks": hidden, "on": "m", "resized": hidden["cpu"] > 3, "endsLate": True}
    world = {"clusters": [{"name": "m", "has": {"cpu": 8}}], "queues": [{"name": "q"}]}
    scenario = Scenario({**world, "jobs": [grown, late]})
    scenario.play({})
    scenario.play({"remove": ["late"]})
    scenario.play({"jobs": [{**grown, "asks": {"cpu": 1}, "resized": False}]})
    usage = scenario.engine.cluster_usage.cluster_state(ClusterName("m"))
    assert usage.external_usage["cpu"] == usage.orphans.total["cpu"] == min(hidden["cpu"], 8) * 1000


def test_released_workload_is_external_usage_of_no_queue():
    scenario = Scenario(WORLD)
    scenario.play({})
    for name in ("kept", "next"):
        scenario.engine.workload_removed(scenario.by_name(name).uid, scenario.now, is_released=True)
    scenario.play({"after": 1})
    usage = scenario.engine.cluster_usage.cluster_state(ClusterName("m"))
    assert (usage.external_usage["cpu"], usage.charged.get("cpu", 0)) == (12_000, 0)
    assert QueueName("q") not in scenario.engine.current_usage


def test_orphaned_charges_of_a_namespace_are_merged():
    orphans = Orphans()
    for number in range(1000):
        orphans = orphans.added(Orphan(QueueName("q"), "team", {"cpu": 1}), {"cpu": number}, 0)
    assert orphans.charges == (Orphan(QueueName("q"), "team", {"cpu": 1000}),)


WORLD = {
    "clusters": [{"name": "m", "has": {"cpu": 40}, "used": {"cpu": 12}}],
    "queues": [{"name": "q", "capability": {"cpu": 10}}],
    "jobs": [
        {"name": "kept", "queue": "q", "asks": {"cpu": 9}, "on": "m", "shown": True, "preserved": True},
        {"name": "next", "queue": "q", "asks": {"cpu": 9}},
    ],
}

remove, summary, rest = st.just("remove"), st.integers(0, 24), st.just("rest")


@given(st.lists(st.one_of(remove, summary, rest), max_size=12))
def test_queues_are_charged_for_admitted_workloads_and_orphans(events):
    """Holds for any events, and for a state restored from the checkpoint of this one."""
    scenario = Scenario(WORLD)
    scenario.play({})
    for event in events:
        _happen(scenario, event)
        assert _charged(scenario.engine) == _due(scenario.engine)
        assert scenario.engine.current_quota.allocated["q"].get("cpu", 0) <= 10_000
        known = take_checkpoint(scenario.engine)
        again = restore(known.policy, known.queues, known.workloads, known.history, scenario.now)
        assert _charged(again) == _charged(scenario.engine)
        assert take_checkpoint(again).history.clusters == known.history.clusters


def _happen(scenario: Scenario, event: str | int) -> None:
    admitted = [workload for workload in scenario.engine.workloads.values() if workload.state is WorkloadState.ADMITTED]
    if event == "remove":
        scenario.play({"remove": [workload.name for workload in admitted[:1]]})
    elif event == "rest":
        scenario.play({"after": 100})
    else:
        scenario.engine.cluster_changed(cluster({**WORLD["clusters"][0], "used": {"cpu": event}}), scenario.now)
        scenario.play({"after": 15})


def _charged(engine: Engine) -> Mapping[str, int]:
    return positive(engine.current_usage.get(QueueName("q"), {}))


def _due(engine: Engine) -> Mapping[str, int]:
    charges = [workload.admission.charge for workload in engine.workloads.values() if workload.admission is not None]
    orphaned = [site.orphans.total for site in engine.cluster_usage]
    return positive(total([*charges, *orphaned]))


def test_only_deleted_preserved_workloads_orphan_charges():
    scenario = Scenario({**WORLD, "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 9}, "preserved": True}]})
    assert scenario.play({}).admitted == {"j": ["m"]}
    scenario._update(scenario.by_name("j"), state=WorkloadState.PENDING, admission=None)
    assert scenario.engine.cluster_usage.cluster_state("m").orphans == Orphans(), "its patch failed"
    assert scenario.play({}).admitted == {"j": ["m"]}
    scenario.play({"finish": ["j"]})
    scenario.play({"remove": ["j"]})
    assert scenario.engine.cluster_usage.cluster_state("m").orphans == Orphans(), "it has finished"
