"""Tracks the states of all clusters: charges, evictions, nominations, orphans, and the limit of the root."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from typing import Final

from controller.engine.state.amounts_in_advance import AmountsInAdvance
from controller.engine.state.cluster_state import ClusterState, earliest
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import ClusterEstimates, pods_of
from controller.engine.state.orphans import NO_ORPHANS, Orphan
from controller.engine.state.resources import (
    EMPTY,
    Resources,
    add,
    clamp_non_negative,
    elementwise_min,
    nonzero,
    positive,
    scale,
    subtract,
    total,
)
from controller.engine.state.workloads import Admission, Choice, ClusterCharge, Workload

#: So many of the last changes and frees are remembered one by one.
_MAX_REMEMBERED: Final = 1024


class ClusterUsage:
    """The states of all clusters, by name."""

    def __init__(self) -> None:
        self.free_count = 0
        """How often free capacity of some cluster has increased."""
        self._freed: deque[ClusterName] = deque(maxlen=_MAX_REMEMBERED)
        self._freed_since: dict[int, frozenset[ClusterName]] = {}
        """Results of ``freed_since``, cleared when ``free_count`` increases."""
        self.version = 0
        """Changes with every change of any headroom."""
        self._changed: deque[ClusterName] = deque(maxlen=_MAX_REMEMBERED)
        """The clusters that changed, one for each version."""
        self._states: dict[ClusterName, ClusterState] = {}
        self._touched: set[ClusterName] = set()
        """Clusters of which charges or the summary changed since ``refresh``."""
        self._settling: dict[ClusterName, tuple[int, int | None]] = {}
        """When to refresh a cluster again although nothing touches it, and when its external usage may change."""
        self._settle_ms = 0
        """The settle period of *_settling*."""
        self._released: list[Orphan] = []
        """Orphaned charges that have ended while their queues are still charged."""
        self._root_limit: Resources | None = None
        self._resized: dict[ClusterName, Resources] = {}
        """What workloads with a resize that was not accepted are charged on each cluster that has any."""
        self._resized_and_evicted: dict[ClusterName, Resources] = {}
        """The same of those that are being evicted."""
        self.usability_changed_at: int | None = None
        """When a cluster last became usable or unusable; before the first plan, according to its condition."""
        self.has_begun = False
        """Whether a plan was made; until then the first observation of a cluster is no change."""
        self.has_usability_changed = False
        """Whether a cluster became usable or unusable since the last plan."""
        self._is_estimating = False

    def __contains__(self, name: ClusterName) -> bool:
        return name in self._states

    def switch_estimates(self, *, on: bool) -> None:
        """Keep estimates for every cluster, initially none; or, with *on* false, no estimates."""
        self._is_estimating = on
        for cluster_state in self._states.values():
            cluster_state.estimates = ClusterEstimates() if on else None
            self._has_changed(cluster_state, gained_capacity=True)

    def estimate_changed(self, name: ClusterName) -> None:
        """Mark a cluster as changed, because its estimator may accept other workloads than before."""
        self._has_changed(self.cluster_state(name), gained_capacity=True)

    def keep_free(self, name: ClusterName, in_advance: AmountsInAdvance | None, *, gained_capacity: bool) -> None:
        """Keep amounts of a known cluster free for advance reservations; *gained_capacity*: maybe less than before."""
        cluster_state = self._states.get(name)
        if cluster_state is not None and cluster_state.in_advance != in_advance:
            cluster_state.in_advance = in_advance
            self._has_changed(cluster_state, gained_capacity=gained_capacity)

    def cluster_state(self, name: ClusterName) -> ClusterState:
        """Return the state of one cluster, created if necessary."""
        if name not in self._states:
            self._states[name] = ClusterState(name, estimates=ClusterEstimates() if self._is_estimating else None)
        return self._states[name]

    def __iter__(self) -> Iterator[ClusterState]:
        return (self._states[name] for name in sorted(self._states))

    def has_cluster(self, name: ClusterName) -> bool:
        """Return whether a cluster exists; only charges refer to one that was removed."""
        return name in self._states and self._states[name].cluster is not None

    @property
    def clusters(self) -> list[Cluster]:
        """Return the known clusters, by name."""
        return [cluster_state.cluster for cluster_state in self if cluster_state.cluster is not None]

    def update(self, cluster: Cluster, now: int, settle_ms: int) -> None:
        """Add or update a cluster, observed at *now*."""
        cluster_state = self.cluster_state(cluster.name)
        is_new, before, external_usage = cluster_state.is_unknown, cluster_state.cluster, cluster_state.external_usage
        self.has_usability_changed |= self.has_begun and cluster_state.is_usable != cluster.is_usable
        if not self.has_begun and cluster.ready_changed_at is not None:
            changed_at = min(cluster.ready_changed_at, now)
            self.usability_changed_at = max(self.usability_changed_at or changed_at, changed_at)
        cluster_state.cluster = cluster
        if is_new:
            # The summary may include pods from before the first update; only reported and recent ones explain it.
            cluster_state.recently_freed.forget(now - settle_ms)
            explained = add(cluster_state.recently_freed.total, cluster_state.still_running)
            cluster_state.external_usage = clamp_non_negative(subtract(cluster_state.max_external_usage(), explained))
        cluster_state.refresh_external_usage(now, settle_ms)
        self._end_orphans(cluster_state, now, settle_ms)
        self._touched.add(cluster.name)
        # Most summaries only reflect existing charges, so that headroom does not change.
        is_as_before = before is not None and not cluster.grades and replace(before, used=cluster.used) == cluster
        if self._is_estimating or not is_as_before or cluster_state.external_usage != external_usage:
            self._has_changed(cluster_state, gained_capacity=True)

    def replace_clusters(self, changed: Callable[[Cluster], Cluster]) -> bool:
        """Replace each cluster by what *changed* returns for it; return whether any is different."""
        is_different = False
        for cluster_state in self:
            cluster = changed(cluster_state.cluster) if cluster_state.cluster is not None else None
            if cluster != cluster_state.cluster:
                cluster_state.cluster, is_different = cluster, True
                self._has_changed(cluster_state, gained_capacity=True)
        return is_different

    def _has_changed(self, cluster_state: ClusterState, *, gained_capacity: bool) -> None:
        self._next_version(cluster_state.name)
        if gained_capacity:
            self._has_freed(cluster_state)
        if gained_capacity or not cluster_state.is_usable:
            self._root_limit = None

    def _next_version(self, name: ClusterName) -> None:
        self.version += 1
        self._changed.append(name)

    def changed_since(self, version: int) -> AbstractSet[ClusterName] | None:
        """Return the clusters that changed after *version*; ``None`` means any of them."""
        count = self.version - version
        return {*islice(reversed(self._changed), count)} if count <= len(self._changed) else None

    def _has_freed(self, cluster_state: ClusterState) -> None:
        self.free_count += 1
        self._freed.append(cluster_state.name)
        self._freed_since.clear()

    def freed_since(self, frees: int) -> frozenset[ClusterName] | None:
        """Return the clusters whose free capacity increased after the count was *frees*; ``None`` means any of them."""
        if frees not in self._freed_since:
            count = self.free_count - frees
            if count > len(self._freed):
                return None
            self._freed_since[frees] = frozenset(islice(reversed(self._freed), count))
        return self._freed_since[frees]

    def remove(self, name: ClusterName) -> None:
        """Remove a cluster; its charges stay until the workloads change."""
        cluster_state = self.cluster_state(name)
        self.has_usability_changed |= self.has_begun and cluster_state.is_usable
        cluster_state.cluster = None
        self._released += cluster_state.orphans.charges
        cluster_state.orphans = NO_ORPHANS
        self._next_version(name)
        self._root_limit = None
        self._drop_if_unused(cluster_state)

    def _drop_if_unused(self, cluster_state: ClusterState) -> None:
        """Forget a removed cluster that nothing refers to any more."""
        in_use = cluster_state.cluster or cluster_state.nominated or cluster_state.being_evicted
        if not in_use and not any(cluster_state.charged.values()):
            self._states.pop(cluster_state.name, None)

    def add_usage(self, admission: Admission, now: int) -> None:
        """Charge the clusters of *admission*."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.charged = add(cluster_state.charged, cluster_charge.charge)
            cluster_state.changed_at = now
            self._touched.add(cluster_state.name)
            self._has_changed(cluster_state, gained_capacity=False)
            _count_reported(cluster_state, admission, cluster_charge.charge, add)

    def assume(self, cluster_charges: Iterable[ClusterCharge]) -> None:
        """Add charges for a trial; ``unassume`` undoes it completely."""
        for cluster_charge in cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.charged = add(cluster_state.charged, cluster_charge.charge)
            self._next_version(cluster_state.name)

    def unassume(self, cluster_charges: Iterable[ClusterCharge]) -> None:
        """Remove the charges of a trial."""
        for cluster_charge in cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.charged = subtract(cluster_state.charged, cluster_charge.charge)
            self._next_version(cluster_state.name)

    def begin_trial(self, workload: Workload, choice: Choice) -> None:
        """Charge the clusters of an admission until ``end_trial`` undoes it completely."""
        self.assume(choice.cluster_charges)
        self._deduct_from_estimates(workload, choice, 1)

    def end_trial(self, workload: Workload, choice: Choice) -> None:
        """Undo ``begin_trial``."""
        self.unassume(choice.cluster_charges)
        self._deduct_from_estimates(workload, choice, -1)

    def _deduct_from_estimates(self, workload: Workload, choice: Choice, times: int) -> None:
        for cluster_charge in choice.cluster_charges:
            estimates = self.cluster_state(cluster_charge.cluster).estimates
            if estimates is not None:
                estimates.deduct(pods_of(workload, cluster_charge), times)

    def remove_usage(
        self, admission: Admission, now: int, *, successor: Admission | None = None, was_written: bool = True
    ) -> None:
        """Free the clusters of *admission*; the charges count as recently freed until the summary follows.

        What the charges of its *successor*, which are added next, contain there as well is not freed. Nothing is of an
        admission that was not written: no summary has ever included its pods.
        """
        retained = (
            {cluster_charge.cluster: cluster_charge.charge for cluster_charge in successor.cluster_charges}
            if successor
            else {}
        )
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            ended = self._running_charge(cluster_charge) if admission.resized else cluster_charge.charge
            cluster_state.charged = subtract(cluster_state.charged, cluster_charge.charge)
            charged_next = retained.get(cluster_charge.cluster)
            freed = ended if charged_next is None else positive(subtract(ended, charged_next))
            if was_written:
                if freed:
                    cluster_state.recently_freed.add(freed, now)
                cluster_state.changed_at = now
            self._touched.add(cluster_state.name)
            self._has_freed(cluster_state)
            self._has_changed(cluster_state, gained_capacity=False)
            _count_reported(cluster_state, admission, cluster_charge.charge, subtract)
            if charged_next is None:
                self._drop_if_unused(cluster_state)

    def running_part(self, admission: Admission) -> Admission:
        """Return the part of *admission*, which is charged, that runs: of a resized one what fits its clusters."""
        if not admission.resized:
            return admission
        charges = tuple(
            ClusterCharge(charge.cluster, self._running_charge(charge)) for charge in admission.cluster_charges
        )
        return replace(admission, cluster_charges=charges, charge=total(charge.charge for charge in charges))

    def _running_charge(self, own: ClusterCharge) -> Resources:
        return self.cluster_state(own.cluster).fitting_part(own.charge, self._resized.get(own.cluster, EMPTY))

    def add_orphans(self, admission: Admission, workload: Workload, now: int) -> None:
        """Turn the charges of *admission* into external usage for which the queue of *workload* stays charged."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            orphan = Orphan(workload.queue, workload.namespace, cluster_charge.charge)
            cluster_state.orphans = cluster_state.orphans.added(orphan, cluster_state.external_usage, now)
        self.release_usage(admission, now)

    def release_usage(self, admission: Admission, now: int) -> None:
        """Turn the charges of *admission* into external usage: its pods run on and are not ours any more."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.external_usage = positive(add(cluster_state.external_usage, cluster_charge.charge))
            cluster_state.charged = subtract(cluster_state.charged, cluster_charge.charge)
            cluster_state.changed_at = now
            self._touched.add(cluster_state.name)
            self._has_changed(cluster_state, gained_capacity=True)
            _count_reported(cluster_state, admission, cluster_charge.charge, subtract)
            self._drop_if_unused(cluster_state)

    def end_external_usage(self, admission: Admission) -> None:
        """End the external usage of the pods of *admission*, which ran before it was added (C2)."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            if cluster_state.external_usage:
                cluster_state.external_usage = positive(subtract(cluster_state.external_usage, cluster_charge.charge))
                self._has_changed(cluster_state, gained_capacity=True)

    def _end_orphans(self, cluster_state: ClusterState, now: int, settle_ms: int) -> None:
        """End orphaned charges as far as external usage has fallen."""
        cluster_state.orphans, ended = cluster_state.orphans.after(cluster_state.external_usage, now, settle_ms)
        if ended:
            self._released += ended
            self._has_changed(cluster_state, gained_capacity=True)

    def take_released(self) -> list[Orphan]:
        """Return the orphaned charges that have ended since the last call."""
        released, self._released = self._released, []
        return released

    def add_recently_freed(self, admission: Admission, now: int) -> None:
        """Add the charges of an *admission* that ended unobserved to the recently freed ones."""
        ended_at = min(admission.ends_at or now, now)
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.recently_freed.add(cluster_charge.charge, ended_at)
            cluster_state.changed_at = max(cluster_state.changed_at or ended_at, ended_at)
            self._touched.add(cluster_state.name)
            if cluster_state.has_grades:
                self._has_changed(cluster_state, gained_capacity=True)

    def add_eviction(self, admission: Admission) -> None:
        """Count the charges of *admission* as being evicted."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.being_evicted = nonzero(add(cluster_state.being_evicted, cluster_charge.charge))
            self._has_changed(cluster_state, gained_capacity=True)

    def remove_eviction(self, admission: Admission) -> None:
        """Undo ``add_eviction``: the workload has stopped, or is no longer being evicted."""
        for cluster_charge in admission.cluster_charges:
            cluster_state = self.cluster_state(cluster_charge.cluster)
            cluster_state.being_evicted = nonzero(subtract(cluster_state.being_evicted, cluster_charge.charge))
            self._has_changed(cluster_state, gained_capacity=False)
            self._drop_if_unused(cluster_state)

    def nominate(self, name: ClusterName, requests: Resources) -> None:
        """Set capacity for *requests* aside on a cluster."""
        cluster_state = self.cluster_state(name)
        cluster_state.nominated = nonzero(add(cluster_state.nominated, requests))
        self._has_changed(cluster_state, gained_capacity=False)

    def unnominate(self, name: ClusterName, requests: Resources) -> None:
        """Undo ``nominate``."""
        cluster_state = self.cluster_state(name)
        cluster_state.nominated = nonzero(subtract(cluster_state.nominated, requests))
        self._has_changed(cluster_state, gained_capacity=True)
        self._drop_if_unused(cluster_state)

    def mark_reported(self, before: Admission, after: Admission, now: int) -> bool:
        """Record that the pods of an admission run, or no longer run, so that the summary will follow.

        Return whether external usage may fall as a result.
        """
        if (before.reported, before.still_running) == (after.reported, after.still_running):
            return False
        cluster_states = [self.cluster_state(cluster_charge.cluster) for cluster_charge in after.cluster_charges]
        for cluster_state, cluster_charge in zip(cluster_states, after.cluster_charges, strict=True):
            _count_reported(cluster_state, before, cluster_charge.charge, subtract)
            _count_reported(cluster_state, after, cluster_charge.charge, add)
            cluster_state.changed_at = now
            self._touched.add(cluster_state.name)
        return any(cluster_state.may_external_usage_fall for cluster_state in cluster_states)

    def forget_deleted(self) -> None:
        """Forget the changed clusters that no longer exist, before the first plan."""
        self._touched.intersection_update(self._states)

    def refresh(self, now: int, settle_ms: int) -> None:
        """Update external usage wherever it may have changed."""
        if self.has_usability_changed:
            self.usability_changed_at, self.has_usability_changed = now, False
        self.has_begun = True
        if settle_ms != self._settle_ms:
            self._settle_ms = settle_ms
            self._touched.update(self._settling)
        # Others need no refresh; with 50 clusters waiting for their summary, it took a fifth of the time of a plan.
        for name in sorted(self._touched.union(name for name, (at, _) in self._settling.items() if at <= now)):
            self._settling.pop(name, None)
            cluster_state = self._states.get(name)
            if cluster_state is None:
                continue
            before, freed_before = cluster_state.external_usage, cluster_state.recently_freed.total
            cluster_state.refresh_external_usage(now, settle_ms)
            self._end_orphans(cluster_state, now, settle_ms)
            if cluster_state.external_usage != before:
                self._has_changed(cluster_state, gained_capacity=True)
            elif cluster_state.has_grades and cluster_state.recently_freed.total != freed_before:
                self._has_changed(cluster_state, gained_capacity=False)
            changes_at, freed = cluster_state.settles_at(settle_ms), cluster_state.recently_freed
            if freed or changes_at is not None:
                # How much of orphaned charges has ended also depends on the time itself.
                forgotten_at = freed.earliest + settle_ms if freed else None
                refresh_at = earliest((changes_at, forgotten_at, now if cluster_state.orphans.charges else None))
                self._settling[name] = refresh_at or 0, changes_at
        self._touched.clear()

    def root_limit(self) -> Resources:
        """Return the root's limit: capacity of usable clusters, and charges on the others (Q1).

        Workloads being evicted count as stopped, as in all settled usage (P5). Orphaned
        charges are part of external usage and of a queue's usage, so they are added back here.
        """
        if self._root_limit is None:
            self._root_limit = total(
                add(
                    state.capacity if state.is_usable else subtract(state.charged, state.being_evicted),
                    state.orphans.total,
                )
                for state in self._states.values()
            )
        return self._root_limit

    def track_resized(self, workload: Workload, count: int) -> None:
        """Add or remove, by a *count* of 1 or -1, the charges of *workload* if its resize was not accepted."""
        if workload.admission is None:
            return
        if workload.has_resized:
            tracked = self._resized
        elif workload.is_being_evicted and workload.admission.resized:
            tracked = self._resized_and_evicted
        else:
            return
        for own in workload.admission.cluster_charges:
            if charged := nonzero(add(tracked.get(own.cluster, EMPTY), scale(own.charge, count))):
                tracked[own.cluster] = charged
            else:
                tracked.pop(own.cluster, None)

    def overcommitted(self, *, without: Admission | None = None) -> Resources:
        """Return what resized workloads are charged beyond the capacity of usable clusters.

        *without*: as if one of them, which has this admission, were not charged. It occupies nothing of other clusters.
        """
        own = {charge.cluster: charge.charge for charge in without.cluster_charges} if without is not None else {}
        amounts = []
        for name, resized in self._resized.items():
            state = self._states.get(name)
            if state is not None and state.is_usable:
                charge = own.get(name, EMPTY)
                excess = positive(scale(add(state.headroom_after_evictions, charge), -1))
                amounts.append(elementwise_min(excess, positive(subtract(resized, charge))))
        return total(amounts)

    def current_root_limit(self) -> Resources:
        """Return the root's limit with workloads that are being evicted, and with what is overcommitted."""
        states = self._states.values()
        away = (state.being_evicted for state in states if not state.is_usable)
        return total((self.root_limit(), *away, *(self._currently_overcommitted(state) for state in states)))

    def _currently_overcommitted(self, state: ClusterState) -> Resources:
        """Return what a cluster is charged beyond its capacity by resized workloads, also by those being evicted."""
        resized, evicted = self._resized.get(state.name, EMPTY), self._resized_and_evicted.get(state.name, EMPTY)
        if not state.is_usable or not (resized or evicted):
            return EMPTY
        return elementwise_min(positive(scale(state.headroom, -1)), add(resized, evicted))

    @property
    def is_unknown(self) -> bool:
        """Return whether there are clusters but none has a resource summary."""
        known = [cluster_state for cluster_state in self._states.values() if cluster_state.cluster is not None]
        return bool(known) and all(cluster_state.is_unknown for cluster_state in known)

    def potential_root_limit(self) -> Resources:
        """Return the root's limit with all clusters usable and empty (C5)."""
        return total(cluster_state.allocatable for cluster_state in self._states.values())

    def settles_at(self, settle_ms: int) -> int | None:
        """Return the first time at which external usage of any cluster may change without an event, or ``None``."""
        touched = [self._states[name].settles_at(settle_ms) for name in self._touched if name in self._states]
        settling = (changes_at for name, (_, changes_at) in self._settling.items() if name not in self._touched)
        return earliest((*touched, *settling))


def _count_reported(
    cluster_state: ClusterState,
    admission: Admission,
    charge: Resources,
    combine: Callable[[Resources, Resources], Resources],
) -> None:
    """Add *charge* to, or subtract it from, what the summary is known to include."""
    if admission.reported:
        cluster_state.reported = combine(cluster_state.reported, charge)
    if admission.still_running:
        cluster_state.still_running = combine(cluster_state.still_running, charge)
