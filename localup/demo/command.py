"""Implements `python -m localup demo`: starts the environment, runs the scenario and prints the result."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localup import binaries
from localup.api import ApiError
from localup.apply import WaitTimeoutError
from localup.binaries import Binaries
from localup.controlplane import ControlPlane
from localup.demo import setup
from localup.demo.console import DemoConsole
from localup.demo.runner import DemoRunner
from localup.demo.scenario import scenario_steps
from localup.demo.summary import print_summary
from localup.etcd import Etcd
from localup.managed_process import ProcessOptions
from localup.processes import ProcessError
from localup.realkarmada.programs import Programs as Karmada
from localup.stack import Stack

_INTERRUPTED: Final = 130
_STAND_IN_NOTICE: Final = (
    "Karmada is replaced by a stand-in: member clusters are simulated, and their jobs are timers. "
    "API server, webhook, policies, certificates and controller are real."
)
_REAL_KARMADA_NOTICE: Final = (
    "A real Karmada {version} is used. Each member cluster is an API server without nodes, "
    "so jobs are timers. The demo takes some minutes."
)
#: Run time of jobs without a run time annotation: the two examples, which are submitted unchanged.
_RUN_TIME: Final = "4s"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Command line options of the demo.

    Attributes:
        seconds: The time limit.
        keep: Whether the environment keeps running after the demo.
        bare: Whether the environment starts without the scenario.
        karmada: Programs of a real Karmada that replaces the stand-in.
    """

    seconds: float
    keep: bool
    bare: bool
    karmada: Karmada | None


def run(demo_options: DemoOptions) -> int:
    """Run the demo and return its exit code; missing control plane programs are built first."""
    console = DemoConsole()
    console.print(
        _REAL_KARMADA_NOTICE.format(version=demo_options.karmada.version) if demo_options.karmada else _STAND_IN_NOTICE
    )
    try:
        programs = binaries.ensure_binaries()
        began = time.monotonic()
        with (
            _environment(programs, console, demo_options.karmada) as stack,
            DemoRunner(
                stack, [] if demo_options.bare else scenario_steps(), console, seconds=demo_options.seconds
            ) as runner,
        ):
            result = runner.run()
            if not demo_options.bare:
                print_summary(console, runner.view, result, stack)
            if demo_options.keep or demo_options.bare:
                with suppress(KeyboardInterrupt):
                    _print_instructions(stack, console)
                    runner.follow()
                console.print()
    except KeyboardInterrupt:
        console.print("\ninterrupted; all processes and files were removed")
        return _INTERRUPTED
    except (ApiError, WaitTimeoutError, OSError) as error:
        raise ProcessError(f"the demo failed: {error}") from error
    console.print(f"ended after {time.monotonic() - began:.1f} s; all processes and files were removed")
    return 1 if result.problems else 0


@contextmanager
def _environment(programs: Binaries, console: DemoConsole, karmada: Karmada | None) -> Iterator[Stack]:
    """Start the control plane, create namespaces, queues and clusters, and yield the stack."""
    began = time.monotonic()

    def report(text: str) -> None:
        console.print_step(time.monotonic() - began, text)

    with Etcd(programs) as etcd, ControlPlane(etcd) as plane:
        report("etcd and kube-apiserver are ready, with CRDs and roles")
        karmada_name = "Karmada" if karmada else "stand-in"
        configuration = setup.write_configuration(plane.folder, reclaim=False)
        options = {
            "members" if karmada else "karmada": ProcessOptions(flags=["--run-time", _RUN_TIME]),
            "controller": ProcessOptions(flags=["--admission-configuration", configuration]),
        }
        with Stack(plane, options=options, karmada=karmada or True) as stack:
            report(f"certificates, webhook and policies are in effect; controller and {karmada_name} run")
            setup.create_objects(plane.admin)
            report("namespaces, queues and three member clusters are created; the clock restarts at 0")
            yield stack


def _print_instructions(stack: Stack, console: DemoConsole) -> None:
    """Print how to use the running environment."""
    console.print("\nthe environment keeps running until Ctrl-C. In another shell:", style="bold")
    console.print(f"  export KUBECONFIG={stack.plane.kubeconfig('admin')}")
    console.print("  kubectl get queues,clusters; kubectl -n team-a get vcjob,resourcebindings")
    console.print("  kubectl apply -f my-job.yaml    # in namespace ml, team-a, team-b or ops")
    console.print(f"  {Path(sys.executable).parent / 'volcano-global'} explain job NAME -n NAMESPACE")
    console.print(f"metrics of the controller: {stack.metrics_url}; its log: {stack.log('controller')}")
    console.print("progress of your jobs:")
