"""The report of `data`: the sources of data with their age and claims, and the claims that wait; and its table."""

import msgspec

from controller.cli.render.output import Column, Listing, Row

_NONE = "There is no DataSource and no DataSourceClaim."
_NONE_LIVE = "There is no DataSource, or you may not list DataSources and DataSourceClaims of all namespaces."


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


def data_listing(report: DataSources, *, is_live: bool) -> Listing:
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
    return Listing(columns, [_row(source) for source in report.data], names, _NONE_LIVE if is_live else _NONE)


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
