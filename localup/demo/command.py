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
from localup.apply import NotInTimeError
from localup.binaries import Binaries
from localup.controlplane import ControlPlane
from localup.demo import stage
from localup.demo.cast import acts
from localup.demo.director import Director
from localup.demo.epilogue import speak
from localup.demo.narrator import Narrator
from localup.etcd import Etcd
from localup.part import Options
from localup.processes import ProcessError
from localup.realkarmada.programs import Programs as Karmada
from localup.stack import Stack

_INTERRUPTED: Final = 130
_STAND_IN: Final = (
    "Karmada's part is played by a stand-in: member clusters are simulated and their jobs are timers. "
    "API server, webhook, policies, certificates and controller are real."
)
_REAL: Final = (
    "Karmada is {version}, a real one; its member clusters are API servers of their own, without nodes: "
    "their jobs are timers. All of this takes some minutes."
)
#: Of the jobs that do not say it themselves: the two examples, which are used as they are.
_RUN_TIME: Final = "4s"


@dataclass(frozen=True, slots=True)
class Wishes:
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


def run(wishes: Wishes) -> int:
    """Run the demo and return its exit code; its programs are built first where they are missing."""
    narrator = Narrator()
    narrator.say(_REAL.format(version=wishes.karmada.version) if wishes.karmada else _STAND_IN)
    try:
        programs = binaries.provide()
        began = time.monotonic()
        with (
            _raised(programs, narrator, wishes.karmada) as stack,
            Director(stack, [] if wishes.bare else acts(), narrator, seconds=wishes.seconds) as director,
        ):
            verdict = director.perform()
            if not wishes.bare:
                speak(narrator, director.view, verdict, stack)
            if wishes.keep or wishes.bare:
                with suppress(KeyboardInterrupt):
                    _invite(stack, narrator)
                    director.attend()
                narrator.say()
    except KeyboardInterrupt:
        narrator.say("\ninterrupted; nothing is left behind")
        return _INTERRUPTED
    except (ApiError, NotInTimeError, OSError) as error:
        raise ProcessError(f"the demo cannot go on: {error}") from error
    narrator.say(f"ended after {time.monotonic() - began:.1f} s; nothing is left behind")
    return 1 if verdict.troubles else 0


@contextmanager
def _raised(programs: Binaries, narrator: Narrator, karmada: Karmada | None) -> Iterator[Stack]:
    """Put up everything but the jobs."""
    began = time.monotonic()

    def tell(text: str) -> None:
        narrator.step(time.monotonic() - began, text)

    with Etcd(programs) as etcd, ControlPlane(etcd) as plane:
        tell("etcd and kube-apiserver are ready, with definitions and roles")
        who = "Karmada" if karmada else "stand-in"
        configuration = stage.configure(plane.folder, reclaim=False)
        options = {
            "members" if karmada else "karmada": Options(flags=["--run-time", _RUN_TIME]),
            "controller": Options(flags=["--admission-configuration", configuration]),
        }
        with Stack(plane, options=options, karmada=karmada or True) as stack:
            tell(f"certificates, webhook and policies are in force; controller and {who} are at work")
            stage.build(plane.admin)
            tell("namespaces, queues and three member clusters are there; now time begins again")
            yield stack


def _invite(stack: Stack, narrator: Narrator) -> None:
    """Say how to reach it all."""
    narrator.say("\nit is all still up; Ctrl-C ends it. In another shell:", style="bold")
    narrator.say(f"  export KUBECONFIG={stack.plane.kubeconfig('admin')}")
    narrator.say("  kubectl get queues,clusters; kubectl -n team-a get vcjob,resourcebindings")
    narrator.say("  kubectl apply -f my-job.yaml    # in namespace ml, team-a, team-b or ops")
    narrator.say(f"  {Path(sys.executable).parent / 'volcano-global'} explain job NAME -n NAMESPACE")
    narrator.say(f"the controller's numbers: {stack.metrics_url}; its log: {stack.log('controller')}")
    narrator.say("what happens to your jobs is told here:")
