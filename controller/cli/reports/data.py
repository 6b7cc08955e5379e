"""Builds the report of `data`."""

from collections import defaultdict

from controller.api.data_sources import DataSet
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_age, format_time
from controller.cli.render.data import ClaimReport, DataSourceReport, DataSources
from controller.controllers.data_sources.claims import ClaimIndex, ObservedClaim, ObservedSource


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
