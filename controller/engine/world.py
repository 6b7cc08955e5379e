"""The World: all the engine knows, changed by small explicit events only.

Whoever feeds it tells the whole present truth about one thing at a time and
then asks for a Plan. What a Plan admits is booked in the World at once, as if
the write had already happened; a write that fails is told as the workload's
old truth again.
"""

from controller.engine.clusters import Cluster, ClusterName
from controller.engine.plan import Plan
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.workloads import Workload, WorkloadUid


class World:
    """Queues, clusters and workloads, and the decisions that follow from them."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()

    def policy_changed(self, policy: Policy) -> None:
        """Use *policy* from the next plan on."""
        raise NotImplementedError

    def queue_changed(self, queue: Queue) -> None:
        """Take *queue* as it is now, new or changed."""
        raise NotImplementedError

    def queue_removed(self, name: QueueName) -> None:
        """Forget a queue; what it has admitted stays charged at the root."""
        raise NotImplementedError

    def cluster_changed(self, cluster: Cluster, now: int) -> None:
        """Take *cluster* as it is at *now*, new or changed."""
        raise NotImplementedError

    def cluster_removed(self, name: ClusterName) -> None:
        """Forget a cluster; what is booked there stays charged until its workloads say otherwise."""
        raise NotImplementedError

    def workload_changed(self, workload: Workload, now: int) -> None:
        """Take *workload* as it is at *now*, new or changed."""
        raise NotImplementedError

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:
        """Forget a workload and free what it held."""
        raise NotImplementedError

    def plan(self, now: int) -> Plan:
        """Decide at *now*, book what is admitted, and return what changed."""
        raise NotImplementedError
