"""Scans the workloads by namespace, once for all requests of a second, in slices between decisions."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import ref

from controller.engine.engine import Engine
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid

#: Age at which a scan is repeated, also compared with the time that it took, so that tenants who ask all the time
#: use a tenth of the CPU at most. What else is shown of a workload is read when it is shown.
_LIFETIME_SECONDS, _LIFETIME_FACTOR = 1.0, 10

#: Workloads that are grouped without a pause for decisions.
_SLICE = 2_000
_STATES = (WorkloadState.PENDING, WorkloadState.ADMITTED, WorkloadState.FINISHED)


def _order(workload: Workload) -> tuple[int, int, str]:
    return _STATES.index(workload.state), workload.created_at, workload.name


@dataclass(frozen=True, slots=True)
class NamespaceUsage:
    """Number of pending workloads and charges of one namespace in one queue."""

    pending: int = 0
    allocated: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scan:
    """The workloads of each namespace, and what they use of each queue."""

    workloads: dict[str, list[WorkloadUid]] = field(default_factory=lambda: defaultdict(list))
    usage: dict[str, dict[QueueName, NamespaceUsage]] = field(default_factory=lambda: defaultdict(dict))
    _positions: dict[QueueName, dict[WorkloadUid, int]] = field(default_factory=dict)
    """Positions in the queues that were sorted for them."""
    _ordered: dict[str, list[WorkloadUid]] = field(default_factory=dict)
    """The workloads of the namespaces that were asked for, in order."""

    def add(self, workload: Workload) -> None:
        """Add *workload* to its namespace."""
        self.workloads[workload.namespace].append(workload.uid)
        by_queue = self.usage[workload.namespace]
        usage = by_queue.get(workload.queue, NamespaceUsage())
        allocated = usage.allocated
        charge = workload.admission.charge if workload.admission else {}
        for name, amount in charge.items():
            allocated[name] = allocated.get(name, 0) + amount
        is_pending = workload.state is WorkloadState.PENDING
        by_queue[workload.queue] = NamespaceUsage(usage.pending + is_pending, allocated)

    def in_order(self, engine: Engine, namespace: str) -> list[WorkloadUid]:
        """Return the workloads of a namespace: pending ones first, by age and name.

        They are sorted once for all requests that share the scan.
        """
        if namespace not in self._ordered:
            known = (engine.workloads.get(uid) for uid in self.workloads.get(namespace, ()))
            ordered = sorted((workload for workload in known if workload is not None), key=_order)
            self._ordered[namespace] = [workload.uid for workload in ordered]
        return self._ordered[namespace]

    def position(self, engine: Engine, workload: Workload) -> int:
        """Return the position of a pending workload of *engine* in its queue, counted from 1.

        A queue that must be sorted for it is sorted once for all requests that share the scan.
        """
        queue = workload.queue
        if engine.has_quick_positions(queue):
            return engine.position(workload)
        if queue not in self._positions:
            ordered = enumerate(engine.pending_workloads(queue), start=1)
            self._positions[queue] = {pending.uid: number for number, pending in ordered}
        position = self._positions[queue].get(workload.uid)
        # Without one it became pending afterwards; others may have left.
        return engine.position(workload) if position is None else min(position, engine.pending_count(queue))


class Scanner:
    """Shares one scan among all requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._latest: tuple[float, ref[Engine], Scan] | None = None

    async def scan(self, engine: Engine) -> Scan:
        """Return a scan of *engine*; with few workloads it is at most a second old. Concurrent callers share one."""
        async with self._lock:
            if self._latest is not None:
                until, scanned, latest = self._latest
                if scanned() is engine and self._clock() < until:
                    return latest
            began, latest = self._clock(), Scan()
            for number, workload in enumerate(list(engine.workloads.values()), start=1):
                latest.add(workload)
                if number % _SLICE == 0:
                    await asyncio.sleep(0)
            lifetime = max(_LIFETIME_SECONDS, _LIFETIME_FACTOR * (self._clock() - began))
            self._latest = began + lifetime, ref(engine), latest
            return latest
