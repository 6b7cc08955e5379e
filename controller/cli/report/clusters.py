"""Reports allocatable resources, external usage, our usage and headroom of the member clusters."""

import msgspec

from controller.cli.input.snapshot import Snapshot
from controller.cli.report.amounts import Amounts, quantities
from controller.engine.placement.feasibility_cache import why_unusable
from controller.engine.state.cluster_usage import ClusterState


class ClusterReport(msgspec.Struct, rename="camel", frozen=True):
    """One cluster; ``problem`` is why it admits no workloads."""

    name: str
    ready: bool
    problem: str
    allocatable: Amounts
    external_usage: Amounts
    usage: Amounts
    free: Amounts


class Clusters(msgspec.Struct, frozen=True):
    """All clusters after the plan, sorted by name."""

    clusters: tuple[ClusterReport, ...]


def cluster_reports(snapshot: Snapshot) -> Clusters:
    """Return all clusters, including unknown clusters with charges."""
    return Clusters(tuple(_cluster_report(cluster) for cluster in snapshot.state.cluster_usage))


def unusable_reason(cluster: ClusterState) -> str:
    """Return why a cluster admits no workloads, or an empty text."""
    return "is unknown" if cluster.cluster is None else why_unusable(cluster.cluster) or ""


def _cluster_report(cluster: ClusterState) -> ClusterReport:
    charged = {name for name, amount in cluster.charged.items() if amount}
    resources = sorted({*cluster.allocatable, *cluster.external_usage, *charged})
    return ClusterReport(
        name=cluster.name,
        ready=cluster.is_usable,
        problem=unusable_reason(cluster),
        allocatable=quantities(cluster.allocatable, resources),
        external_usage=quantities(cluster.external_usage, resources),
        usage=quantities(cluster.charged, resources),
        free=quantities(cluster.headroom, resources),
    )
