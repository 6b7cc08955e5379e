"""The statuses and objects that the controller writes for claims and sources. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from controller.api.data_sources import AVAILABLE, BOUND, ClaimReference, DataSet, DataSourceCondition
from controller.api.keys import DATA_FINALIZERS, DATA_SOURCE_CLAIMS, DATA_SOURCES, LOCATED_AT_ANNOTATION
from controller.cache.translate.units import format_time
from controller.controllers.data_sources.claims import ObservedClaim, ObservedSource, condition_of, source_name

PENDING = "Pending"

#: Number of claims that the status of a source names; a larger object might not be stored.
MAX_REFERENCES = 1000

Patch = dict[str, Any]


class Problem(NamedTuple):
    """Why data are not located: reason of a condition, and message for the tenant."""

    reason: str
    message: str


def claim_patch(claim: ObservedClaim, source: str, problem: Problem | None, now: int) -> Patch | None:
    """Return the merge patch after which *claim* is bound to *source*, or pending; ``None`` if nothing changes."""
    phase = BOUND if source else PENDING
    problem = problem or Problem("Located", f"bound to DataSource {source}")
    condition = _condition(BOUND, claim.condition, is_true=bool(source), problem=problem, now=now)
    status = claim.status
    if (status.phase or PENDING, status.bound_data_source) == (phase, source) and claim.condition == condition:
        return None
    # `null` removes the name in a merge patch.
    fields = {"phase": phase, "boundDataSource": source or None, "conditions": [condition]}
    return _versioned(claim, {"status": fields})


def source_patch(
    source: ObservedSource, bound: Sequence[ObservedClaim], problem: Problem | None, now: int
) -> Patch | None:
    """Return the merge patch of the status of *source* with its *bound* claims; ``None`` if nothing changes."""
    references = [
        ClaimReference(DATA_SOURCE_CLAIMS.api_version, DATA_SOURCE_CLAIMS.kind, *claim.key, claim.uid)
        for claim in bound[:MAX_REFERENCES]
    ]
    before = condition_of(source.status.conditions, AVAILABLE)
    known = problem or Problem("Located", "its clusters are known")
    condition = _condition(AVAILABLE, before, is_true=problem is None, problem=known, now=now)
    status = source.status
    if (status.bound_claims, status.claim_refs, before) == (len(bound), references, condition):
        return None
    fields = {"boundClaims": len(bound), "claimRefs": references, "conditions": [condition]}
    return _versioned(source, {"status": fields})


def new_source(data_set: DataSet, clusters: Sequence[str], *, reclaim_policy: str, now: int) -> dict[str, Any]:
    """Return the DataSource of a data set that was located at *now*."""
    spec: dict[str, Any] = {
        "system": data_set.system,
        "type": data_set.type,
        "name": data_set.name,
        "locality": {"clusterNames": list(clusters)},
        "reclaimPolicy": reclaim_policy,
    }
    if data_set.attributes:
        spec["attributes"] = dict(data_set.attributes)
    metadata = {"name": source_name(data_set), "annotations": {LOCATED_AT_ANNOTATION: format_time(now)}}
    return {"apiVersion": DATA_SOURCES.api_version, "kind": DATA_SOURCES.kind, "metadata": metadata, "spec": spec}


def located_patch(source: ObservedSource, clusters: Sequence[str], now: int) -> Patch:
    """Return the merge patch after which *source* was located at *now*."""
    located: Patch = {"metadata": {"annotations": {LOCATED_AT_ANNOTATION: format_time(now)}}}
    if tuple(clusters) != source.clusters:
        located["spec"] = {"locality": {"clusterNames": list(clusters)}}
    return _versioned(source, located)


def finalizers_patch(seen: ObservedClaim | ObservedSource) -> Patch | None:
    """Return the merge patch that removes the finalizers of upstream's controller from a deleted object."""
    left = [name for name in seen.finalizers if name not in DATA_FINALIZERS]
    return None if len(left) == len(seen.finalizers) else _versioned(seen, {"metadata": {"finalizers": left}})


def _versioned(seen: ObservedClaim | ObservedSource, patch: Patch) -> Patch:
    """Return *patch* for the observed version only; a later one is a conflict."""
    metadata = {**patch.get("metadata", {}), "uid": seen.uid, "resourceVersion": str(seen.resource_version)}
    return {**patch, "metadata": metadata}


def _condition(
    kind: str, before: DataSourceCondition | None, *, is_true: bool, problem: Problem, now: int
) -> DataSourceCondition:
    status = "True" if is_true else "False"
    since = before.last_transition_time if before is not None and before.status == status else format_time(now)
    return DataSourceCondition(kind, status, problem.reason, problem.message, since)
