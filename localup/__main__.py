"""The commands of the ground: build the programs, hold a control plane up."""

import contextlib
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from localup import binaries
from localup.controlplane import CRDS, ControlPlane
from localup.credentials import IDENTITIES
from localup.etcd import Etcd
from localup.karmada.summary import ALLOCATABLE
from localup.processes import ProcessError
from localup.progress import StepError
from localup.realkarmada.programs import KARMADA_BIN, Programs
from localup.stack import Stack

app = typer.Typer(
    help="A Kubernetes control plane on this machine, for trying and testing.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def localup() -> None:
    """Name the group, so that one command alone is still a command."""


@app.command(name="binaries")
def provide_binaries() -> None:
    """Build etcd, kube-apiserver and kube-controller-manager once (some minutes)."""
    print(f"programs: {binaries.ensure_binaries().folder}")


@app.command()
def up(
    crds: Annotated[Path, typer.Option(help="A folder of definitions to use instead of the short ones.")] = CRDS,
    karmada_bin: Annotated[
        Path | None, typer.Option(help="A folder with a real Karmada's programs, to run on it.", envvar=KARMADA_BIN)
    ] = None,
) -> None:
    """Hold a control plane up until Ctrl-C."""
    karmada = Programs.from_folder(karmada_bin) if karmada_bin else None
    programs = binaries.ensure_binaries()
    with Etcd(programs) as etcd, ControlPlane(etcd, crds=crds) as plane, contextlib.ExitStack() as stack:
        for identity in IDENTITIES:
            plane.kubeconfig(identity)
        if karmada:
            stack.enter_context(Stack(plane, karmada=karmada, webhook=False, controller=False))
            print(f"Karmada {karmada.version} is at work; a Cluster with the annotation {ALLOCATABLE} gets a member")
        print(f"export KUBECONFIG={plane.kubeconfig('admin')}")
        print(f"beside it lie those of {', '.join(sorted(IDENTITIES))}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    print("ended; nothing is left behind")


@app.command()
def demo(
    *,
    seconds: Annotated[
        float | None, typer.Option(help="Give up when it is not over by then: 120, and 300 with a real Karmada.", min=1)
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all of it up afterwards, for jobs of your own.")] = False,
    bare: Annotated[bool, typer.Option("--bare", help="The same without a play: queues and clusters alone.")] = False,
    karmada_bin: Annotated[
        Path | None, typer.Option(help="A folder with a real Karmada's programs, for the stand-in's part.")
    ] = None,
) -> None:
    """Show the main job: against a real API server, some 40 jobs and three HyperJobs are judged, admitted and run.

    It ends with exit code 0 when all that it promises was seen, and with 1 and the reason otherwise.
    """
    from localup.demo.command import DemoOptions, run  # noqa: PLC0415 - the ground alone does not need what stands on it

    karmada = Programs.from_folder(karmada_bin) if karmada_bin else None
    raise typer.Exit(run(DemoOptions(seconds or (300 if karmada else 120), keep, bare, karmada)))


def main() -> None:
    """Run a command; a failure is a sentence and exit code 1."""
    # A terminated run cleans up like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (StepError, ProcessError) as error:
        print(f"localup: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
