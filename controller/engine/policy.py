"""The operator's configuration, as far as decisions depend on it."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, NodeShape, matches
from controller.engine.state.hierarchy import QueueName, QueueOrder, TenantFairness
from controller.engine.state.resources import EMPTY, Resources

#: The pause between reservations is doubled at most so often: from ten minutes to a week.
_MAX_DOUBLINGS = 10
#: What is doubled at least, since a delay of zero would let each reservation follow the one before at once.
MIN_PAUSE_MS = 1_000


@dataclass(frozen=True, slots=True)
class Tenant:
    """The queues and PriorityClasses that namespaces of one tenant may use (Q7).

    Names are shell patterns; an empty list of queues or classes does not restrict.
    Of several entries for a namespace, each allows its classes in its own queues.
    """

    namespaces: tuple[str, ...]
    queues: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()

    def matches(self, namespace: str) -> bool:
        """Return whether this entry applies to *namespace*."""
        return any(fnmatchcase(namespace, pattern) for pattern in self.namespaces)


@dataclass(frozen=True, slots=True)
class Resize:
    """What happens to an admitted workload that requests more than its charge (D7)."""

    evict: bool = True
    grace_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class HeadReservationPolicy:
    """When quota and capacity are set aside for a queue's first blocked workload (O6), and for how long (O8)."""

    after_ms: int = 600_000
    max_ms: int = 7_200_000
    max_idle_permille: int = 100
    """How much of a cluster may be idle for a reservation, on average over *max_ms*, in thousandths."""

    def pause_ms(self, expirations: int) -> int:
        """Return how long a workload waits for a reservation of which *expirations* have expired."""
        if not expirations:
            return self.after_ms
        return max(self.after_ms, MIN_PAUSE_MS) << min(expirations, _MAX_DOUBLINGS)


@dataclass(frozen=True, slots=True)
class Backfill:
    """Whether workloads that end in time may use reserved capacity (O9)."""

    enabled: bool = True
    evicts_overrun: bool = False
    """Whether a backfilled workload is evicted when it still runs at the promised start of the reservation."""


@dataclass(frozen=True, slots=True)
class Ageing:
    """How waiting raises job priority inside a queue (O10)."""

    after_ms: int = 0
    """How long a workload waits for each step."""
    step: int = 0
    max_raise: int = 0

    @property
    def is_on(self) -> bool:
        """Return whether waiting raises any priority."""
        return self.after_ms > 0 and self.step > 0 and self.max_raise > 0

    @property
    def period_ms(self) -> int:
        """Return how often priorities are raised: ten times in *after_ms*, the same times for all workloads."""
        return max(self.after_ms // 10, 1)

    def raised_by(self, created_at: int, now: int) -> int:
        """Return by how much the priority of a workload is raised at *now*."""
        return min(self._steps(created_at, now) * self.step, self.max_raise) if self.is_on else 0

    def next_raise(self, created_at: int, now: int) -> int | None:
        """Return when the priority of a workload is raised next, ``None`` once it is raised by *max_raise*."""
        steps = self._steps(created_at, now)
        if not self.is_on or steps * self.step >= self.max_raise:
            return None
        return -(-(created_at + (steps + 1) * self.after_ms) // self.period_ms) * self.period_ms

    def _steps(self, created_at: int, now: int) -> int:
        return max(now - now % self.period_ms - created_at, 0) // max(self.after_ms, 1)


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Capacity that is kept free from *since* until *until*: for a queue, a workload, or for maintenance (O11)."""

    name: str
    clusters: tuple[ClusterName, ...]
    since: int
    """Milliseconds."""
    until: int
    queue: QueueName | None = None
    workload: tuple[str, str] | None = None
    """Namespace and name."""
    amounts: Resources = EMPTY
    """What is kept free on each of the clusters; the whole clusters where it is empty."""
    evicts: bool = False
    """Whether workloads that still run there at *since* are evicted, of amounts as many as needed."""
    drain_ms: int = 86_400_000
    """How long before *since* a workload of unknown run time is not admitted there any more."""


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """Whether admitted workloads may be evicted for others, and which are protected (P4)."""

    enabled: bool = False
    min_runtime_ms: int = 300_000
    max_evictions: int = 3
    grace_ms: int = 30_000
    """The termination grace period of its pods (P6)."""

    def evictable_at(self, evictions: int, admitted_at: int) -> int | None:
        """Return from when on a workload may be evicted, ``None`` for one that was evicted too often (P4)."""
        return admitted_at + self.min_runtime_ms if evictions < self.max_evictions else None


@dataclass(frozen=True, slots=True)
class NodeShapes:
    """The nodes of the clusters that an entry selects, by name or by labels."""

    clusters: Affinity
    nodes: tuple[NodeShape, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """The decoded configuration; one cycle uses one revision of it."""

    queue_order: QueueOrder = "PriorityFirst"
    tenant_fairness: TenantFairness = "None"
    resize: Resize = Resize()
    settle_ms: int = 30_000
    startup_timeout_ms: int | None = None
    """How long an admitted workload may take to start; ``None``: not checked (R1)."""
    head_reservation: HeadReservationPolicy = HeadReservationPolicy()
    backfill: Backfill = Backfill()
    ageing: Ageing = Ageing()
    advance_reservations: tuple[AdvanceReservation, ...] = ()
    reclaim: EvictionPolicy = EvictionPolicy()
    preemption: EvictionPolicy = EvictionPolicy()
    tenants: tuple[Tenant, ...] = ()
    node_estimates: bool = False
    """Whether the clusters' estimators are queried before an admission (C3)."""
    deny_unmatched: bool = False
    """Whether namespaces that no entry of *tenants* matches may use no queue at all."""
    node_shapes: tuple[NodeShapes, ...] = ()
    """The first entry that selects a cluster describes its nodes (C3)."""

    @property
    def is_by_tenant(self) -> bool:
        """Return whether the order inside a queue depends on the usage of namespaces (O2)."""
        return self.tenant_fairness != "None"

    @property
    def serves_fair_shares_first(self) -> bool:
        """Return whether workloads that would borrow go after those within their fair shares (O3)."""
        return self.queue_order == "FairShareFirst" or self.reclaim.enabled

    def with_node_shapes(self, cluster: Cluster) -> Cluster:
        """Return *cluster* with the nodes that the configuration describes."""
        nodes = next((entry.nodes for entry in self.node_shapes if matches(entry.clusters, cluster)), ())
        return cluster if nodes == cluster.nodes else replace(cluster, nodes=nodes)

    def may_borrow(self, evictions: int, *, preserved: bool) -> bool:
        """Return whether a workload may borrow: while reclaim is on, only workloads that can be reclaimed may (P4)."""
        return not self.reclaim.enabled or not (preserved or evictions >= self.reclaim.max_evictions)

    def refusal(self, namespace: str, queue: QueueName, *priority_classes: str) -> Refusal | None:
        """Return why *namespace* may not use this queue or one of these PriorityClasses, or ``None`` (Q7).

        A workload without a class has priority 0, which every namespace may use.
        """
        entries = [tenant for tenant in self.tenants if tenant.matches(namespace)]
        allowing = [entry for entry in entries if _allows(entry.queues, queue)]
        if not allowing and (entries or self.deny_unmatched):
            return Refusal(Reason.QUEUE_NOT_ALLOWED, queue=queue, subject=namespace)
        for name in priority_classes if entries else ():
            if name and not any(_allows(entry.priority_classes, name) for entry in allowing):
                return Refusal(Reason.PRIORITY_CLASS_NOT_ALLOWED, queue=queue, subject=name)
        return None


def _allows(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
