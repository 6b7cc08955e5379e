"""Command line of the stand-in for Karmada: `python -m localup.karmada --help`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from controller.kube.client import Api
from controller.kube.kubeconfig import KubeconfigError
from localup.karmada.objects import TEMPLATES
from localup.karmada.settings import StandInSettings, seconds_in
from localup.karmada.standin import StandIn

log = structlog.get_logger()

app = typer.Typer(add_completion=False)


@app.command(
    help="Run a stand-in for Karmada on a localup control plane until SIGTERM. It is for trials and tests: it is not "
    "Karmada, and its member clusters are simulated.\n\n"
    "A Cluster is simulated if its annotation standin.volcano-global.io/allocatable has its capacity, for example "
    '{"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "220"}, on one node, or .../nodes does, for '
    'example [{"count": 4, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}]; .../external-usage, in the first '
    "form, is its external usage; .../ready is True, False or Unknown. A job runs for the time of its "
    "annotation volcano-global.io/runtime and ends as volcano-global.io/outcome says (Failed; else Completed)."
)
def karmada(  # noqa: PLR0913 -- each is an option of the command line
    *,
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the API server.", exists=True, dir_okay=False)],
    run_time: Annotated[str, typer.Option(help="Run time of jobs without a run time annotation.")] = "10s",
    status_period: Annotated[
        str, typer.Option(help="Minimum time between two writes of a Cluster's status; 10s in a real Karmada.")
    ] = "1s",
    summary_late: Annotated[str, typer.Option(help="Delay of Cluster summaries.")] = "0s",
    pods_late: Annotated[str, typer.Option(help="Delay until an admitted job has pods.")] = "0s",
    graceful_eviction_timeout: Annotated[str, typer.Option(help="Grace period of evictions that name none.")] = "10m",
    taint_eviction: Annotated[bool, typer.Option("--taint-eviction", help="Evict by NoExecute taints.")] = False,
    template: Annotated[
        list[str] | None, typer.Option(help=f"Kind to propagate, may be repeated: {', '.join(TEMPLATES)}.")
    ] = None,
) -> None:
    """Validate the options and run the stand-in."""
    times = (run_time, status_period, summary_late, pods_late, graceful_eviction_timeout)
    names = ("run_time", "status_period", "summary_late", "pods_late", "graceful_eviction_timeout")
    chosen = template or ["volcano-job", "deployment"]
    if unknown := set(chosen).difference(TEMPLATES):
        raise typer.BadParameter(f"unknown template {', '.join(unknown)}; known: {', '.join(TEMPLATES)}")
    settings = StandInSettings(
        templates=[TEMPLATES[name] for name in chosen],
        taint_eviction=taint_eviction,
        **dict(zip(names, map(parse_duration, times), strict=True)),
    )

    async def run() -> None:
        async with Api.connect(kubeconfig, user_agent="karmada-stand-in") as api:
            await StandIn(api, settings).run()

    log.warning("this is a stand-in for Karmada: member clusters are simulated", pid=os.getpid())
    serve(run(), "localup.karmada")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration option."""
    try:
        return seconds_in(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def serve(program: Coroutine[Any, Any, None], name: str) -> None:
    """Run *program* until SIGTERM or SIGINT; exit with a sentence if its kubeconfig cannot be used."""

    async def run() -> None:
        running = asyncio.ensure_future(program)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        with suppress(asyncio.CancelledError):
            await running

    try:
        asyncio.run(run())
    except KubeconfigError as error:
        sys.exit(f"{name}: {error}")


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
