"""A world at one moment with the plan for it: what every command reports from.

Files and the live control plane both end here; nothing is written anywhere.
"""

from dataclasses import dataclass

from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.engine.ordering import QueueShares
from controller.engine.plan import Admit, Plan
from controller.engine.state import State
from controller.engine.workloads import Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known, what the engine made of it, and what it decided at *now*.

    The world is as after the plan: what it admits is booked.
    """

    store: Store
    state: State
    plan: Plan
    now: int

    @property
    def standing(self) -> QueueShares:
        """Return how the queues stand after the plan."""
        if self.state.queue_shares is None:
            raise AssertionError("a world that was planned has a standing")
        return self.state.queue_shares

    def admission(self, uid: WorkloadUid) -> Admit | None:
        """Return the plan's decision to admit *uid*, if it was taken."""
        for decision in self.plan.decisions:
            if isinstance(decision, Admit) and decision.workload.uid == uid:
                return decision
        return None

    def binding(self, workload: Workload) -> CachedBinding | None:
        """Return the binding of *workload*."""
        return self.store.binding(workload.uid)


def take_snapshot(store: Store, now: int) -> Snapshot:
    """Return the world that *store* amounts to at *now*, with one decision round over it."""
    state = State()
    store.sync_to(state, now)
    return Snapshot(store, state, state.plan(now), now)
