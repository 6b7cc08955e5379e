"""Reports allocatable resources, external usage, our usage and headroom of the member clusters."""

import msgspec

from controller.cli.report.amounts import Amounts, quantities
from controller.cli.snapshot import Snapshot
from controller.engine.cluster_usage import ClusterState
from controller.engine.feasibility import why_unusable


class ClusterReport(msgspec.Struct, frozen=True):
    """One cluster; ``trouble`` is why it admits no workloads."""

    name: str
    ready: bool
    trouble: str
    allocatable: Amounts
    foreign: Amounts
    ours: Amounts
    free: Amounts


class Clusters(msgspec.Struct, frozen=True):
    """All clusters after the plan, sorted by name."""

    clusters: tuple[ClusterReport, ...]


def cluster_reports(snapshot: Snapshot) -> Clusters:
    """Return all clusters, including unknown clusters with charges."""
    return Clusters(tuple(_report(site) for site in snapshot.state.cluster_usage))


def unusable_reason(site: ClusterState) -> str:
    """Return why a cluster admits no workloads, or an empty text."""
    return "is unknown" if site.cluster is None else why_unusable(site.cluster) or ""


def _report(site: ClusterState) -> ClusterReport:
    booked = {name for name, amount in site.charged.items() if amount}
    resources = sorted({*site.allocatable, *site.external_usage, *booked})
    return ClusterReport(
        name=site.name,
        ready=site.is_usable,
        trouble=unusable_reason(site),
        allocatable=quantities(site.allocatable, resources),
        foreign=quantities(site.external_usage, resources),
        ours=quantities(site.charged, resources),
        free=quantities(site.headroom, resources),
    )
