"""The `data` command: prints the data sets that workloads claim."""

from controller.cli.commands.options import CommonOptions, with_common_options

HELP = """
Print the data sets that workloads claim: the clusters that hold them, when they were located, and their claims.

\b
Examples:
  volcano-global data
  volcano-global data -o wide
  volcano-global data -f objects.yaml -o json
"""


@with_common_options
def data(options: CommonOptions) -> None:
    """Print the data sets that workloads claim."""
    from controller.cli.render.data import data_listing  # noqa: PLC0415 -- see options
    from controller.cli.reports.data import data_report  # noqa: PLC0415

    options.show(data_report, lambda report: data_listing(report, is_live=not options.files))
