"""Resolves the requests and scheduling requirements of a workload from its template and Karmada's interpreter.

Pure. Karmada counts neither sidecars nor resources of whole pods, so it may count too little per pod (D2); its number
of replicas is authoritative. Devices that pods get through ResourceClaimTemplates count as the configuration maps them;
without a mapping the requests are unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.cache.interning import InternPool
from controller.cache.objects import VOLCANO_JOB, CachedBinding, CachedPriorityClass, CachedTemplate, WorkloadRequests
from controller.cache.translate.units import parse_resources
from controller.engine.state.clusters import ClusterName, Placement
from controller.engine.state.requests import JobTemplate, PodSet, gang_minimum, pod_requests, pod_sets, total_requests
from controller.engine.state.resources import (
    EMPTY,
    Resources,
    add,
    elementwise_max,
    positive,
    remaining,
    scale,
    total,
)
from controller.engine.state.workloads import SchedulingRequirements, WorkloadUid

_MergedRequests = tuple[WorkloadRequests, WorkloadRequests, WorkloadRequests]

_ClaimRequests = Mapping[str, Resources]


def claim_requests(configuration: VolcanoGlobalConfiguration) -> dict[str, Resources]:
    """Return the requests of one pod by ResourceClaimTemplate that the configuration maps."""
    return {
        template.name: parse_resources(template.requests, template.name)
        for template in configuration.resource_claim_templates
    }


class RequestsResolver:
    """Resolves requests, and interns equal results."""

    def __init__(self, claims: _ClaimRequests | None = None) -> None:
        self._claims = claims or {}
        """Requests of one pod by ResourceClaimTemplate name."""
        self._merged: InternPool[_MergedRequests] = InternPool()
        self._with_claims: InternPool[tuple[WorkloadRequests, WorkloadRequests]] = InternPool()

    def resolve(self, binding: CachedBinding, template: CachedTemplate | None) -> WorkloadRequests | None:
        """Return the requests of a workload, ``None`` if unknown."""
        own = template.requests if template else None
        if own is not None and own.claims:
            if self.unmapped_claim(template):
                return None
            own = self._with_device_claims(own)
        if binding.template.kind == VOLCANO_JOB or binding.requests is None:
            return own
        if own is None or not own.pods or not binding.requests.pods:
            # Without pods, Karmada counted zero replicas.
            return binding.requests
        karmada_requests, template_requests = binding.requests, own
        # The ids stay valid while the value is cached, because it is cached together with their objects.
        return self._merged.get(
            (id(karmada_requests), id(template_requests)),
            lambda: (_merge(karmada_requests, template_requests), karmada_requests, template_requests),
        )[0]

    def unmapped_claim(self, template: CachedTemplate | None) -> str:
        """Return the first ResourceClaimTemplate of *template* that is not mapped to resources, empty if none."""
        names = template.requests.claims if template is not None and template.requests is not None else ()
        return next((name for name in names if name not in self._claims), "")

    def _with_device_claims(self, template_requests: WorkloadRequests) -> WorkloadRequests:
        return self._with_claims.get(
            id(template_requests), lambda: (_add_device_claims(template_requests, self._claims), template_requests)
        )[0]


def _add_device_claims(template_requests: WorkloadRequests, claims: _ClaimRequests) -> WorkloadRequests:
    if template_requests.job is None:
        return template_requests
    job = _add_job_device_claims(template_requests.job, claims)
    return replace(template_requests, total=total_requests(job), pods=pod_requests(job), job=job)


def _add_job_device_claims(job: JobTemplate, claims: _ClaimRequests) -> JobTemplate:
    """Return *job* with the claims of each task as pod overhead: a claim belongs to a pod, not a container."""
    tasks = [
        replace(
            task,
            pod=replace(task.pod, overhead=add(task.pod.overhead, total(claims[name] for name in task.pod.claims))),
        )
        for task in job.tasks
    ]
    return replace(job, tasks=tuple(tasks))


def _merge(karmada_requests: WorkloadRequests, template_requests: WorkloadRequests) -> WorkloadRequests:
    """Return the replicas that Karmada counted, each with the larger of the two requests.

    Of components, the larger sum counts.
    """
    if not karmada_requests.replicas:
        whole = elementwise_max(karmada_requests.total, template_requests.total)
        pods = (*karmada_requests.pods, *template_requests.pods)
        return replace(
            karmada_requests,
            total=whole,
            pods=pods,
            has_long_grace_period=template_requests.has_long_grace_period,
        )
    pod = karmada_requests.pods[0]
    for request in template_requests.pods:
        pod = elementwise_max(pod, request)
    whole = positive(scale(pod, karmada_requests.replicas))
    return WorkloadRequests(
        whole,
        pods=(pod,),
        replicas=karmada_requests.replicas,
        node_claim=_node_claim(template_requests),
        has_long_grace_period=template_requests.has_long_grace_period,
    )


def _node_claim(requests: WorkloadRequests) -> str | None:
    """Return the node claim that all pods have, ``None`` where it is unknown or differs."""
    claims = {task.pod.node_claim for task in requests.job.tasks} if requests.job else set[str | None]()
    return claims.pop() if len(claims) == 1 else None


@dataclass(slots=True)
class _Rollout:
    """The pods that a divisible workload may run: those of its template, and of earlier ones."""

    pod: Resources
    """Requests of a pod of the last template."""
    earlier: Resources = EMPTY
    """The largest amounts of earlier templates since all replicas had the template."""
    inputs: tuple[WorkloadRequests, int, Resources] | None = None
    """Requests of the template, placed replicas, and what outdated ones request beyond it, of the last *result*."""
    result: WorkloadRequests | None = None
    """The requests with those of outdated replicas; kept, because equal requests must be one value."""


class DispatchedRequests:
    """Stores what clusters may run of each placed workload: its requests, until it has left the clusters."""

    def __init__(self) -> None:
        self._dispatched: dict[WorkloadUid, WorkloadRequests] = {}
        self._recorded: dict[WorkloadUid, WorkloadRequests] = {}
        """The recorded charge of workloads of which nothing else is known, for each cluster."""
        self._rollouts: dict[WorkloadUid, _Rollout] = {}

    def effective_requests(
        self, binding: CachedBinding, requests: WorkloadRequests | None, *, generation: int | None = None
    ) -> WorkloadRequests | None:
        """Return the requests that *binding* may run: those of its template, or more where that is not rolled out.

        *generation* is that of the template, ``None`` without one.
        """
        if not binding.targets:
            self._rollouts.pop(binding.uid, None)
            if not binding.progress and not binding.details.evicting:
                self.forget(binding.uid)
            elif requests is not None:
                # After a restart the template's requests are the best guess, but later changes are not dispatched.
                self._dispatched.setdefault(binding.uid, requests)
            return requests
        known = self._dispatched.get(binding.uid)
        if requests is None and known is None and binding.record is not None and binding.record.admits:
            self._recorded[binding.uid] = WorkloadRequests(binding.record.charge_of_copy)
        if known is not None and binding.is_dispatching_suspended:
            requests = known if requests is None else _merge_dispatched(known, _placed_requests(binding, requests))
        elif requests is None and generation is None:
            # Its template was deleted: its clusters run on what was dispatched.
            return known
        if requests is not None:
            # A workload that is scaled to zero may leave its clusters before they have stopped its replicas.
            if requests.total or not any(reported.replicas for reported in binding.progress):
                self._dispatched[binding.uid] = _placed_requests(binding, requests)
            if requests.replicas and requests.job is None:
                return self._with_outdated_replicas(binding, requests, generation)
        return requests

    def _with_outdated_replicas(
        self, binding: CachedBinding, requests: WorkloadRequests, generation: int | None
    ) -> WorkloadRequests:
        """Return *requests* with those of the earlier templates for the replicas that still have one (D7)."""
        pod = requests.pods[0]
        rollout = self._rollouts.setdefault(binding.uid, _Rollout(pod))
        if rollout.pod != pod:
            rollout.earlier, rollout.pod = elementwise_max(rollout.earlier, rollout.pod), pod
        if not rollout.earlier:
            return requests
        outdated = _outdated_replicas(binding, generation)
        if outdated == 0:
            rollout.earlier, rollout.inputs, rollout.result = EMPTY, None, None
        extra = scale(positive(remaining(rollout.earlier, pod)), outdated or 0)
        if not extra:
            return requests
        inputs = requests, _placed_replicas(binding, requests), extra
        if rollout.result is None or rollout.inputs != inputs:
            current = _placed_requests(binding, requests)
            rollout.inputs, rollout.result = inputs, replace(current, total=add(current.total, extra))
        return rollout.result

    def leaving_requests(self, uid: WorkloadUid) -> WorkloadRequests | None:
        """Return what clusters run of an evicted workload until it has left them, ``None`` if that is unknown.

        Karmada dispatches no change of its template to them any more.
        """
        return self._dispatched.get(uid) or self._recorded.get(uid)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a deleted workload, or one that has left its clusters."""
        for known in (self._dispatched, self._recorded, self._rollouts):
            known.pop(uid, None)


