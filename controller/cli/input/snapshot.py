"""The scheduling state at one time with the plan for it, read from files or the live control plane."""

from dataclasses import dataclass

from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.fairness.ordering import QueueShares
from controller.engine.plan import Admit, Plan
from controller.engine.state.workloads import Workload, WorkloadUid


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The observed objects, the engine's state and its plan at *now*.

    The state is that after the plan: it includes the charges of the workloads that the plan admits.
    """

    store: Store
    state: Engine
    plan: Plan
    now: int

    @property
    def shares(self) -> QueueShares:
        """Return the shares of the queues after the plan."""
        if self.state.queue_shares is None:
            raise AssertionError("planning computes the shares")
        return self.state.queue_shares

    def admission(self, uid: WorkloadUid) -> Admit | None:
        """Return the plan's decision to admit *uid*, or ``None``."""
        for decision in self.plan.decisions:
            if isinstance(decision, Admit) and decision.workload.uid == uid:
                return decision
        return None

    def binding(self, workload: Workload) -> CachedBinding | None:
        """Return the binding of *workload*."""
        return self.store.binding(workload.uid)


def take_snapshot(store: Store, now: int) -> Snapshot:
    """Return the state built from *store* at *now*, with the plan of one scheduling cycle."""
    state = Engine()
    store.sync_to(state, now)
    return Snapshot(store, state, state.plan(now), now)
