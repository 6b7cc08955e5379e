"""Helpers to update a store, and an event handler that records what the store sends."""

from dataclasses import dataclass, field

from controller.cache.store import Store
from controller.engine.policy import Policy
from controller.engine.state.clusters import ApiKind, Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadUid


@dataclass
class FakeEventHandler:
    """Stores the last value of every object and the order of events."""

    policy: Policy | None = None
    queues: dict[QueueName, Queue] = field(default_factory=dict)
    clusters: dict[ClusterName, Cluster] = field(default_factory=dict)
    workloads: dict[WorkloadUid, Workload] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    released: list[WorkloadUid] = field(default_factory=list)

    def policy_changed(self, policy: Policy) -> None:
        self.policy = policy

    def queue_changed(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        self.events.append(f"queue {queue.name}")

    def queue_removed(self, name: QueueName) -> None:
        self.queues.pop(name, None)

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        self.clusters[cluster.name] = cluster
        self.events.append(f"cluster {cluster.name}")

    def cluster_removed(self, name: ClusterName) -> None:
        self.clusters.pop(name, None)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        self.events.append(f"estimate {estimate.query.cluster}")

    def workload_changed(self, workload: Workload, now: int) -> None:
        self.workloads[workload.uid] = workload
        self.events.append(f"workload {workload.uid}")

    def workload_removed(self, uid: WorkloadUid, now: int, *, is_released: bool = False) -> None:
        self.workloads.pop(uid, None)
        if is_released:
            self.released.append(uid)


def upsert(store: Store, *objects: tuple[str | ApiKind, bytes]) -> None:
    """Add or update *objects*, each with the name of its collection or its configured kind, as an informer would."""
    for kind, obj in objects:
        sink = store.templates(kind) if isinstance(kind, ApiKind) else getattr(store, kind)
        sink.upsert(sink.decode(obj))


def received(store: Store, *objects: tuple[str | ApiKind, bytes], now: int = 0) -> FakeEventHandler:
    """Add *objects*, and return a new handler that has received what changed."""
    upsert(store, *objects)
    handler = FakeEventHandler()
    store.sync_to(handler, now)
    return handler


def remove(store: Store, kind: str, obj: bytes) -> None:
    """Delete an object."""
    sink = getattr(store, kind)
    sink.remove(sink.decode(obj))


def replace(store: Store, kind: str, *objects: bytes) -> None:
    """Apply a complete list of a kind."""
    sink = getattr(store, kind)
    sink.replace([sink.decode(obj) for obj in objects])
