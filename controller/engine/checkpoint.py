"""Saves and restores a ``State``, with all history that decisions may depend on.

A restored state decides as the saved one would have.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controller.engine.cluster_usage import ClusterState
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import EstimatesCheckpoint
from controller.engine.orphans import NO_ORPHANS, Orphans
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.reservations import BlockedHead
from controller.engine.resources import EMPTY, Resources
from controller.engine.state import State
from controller.engine.workloads import HyperJobGang, Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    """One cluster and its derived usage; the charges follow from the workloads."""

    name: ClusterName
    cluster: Cluster | None = None
    external_usage: Resources = EMPTY
    recently_freed: tuple[tuple[int, Resources], ...] = ()
    """The recently freed charges with their times."""
    changed_at: int | None = None
    estimates: EstimatesCheckpoint | None = None
    """Queries to its estimator and the answers."""
    orphans: Orphans = NO_ORPHANS
    """Charges of queues for pods that deleted workloads left running there."""


@dataclass(frozen=True, slots=True)
class StarvationTimer:
    """Since when a workload is the first blocked one of its queue (O6)."""

    queue: QueueName
    uid: WorkloadUid
    since: int


@dataclass(frozen=True, slots=True)
class History:
    """What a ``State`` knows in addition to its objects."""

    clusters: tuple[ClusterHistory, ...] = ()
    blocked: tuple[StarvationTimer, ...] = ()
    not_fitting_since: tuple[tuple[WorkloadUid, int], ...] = ()
    """Resized workloads that do not fit, with the time when that began (D7)."""
    rescheduled: tuple[tuple[WorkloadUid, int], ...] = ()
    """Workloads that were given to Karmada's scheduler again, with the time (R1)."""
    incomplete_gangs: tuple[tuple[HyperJobGang, int], ...] = ()
    """Gangs that lack required parts, with the time when that began (R1)."""
    usability_changed_at: int | None = None
    """When a cluster last became usable or unusable."""
    has_begun: bool = False
    has_usability_changed: bool = False
    spent_resize_grace: tuple[tuple[WorkloadUid, int, int], ...] = ()
    """How long resized workloads did not fit before they shrank, and when they did (D7)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete, immutable copy of a ``State``."""

    policy: Policy
    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    history: History


def take_checkpoint(state: State) -> Checkpoint:
    """Return a checkpoint of *state*."""
    return Checkpoint(state.policy, tuple(state.queues.values()), tuple(state.workloads.values()), _memory(state))


def _memory(state: State) -> History:
    ledger = state.cluster_usage
    return History(
        clusters=tuple(_site(site) for site in ledger),
        blocked=tuple(
            StarvationTimer(name, each.uid, each.since) for name, each in sorted(state.starvation_timers.heads.items())
        ),
        not_fitting_since=tuple(sorted(state.not_fitting_since.items())),
        spent_resize_grace=tuple((uid, *state.spent_resize_grace[uid]) for uid in sorted(state.spent_resize_grace)),
        rescheduled=tuple(sorted(state.startup.requeued.items())),
        incomplete_gangs=tuple(sorted(state.startup.incomplete_gangs.items(), key=lambda each: each[0].key)),
        usability_changed_at=ledger.usability_changed_at,
        has_begun=ledger._has_begun,  # noqa: SLF001 - what it remembers is its own affair but for this
        has_usability_changed=ledger._has_usability_changed,  # noqa: SLF001 - the same
    )


def _site(site: ClusterState) -> ClusterHistory:
    ended = tuple(site.recently_freed._charges)  # noqa: SLF001 - the same
    estimates = site.estimates.checkpoint() if site.estimates is not None else None
    return ClusterHistory(site.name, site.cluster, site.external_usage, ended, site.changed_at, estimates, site.orphans)


def restore(policy: Policy, queues: Iterable[Queue], workloads: Iterable[Workload], memory: History, now: int) -> State:
    """Return a state that decides from *now* on as the saved one would."""
    state = State(policy)
    for workload in workloads:
        state.workload_changed(workload, now)
    for queue in queues:
        state.queue_changed(queue)
    for each in memory.clusters:
        _recall(state, each)
    for patient in memory.blocked:
        state.starvation_timers.heads[patient.queue] = BlockedHead(patient.uid, patient.since)
    state.not_fitting_since.update(memory.not_fitting_since)
    state.spent_resize_grace.update({uid: (spent, ended) for uid, spent, ended in memory.spent_resize_grace})
    state.startup.requeued.update(memory.rescheduled)
    state.startup.incomplete_gangs.update(memory.incomplete_gangs)
    state.startup.reschedule_all(state.workloads.values(), policy.startup_timeout_ms)
    ledger = state.cluster_usage
    ledger.usability_changed_at = memory.usability_changed_at
    ledger._has_begun = memory.has_begun  # noqa: SLF001 - it is being given back its own
    ledger._has_usability_changed = memory.has_usability_changed  # noqa: SLF001 - the same
    return state


def _recall(state: State, memory: ClusterHistory) -> None:
    """Restore one cluster."""
    if memory.cluster is not None:
        state.cluster_usage.update(memory.cluster, 0, 0)
    site = state.cluster_usage.cluster_state(memory.name)
    site.external_usage = memory.external_usage
    site.recently_freed = type(site.recently_freed)()
    for at, charge in memory.recently_freed:
        site.recently_freed.add(charge, at)
    site.changed_at = memory.changed_at
    site.orphans = memory.orphans
    state.usage_tracker.restore_orphans(memory.orphans)
    if memory.estimates is not None:
        state.estimate_tracker.restore(memory.name, memory.estimates)
