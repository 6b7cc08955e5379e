"""Command line of the stand-in for Karmada: `python -m localup.karmada --help`."""

import asyncio
import logging
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from controller.kube.kubeconfig import KubeconfigError
from localup.karmada.objects import TEMPLATES
from localup.karmada.quirks import Quirks, StandInSettings, seconds_in
from localup.karmada.standin import serve

log = structlog.get_logger()


class Template(StrEnum):
    """Kinds of templates by command line name."""

    VOLCANO_JOB = "volcano-job"
    DEPLOYMENT = "deployment"
    STATEFUL_SET = "statefulset"
    BATCH_JOB = "batch-job"
    PRIORITY_CLASS = "priority-class"


app = typer.Typer(add_completion=False)


@app.command(
    help="Run a stand-in for Karmada on a localup control plane until SIGTERM. It is for trials and tests: it is not "
    "Karmada, and its member clusters are simulated.\n\n"
    "A Cluster is simulated if its annotation standin.volcano-global.io/allocatable has its capacity, for example "
    '{"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "220"}, on one node, or .../nodes does, for '
    'example [{"count": 4, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}]; .../external-usage, in the first '
    "form, is its external usage; .../ready is True, False or Unknown. A job runs for the time of its "
    "annotation volcano-global.io/runtime and ends as volcano-global.io/outcome says (Failed; else Completed).\n\n"
    f"Quirks: {', '.join(Quirks.__dataclass_fields__)}."
)
def karmada(  # noqa: PLR0913 -- each is an option of the command line
    *,
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the API server.", exists=True, dir_okay=False)],
    run_time: Annotated[str, typer.Option(help="Run time of jobs without a run time annotation.")] = "10s",
    status_period: Annotated[
        str, typer.Option(help="Minimum time between two writes of a Cluster's status; 10s in a real Karmada.")
    ] = "1s",
    gate_multi_template: Annotated[
        bool,
        typer.Option(
            help="Enable the feature gate MultiplePodTemplatesScheduling: components in bindings of Volcano Jobs."
        ),
    ] = False,
    template: Annotated[list[Template] | None, typer.Option(help="Kind to propagate; may be repeated.")] = None,
    quirks: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a quirk as name=value, such as leak=off or summary-late=10s; may be repeated."),
    ] = None,
) -> None:
    """Validate the options and run the stand-in."""
    chosen = template or [Template.VOLCANO_JOB, Template.DEPLOYMENT]
    try:
        settings = StandInSettings(
            kubeconfig,
            templates=[TEMPLATES[item] for item in chosen],
            run_time_seconds=seconds_in(run_time),
            status_period_seconds=seconds_in(status_period),
            multi_template=gate_multi_template,
            quirks=Quirks.parse(quirks or ()),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    try:
        asyncio.run(_run(settings))
    except KubeconfigError as error:
        sys.exit(f"localup.karmada: {error}")


async def _run(settings: StandInSettings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    log.warning("this is a stand-in for Karmada: member clusters are simulated", pid=os.getpid())
    await serve(settings, stopping)


def configure_logging() -> None:
    """Log one JSON line per effect to standard error, with the process name of the stand-in."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process="stand-in for Karmada")


if __name__ == "__main__":
    configure_logging()
    app()
