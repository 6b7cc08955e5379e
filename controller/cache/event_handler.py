"""Interface through which the store updates the engine's state."""

from typing import Protocol

from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadUid


class EventHandler(Protocol):
    """Receives the current value of one changed object at a time."""

    def policy_changed(self, policy: Policy) -> None:
        """Apply *policy* from now on."""

    def queue_changed(self, queue: Queue) -> None:
        """Add or update a queue."""

    def queue_removed(self, name: QueueName) -> None:
        """Remove a queue."""

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Add or update a cluster at *now*."""

    def cluster_removed(self, name: ClusterName) -> None:
        """Remove a cluster."""

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Apply the answer of a cluster's estimator."""

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Add or update a workload at *now*."""

    def workload_removed(self, uid: WorkloadUid, now: int, *, is_released: bool = False) -> None:
        """Remove a workload; one that *is_released* needs no admission any more and may run on."""
