"""`python -m localup demo`: puts everything up, lets the play run, and says how it went."""

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
    "Karmada's part is played by a stand-in: member clusters are simulated and their jobs are timers. "
    "API server, webhook, policies, certificates and controller are real."
)
_REAL_KARMADA_NOTICE: Final = (
    "Karmada is {version}, a real one; its member clusters are API servers of their own, without nodes: "
    "their jobs are timers. All of this takes some minutes."
)
#: Of the jobs that do not say it themselves: the two examples, which are used as they are.
_RUN_TIME: Final = "4s"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the user has asked for.

    Attributes:
        seconds: When to give up.
        keep: Whether all of it stays up afterwards, for jobs of the user's own.
        bare: The same without a play before.
        karmada: The programs of a real Karmada, to play its own part.
    """

    seconds: float
    keep: bool
    bare: bool
    karmada: Karmada | None


def run(demo_options: DemoOptions) -> int:
    """Run the demo and return its exit code; its programs are built first where they are missing."""
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
        console.print("\ninterrupted; nothing is left behind")
        return _INTERRUPTED
    except (ApiError, WaitTimeoutError, OSError) as error:
        raise ProcessError(f"the demo cannot go on: {error}") from error
    console.print(f"ended after {time.monotonic() - began:.1f} s; nothing is left behind")
    return 1 if result.problems else 0


@contextmanager
def _environment(programs: Binaries, console: DemoConsole, karmada: Karmada | None) -> Iterator[Stack]:
    """Put up everything but the jobs."""
    began = time.monotonic()

    def tell(text: str) -> None:
        console.print_step(time.monotonic() - began, text)

    with Etcd(programs) as etcd, ControlPlane(etcd) as plane:
        tell("etcd and kube-apiserver are ready, with definitions and roles")
        who = "Karmada" if karmada else "stand-in"
        configuration = setup.write_configuration(plane.folder, reclaim=False)
        options = {
            "members" if karmada else "karmada": ProcessOptions(flags=["--run-time", _RUN_TIME]),
            "controller": ProcessOptions(flags=["--admission-configuration", configuration]),
        }
        with Stack(plane, options=options, karmada=karmada or True) as stack:
            tell(f"certificates, webhook and policies are in force; controller and {who} are at work")
            setup.create_objects(plane.admin)
            tell("namespaces, queues and three member clusters are there; now time begins again")
            yield stack


def _print_instructions(stack: Stack, console: DemoConsole) -> None:
    """Say how to reach it all."""
    console.print("\nit is all still up; Ctrl-C ends it. In another shell:", style="bold")
    console.print(f"  export KUBECONFIG={stack.plane.kubeconfig('admin')}")
    console.print("  kubectl get queues,clusters; kubectl -n team-a get vcjob,resourcebindings")
    console.print("  kubectl apply -f my-job.yaml    # in namespace ml, team-a, team-b or ops")
    console.print(f"  {Path(sys.executable).parent / 'volcano-global'} explain job NAME -n NAMESPACE")
    console.print(f"the controller's numbers: {stack.metrics_url}; its log: {stack.log('controller')}")
    console.print("what happens to your jobs is told here:")
