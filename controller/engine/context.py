"""What the passes of a cycle read: the state, and the caches of the algorithms over it."""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from controller.engine.fairness.ageing import PriorityAgeing
from controller.engine.fairness.borrowing import BorrowingPolicy
from controller.engine.fairness.pending_order import PendingOrder
from controller.engine.fairness.shares import FairShareTracker, QueueShares
from controller.engine.placement.estimate_tracker import EstimateTracker
from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.placement.fitting_index import FittingIndex
from controller.engine.policy import Policy
from controller.engine.preemption.candidates import PreemptionCandidates, ReclaimableCapacity
from controller.engine.reservations.active import ActiveReservations
from controller.engine.reservations.advance import AdvanceReservationTracker
from controller.engine.reservations.backfill import BackfillWindows
from controller.engine.reservations.reserved import ReservedResources, reservation_demands, reserved_resources
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.queue_usage import QueueUsage, UsageTracker
from controller.engine.state.quota import Quota
from controller.engine.state.workload_index import WorkloadIndex
from controller.engine.state.workloads import WorkloadUid

if TYPE_CHECKING:
    from controller.engine.fairness.tournament import FittingTournament


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedResults(Generic[K, V]):
    """Results by key, each found once in one state: for example for a gang, not for each class of its parts."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._results: dict[K, V] = {}

    def get(self, state: Hashable, key: K, find: Callable[[], V]) -> V:
        """Return the result of *key*, found by *find* on the first request in *state*."""
        if self._state != state:
            self._state, self._results = state, {}
        if key not in self._results:
            self._results[key] = find()
        return self._results[key]


class Context:
    """The parts of the state and the algorithms' caches, for ``Engine`` and the cycle with its passes.

    Algorithms receive the parts that they read.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.cluster_usage = ClusterUsage()
        self.queue_usage = QueueUsage(self.cluster_usage)
        self.usage_tracker = UsageTracker(self.cluster_usage, self.queue_usage)
        self.workloads = WorkloadIndex()
        self.pending = self.workloads.pending
        self.feasibility_cache = FeasibilityCache(self.cluster_usage)
        self.fitting_index = FittingIndex(self.pending, self.feasibility_cache)
        self.estimate_tracker = EstimateTracker(self.cluster_usage)
        self.shares = FairShareTracker(self.queue_usage, self.pending)
        self.ageing = PriorityAgeing(policy.ageing, self.pending)
        self.order = PendingOrder(policy, self.workloads, self.queue_usage, self.shares, self.ageing)
        self.advance_reservation_tracker = AdvanceReservationTracker(self.workloads, self.cluster_usage)
        self.windows = BackfillWindows(self.workloads, self.feasibility_cache, self.advance_reservation_tracker)
        self.planned_at = 0
        """When the last cycle began, in milliseconds."""
        self.changes = 0
        """How often an event or a decision has changed what later decisions depend on."""
        self.cut_tournament: tuple[FittingTournament, int] | None = None
        """The tournament that a cut plan left incomplete, and *changes* when it was left."""
        self.admitted_so_far: frozenset[WorkloadUid] = frozenset()
        """Workloads admitted by cut plans that the next plan continues; empty after a complete plan."""
        self._borrowing: BorrowingPolicy | None = None
        self._active_reservations: ActiveReservations | None = None
        self._reserved_resources: ReservedResources | None = None
        """The part of the active reservations that does not depend on usage; it changes only with the reservations."""

    def invalidate(self) -> None:
        """Discard what follows from workloads and fair shares: one has changed, or a cycle begins."""
        self._borrowing = self._active_reservations = None

    def update_reservations(self, quota: Quota, now: int) -> None:
        """Forecast the reservations again where workloads, usage or the time have changed."""
        demands = partial(reservation_demands, quota, self.workloads, self.feasibility_cache)
        if self.windows.update(demands, quota, self.policy, now):
            self._active_reservations = None

    def end_cycle(self, admitted_so_far: Iterable[WorkloadUid]) -> None:
        """Discard the borrowing rules, and remember what a cut plan has admitted."""
        self._borrowing = None
        self.admitted_so_far = frozenset(admitted_so_far)

    def active_reservations(self) -> ActiveReservations | None:
        """Return what reservations set aside; ``None`` where there are none."""
        shares = self.shares.current
        if shares is None or not self.workloads.with_reservation:
            return None
        if self._active_reservations is None or self._active_reservations.queue_shares is not shares:
            self._reserved_resources = reserved_resources(
                self._reserved_resources,
                shares.quota,
                self.workloads,
                self.feasibility_cache,
                self.windows.by_owner,
            )
            self._active_reservations = ActiveReservations(
                shares, self._reserved_resources, self.fitting_index, self.cluster_usage, self.planned_at
            )
        return self._active_reservations

    def borrowing_policy(self) -> BorrowingPolicy | None:
        """Return the borrowing rules for the present state; ``None`` while reclaim is off."""
        shares = self.shares.current
        if self._borrowing is not None and self._borrowing.queue_shares is not shares:
            self._borrowing = None
        if self._borrowing is None and self.policy.reclaim.enabled and shares is not None:
            self._borrowing = self.new_borrowing_policy(shares, self.new_candidates(shares), self.planned_at)
        return self._borrowing

    def new_candidates(self, shares: QueueShares) -> PreemptionCandidates:
        """Return the preemption candidates of every queue."""
        return PreemptionCandidates(shares.quota.tree, self.workloads, self.cluster_usage, self.policy)

    def new_borrowing_policy(
        self, shares: QueueShares, candidates: PreemptionCandidates, now: int
    ) -> BorrowingPolicy | None:
        """Return borrowing rules that also keep *candidates* current; ``None`` while reclaim is off."""
        if not self.policy.reclaim.enabled:
            return None
        reclaimable = ReclaimableCapacity(shares, self.feasibility_cache, candidates, self.policy, now)
        return BorrowingPolicy(shares, self.pending, self.order, reclaimable)
