"""The kinds of a Karmada control plane with Volcano, for simulations of the whole system."""

from typing import Any

from controller.api import keys
from tests.deterministic.objects import CONFIGMAPS, LEASES, Kind

#: Kinds that the HyperJob controller writes with server-side apply.
_APPLIED = (keys.JOBS, keys.PROPAGATION_POLICIES)


def _kind(resource: keys.Resource, **more: Any) -> Kind:
    return Kind(
        resource.group, resource.version, resource.plural, resource.kind, namespaced=resource.namespaced, **more
    )


def _custom(resource: keys.Resource, *, status: bool = True) -> Kind:
    return _kind(resource, status=status, owners=resource in _APPLIED)


def _builtin(resource: keys.Resource) -> Kind:
    return _kind(resource, builtin=True, owners=False)


BINDINGS = _custom(keys.RESOURCE_BINDINGS)
JOBS = _custom(keys.JOBS)
QUEUES = _custom(keys.QUEUES)
CLUSTERS = _custom(keys.CLUSTERS)
PRIORITY_CLASSES = _builtin(keys.PRIORITY_CLASSES)
POLICIES = _custom(keys.PROPAGATION_POLICIES, status=False)
WORKS = Kind("work.karmada.io", "v1alpha1", "works", "Work", status=True, owners=False)
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment", builtin=True, status=True)
BATCH_JOBS = Kind("batch", "v1", "jobs", "Job", builtin=True, status=True)
HYPERJOBS = _custom(keys.HYPERJOBS)
COMMANDS = _custom(keys.COMMANDS, status=False)
DATA_SOURCE_CLAIMS = _custom(keys.DATA_SOURCE_CLAIMS)
DATA_SOURCES = _custom(keys.DATA_SOURCES)
MUTATING = _builtin(keys.MUTATING_WEBHOOKS)
VALIDATING = _builtin(keys.VALIDATING_WEBHOOKS)
EVENTS = _builtin(keys.EVENTS)
CORE_EVENTS = Kind("", "v1", "events", "Event", builtin=True)

SYSTEM = (
    BINDINGS,
    _custom(keys.CLUSTER_RESOURCE_BINDINGS),
    JOBS,
    QUEUES,
    CLUSTERS,
    PRIORITY_CLASSES,
    POLICIES,
    Kind("policy.karmada.io", "v1alpha1", "clusterpropagationpolicies", "ClusterPropagationPolicy", namespaced=False),
    WORKS,
    HYPERJOBS,
    _custom(keys.BATCH_HYPERJOBS),
    COMMANDS,
    DATA_SOURCE_CLAIMS,
    DATA_SOURCES,
    MUTATING,
    VALIDATING,
    EVENTS,
    CORE_EVENTS,
    DEPLOYMENTS,
    BATCH_JOBS,
    CONFIGMAPS,
    LEASES,
)
"""Every kind that some part of the system reads or writes."""
