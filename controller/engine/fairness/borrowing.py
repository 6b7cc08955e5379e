"""Decides which workloads may borrow while reclaim is on (O3, P4).

At every common ancestor, quota is left for pending workloads of other branches
that would stay within their fair shares. Cluster capacity is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import NamedTuple, Protocol

from controller.engine.fairness.pending_order import PendingOrder
from controller.engine.fairness.shares import QueueShares
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import OrderKey, PendingWorkloads, WorkloadClass
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, PODS, Resources, add, subtract
from controller.engine.state.workloads import HyperJobGang, SchedulingRequirements, Workload, WorkloadUid


@dataclass(frozen=True, slots=True, order=True)
class _ProtectedWorkload:
    """A pending workload within its queue's fair share, for which quota is left."""

    priority: int
    """The queue's priority, negated."""
    order_key: OrderKey
    workload_class: WorkloadClass


@dataclass(frozen=True, slots=True)
class _Protection:
    """Quota that is left for workloads pending below one queue."""

    demands: tuple[_ProtectedWorkload, ...]
    raised: Resources
    """How much these workloads would increase the queue's reserved quota at its parent."""


class _Trial(NamedTuple):
    """Pending workloads that are charged on trial."""

    usage: Quota
    """The usage with them."""
    admitted: frozenset[WorkloadUid]


class Reclaimable(Protocol):
    """What reclaim can free: where requirements would fit then."""

    def fits(self, requirements: SchedulingRequirements) -> bool:
        """Return whether a candidate cluster would fit *requirements* after reclaim."""

    def has_changed(self) -> bool:
        """Return whether any result of ``fits`` has changed since the last call."""

    def invalidate(self, queue: QueueName) -> None:
        """Discard what depends on the workloads of *queue*."""


