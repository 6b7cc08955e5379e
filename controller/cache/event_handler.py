"""Who is told what the store makes of the control plane; the engine's World is one."""

from typing import Protocol

from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import Estimate
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.workloads import Workload, WorkloadUid


class EventHandler(Protocol):
    """Takes the present truth about one thing at a time."""

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from now on."""

    def queue_changed(self, queue: Queue) -> None:
        """Take *queue* as it is now."""

    def queue_removed(self, name: QueueName) -> None:
        """Forget a queue."""

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Take *cluster* as it is at *now*."""

    def cluster_removed(self, name: ClusterName) -> None:
        """Forget a cluster."""

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Take the answer of a cluster's estimator."""

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Take *workload* as it is at *now*."""

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:
        """Forget a workload."""
