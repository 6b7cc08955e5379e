"""Builds the scheduling requirements of workloads, one shared value for all with equal requirements."""

from dataclasses import replace

from controller.cache.interning import InternPool
from controller.cache.objects import CachedBinding, WorkloadRequests
from controller.cache.priorities import Priorities
from controller.engine.clusters import ClusterName, Placement
from controller.engine.requests import PodSet, gang_minimum, pod_sets
from controller.engine.resources import Resources
from controller.engine.workloads import SchedulingRequirements

_Interned = tuple[SchedulingRequirements, WorkloadRequests | None, Placement]


class RequirementsBuilder:
    """Builds scheduling requirements, and interns equal ones."""

    def __init__(self, *, with_node_claims: bool = False) -> None:
        self.with_node_claims = with_node_claims
        """Whether node claims distinguish requirements: only where nodes are estimated."""
        self._made: InternPool[_Interned] = InternPool()

    def shape(
        self,
        binding: CachedBinding,
        demand: WorkloadRequests | None,
        priorities: Priorities,
        *,
        preferred: tuple[ClusterName, ...] = (),
        excluded_clusters: frozenset[ClusterName] = frozenset(),
    ) -> SchedulingRequirements:
        """Return the scheduling requirements of a workload; without known requests, empty ones."""
        classes = demand.task_classes if demand else ()
        order = tuple(priorities.task_value(name) for name in classes)
        current = frozenset(target.name for target in binding.targets)
        evicting = frozenset(binding.evicting_from)
        # The ids stay valid while the value is cached, because it is cached together with their objects.
        known = (id(demand), id(binding.placement), binding.api, order, binding.observed_term, self.with_node_claims)
        return self._made.get(
            (*known, evicting, current, preferred, excluded_clusters),
            lambda: (
                replace(
                    _build(binding, demand, priorities, current=current),
                    pod_sets=self._pod_sets(demand, priorities),
                    preferred=preferred,
                    excluded_clusters=excluded_clusters,
                ),
                demand,
                binding.placement,
            ),
        )[0]

    def _pod_sets(self, demand: WorkloadRequests | None, priorities: Priorities) -> tuple[PodSet, ...]:
        """Return the pod sets of a workload, as far as its requests are known by pod."""
        if demand is None:
            return ()
        if demand.job is not None:
            return pod_sets(demand.job, priorities.task_value, with_node_claims=self.with_node_claims)
        if not demand.replicas or not demand.pods:
            return ()
        request, count = tuple(sorted(demand.pods[0].items())), demand.replicas
        return (PodSet(request, count, count, demand.node_claim if self.with_node_claims else ""),)


def _build(
    binding: CachedBinding, demand: WorkloadRequests | None, priorities: Priorities, *, current: frozenset[ClusterName]
) -> SchedulingRequirements:
    demand = demand or WorkloadRequests({})
    return SchedulingRequirements(
        demand=demand.whole,
        gang=_gang_requests(demand, priorities),
        placement=binding.placement,
        api=binding.api,
        pods=demand.pods,
        replicas=demand.replicas,
        observed_term=binding.observed_term,
        evicting_from=frozenset(binding.evicting_from),
        current=current,
    )


def _gang_requests(demand: WorkloadRequests, priorities: Priorities) -> Resources:
    """Return the gang minimum of a Volcano Job (D4), or all requests of any other kind."""
    return demand.whole if demand.job is None else gang_minimum(demand.job, priorities.task_value)
