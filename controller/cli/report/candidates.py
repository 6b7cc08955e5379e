"""Reports for each cluster whether one workload fits, or why the cluster is not a candidate."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import Amounts, positive_quantities, quantities
from controller.cli.report.clusters import unusable_reason
from controller.engine.placement.filter import Candidates, Exclusion, candidates
from controller.engine.placement.fit import FreeCapacity
from controller.engine.state.cluster_usage import ClusterState
from controller.engine.state.resources import positive, subtract
from controller.engine.state.workloads import SchedulingRequirements

_EXCLUSIONS: Mapping[Exclusion, str] = MappingProxyType(
    {
        Exclusion.DELETING: "it is being deleted",
        Exclusion.AFFINITY_MISMATCH: "the placement requires other names, labels or regions",
        Exclusion.API_NOT_ENABLED: "it does not serve {api}",
        Exclusion.UNTOLERATED_TAINT: "the placement does not tolerate its taint {taints}",
        Exclusion.SPREAD_PROPERTY_MISSING: "it lacks a property that the placement spreads by",
        Exclusion.EVICTION_TASK: "the workload is being evicted from it",
        Exclusion.TOO_FEW_GROUPS: "the placement spreads over more clusters than there are",
        Exclusion.STARTUP_FAILED: "the workload or an equal one did not start on it, and it has not changed since",
    }
)


class CandidateReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster, evaluated for one workload.

    *exclusion* is the code of why it is not a candidate; *problem* is why a candidate
    admits nothing now. *replicas* is the number of replicas that fit.
    """

    name: str
    candidate: bool
    exclusion: str | None
    problem: str
    free: Amounts
    lacks: Amounts
    replicas: int | None = None


def candidate_reports(snapshot: Snapshot, requirements: SchedulingRequirements) -> tuple[CandidateReport, ...]:
    """Return all clusters, candidates first, sorted by name."""
    cluster_usage = snapshot.state.cluster_usage
    candidate_set = candidates(requirements, cluster_usage.clusters)
    reports = [_candidate_report(cluster, requirements, candidate_set) for cluster in cluster_usage]
    return tuple(sorted(reports, key=lambda report: (not report.candidate, report.name)))


def _candidate_report(
    cluster: ClusterState, requirements: SchedulingRequirements, candidate_set: Candidates
) -> CandidateReport:
    requested = positive(requirements.gang_requests)
    exclusion = candidate_set.excluded.get(cluster.name)
    capacity = FreeCapacity(cluster, cluster.headroom, cluster.allocatable, freed=cluster.recently_freed_total)
    return CandidateReport(
        name=cluster.name,
        candidate=cluster.name in candidate_set.names,
        exclusion=exclusion,
        problem=_exclusion_text(cluster, requirements, exclusion)
        if exclusion
        else unusable_reason(cluster) or _node_shortage(capacity, requirements),
        free=quantities(cluster.headroom, requested),
        lacks=positive_quantities(
            subtract(requested, {name: max(cluster.headroom.get(name, 0), 0) for name in requested})
        ),
        replicas=_fitting_replicas(capacity, requirements) if requirements.replicas else None,
    )


def _exclusion_text(cluster: ClusterState, requirements: SchedulingRequirements, exclusion: Exclusion) -> str:
    taints = cluster.cluster.taints if cluster.cluster else ()
    written = ", ".join(f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" for taint in taints)
    return _EXCLUSIONS[exclusion].format(
        api=f"{requirements.api.group_version} {requirements.api.kind}", taints=written
    )


def _node_shortage(capacity: FreeCapacity, requirements: SchedulingRequirements) -> str:
    return (
        "" if capacity.has_nodes_for(requirements.pods) else "has no node with enough free capacity for one of its pods"
    )


def _fitting_replicas(capacity: FreeCapacity, requirements: SchedulingRequirements) -> int:
    """Return how many of the workload's replicas fit in the cluster's headroom."""
    one = positive(requirements.replica_requests)
    fitting = [max(capacity.headroom.get(name, 0), 0) // amount for name, amount in one.items()]
    return min([*fitting, requirements.replicas])