def _placed_replicas(binding: CachedBinding, requests: WorkloadRequests) -> int:
    """Return how many replicas the clusters of *binding* have, each copy of it.

    Karmada may not have divided a changed number yet.
    """
    counts = [target.replicas for target in binding.targets if target.replicas]
    if not counts:
        return requests.replicas
    return sum(counts) if binding.placement.divided else max(counts)


def _placed_requests(binding: CachedBinding, requests: WorkloadRequests) -> WorkloadRequests:
    """Return *requests*, those of a divisible kind for the replicas that its clusters have."""
    placed = _placed_replicas(binding, requests)
    if requests.job is not None or not requests.replicas or placed == requests.replicas:
        return requests
    return replace(requests, total=positive(scale(requests.pods[0], placed)), replicas=placed)


def _outdated_replicas(binding: CachedBinding, generation: int | None) -> int | None:
    """Return how many replicas of *binding* have an earlier template than that of *generation*, of any copy at most.

    ``None`` where no replica runs or a cluster has not reported yet, so that more of them may start. Counts without a
    generation are those of the template. Those on clusters that the workload is leaving are charged there.
    """
    reports = {reported.cluster: reported for reported in binding.progress}
    placed = [reports[target.name] for target in binding.targets if target.name in reports]
    if len(placed) < len(binding.targets) or not any(reported.replicas for reported in placed):
        return None
    counts = [
        reported.outdated_replicas if reported.template_generation in {None, generation} else reported.replicas
        for reported in placed
    ]
    return sum(counts) if binding.placement.divided else max(counts)


