"""The bounds of external usage follow the summary as rule C2 says."""

from fractions import Fraction
from typing import Any

from tests.rig.binding_state import BindingState
from tests.rig.external_usage import ExternalUsage


def cluster(used: int, *, unscheduled: int = 0) -> dict[str, Any]:
    amounts = {"allocatable": 16, "allocated": used, "allocating": unscheduled}
    return {"status": {"resourceSummary": {name: {"cpu": str(amount)} for name, amount in amounts.items()}}}


def binding(*clusters: str, running: bool = True) -> BindingState:
    return BindingState(
        uid="u",
        job=("ns", "j"),
        gated=True,
        suspended=False,
        has_policy=True,
        is_terminating=False,
        clusters=clusters,
        is_finished=False,
        record={"charge": {"cpu": "4"}},
        listed=clusters,
        running=clusters if running else (),
    )


def external_usage() -> ExternalUsage:
    charge = {"cpu": Fraction(4)}
    return ExternalUsage(lambda _: (charge, charge), lag=1)


def bounds(usage: ExternalUsage, at: float) -> tuple[int, int]:
    return int(usage.least("m1", "cpu", at)), int(usage.most("m1", "cpu", at))


def test_usage_above_the_charges_is_external_at_once():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(0), 0)
    usage.apply_binding(None, binding("m1"), 10)
    usage.apply_cluster("m1", cluster(4), 15)
    assert bounds(usage, 20) == (0, 0)
    usage.apply_cluster("m1", cluster(10), 21)
    assert bounds(usage, 30) == (6, 6)


def test_pods_without_a_node_are_usage():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(0), 0)
    usage.apply_binding(None, binding("m1"), 10)
    usage.apply_cluster("m1", cluster(6, unscheduled=4), 21)
    assert bounds(usage, 30) == (6, 6)


def test_recently_freed_charge_explains_usage():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(0), 0)
    usage.apply_binding(None, binding("m1"), 10)
    usage.apply_binding(binding("m1"), None, 20)
    usage.apply_cluster("m1", cluster(4), 21)
    assert bounds(usage, 23) == (0, 0)
    assert bounds(usage, 50) == (0, 4)
    usage.apply_cluster("m1", cluster(4), 70)
    assert bounds(usage, 72) == (4, 4)


def test_external_usage_falls_only_after_a_settle_period_at_rest():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(6), 0)
    usage.apply_binding(None, binding("m1"), 10)
    usage.apply_cluster("m1", cluster(4), 15)
    assert bounds(usage, 20) == (6, 6)
    assert bounds(usage, 35) == (0, 6)
    usage.apply_binding(binding("m1"), None, 60)
    assert bounds(usage, 62) == (0, 0)


def test_removed_cluster_has_no_external_usage():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(6), 0)
    usage.apply_cluster("m1", None, 10)
    assert bounds(usage, 20) == (0, 0)


def test_summary_seen_before_the_end_of_a_workload_lowers_usage():
    usage = external_usage()
    usage.apply_cluster("m1", cluster(0), 0)
    usage.apply_binding(None, binding("m1"), 1)
    usage.apply_cluster("m1", cluster(6), 2)
    usage.apply_binding(binding("m1"), None, 100)
    usage.apply_cluster("m1", cluster(2), 100.5)
    assert bounds(usage, 100.6) == (0, 2)
