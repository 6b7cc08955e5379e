"""Builds the scheduling requirements of workloads, one shared value for all with equal requirements."""

from dataclasses import replace

from controller.cache.interning import InternPool
from controller.cache.objects import CachedBinding, WorkloadRequests
from controller.cache.priorities import Priorities
from controller.engine.state.clusters import ClusterName, Placement
from controller.engine.state.requests import PodSet, gang_minimum, pod_sets
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import SchedulingRequirements

_Interned = tuple[SchedulingRequirements, WorkloadRequests | None, Placement]


class RequirementsBuilder:
    """Builds scheduling requirements, and interns equal ones."""

    def __init__(self, *, with_node_claims: bool = False) -> None:
        self.with_node_claims = with_node_claims
        """Whether node claims distinguish requirements: only where nodes are estimated."""
        self._made: InternPool[_Interned] = InternPool()

    def build(
        self,
        binding: CachedBinding,
        requests: WorkloadRequests | None,
        priorities: Priorities,
        *,
        preferred: tuple[ClusterName, ...] = (),
        excluded_clusters: frozenset[ClusterName] = frozenset(),
    ) -> SchedulingRequirements:
        """Return the scheduling requirements of a workload; without known requests, empty ones."""
        classes = requests.task_classes if requests else ()
        order = tuple(priorities.task_value(name) for name in classes)
        current = frozenset(target.name for target in binding.targets)
        evicting = frozenset(binding.evicting_from)
        # The ids stay valid while the value is cached, because it is cached together with their objects.
        known = (id(requests), id(binding.placement), binding.api, order, binding.observed_term, self.with_node_claims)
        return self._made.get(
            (*known, evicting, current, preferred, excluded_clusters),
            lambda: (
                replace(
                    _build(binding, requests, priorities, current=current),
                    pod_sets=self._pod_sets(requests, priorities),
                    preferred_clusters=preferred,
                    excluded_clusters=excluded_clusters,
                ),
                requests,
                binding.placement,
            ),
        )[0]

    def _pod_sets(self, requests: WorkloadRequests | None, priorities: Priorities) -> tuple[PodSet, ...]:
        """Return the pod sets of a workload, as far as its requests are known by pod."""
        if requests is None:
            return ()
        if requests.job is not None:
            return pod_sets(requests.job, priorities.task_value, with_node_claims=self.with_node_claims)
        if not requests.replicas or not requests.pods:
            return ()
        request, count = tuple(sorted(requests.pods[0].items())), requests.replicas
        return (PodSet(request, count, count, requests.node_claim if self.with_node_claims else ""),)


def _build(
    binding: CachedBinding,
    requests: WorkloadRequests | None,
    priorities: Priorities,
    *,
    current: frozenset[ClusterName],
) -> SchedulingRequirements:
    requests = requests or WorkloadRequests({})
    return SchedulingRequirements(
        requests=requests.total,
        gang_requests=_gang_requests(requests, priorities),
        placement=binding.placement,
        api=binding.api,
        pods=requests.pods,
        replicas=requests.replicas,
        observed_term=binding.observed_term,
        evicting_from=frozenset(binding.evicting_from),
        current_clusters=current,
    )


def _gang_requests(requests: WorkloadRequests, priorities: Priorities) -> Resources:
    """Return the gang minimum of a Volcano Job (D4), or all requests of any other kind."""
    return requests.total if requests.job is None else gang_minimum(requests.job, priorities.task_value)
