"""Command line of the member clusters for a real Karmada: `python -m localup.members --help`."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from controller.kube.kubeconfig import KubeconfigError
from localup.binaries import Binaries
from localup.karmada.__main__ import configure_logging
from localup.karmada.quirks import seconds_in
from localup.members.members import MemberApiServers, serve

app = typer.Typer(add_completion=False)


@app.command(help="Run an API server with a fake kubelet for every annotated Cluster until SIGTERM.")
def members(
    *,
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the control plane.", exists=True, dir_okay=False)],
    store: Annotated[str, typer.Option(help="Storage of the members: the URL of an etcd and a prefix.")],
    programs: Annotated[Path, typer.Option(help="Folder of kube-apiserver.", exists=True, file_okay=False)],
    run_time: Annotated[str, typer.Option(help="Run time of jobs without a run time annotation.")] = "10s",
    pods_late: Annotated[str, typer.Option(help="Delay until a fitting job has pods.")] = "0s",
) -> None:
    """Validate the options and run."""
    try:
        seconds, late = seconds_in(run_time), seconds_in(pods_late)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    apiservers = MemberApiServers(store, Binaries(programs))
    try:
        asyncio.run(_run(kubeconfig, apiservers, run_time=seconds, pods_late=late))
    except KubeconfigError as error:
        sys.exit(f"localup.members: {error}")
    finally:
        apiservers.stop()


async def _run(kubeconfig: Path, apiservers: MemberApiServers, *, run_time: float, pods_late: float) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await serve(kubeconfig, apiservers, stopping, run_time=run_time, pods_late=pods_late)


if __name__ == "__main__":
    configure_logging()
    app()
