"""Reports for each cluster whether one workload fits, or why the cluster is not a candidate."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from controller.cli.report.amounts import Amounts, positive_quantities, quantities
from controller.cli.report.clusters import unusable_reason
from controller.cli.snapshot import Snapshot
from controller.engine.candidates import Candidates, Exclusion, candidates
from controller.engine.cluster_usage import ClusterState
from controller.engine.fit import FreeCapacity
from controller.engine.resources import positive, subtract
from controller.engine.workloads import SchedulingRequirements

_EXCLUSIONS: Mapping[Exclusion, str] = MappingProxyType(
    {
        Exclusion.DELETING: "it is being deleted",
        Exclusion.AFFINITY_MISMATCH: "the placement requires other names, labels or regions",
        Exclusion.API_NOT_ENABLED: "it does not serve {api}",
        Exclusion.UNTOLERATED_TAINT: "the placement does not tolerate its taint {taints}",
        Exclusion.SPREAD_PROPERTY_MISSING: "it lacks a property that the placement spreads by",
        Exclusion.EVICTION_TASK: "the workload is being evicted from it",
        Exclusion.TOO_FEW_GROUPS: "the placement spreads over more clusters than there are",
        Exclusion.LEFT_OUT: "the workload or an equal one did not start on it, and the cluster has not changed since",
    }
)


class CandidateReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster, evaluated for one workload.

    *exclusion* is the code of why it is not a candidate; *trouble* is why a candidate
    admits nothing now. *replicas* is the number of replicas that fit.
    """

    name: str
    candidate: bool
    exclusion: str | None
    trouble: str
    free: Amounts
    lacks: Amounts
    replicas: int | None = None


def candidate_reports(snapshot: Snapshot, shape: SchedulingRequirements) -> tuple[CandidateReport, ...]:
    """Return all clusters, candidates first, sorted by name."""
    ledger = snapshot.state.cluster_usage
    found = candidates(shape, ledger.clusters)
    reports = [_report(site, shape, found) for site in ledger]
    return tuple(sorted(reports, key=lambda report: (not report.candidate, report.name)))


def _report(site: ClusterState, shape: SchedulingRequirements, found: Candidates) -> CandidateReport:
    wanted = positive(shape.gang_requests)
    out = found.excluded.get(site.name)
    room = FreeCapacity(site, site.headroom, site.allocatable, freed=site.recently_freed_total)
    return CandidateReport(
        name=site.name,
        candidate=site.name in found.names,
        exclusion=out,
        trouble=_exclusion_text(site, shape, out) if out else unusable_reason(site) or _node_shortage(room, shape),
        free=quantities(site.headroom, wanted),
        lacks=positive_quantities(subtract(wanted, {name: max(site.headroom.get(name, 0), 0) for name in wanted})),
        replicas=_fitting_replicas(room, shape) if shape.replicas else None,
    )


def _exclusion_text(site: ClusterState, shape: SchedulingRequirements, why: Exclusion) -> str:
    taints = site.cluster.taints if site.cluster else ()
    written = ", ".join(f"{each.key}{'=' if each.value else ''}{each.value}:{each.effect}" for each in taints)
    return _EXCLUSIONS[why].format(api=f"{shape.api.group_version} {shape.api.kind}", taints=written)


def _node_shortage(room: FreeCapacity, shape: SchedulingRequirements) -> str:
    return "" if room.has_nodes_for(shape.pods) else "no node has enough free capacity for one of its pods"


def _fitting_replicas(room: FreeCapacity, shape: SchedulingRequirements) -> int:
    """Return how many of the workload's replicas fit in the cluster's headroom."""
    one = positive(shape.replica_requests)
    fitting = [max(room.headroom.get(name, 0), 0) // amount for name, amount in one.items()]
    return min([*fitting, shape.replicas])
