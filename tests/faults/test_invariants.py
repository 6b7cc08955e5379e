"""The invariant checks report every violation and accept correct histories.

Histories are short and written by hand; mutation tests cover real histories.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.benchmarks import seed
from tests.clusters import with_models
from tests.rig import fake_karmada
from tests.rig.audit import Request
from tests.rig.binding_state import RECORD
from tests.rig.history import Change
from tests.rig.invariants import Evidence, violations

CAPACITY = {"cpu": "2", "memory": "1Ti", "pods": "100"}


@dataclass
class Story:
    """Builds a history, with ten seconds between changes by default."""

    changes: list[Change] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    now: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    at: float = 1000

    def tell(self, kind: str, name: str, after: dict[str, Any] | None, *, seconds: float = 10) -> None:
        self.at += seconds
        key = ("" if kind in {"queues", "clusters", "priorityclasses"} else "ns", name)
        before = self.now.get((kind, name))
        self.now[kind, name] = after or {}
        self.changes.append(Change(len(self.changes) + 1, kind, key, before or None, after, self.at))

    def cluster(self, name: str = "m1", **capacity: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        summary = {"resourceSummary": {"allocatable": {**CAPACITY, **capacity}}}
        made = {"metadata": {"name": name}, "spec": {}, "status": {**status, **summary}}
        self.tell("clusters", name, with_models(made))

    def queue(self, name: str = "q", **spec: Any) -> None:
        self.tell("queues", name, {"metadata": {"name": name}, "spec": spec})

    def priority(self, name: str, value: int) -> None:
        self.classes[name] = value
        self.tell("priorityclasses", name, {})

    def job(self, name: str, queue: str = "q", *, born: int = 0, **more: Any) -> None:
        made = fake_karmada.job(name, queue, **more)
        made["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{born:02}Z"}
        self.tell("jobs", name, made)
        bound = seed.binding("ns", name, "t")
        bound["metadata"] |= {"uid": f"u-{name}", "namespace": "ns"}
        self.tell("resourcebindings", f"{name}-job", bound)

    def change(self, name: str, *, seconds: float = 10, **spec: Any) -> None:
        binding = self.now["resourcebindings", f"{name}-job"]
        self.tell("resourcebindings", f"{name}-job", {**binding, "spec": {**binding["spec"], **spec}}, seconds=seconds)

    def admit(self, name: str, *, record: dict[str, Any] | None = None, seconds: float = 10) -> None:
        binding = json.loads(json.dumps(self.now["resourcebindings", f"{name}-job"]))
        charge = {"uid": f"u-{name}", "charge": {"cpu": "1"}}
        binding["metadata"]["annotations"][RECORD] = json.dumps(charge if record is None else record)
        binding["spec"] |= {"suspension": {"scheduling": False}, "clusters": [{"name": "m1"}]}
        self.tell("resourcebindings", f"{name}-job", binding, seconds=seconds)

    def end(self, name: str) -> None:
        binding = self.now["resourcebindings", f"{name}-job"]
        told = [{"clusterName": "m1", "status": {"state": {"phase": "Completed"}}}]
        self.tell("resourcebindings", f"{name}-job", {**binding, "status": {"aggregatedStatus": told}})

    def ours(self, *, status: int = 200, seconds: float = 10) -> None:
        """Mark the last change as a write of the controller."""
        change = self.changes[-1]
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=change.at + seconds * len(self.requests))
        revision = change.revision if status == 200 else 0
        self.requests.append(Request(at, "c", "patch", change.kind, *change.key, status, revision, []))

    def violations(self, **more: Any) -> list[str]:
        return violations(replace(Evidence(self.changes, self.requests, classes=self.classes), **more))


def story(**capacity: str) -> Story:
    made = Story()
    made.cluster(**capacity)
    made.queue()
    return made


def decided(name: str, second: int) -> dict[str, Any]:
    """Return the record of an admission."""
    return {"uid": f"u-{name}", "charge": {"cpu": "1"}, "admittedAt": f"2026-01-01T00:00:{second:02}.000Z"}


def too_much_for_the_queue(told: Story) -> None:
    told.queue(capability={"cpu": "1"})
    told.job("a", cpu=2)
    told.admit("a")


def too_much_for_the_cluster(told: Story) -> None:
    for name in ("a", "b"):
        told.job(name, cpu=2)
    told.admit("a")
    told.admit("b")


def two_elastic_jobs_of_a_plan_that_do_not_fit(told: Story) -> None:
    told.cluster("m2", cpu="9")
    for name in ("a", "b"):
        told.job(name, replicas=2, minimum=1)
        told.admit(name, record=decided(name, 1))


def into_a_closed_queue(told: Story) -> None:
    told.tell("queues", "q", {"metadata": {"name": "q"}, "spec": {}, "status": {"state": "Closed"}})
    told.job("a")
    told.admit("a")


def a_foreign_field(told: Story) -> None:
    told.job("a")
    told.change("a", conflictResolution="Overwrite")
    told.ours()


def let_go_without_a_record(told: Story) -> None:
    told.job("a")
    told.change("a", suspension={"scheduling": False})


def let_go_by_the_record_of_another(told: Story) -> None:
    told.job("a")
    told.admit("a", record={"uid": "u-b", "charge": {"cpu": "1"}})


def a_work_before_the_admission(told: Story) -> None:
    told.job("a")
    names = {"resourcebinding.karmada.io/namespace": "ns", "resourcebinding.karmada.io/name": "a-job"}
    told.tell("works", "a-work", {"metadata": {"annotations": names}})


def one_of_less_importance_first(told: Story) -> None:
    told.priority("high", 1000)
    told.job("a-low", cpu=2)
    told.job("z-high", cpu=2, priority="high", born=9)
    told.admit("a-low")


def the_younger_first(told: Story) -> None:
    the_younger_wait_behind_the_old(told)
    told.admit("young")


def a_queue_of_less_importance_first(told: Story) -> None:
    told.queue("important", priority=9)
    told.job("a-low", cpu=2)
    told.job("z-high", "important", cpu=2, born=9)
    told.admit("a-low")


def room_that_has_just_come_free_goes_to_the_younger(told: Story) -> None:
    told.job("runs", cpu=2)
    told.admit("runs")
    the_younger_wait_behind_the_old(told)
    told.end("runs")
    told.admit("young", seconds=0.1)


def the_younger_wait_behind_the_old(told: Story) -> None:
    told.job("old", cpu=2)
    told.job("young", cpu=2, born=9)


def a_write_that_changes_nothing(told: Story) -> None:
    told.job("a")
    told.admit("a")
    told.ours()
    told.ours()


def tried_again_at_once(told: Story) -> None:
    told.job("a")
    told.ours(status=403)
    told.ours(status=403, seconds=0)


VIOLATIONS: list[tuple[str, Callable[[Story], None]]] = [
    ("I1", too_much_for_the_queue),
    ("I1", too_much_for_the_cluster),
    ("I1", two_elastic_jobs_of_a_plan_that_do_not_fit),
    ("I1", into_a_closed_queue),
    ("I2", a_foreign_field),
    ("I3", let_go_without_a_record),
    ("I3", let_go_by_the_record_of_another),
    ("I3", a_work_before_the_admission),
    ("I6", one_of_less_importance_first),
    ("I6", the_younger_first),
    ("I6", room_that_has_just_come_free_goes_to_the_younger),
    ("I6", a_queue_of_less_importance_first),
    ("I7", a_write_that_changes_nothing),
    ("I7", tried_again_at_once),
]


@pytest.mark.parametrize(
    ("invariant", "happens"),
    [pytest.param(*violation, id=f"{violation[0]}-{violation[1].__name__}") for violation in VIOLATIONS],
)
def test_violation_is_reported_by_its_invariant(invariant, happens):
    told = story()
    happens(told)
    found = told.violations()
    assert found
    assert {item.split()[0] for item in found} == {invariant}


def one_after_the_other(told: Story) -> None:
    told.priority("high", 1000)
    told.job("first", cpu=2, priority="high")
    told.job("second", cpu=2)
    told.admit("first")
    told.ours()
    told.end("first")
    told.admit("second")
    told.ours()


def one_that_does_not_fit_is_passed_over(told: Story) -> None:
    told.job("large", cpu=3)
    told.job("small", cpu=2, born=9)
    told.admit("small")


def news_that_come_too_late(told: Story) -> None:
    told.priority("high", 1000)
    told.job("a-low", cpu=2)
    told.job("z-high", cpu=2, priority="high", born=9)
    told.admit("a-low", seconds=0.5)


def room_for_both(told: Story) -> None:
    told.job("old")
    told.job("young", born=9)
    told.admit("young")


def room_that_was_taken_when_it_was_decided(told: Story) -> None:
    told.cluster(cpu="3")
    told.job("runs")
    told.admit("runs")
    told.job("large", cpu=3)
    told.job("small", born=9)
    told.end("runs")
    told.admit("small", seconds=0.5)


def writes_of_a_plan_in_another_order(told: Story) -> None:
    """The gang of the elastic job fits last, and is written first."""
    told.cluster("m2", cpu="9")
    told.job("elastic", replicas=2, minimum=1)
    told.job("fixed")
    told.admit("elastic", record=decided("elastic", 1))
    told.admit("fixed", record=decided("fixed", 1))


def an_order_that_needs_shares(told: Story) -> None:
    told.queue("other")
    told.job("old", cpu=2)
    told.job("young", "other", cpu=2, born=9)
    told.admit("young")


@pytest.mark.parametrize(
    "happens",
    [
        one_after_the_other,
        one_that_does_not_fit_is_passed_over,
        news_that_come_too_late,
        room_for_both,
        room_that_was_taken_when_it_was_decided,
        writes_of_a_plan_in_another_order,
        an_order_that_needs_shares,
    ],
)
def test_correct_history_has_no_violations(happens):
    told = story()
    happens(told)
    assert told.violations() == []


def test_lost_write_excuses_its_job_from_the_order():
    told = story()
    the_younger_first(told)
    assert told.violations(troubled=frozenset({"old"})) == []
