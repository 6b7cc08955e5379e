"""Runs a scenario: objects in a few lines of YAML, and the expected outcome of each step.

``tests/scenarios/README.md`` describes the format; ``tests.scenario_parser`` parses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from controller.engine.engine import Engine
from controller.engine.plan import Evict, Plan
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Reservation, Workload, WorkloadState
from tests.scenario_parser import amounts, cluster, known, policy, queue, workloads
from tests.workloads import changed

SCENARIOS = Path(__file__).parent / "scenarios"

WORLD = "policy clusters queues jobs"
STEP = f"{WORLD} after show run finish leave evict gone remove dropQueues dropClusters expect"
EVENTS: Mapping[str, Mapping[str, Any]] = {
    "run": {"has_run": True},
    "finish": {"state": WorkloadState.FINISHED, "admission": None},
    "leave": {"state": WorkloadState.PENDING, "hold": Refusal(Reason.PREEMPTION_IN_PROGRESS)},
    "evict": {"state": WorkloadState.PENDING, "admission": None, "hold": None},
    "gone": {"admission": None},
}
DOCUMENT = f"{WORLD} title rules expect then broken"


@dataclass
class Outcome:
    """Decisions, pending reasons and publications of one step."""

    order: list[str] = field(default_factory=list)
    admitted: dict[str, list[str]] = field(default_factory=dict)
    waiting: dict[str, Refusal] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    left_for: dict[str, str | None] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Reason of each eviction."""
    expired: list[str] = field(default_factory=list)
    reserved: dict[str, str | list[str] | None] = field(default_factory=dict)
    """New reservations with their clusters."""
    requeued: list[str] = field(default_factory=list)
    """Workloads handed to Karmada's scheduler again."""
    published: list[str] = field(default_factory=list)
    wake_after: int | None = None
    """In seconds."""


class Scenario:
    """One YAML document, played step by step on one engine state."""

    def __init__(self, document: Mapping[str, Any], *, reverse: bool = False) -> None:
        self.document = document
        self.engine = Engine(policy(document.get("policy")))
        self.now = 1_000_000_000
        self._reverse = reverse
        self._entries = 0
        self._populate(document, self.now - 3_600_000)

    def _populate(self, written: Mapping[str, Any], since: int) -> None:
        # Charges precede the clusters' summaries, as after a restart.
        for workload in self._in_order(self._jobs(written.get("jobs", ()))):
            self.engine.workload_changed(workload, since)
        for entry in self._in_order(written.get("queues", ())):
            self.engine.queue_changed(queue(entry))
        for entry in self._in_order(written.get("clusters", ())):
            self.engine.cluster_changed(cluster(entry), self.now)

    def _jobs(self, entries: Sequence[Mapping[str, Any]]) -> list[Workload]:
        """Parse *entries*, each younger than all before; a repeated job keeps its age."""
        jobs = []
        for entry in entries:
            for workload in workloads(entry, 1000 * self._entries, now=self.now):
                before = self.engine.workloads.get(workload.uid)
                keeps_age = before is not None and "since" not in entry
                jobs.append(replace(workload, created_at=before.created_at) if keeps_age else workload)
            self._entries += 1
        return jobs

    def _in_order(self, things: Sequence[Any]) -> list[Any]:
        return list(reversed(things)) if self._reverse else list(things)

    def by_name(self, name: str) -> Workload:
        """Return the first workload with this name."""
        return next(workload for workload in self.engine.workloads.values() if workload.name == name)

    def play(self, step: Mapping[str, Any]) -> Outcome:
        """Apply the events of *step*, plan, and return the outcome."""
        self.now += step.get("after", 0) * 1000
        if "policy" in step:
            self.engine.policy_changed(policy(step["policy"]))
        removed = [self.by_name(name).uid for name in step.get("remove", ())]
        self._populate(step, self.now)
        for name in step.get("show", ()):
            running = self.by_name(name)
            assert running.admission is not None
            self._update(running, admission=replace(running.admission, reported=True))
        for event, changes in EVENTS.items():
            for name in step.get(event, ()):
                self._update(self.by_name(name), **changes)
        for uid in removed:
            self.engine.workload_removed(uid, self.now)
        for name in step.get("dropQueues", ()):
            self.engine.queue_removed(QueueName(name))
        for name in step.get("dropClusters", ()):
            self.engine.cluster_removed(ClusterName(name))
        return self._outcome(self.engine.plan(self.now))

    def _update(self, workload: Workload, **changes: Any) -> None:
        self.engine.workload_changed(changed(workload, **changes), self.now)

    def _outcome(self, plan: Plan) -> Outcome:
        outcome = Outcome(published=[wait.workload.name for wait in plan.waits])
        outcome.expired = [
            update.workload.name
            for update in plan.record_updates
            if update.nomination is None and update.reservation is None
        ]
        outcome.reserved = {
            update.workload.name: reserved_on(update.reservation)
            for update in plan.record_updates
            if update.reservation
        }
        outcome.requeued = [workload.name for workload in plan.reschedules]
        outcome.wake_after = None if plan.wake_at is None else (plan.wake_at - self.now) // 1000
        names = {uid: workload.name for uid, workload in self.engine.workloads.items()}
        for decision in plan.decisions:
            if isinstance(decision, Evict):
                outcome.evicted.append(decision.workload.name)
                outcome.left_for[decision.workload.name] = names.get(decision.preemptor or "")
                outcome.reasons[decision.workload.name] = decision.reason
                continue
            outcome.order.append(decision.workload.name)
            outcome.admitted[decision.workload.name] = [target.name for target in decision.clusters]
        for workload in self.engine.workloads.values():
            refusal = self.engine.refusal(workload.uid)
            if refusal is not None:
                outcome.waiting[workload.name] = refusal
        for name in self.engine.queues_with_pending():
            outcome.positions |= {
                workload.name: place for place, workload in enumerate(self.engine.pending_workloads(name), start=1)
            }
        return outcome


def reserved_on(reserved: Reservation) -> str | list[str] | None:
    """Return the reserved cluster or clusters; ``None`` for quota alone."""
    names = [booking.cluster for booking in reserved.cluster_charges]
    return names if len(names) > 1 else next(iter(names), None)


@cache
def documents() -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return every scenario with its id: file name and title."""
    return tuple(
        (f"{path.stem}: {document['title']}", known(document, DOCUMENT))
        for path in sorted(SCENARIOS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    )


def rows(expected: Mapping[str, Any] | None) -> dict[str, dict[str, int]]:
    """Parse the expected amounts of queues, clusters or jobs."""
    return {name: amounts(written) for name, written in (expected or {}).items()}
