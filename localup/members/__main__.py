"""Command line of the member clusters for a real Karmada: `python -m localup.members --help`."""

from pathlib import Path
from typing import Annotated

import typer

from controller.kube.client import Api
from localup.binaries import Binaries
from localup.karmada.__main__ import configure_logging, parse_duration, serve
from localup.members.members import MemberApiServers, Members

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
    seconds, late = parse_duration(run_time), parse_duration(pods_late)
    apiservers = MemberApiServers(store, Binaries(programs))

    async def run() -> None:
        async with Api.connect(kubeconfig, user_agent="members") as api:
            await Members(api, apiservers, run_time=seconds, pods_late=late).run()

    try:
        serve(run(), "localup.members")
    finally:
        apiservers.stop()


if __name__ == "__main__":
    configure_logging()
    app()
