"""The grace period of a resized workload is a budget that shrinking does not renew (D7)."""

from dataclasses import replace

import pytest

from controller.engine.checkpoint import restore, take_checkpoint
from controller.engine.plan import Evict
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import HyperJobGang
from tests.scenario import Scenario
from tests.workloads import changed

GRACE = 300_000


@pytest.fixture
def scenario() -> Scenario:
    """Return a queue with limit 4 and a workload of 5 that was admitted with 1."""
    return Scenario(
        {
            "policy": {"resize": {"gracePeriod": 300}},
            "clusters": [{"name": "m", "has": {"u": 8}}],
            "queues": [{"name": "A", "capability": {"u": 4}}],
            "jobs": [{"name": "j", "queue": "A", "asks": {"u": 5}, "on": "m", "resized": True}],
        }
    )


def evicted(scenario: Scenario) -> list[str]:
    plan = scenario.engine.plan(scenario.now)
    return [decision.workload.name for decision in plan.decisions if isinstance(decision, Evict)]


def resize(scenario: Scenario, *, resized: bool) -> list[str]:
    """Resize the workload to 5 or back to 1, and return the evictions."""
    workload = scenario.by_name("j")
    amounts = {name: amount if resized else amount // 5 for name, amount in _large(scenario).items()}
    booking = replace(workload.admission.cluster_charges[0], charge=amounts)
    admission = replace(workload.admission, charge=amounts, cluster_charges=(booking,), resized=resized)
    scenario.engine.workload_changed(replace(workload, admission=admission), scenario.now)
    return evicted(scenario)


def _large(scenario: Scenario):
    """Return the workload with its larger requests."""
    return scenario.by_name("j").requirements.requests


def test_shrinking_briefly_does_not_restart_the_grace_period(scenario):
    assert evicted(scenario) == []
    for _ in range(4):
        scenario.now += GRACE // 4 - 1000
        assert resize(scenario, resized=False) == []
        scenario.now += 1000
        assert resize(scenario, resized=True) == []
    scenario.now += 5000
    assert evicted(scenario) == ["j"]


def test_used_grace_period_returns_slowly_while_fitting(scenario):
    evicted(scenario)
    scenario.now += GRACE - 1000
    resize(scenario, resized=False)
    scenario.now += 24 * GRACE
    assert resize(scenario, resized=True) == []
    scenario.now += GRACE - 1
    assert evicted(scenario) == []
    scenario.now += 1
    assert evicted(scenario) == ["j"]


def test_evicted_workload_gets_the_whole_grace_period_again(scenario):
    evicted(scenario)
    scenario.now += GRACE
    assert evicted(scenario) == ["j"]
    scenario.play({"gone": ["j"]})
    assert not scenario.engine.cycle.resize.spent_grace
    assert not scenario.engine.cycle.resize.not_fitting_since


def test_repeated_refused_resizes_count_as_one_eviction(scenario):
    """P4: otherwise a user could protect a workload from reclaim by resizing it `maxEvictions` times."""
    grown = scenario.document["jobs"][0]
    for evictions in (0, 1, 1):
        scenario.play({"jobs": [{**grown, "evictions": evictions}]})
        assert scenario.play({"after": 300}).reasons == {"j": "ResizeRejected"}
        assert scenario.by_name("j").evictions == 1
        scenario.play({"gone": ["j"]})


def test_restored_checkpoint_continues_the_grace_period(scenario):
    evicted(scenario)
    scenario.now += GRACE - 1000
    resize(scenario, resized=False)
    kept = take_checkpoint(scenario.engine)
    scenario.engine = restore(kept.policy, kept.queues, kept.workloads, kept.history, scenario.now)
    assert resize(scenario, resized=True) == []
    scenario.now += 1000
    assert evicted(scenario) == ["j"]


def test_resize_with_unknown_requests_never_fits(scenario):
    resize(scenario, resized=False)
    workload = scenario.by_name("j")
    unknown = replace(
        workload, admission=replace(workload.admission, resized=True), hold=Refusal(Reason.REQUESTS_UNKNOWN)
    )
    scenario.engine.workload_changed(unknown, scenario.now)
    assert evicted(scenario) == []
    scenario.now += GRACE
    assert evicted(scenario) == ["j"]


def test_parts_that_outgrew_the_queue_together_are_evicted_once():
    job = {"queue": "A", "asks": {"u": 5}, "on": "m", "resized": True}
    scenario = Scenario(
        {
            "policy": {"resize": {"gracePeriod": 0}},
            "clusters": [{"name": "m", "has": {"u": 16}}],
            "queues": [{"name": "A", "capability": {"u": 4}}],
            "jobs": [
                {"name": "other", "queue": "A", "asks": {"u": 6}, "on": "m"},
                *({"name": name, **job} for name in ("j", "k")),
            ],
        }
    )
    for name in ("j", "k"):
        part = changed(scenario.by_name(name), gang=HyperJobGang("hyper/1", 2, 2))
        scenario.engine.workload_changed(part, scenario.now)
    assert sorted(evicted(scenario)) == ["j", "k"]
    assert scenario.by_name("j").evictions == scenario.by_name("k").evictions == 1


@pytest.mark.parametrize("asks", [5, 9], ids=["fits", "too-large"])
def test_resize_is_accepted_only_once_its_cluster_is_ready(asks):
    """Whether the cluster holds it is not known before."""
    scenario = Scenario(
        {
            "policy": {"resize": {"gracePeriod": 300}},
            "clusters": [{"name": "m", "has": {"u": 8}, "ready": False}, {"name": "n", "has": {"u": 8}}],
            "queues": [{"name": "A"}],
            "jobs": [{"name": "j", "queue": "A", "asks": {"u": asks}, "on": "m", "resized": True}],
        }
    )
    uid = scenario.by_name("j").uid
    scenario.now += GRACE
    assert (evicted(scenario), scenario.engine.has_accepted(uid)) == ([], False)
    scenario.play({"clusters": [{"name": "m", "has": {"u": 8}}]})
    assert scenario.engine.has_accepted(uid) is (asks == 5)
    scenario.now += GRACE
    assert evicted(scenario) == ([] if asks == 5 else ["j"])


def test_resize_is_accepted_only_once_it_is_dispatched():
    """While its dispatching is suspended, its gang minimum is that of the template before (D7)."""
    scenario = Scenario(
        {
            "clusters": [{"name": "m", "has": {"u": 8}}],
            "queues": [{"name": "A"}],
            "jobs": [{"name": "j", "queue": "A", "asks": {"u": 5}, "on": "m", "resized": True, "hold": "Suspended"}],
        }
    )
    workload = scenario.by_name("j")
    assert (evicted(scenario), scenario.engine.has_accepted(workload.uid)) == ([], False)
    scenario.engine.workload_changed(replace(workload, hold=None), scenario.now)
    assert (evicted(scenario), scenario.engine.has_accepted(workload.uid)) == ([], True)


@pytest.mark.parametrize(("last", "external"), [(4, 3), (5, 2), (3, 3)], ids=["as-before", "grown", "shrunk"])
def test_only_what_a_resize_frees_explains_the_summary(last, external):
    """C2: while an autoscaler resizes a workload, usage of others on its cluster is seen at once."""
    scenario = Scenario(
        {
            "clusters": [{"name": "m", "has": {"cpu": 10}, "used": {"cpu": 4}}],
            "queues": [{"name": "A"}],
            "jobs": [{"name": "j", "queue": "A", "asks": {"cpu": 4}, "on": "m", "shown": True}],
        }
    )
    scenario.engine.plan(scenario.now)
    workload = scenario.by_name("j")
    unit = workload.admission.charge["cpu"] // 4
    for size in (5, 4, last):
        booking = replace(workload.admission.cluster_charges[0], charge={"cpu": size * unit})
        admission = replace(workload.admission, charge=booking.charge, cluster_charges=(booking,))
        scenario.engine.workload_changed(replace(workload, admission=admission), scenario.now)
    member = scenario.engine.cluster_usage.cluster_state("m")
    scenario.engine.cluster_changed(replace(member.cluster, used={"cpu": 8 * unit}), scenario.now)
    assert member.external_usage == {"cpu": external * unit}


def test_rejected_eviction_keeps_the_used_grace_period(scenario):
    evicted(scenario)
    scenario.now += GRACE
    running = scenario.by_name("j")
    assert evicted(scenario) == ["j"]
    scenario.now += 1000
    assert evicted(scenario) == []
    retry_at = scenario.now + 10_000
    scenario.engine.workload_changed(changed(running, eviction_retry_at=retry_at), scenario.now)
    assert evicted(scenario) == []
    scenario.now = retry_at
    assert evicted(scenario) == ["j"]
