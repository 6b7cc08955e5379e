"""Saves and restores an ``Engine``, with all history that decisions may depend on.

A restored state decides as the saved one would have.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controller.engine.engine import Engine
from controller.engine.policy import Policy
from controller.engine.reservations.head import BlockedHead
from controller.engine.reservations.idle import IdleTime
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import EstimatesCheckpoint
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.orphans import NO_ORPHANS, Orphans
from controller.engine.state.resources import EMPTY, Resources
from controller.engine.state.workloads import HyperJobGang, Workload, WorkloadState, WorkloadUid


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
    """Since when a workload is the first blocked one of its queue, or of its namespace there (O6)."""

    queue: QueueName
    namespace: str
    uid: WorkloadUid
    since: int


@dataclass(frozen=True, slots=True)
class History:
    """What an ``Engine`` knows in addition to its objects."""

    clusters: tuple[ClusterHistory, ...] = ()
    blocked: tuple[StarvationTimer, ...] = ()
    passed: tuple[tuple[WorkloadUid, int], ...] = ()
    """How long workloads that others precede now were the first blocked ones (O6)."""
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
    """How long resized workloads did not fit before they shrank or were evicted, and when that was (D7)."""
    expired_reservations: tuple[tuple[WorkloadUid, int], ...] = ()
    """How many reservations of each workload have expired (O8)."""
    idle_reservations: tuple[tuple[str, IdleTime], ...] = ()
    """What the reservations have left idle, by owner (O8)."""
    backfilled: tuple[tuple[WorkloadUid, str], ...] = ()
    """Workloads, admitted or being evicted, that use reserved capacity, with the owner of the reservation (O9)."""
    spent_budgets: tuple[tuple[str, int], ...] = ()
    """Which part of its budget each reservation has spent on backfilled workloads, by owner (O9)."""
    admitted_so_far: tuple[WorkloadUid, ...] = ()
    """Workloads admitted by cut plans that the next plan continues (O3)."""
    accepted: tuple[WorkloadUid, ...] = ()
    """Moved or resized workloads that were found to fit where they are, before their records are updated (R1, D7)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete, immutable copy of the state of an ``Engine``."""

    policy: Policy
    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    history: History


def take_checkpoint(engine: Engine) -> Checkpoint:
    """Return a checkpoint of *engine*."""
    workloads = tuple(engine.workloads.values())
    return Checkpoint(engine.policy, tuple(engine.queues.values()), workloads, take_history(engine))


def take_history(engine: Engine) -> History:
    """Return what *engine* knows in addition to its queues and workloads."""
    cluster_usage, cycle = engine.cluster_usage, engine.cycle
    return History(
        clusters=tuple(_cluster_history(cluster_state) for cluster_state in cluster_usage),
        blocked=tuple(
            StarvationTimer(*key, head.uid, head.since) for key, head in sorted(cycle.starvation_timers.heads.items())
        ),
        passed=tuple(sorted(cycle.starvation_timers.passed.items())),
        not_fitting_since=tuple(sorted(cycle.resize.not_fitting_since.items())),
        spent_resize_grace=tuple((uid, *cycle.resize.spent_grace[uid]) for uid in sorted(cycle.resize.spent_grace)),
        rescheduled=tuple(sorted(cycle.startup.requeued.items())),
        expired_reservations=tuple(sorted(cycle.starvation_timers.expirations.items())),
        backfilled=tuple(sorted(engine.context.windows.backfilled.items())),
        spent_budgets=tuple(sorted(engine.context.windows.spent.items())),
        idle_reservations=tuple(sorted(cycle.idle_reservations.by_owner.items())),
        incomplete_gangs=tuple(sorted(cycle.startup.incomplete_gangs.items(), key=lambda item: item[0].key)),
        admitted_so_far=tuple(sorted(engine.context.admitted_so_far)),
        accepted=tuple(sorted(engine.index.accepted)),
        usability_changed_at=cluster_usage.usability_changed_at,
        has_begun=cluster_usage.has_begun,
        has_usability_changed=cluster_usage.has_usability_changed,
    )


def _cluster_history(cluster_state: ClusterState) -> ClusterHistory:
    ended = tuple(cluster_state.recently_freed.charges)
    estimates = cluster_state.estimates.checkpoint() if cluster_state.estimates is not None else None
    return ClusterHistory(
        cluster_state.name,
        cluster_state.cluster,
        cluster_state.external_usage,
        ended,
        cluster_state.changed_at,
        estimates,
        cluster_state.orphans,
    )


def restore(
    policy: Policy, queues: Iterable[Queue], workloads: Iterable[Workload], history: History, now: int
) -> Engine:
    """Return a state that decides from *now* on as the saved one would."""
    engine = Engine(policy)
    for workload in workloads:
        engine.workload_changed(workload, now)
    for queue in queues:
        engine.queue_changed(queue)
    for cluster_history in history.clusters:
        _restore_cluster(engine, cluster_history)
    _restore_timers(engine, history)
    engine.cycle.startup.reschedule_all(engine.workloads.values(), policy.startup_timeout_ms)
    return engine


def roll_back(
    engine: Engine, queues: Iterable[Queue], workloads: Iterable[Workload], history: History, now: int
) -> None:
    """Restore *engine* to the state when *history* was taken.

    *queues* and *workloads* are the earlier versions of all that changed since.
    Neither queues nor workloads nor clusters may have been added or removed since *history* was taken.
    """
    for queue in queues:
        engine.queue_changed(queue)
    for workload in workloads:
        if engine.workloads[workload.uid].state is WorkloadState.FINISHED:
            # Otherwise it would count as one that runs again after it had finished (D7).
            engine.workload_removed(workload.uid, now)
        engine.workload_changed(workload, now)
    for cluster_history in history.clusters:
        cluster_state = engine.cluster_usage.cluster_state(cluster_history.name)
        if _is_as_saved(cluster_state, cluster_history):
            continue
        if cluster_history.cluster is not None:
            engine.cluster_changed(cluster_history.cluster, now)
        has_changed = cluster_state.external_usage != cluster_history.external_usage
        _restore_usage(cluster_state, cluster_history)
        if has_changed:
            engine.cluster_usage.estimate_changed(cluster_history.name)
    _restore_timers(engine, history)


def _restore_timers(engine: Engine, history: History) -> None:
    """Restore since when workloads, gangs and clusters are in their state, and what the last plans decided."""
    cycle, cluster_usage = engine.cycle, engine.cluster_usage
    heads = {(timer.queue, timer.namespace): BlockedHead(timer.uid, timer.since) for timer in history.blocked}
    cycle.starvation_timers.restore(heads, dict(history.expired_reservations), dict(history.passed))
    engine.context.windows.backfilled = dict(history.backfilled)
    engine.context.windows.spent = dict(history.spent_budgets)
    cycle.idle_reservations.by_owner = dict(history.idle_reservations)
    cycle.resize.not_fitting_since = dict(history.not_fitting_since)
    cycle.resize.spent_grace = {uid: (spent, ended) for uid, spent, ended in history.spent_resize_grace}
    cycle.startup.requeued = dict(history.rescheduled)
    cycle.startup.incomplete_gangs = dict(history.incomplete_gangs)
    engine.context.admitted_so_far = frozenset(history.admitted_so_far)
    engine.index.accepted = set(history.accepted)
    cluster_usage.usability_changed_at = history.usability_changed_at
    cluster_usage.has_begun = history.has_begun
    cluster_usage.has_usability_changed = history.has_usability_changed


def _restore_cluster(engine: Engine, history: ClusterHistory) -> None:
    if history.cluster is not None:
        engine.cluster_usage.update(history.cluster, 0, 0)
    cluster_state = engine.cluster_usage.cluster_state(history.name)
    _restore_usage(cluster_state, history)
    cluster_state.orphans = history.orphans
    engine.context.usage_tracker.restore_orphans(history.orphans)
    if history.estimates is not None:
        engine.estimate_tracker.restore(history.name, history.estimates)


def _is_as_saved(cluster_state: ClusterState, history: ClusterHistory) -> bool:
    """Return whether what ``roll_back`` restores of a cluster is unchanged."""
    return (
        cluster_state.cluster == history.cluster
        and cluster_state.external_usage == history.external_usage
        and cluster_state.changed_at == history.changed_at
        and tuple(cluster_state.recently_freed.charges) == history.recently_freed
    )


def _restore_usage(cluster_state: ClusterState, history: ClusterHistory) -> None:
    cluster_state.external_usage = history.external_usage
    cluster_state.recently_freed = type(cluster_state.recently_freed)()
    for at, charge in history.recently_freed:
        cluster_state.recently_freed.add(charge, at)
    cluster_state.changed_at = history.changed_at
