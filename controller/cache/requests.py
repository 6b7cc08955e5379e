"""Resolves the requests of a workload from its template, from Karmada's interpreter, or from both.

Pure. Karmada counts requests only and no sidecars, so it may count too little per pod (D2); its number of replicas is
authoritative. Devices that pods get through ResourceClaimTemplates count as the configuration maps them; without a
mapping the requests are unknown.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller.cache.interning import InternPool
from controller.cache.objects import VOLCANO_JOB, CachedBinding, CachedTemplate, WorkloadRequests
from controller.engine.state.requests import JobTemplate, pod_requests, total_requests
from controller.engine.state.resources import Resources, add, elementwise_max, positive, scale, total

_MergedRequests = tuple[WorkloadRequests, WorkloadRequests, WorkloadRequests]
_ClaimRequests = Mapping[str, Resources]


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
        if own is None or not own.pods or not binding.requests.replicas:
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
        """Return *counted* with the devices that its claims request."""
        return self._with_claims.get(
            id(template_requests), lambda: (_add_device_claims(template_requests, self._claims), template_requests)
        )[0]


def _add_device_claims(template_requests: WorkloadRequests, claims: _ClaimRequests) -> WorkloadRequests:
    if template_requests.job is not None:
        job = _add_job_device_claims(template_requests.job, claims)
        return replace(template_requests, total=total_requests(job), pods=pod_requests(job), job=job)
    claimed = total(claims[name] for name in template_requests.claims)
    pods = tuple(positive(add(pod, claimed)) for pod in template_requests.pods)
    return replace(
        template_requests, total=positive(total(scale(pod, template_requests.replicas) for pod in pods)), pods=pods
    )


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
    """Return the replicas that Karmada counted, each with the larger of the two requests."""
    pod = elementwise_max(karmada_requests.pods[0], template_requests.pods[0])
    whole = positive(scale(pod, karmada_requests.replicas))
    return WorkloadRequests(
        whole, pods=(pod,), replicas=karmada_requests.replicas, node_claim=template_requests.node_claim
    )