class BorrowingPolicy:
    """The borrowing rules for one state; ``invalidate`` must follow every admission, eviction and nomination."""

    def __init__(
        self,
        shares: QueueShares,
        pending: PendingWorkloads,
        order: PendingOrder,
        reclaimable: Reclaimable,
        trial: _Trial | None = None,
    ) -> None:
        self._pending = pending
        self._order = order
        self.queue_shares = shares
        self._quota = shares.quota
        self._is_trial = trial is not None
        self._usage, self._admitted = trial or _Trial(shares.quota, frozenset())
        self._nodes = shares.quota.tree.nodes
        self._reclaimable = reclaimable
        self._protected: dict[QueueName, _Protection] = {}
        self._sums: dict[QueueName, Resources] = {}
        """Quota left for workloads below each parent."""
        self._unprotected: dict[QueueName, Resources] = {}
        """Quota of each parent beyond that, as of the last check."""
        self._has_relaxed = False

    def refusal(self, leaf: Node, workload_class: WorkloadClass, quota: Quota | None = None) -> Refusal | None:
        """Return why the head of *workload_class* may not borrow, ``None`` where it may or does not need to.

        With *quota*, evaluate against its usage instead of the settled usage.
        """
        quota = quota or self._quota
        if (
            workload_class.key.is_non_preemptible
            and (resource := self.queue_shares.first_above_fair_share(leaf, workload_class.charge, quota)) is not None
        ):
            due = self.queue_shares.fair_shares[leaf.name].get(resource, 0)
            return _fair_share_refusal(workload_class, resource, leaf, int(due) - quota.usage(leaf.name, resource))
        is_over = False
        for node in leaf.path():
            if node.parent is None:
                return None
            is_over = is_over or self._raises_above_fair_share(node, workload_class.charge, quota)
            if is_over and (refusal := self._protected_refusal(leaf, node, workload_class, quota)) is not None:
                return refusal
        return None

    def during_trial(self, quota: Quota, admitted: Iterable[Workload]) -> "BorrowingPolicy":
        """Return the rules while *admitted* are charged in *quota*: nothing more is left for these.

        They apply until *quota* changes.
        """
        trial = _Trial(quota, frozenset(workload.uid for workload in admitted))
        return BorrowingPolicy(self.queue_shares, self._pending, self._order, self._reclaimable, trial)

    def has_relaxed(self) -> bool:
        """Return whether, since the last call, a workload that was not allowed to borrow may be allowed now."""
        self._refresh_reclaimable()
        for name, before in self._unprotected.items():
            self._unprotected[name] = self._unprotected_quota(name)
            self._has_relaxed |= any(
                amount > before.get(resource, 0) for resource, amount in self._unprotected[name].items()
            )
        has_eased, self._has_relaxed = self._has_relaxed, False
        return has_eased

    def _unprotected_quota(self, parent: QueueName) -> Resources:
        node, sums = self._nodes[parent], self._sums[parent]
        return {
            name: self._quota.unreserved(node, name) - sums.get(name, 0) for name in self._quota.limits[parent].limit
        }

    def _refresh_reclaimable(self) -> None:
        # A trial leaves the changes to the other rules.
        if not self._is_trial and self._reclaimable.has_changed():
            self._protected.clear()
            self._sums.clear()
            self._unprotected.clear()
            self._has_relaxed = True

    def _raises_above_fair_share(self, node: Node, charge: Resources, quota: Quota) -> bool:
        """Return whether *charge* raises *node* above its fair share and above its settled usage."""
        raised = {
            name: amount
            for name, amount in charge.items()
            if quota.usage(node.name, name) + amount > self._quota.usage(node.name, name)
        }
        return self.queue_shares.first_above_fair_share(node, raised, quota) is not None

    def _protected_refusal(
        self, leaf: Node, branch: Node, workload_class: WorkloadClass, quota: Quota
    ) -> Refusal | None:
        """Return a refusal with the resource of which too little would be left for others at the parent of *branch*."""
        parent = branch.parent
        if parent is None:
            return None
        left = None
        for resource in sorted(name for name, amount in workload_class.charge.items() if amount > 0 and name != PODS):
            raises = {
                node.name: raised
                for node, raised in quota.reserved_quota_increases(leaf, resource, workload_class.charge[resource])
            }
            unreserved, before = quota.unreserved(parent, resource), self._quota.unreserved(parent, resource)
            if raises[parent.name] <= 0 or unreserved - raises[parent.name] >= before:
                continue
            left = self._protected_for_others(branch, parent) if left is None else left
            if left.get(resource, 0) > 0 and raises[parent.name] > unreserved - left.get(resource, 0):
                return _fair_share_refusal(workload_class, resource, parent, unreserved - left[resource])
        return None

    def _protected_for_others(self, branch: Node, parent: Node) -> Resources:
        self._refresh_reclaimable()
        if parent.name not in self._sums:
            sums: Resources = EMPTY
            for child in parent.children:
                sums = add(sums, self._protect(child).raised)
            self._sums[parent.name] = sums
            self._unprotected[parent.name] = self._unprotected_quota(parent.name)
        return subtract(self._sums[parent.name], self._protect(branch).raised)

    def invalidate(self, queue: QueueName) -> None:
        """Discard what depends on the workloads of *queue*."""
        self._reclaimable.invalidate(queue)
        node = self._nodes.get(queue)
        if node is None:
            return
        for above in node.path():
            before = self._protected.pop(above.name, None)
            if before is not None and above.parent is not None and above.parent.name in self._sums:
                after = self._protect(above)
                change = subtract(after.raised, before.raised)
                self._sums[above.parent.name] = add(self._sums[above.parent.name], change)

    def _protect(self, node: Node) -> _Protection:
        if node.name not in self._protected:
            below = (
                merge(*(self._protect(child).demands for child in node.children))
                if node.children
                else self._pending_demands(node)
            )
            trial = self._usage.overlay()
            wants = []
            for want in below:
                if self.queue_shares.first_above_fair_share(node, want.workload_class.charge, trial) is None:
                    wants.append(want)
                    trial.add_usage(self._nodes[want.workload_class.queue], want.workload_class.charge)
            raised = {
                name: trial.reserved_quota(node, name) - self._usage.reserved_quota(node, name)
                for name in trial.allocated[node.name]
            }
            self._protected[node.name] = _Protection(tuple(wants), raised)
        return self._protected[node.name]

    def _pending_demands(self, leaf: Node) -> Iterator[_ProtectedWorkload]:
        """Yield pending workloads of a leaf, in order; of a fifo queue only the head, which blocks the others.

        A class yields no more workloads than fit its queue's fair share.
        """
        first = self._order.queue_head(leaf.name) if leaf.queue.fifo else None
        if leaf.queue.fifo and (first is None or first.uid in self._admitted):
            return iter(())
        classes = [
            workload_class
            for workload_class in self._pending.queues.get(leaf.name, ())
            if self._can_use(workload_class)
        ]
        # Once for each HyperJob, which may have a thousand parts of different sizes.
        startable = {
            gang: self._can_start_within_fair_share(leaf, gang)
            for gang in dict.fromkeys(workload_class.gang for workload_class in classes)
        }
        classes = [workload_class for workload_class in classes if startable[workload_class.gang]]
        if first is not None:
            return iter(
                [_protected_head(leaf, workload_class) for workload_class in classes if workload_class.head is first]
            )
        return merge(*(self._within_fair_share(leaf, workload_class) for workload_class in classes))

    def _within_fair_share(self, leaf: Node, workload_class: WorkloadClass) -> list[_ProtectedWorkload]:
        due, usage = self.queue_shares.fair_shares[leaf.name], self._usage.allocated[leaf.name]
        most = min(
            int(due.get(name, 0) - usage.get(name, 0)) // amount
            for name, amount in workload_class.charge.items()
            if amount > 0 and name != PODS
        )
        pending = (workload for workload in workload_class if workload.uid not in self._admitted)
        return [
            _ProtectedWorkload(-leaf.queue.priority, workload_class.key_of(workload), workload_class)
            for workload in islice(pending, max(most, 0))
        ]

    def _can_start_within_fair_share(self, leaf: Node, gang: HyperJobGang | None) -> bool:
        """Return whether enough parts of a HyperJob in *leaf* may stay within its fair share for all to start together.

        For each resource the smallest parts are counted, and in other queues all parts.
        """
        gangs = self._order.workloads.gangs
        if not gangs.is_all_or_nothing(gang):
            return True
        needed, charges = gangs.missing(gang), list[Resources]()
        for uid in gangs.parts(gang):
            if uid in self._pending:
                workload_class = self._pending.class_of(uid)
                if workload_class.queue == leaf.name and uid not in self._admitted:
                    charges.append(workload_class.charge)
                else:
                    needed -= 1
        due, usage = self.queue_shares.fair_shares[leaf.name], self._usage.allocated[leaf.name]
        for name in {name for charge in charges for name in charge} - {PODS}:
            least = sum(sorted(charge.get(name, 0) for charge in charges)[: max(needed, 0)])
            if least > 0 and usage.get(name, 0) + least > due.get(name, 0):
                return False
        return True

    def _can_use(self, workload_class: WorkloadClass) -> bool:
        asks = any(amount > 0 and name != PODS for name, amount in workload_class.charge.items())
        return asks and workload_class.competes and self._reclaimable.fits(workload_class.requirements)


def _protected_head(leaf: Node, workload_class: WorkloadClass) -> _ProtectedWorkload:
    return _ProtectedWorkload(-leaf.queue.priority, workload_class.order_key, workload_class)


def _fair_share_refusal(workload_class: WorkloadClass, resource: str, node: Node, available: int) -> Refusal:
    asked = workload_class.charge[resource]
    return Refusal(Reason.BLOCKED_BY_FAIR_SHARE, resource, asked, max(available, 0), queue=node.name)
