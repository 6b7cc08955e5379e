"""Command line of localup: builds the control plane programs and runs a local control plane or the demo."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from localup import binaries
from localup.api import ApiError
from localup.apply import WaitTimeoutError
from localup.controlplane import CRDS, ControlPlane, Etcd
from localup.credentials import IDENTITIES
from localup.karmada.clusters import ALLOCATABLE
from localup.krew import InstallationError, package
from localup.ports import NoPortError
from localup.processes import ProcessError, StepError
from localup.realkarmada.processes import KARMADA_BIN, Programs
from localup.stack import Stack

app = typer.Typer(
    help="Run a Kubernetes control plane on this machine for trials and tests.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def localup() -> None:
    """Define the command group, so that a single command also needs its name."""


@app.command(name="binaries")
def provide_binaries() -> None:
    """Build etcd, kube-apiserver and three controllers once; this takes some minutes."""
    print(f"programs: {binaries.ensure_binaries().folder}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def helm(context: typer.Context) -> None:
    """Run Helm with the arguments; it is built once, which takes about two minutes."""
    program = binaries.ensure_helm(lambda text: print(text, file=sys.stderr))
    os.execv(program, ["helm", *context.args])  # noqa: S606 - Helm replaces this process


@app.command()
def krew(
    uri: Annotated[str, typer.Option(help="Address from which Krew will load the archive.")] = "https://example.com",
    destination: Annotated[Path, typer.Option(help="Folder of the archive and the manifest.")] = Path("build/krew"),
) -> None:
    """Package the command line as a plugin of Krew, for this platform and version of Python."""
    print(package(Path(__file__).parents[1], destination, uri=uri))


@app.command()
def up(
    crds: Annotated[Path, typer.Option(help="Folder of CRDs that replace the built-in short ones.")] = CRDS,
    karmada_bin: Annotated[
        Path | None, typer.Option(help="Folder with the programs of a real Karmada to run.", envvar=KARMADA_BIN)
    ] = None,
) -> None:
    """Run a control plane until Ctrl-C."""
    karmada = Programs.from_folder(karmada_bin) if karmada_bin else None
    programs = binaries.ensure_binaries()
    with Etcd(programs) as etcd, ControlPlane(etcd, crds=crds) as plane, contextlib.ExitStack() as stack:
        for identity in IDENTITIES:
            plane.kubeconfig(identity)
        if karmada:
            stack.enter_context(Stack(plane, karmada=karmada, webhook=False, controller=False))
            print(f"Karmada {karmada.version} runs; a Cluster with the annotation {ALLOCATABLE} gets a member cluster")
        print(f"export KUBECONFIG={plane.kubeconfig('admin')}")
        print(f"the same folder has kubeconfigs of {', '.join(sorted(IDENTITIES))}; stop with Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    print("stopped; all processes and files were removed")


@app.command()
def demo(
    *,
    seconds: Annotated[
        float | None, typer.Option(help="Time limit; default 120, with a real Karmada 300.", min=1)
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the environment running afterwards for your own jobs.")
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Also start the web console, and keep it running.")
    ] = False,
    bare: Annotated[bool, typer.Option("--bare", help="Start queues and clusters without the scenario.")] = False,
    karmada_bin: Annotated[
        Path | None, typer.Option(help="Folder with the programs of a real Karmada that replaces the stand-in.")
    ] = None,
) -> None:
    """Run the demo: about 40 jobs and three HyperJobs are queued, admitted and run on a real API server.

    The exit code is 0 if every expectation was met; otherwise it is 1 and the problems are printed.
    """
    from localup.demo.runner import DemoOptions, run  # noqa: PLC0415 - other commands do not need the demo's imports

    karmada = Programs.from_folder(karmada_bin) if karmada_bin else None
    raise typer.Exit(run(DemoOptions(seconds or (300 if karmada else 120), keep or console, bare, karmada, console)))


def main() -> None:
    """Run a command; failures are printed as one sentence with exit code 1."""
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except (StepError, ProcessError, InstallationError, NoPortError, WaitTimeoutError, ApiError, OSError) as error:
        print(f"localup: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