def _merge_dispatched(known: WorkloadRequests, requests: WorkloadRequests) -> WorkloadRequests:
    """Return requests with the larger amounts of both, or one of the two where it is the larger.

    A job's pods are counted by its dispatched tasks, a divisible kind's by its current replicas.
    """
    whole = elementwise_max(known.total, requests.total)
    base = requests if known.job is None else known
    alike = (
        candidate
        for candidate in (known, requests)
        if candidate.job is base.job and candidate.replicas == base.replicas
    )
    return next((candidate for candidate in alike if candidate.total == whole), replace(base, total=whole))


class Priorities:
    """Value and preemption policy of every PriorityClass, and the defaults for workloads without one."""

    def __init__(self, classes: Iterable[CachedPriorityClass] = ()) -> None:
        known = sorted(classes, key=lambda priority_class: priority_class.key)
        self._values = {priority_class.key: priority_class.value for priority_class in known}
        self._never = {priority_class.key for priority_class in known if not priority_class.preempts}
        # Kubernetes uses the smallest of several defaults.
        default = min(
            (priority_class for priority_class in known if priority_class.is_default),
            key=lambda priority_class: priority_class.value,
            default=None,
        )
        self.default = default.value if default else 0
        self.otherwise = self.default, default.preempts if default else True, default.key if default else ""
        """Value, preemption and name that count for a missing class or for none."""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def effective(self, name: str) -> str:
        """Return the class of a workload that names *name*: the default for none, empty where there is no default."""
        return name or self.otherwise[2]

    def value(self, name: str) -> int:
        """Return the value of a class; a missing class, or none, counts as the default (O2)."""
        return self._values.get(name, self.default)

    def preempts(self, name: str) -> bool:
        """Whether workloads of a class may preempt others (P2)."""
        return name not in self._never if name in self._values else self.otherwise[1]

    def task_value(self, name: str) -> int:
        """Return the value that orders tasks of a job; Volcano applies no default there (D4)."""
        return self._values.get(name, 0)


