"""The report of `data`: the sources of data with their age and claims, and the claims that wait."""

from collections import defaultdict

import msgspec

from controller.api.data_sources import DataSet
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_age, format_time
from controller.cli.render.output import Column, Listing, Row
from controller.controllers.data_sources.claims import ClaimIndex, ObservedClaim, ObservedSource

_NONE = "There is no DataSource, or you may not list DataSources and DataSourceClaims of all namespaces."


class ClaimReport(msgspec.Struct, rename="camel", frozen=True):
    """One DataSourceClaim."""

    namespace: str
    name: str
    workload: str
    phase: str
    reason: str
    message: str


class DataSourceReport(msgspec.Struct, rename="camel", frozen=True):
    """One data set: its DataSource, or none while its claims wait for one."""

    name: str
    system: str
    type: str
    data: str
    clusters: tuple[str, ...]
    located_at: str | None
    """When a plugin located it last; null for a source that an operator wrote."""
    age: str
    """Time since then, or since its creation."""
    claims: tuple[ClaimReport, ...]


class DataSources(msgspec.Struct, frozen=True):
    """All data sets, by system, type and name."""

    data: tuple[DataSourceReport, ...]


def data_report(snapshot: Snapshot) -> DataSources:
    """Return the data sets of *snapshot*: those with a source, and those with claims only."""
    index = snapshot.claims or ClaimIndex()
    reports = [_source_report(index, source, snapshot.now) for source in index.sources.values()]
    by_data_set = defaultdict[DataSet, list[ObservedClaim]](list)
    for claim in index.claims.values():
        by_data_set[claim.data_set].append(claim)
    for data_set, claims in by_data_set.items():
        if index.source_of(data_set) is not None:
            continue
        reports.append(
            DataSourceReport("", *data_set[:3], (), None, "", tuple(_claim_report(index, claim) for claim in claims))
        )
    return DataSources(
        tuple(sorted(reports, key=lambda report: (report.system, report.type, report.data, report.name)))
    )


def _source_report(index: ClaimIndex, source: ObservedSource, now: int) -> DataSourceReport:
    bound = index.bound_to(source.key)
    waiting = [claim for claim in index.claims_of(source.data_set) if index.bound_source(claim) is None]
    return DataSourceReport(
        source.key,
        *source.data_set[:3],
        source.clusters,
        format_time(source.located_at),
        format_age(source.located_at or source.created_at, now),
        tuple(_claim_report(index, claim) for claim in (*bound, *waiting)),
    )


def _claim_report(index: ClaimIndex, claim: ObservedClaim) -> ClaimReport:
    condition, workload = claim.condition, claim.workload
    is_bound = index.bound_source(claim) is not None
    return ClaimReport(
        claim.key.namespace,
        claim.key.name,
        f"{workload.kind.partition('.')[0]} {workload.name}",
        "Bound" if is_bound else "Pending",
        condition.reason if condition is not None and not is_bound else "",
        condition.message if condition is not None and not is_bound else "",
    )


def data_listing(report: DataSources) -> Listing:
    """Return the table of the data sets, with their claims for ``-o wide``."""
    columns = [
        Column("SYSTEM"),
        Column("TYPE"),
        Column("DATA"),
        Column("CLUSTERS", is_text=True),
        Column("AGE"),
        Column("CLAIMS", right=True),
        Column("PENDING", right=True),
        Column("REASON"),
        Column("CLAIM NAMES", is_wide=True, is_text=True),
    ]
    names = [f"datasource.datadependency.volcano.sh/{source.name}" for source in report.data if source.name]
    return Listing(columns, [_row(source) for source in report.data], names, _NONE)


def _row(report: DataSourceReport) -> Row:
    pending = [claim for claim in report.claims if claim.phase == "Pending"]
    return (
        report.system,
        report.type,
        report.data,
        ", ".join(report.clusters),
        report.age,
        str(len(report.claims)),
        str(len(pending)),
        ", ".join(sorted({claim.reason for claim in pending if claim.reason})),
        ", ".join(f"{claim.namespace}/{claim.name}" for claim in report.claims),
    )
