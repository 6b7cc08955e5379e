"""Implements `python -m localup demo`: starts the environment, runs the scenario and prints the result.

It watches the progress and fails when a process ends.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NoReturn, Self

from localup import binaries
from localup.api import Api, ApiError
from localup.apply import WaitTimeoutError
from localup.binaries import Binaries
from localup.controlplane import ControlPlane, Etcd
from localup.demo import table
from localup.demo.checks import DemoResult, evaluate
from localup.demo.progress import PendingReasonReader
from localup.demo.scenario import (
    ScenarioStep,
    create_objects,
    hyperjobs_by_name,
    jobs_by_name,
    join_clusters,
    limits,
    queues,
    scenario_steps,
    submit,
    write_configuration,
)
from localup.demo.table import DemoConsole
from localup.demo.view import PATHS, View
from localup.managed_process import ProcessOptions
from localup.processes import ProcessError, tail
from localup.realkarmada.processes import Programs as Karmada
from localup.stack import Stack
from localup.watch import ObservedChange, Watch

_TICK_SECONDS: Final = 0.1

_USAGE_SECONDS: Final = 0.3

_TABLE_SECONDS: Final = 3.0

_HEALTH_CHECK_SECONDS: Final = 1.0

#: Longer than any job runs, so that a healthy demo has events in this time.
_STALLED_SECONDS: Final = 30.0


class DemoRunner:
    """One run of the scenario on a started stack.

    Args:
        stack: The started processes.
        scenario: The steps in order of their start times.
        console: The output.
        seconds: The time limit.
    """

    def __init__(self, stack: Stack, scenario: Sequence[ScenarioStep], console: DemoConsole, *, seconds: float) -> None:
        self.view = View((jobs_by_name(scenario), hyperjobs_by_name(scenario)), limits(), queues())
        self._stack = stack
        self._remaining_steps = list(scenario)
        self._joined: list[str] = []
        self._previous_jobs: list[str] = []
        self._contexts = ExitStack()
        self._tenant: Api
        self._console = console
        self._seconds = seconds
        self._events: SimpleQueue[ObservedChange] = SimpleQueue()
        self._pending_reasons = PendingReasonReader(stack.log("controller"))
        self._began = time.monotonic()
        self._last_event_at = 0.0
        self._usage_updated_at = self._shown_at = self._health_checked_at = 0.0
        self._has_changes = False

    def __enter__(self) -> Self:
        """Open the watches; they observe all events from before the first job."""
        try:
            for path in PATHS:
                self._contexts.enter_context(Watch(self._stack.plane, path, self._events))
            self._tenant = self._contexts.enter_context(self._stack.plane.client("tenant"))
        except BaseException:
            self._contexts.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

    def run(self) -> DemoResult:
        """Run all steps and return the result.

        Raises ProcessError when a process ends.
        """
        self._began = time.monotonic()
        with self._console.live_table():
            while not self._is_over():
                self._start_next_step()
                self._poll()
            self._update_usage()
        return evaluate(self.view.timeline.jobs.values(), self.view.hyperjobs.all.values(), self.view.violations)

    def follow(self) -> NoReturn:
        """Print the progress of user-submitted jobs until interrupted."""
        with self._console.live_table():
            while True:
                self._poll()

    def _poll(self) -> None:
        self._drain_events()
        self._update_usage()
        self._check()

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _is_over(self) -> bool:
        if not self._remaining_steps and self.view.is_over and self._events.empty():
            return True
        if self._now > self._seconds:
            self._console.print(f"time limit reached after {self._seconds:.0f} s", style="red")
            return True
        if self._now - self._last_event_at > _STALLED_SECONDS:
            self._console.print(f"stopped: no event for {_STALLED_SECONDS:.0f} s", style="red")
            return True
        return False

    def _start_next_step(self) -> None:
        """Start the next step if its time has come and its condition holds."""
        if not self._remaining_steps or not self._may_start(self._remaining_steps[0]):
            return
        step = self._remaining_steps.pop(0)
        self._console.print()
        self._console.print_step(self._now, step.title, style="bold")
        if step.enable_reclaim:
            write_configuration(self._stack.plane.folder, reclaim=True)
            self._stack.start_controller()
        for demo_job in step.jobs:
            self.view.timeline.on_submitted(demo_job, self._now)
        submit(self._tenant, [*step.jobs, *step.hyperjobs])
        join_clusters(self._stack.plane.admin, step.clusters)
        self._joined += step.clusters
        self._previous_jobs = [demo_job.name for demo_job in step.jobs]

    def _may_start(self, step: ScenarioStep) -> bool:
        """Return whether *step* may start: its time has come, joined clusters report a summary, its condition holds."""
        if step.starts_at > self._now or not self.view.have_summaries(self._joined):
            return False
        match step.start_when:
            case "running":
                return self.view.timeline.is_running(self._previous_jobs)
            case "settled":
                return self.view.are_jobs_settled
            case _:
                return True

    def _drain_events(self) -> None:
        """Process all queued events, waiting a moment for the first one."""
        try:
            event = self._events.get(timeout=_TICK_SECONDS)
            while True:
                self._console.print_entries(self.view.on_event(event, self._now))
                self._has_changes = True
                self._last_event_at = self._now
                event = self._events.get_nowait()
        except Empty:
            pass
        for pending_reason in self._pending_reasons.read_new():
            self._console.print_entries(self.view.timeline.on_pending_reason(pending_reason, self._now))

    def _check(self) -> None:
        """Raise if a process has ended or the API server is not ready."""
        self._stack.check()
        if self._now - self._health_checked_at < _HEALTH_CHECK_SECONDS:
            return
        self._health_checked_at = self._now
        try:
            self._stack.plane.admin.get("/readyz")
        except (ApiError, OSError) as error:
            log = tail(self._stack.plane.folder / "kube-apiserver.log")
            raise ProcessError(f"the API server is not ready: {error}; its last lines:\n{log}") from error

    def _update_usage(self) -> None:
        """Recompute the usage of queues after changes and print it periodically."""
        if not self._has_changes or self._now - self._usage_updated_at < _USAGE_SECONDS:
            return
        self._has_changes = False
        self._usage_updated_at = self._now
        standings = self.view.update_usage(self._now)
        lines = self._console.table_height
        if lines is not None:
            queues = table.queue_table(self._now, standings)
            timeline, hyperjobs = self.view.timeline.jobs.values(), self.view.hyperjobs.all.values()
            self._console.update_table(table.live_view(queues, timeline, hyperjobs, lines=lines))
        elif self._now - self._shown_at >= _TABLE_SECONDS:
            self._shown_at = self._now
            self._console.print_tables(table.queue_table(self._now, standings))


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
                table.print_summary(console, runner.view, result, stack)
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
        configuration = write_configuration(plane.folder, reclaim=False)
        options = {
            "members" if karmada else "karmada": ProcessOptions(flags=["--run-time", _RUN_TIME]),
            "controller": ProcessOptions(flags=["--admission-configuration", configuration]),
        }
        with Stack(plane, options=options, karmada=karmada or True) as stack:
            report(f"certificates, webhook and policies are in effect; controller and {karmada_name} run")
            create_objects(plane.admin)
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