_NO_CLUSTERS: frozenset[ClusterName] = frozenset()
_Interned = tuple[SchedulingRequirements, WorkloadRequests | None, Placement]


class ClusterPreferences(NamedTuple):
    """The clusters that a workload prefers, requires and avoids, in addition to its placement."""

    preferred: tuple[ClusterName, ...] = ()
    data_clusters: frozenset[ClusterName] | None = None
    excluded: frozenset[ClusterName] = frozenset()
    retryable: frozenset[ClusterName] = frozenset()
    """Those of the excluded ones that it may be tried on where no other cluster can ever hold it."""


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
        preferences: ClusterPreferences,
        is_admitted: bool,
    ) -> SchedulingRequirements:
        """Return the scheduling requirements of a workload; without known requests, empty ones."""
        classes = requests.task_classes if requests else ()
        order = tuple(priorities.task_value(name) for name in classes)
        # Only what is pending is compared with clusters; without them, an admission changes no requirements.
        current = _NO_CLUSTERS if is_admitted else frozenset([target.name for target in binding.targets])
        evicting = frozenset(binding.evicting_from)
        is_split_by_weight = requests is not None and requests.replicas > 0 and bool(binding.placement.weights)
        reverses_ties = is_split_by_weight and _reverses_ties(binding.template_uid)
        # The ids stay valid while the value is cached, because it is cached together with their objects.
        known = (
            id(requests),
            id(binding.placement),
            binding.api,
            order,
            binding.details.observed_term,
            self.with_node_claims,
        )
        return self._made.get(
            (*known, evicting, current, preferences, reverses_ties),
            lambda: (
                replace(
                    _build(binding, requests, priorities, current=current),
                    reverses_ties=reverses_ties,
                    pod_sets=self._pod_sets(requests, priorities),
                    preferred_clusters=preferences.preferred,
                    data_clusters=preferences.data_clusters,
                    excluded_clusters=preferences.excluded,
                    retryable_clusters=preferences.retryable,
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


def _reverses_ties(template_uid: str) -> bool:
    """Return whether Karmada prefers the last name, not the first one, where static weights tie.

    It does where the 32-bit FNV-1a hash of the template's UID is odd. As the start and the factor of the hash are odd,
    its lowest bit is the opposite of that of the sum of all bytes.
    """
    return bool(template_uid) and sum(template_uid.encode()) % 2 == 0


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
        observed_term=binding.details.observed_term,
        evicting_from=frozenset(binding.evicting_from),
        current_clusters=current,
    )


def _gang_requests(requests: WorkloadRequests, priorities: Priorities) -> Resources:
    """Return the gang minimum of a Volcano Job (D4), or all requests of any other kind."""
    return requests.total if requests.job is None else gang_minimum(requests.job, priorities.task_value)
