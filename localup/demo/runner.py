"""Implements `python -m localup demo`: starts the environment, runs the scenario and prints the result.

It watches the progress and fails when a process ends.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from controller.api.keys import Resource
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.informer import Informer
from localup import binaries
from localup.api import ApiError
from localup.apply import WaitTimeoutError
from localup.binaries import Binaries
from localup.controlplane import ControlPlane, Etcd
from localup.demo import table
from localup.demo.progress import DemoResult, PendingReasonReader, evaluate
from localup.demo.scenario import (
    EXAMPLES,
    ScenarioStep,
    create_objects,
    join_clusters,
    queues,
    scenario_steps,
    submit,
    write_configuration,
)
from localup.demo.table import DemoConsole
from localup.demo.view import WATCHED, View, parse_queue_usage
from localup.karmada.objects import StoredObject
from localup.managed_process import ProcessOptions
from localup.processes import ProcessError, tail
from localup.realkarmada.processes import Programs as Karmada
from localup.stack import Stack

_TICK_SECONDS: Final = 0.1
_USAGE_SECONDS: Final = 0.3
_TABLE_SECONDS: Final = 3.0
_HEALTH_CHECK_SECONDS: Final = 1.0

#: Longer than any job runs, so that a healthy demo has events in this time.
_STALLED_SECONDS: Final = 30.0


class DemoRunner:
    """One run of the *scenario* on a started stack, for at most so many *seconds*."""

    def __init__(self, stack: Stack, scenario: Sequence[ScenarioStep], console: DemoConsole, *, seconds: float) -> None:
        jobs = {job.name: job for step in scenario for job in step.jobs}
        hyperjobs = {hyperjob.name: hyperjob for step in scenario for hyperjob in step.hyperjobs}
        self.view = View(jobs, hyperjobs)
        self._stack = stack
        self._remaining_steps = list(scenario)
        self._previous_jobs: list[str] = []
        self._tenant = stack.plane.client("tenant")
        self._console = console
        self._seconds = seconds
        self._pending_reasons = PendingReasonReader(stack.log("controller"))
        self._began = time.monotonic()
        self._last_event_at = 0.0
        self._usage_updated_at = self._shown_at = self._health_checked_at = 0.0
        self._has_changes = False

    async def run(self) -> DemoResult:
        """Run all steps and return the result; raise `ProcessError` when a process ends."""
        with self._console.live_table():
            while not self._is_over():
                await self._start_next_step()
                await self._poll()
            await self._update_usage()
        return evaluate(self.view.timeline.jobs.values(), self.view.hyperjobs.all.values())

    async def follow(self) -> None:
        """Print the progress of user-submitted jobs until interrupted."""
        with self._console.live_table():
            while True:
                await self._poll()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Watch all kinds from before the first job on."""
        async with Api.connect(self._stack.plane.kubeconfig("admin"), user_agent="demo") as api:
            informers = []
            for resource in WATCHED:
                sink = Collection(StoredObject.decode, partial(self._on_change, resource))
                informers.append(Informer(api, resource.path, decode=sink.decode, sink=sink))
            tasks = [asyncio.ensure_future(informer.run()) for informer in informers]
            try:
                for informer in informers:
                    await informer.synced.wait()
                self._began = time.monotonic()
                yield
            finally:
                self._tenant.close()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _on_change(self, resource: Resource, old: StoredObject | None, new: StoredObject | None) -> None:
        self._console.print_entries(self.view.on_change(resource, old, new, self._now))
        self._has_changes = True
        self._last_event_at = self._now

    async def _poll(self) -> None:
        await asyncio.sleep(_TICK_SECONDS)
        for pending_reason in self._pending_reasons.read_new():
            self._console.print_entries(self.view.timeline.on_pending_reason(pending_reason, self._now))
        await self._update_usage()
        self._check()

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _is_over(self) -> bool:
        if not self._remaining_steps and self.view.is_over:
            return True
        if self._now > self._seconds:
            self._console.print(f"time limit reached after {self._seconds:.0f} s", style="red")
            return True
        if self._now - self._last_event_at > _STALLED_SECONDS:
            self._console.print(f"stopped: no event for {_STALLED_SECONDS:.0f} s", style="red")
            return True
        return False

    async def _start_next_step(self) -> None:
        """Start the next step if its time has come and its condition holds."""
        if not self._remaining_steps or not self._may_start(self._remaining_steps[0]):
            return
        step = self._remaining_steps.pop(0)
        self._console.print()
        self._console.print_step(self._now, step.title, style="bold")
        if step.enable_reclaim:
            write_configuration(self._stack.plane.folder, reclaim=True)
            await asyncio.to_thread(self._stack.start_controller)
        for demo_job in step.jobs:
            self.view.timeline.on_submitted(demo_job, self._now)
        await asyncio.to_thread(submit, self._tenant, [*step.jobs, *step.hyperjobs])
        await asyncio.to_thread(join_clusters, self._stack.plane.admin, step.clusters)
        self._previous_jobs = [demo_job.name for demo_job in step.jobs]

    def _may_start(self, step: ScenarioStep) -> bool:
        """Return whether *step* may start: its time has come and its condition holds."""
        if step.starts_at > self._now:
            return False
        if step.start_when == "running":
            return self.view.timeline.is_running(self._previous_jobs)
        return step.start_when != "settled" or self.view.are_jobs_settled

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

    async def _update_usage(self) -> None:
        """Read the usage of queues after changes and print it periodically."""
        if not self._has_changes or self._now - self._usage_updated_at < _USAGE_SECONDS:
            return
        self._has_changes = False
        self._usage_updated_at = self._now
        rows = parse_queue_usage(await asyncio.to_thread(self._stack.metrics), queues())
        self.view.usage.moments.append((self._now, rows))
        usage = table.queue_table(self._now, rows)
        lines = self._console.table_height
        if lines is not None:
            timeline, hyperjobs = self.view.timeline.jobs.values(), self.view.hyperjobs.all.values()
            self._console.update_table(table.live_view(usage, timeline, hyperjobs, lines=lines))
        elif self._now - self._shown_at >= _TABLE_SECONDS:
            self._shown_at = self._now
            self._console.print_tables(usage)


_INTERRUPTED: Final = 130

_STAND_IN_NOTICE: Final = (
    "Karmada is replaced by a stand-in: member clusters are simulated, and their jobs are timers. "
    "API server, webhook, policies, certificates and controller are real."
)

_REAL_KARMADA_NOTICE: Final = (
    "A real Karmada {version} is used. Each member cluster is an API server without nodes, "
    "so jobs are timers. The demo takes some minutes."
)

_FIRST_JOB: Final = EXAMPLES / "first-job.yaml"

#: Run time of jobs without a run time annotation: the two examples, which are submitted unchanged.
_RUN_TIME: Final = "4s"

_CONSOLE: Final = """\
web console: {url}
  token of an operator: {operator}
  token of a tenant:    {tenant}"""

_INSTRUCTIONS: Final = """\
  export KUBECONFIG={kubeconfig}
  kubectl get queues,clusters; kubectl -n team-a get vcjob,resourcebindings
  kubectl apply -f {job}    # or your own, in namespace ml, team-a, team-b or ops
  {command} explain job first-job -n ml
metrics of the controller: {metrics}; its log: {log}
progress of your jobs:"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Command line options of the demo."""

    seconds: float
    keep: bool
    bare: bool
    karmada: Karmada | None
    console: bool = False


def run(demo_options: DemoOptions) -> int:
    """Run the demo and return its exit code; missing control plane programs are built first."""
    console = DemoConsole()
    karmada = demo_options.karmada
    console.print(_REAL_KARMADA_NOTICE.format(version=karmada.version) if karmada else _STAND_IN_NOTICE)
    try:
        programs = binaries.ensure_binaries()
        began = time.monotonic()
        with _environment(programs, console, demo_options) as stack:
            result = asyncio.run(_run(stack, console, demo_options))
    except KeyboardInterrupt:
        console.print("\ninterrupted; all processes and files were removed")
        return _INTERRUPTED
    except (ApiError, WaitTimeoutError, OSError) as error:
        raise ProcessError(f"the demo failed: {error}") from error
    console.print(f"ended after {time.monotonic() - began:.1f} s; all processes and files were removed")
    return 1 if result.problems else 0


async def _run(stack: Stack, console: DemoConsole, demo_options: DemoOptions) -> DemoResult:
    scenario = [] if demo_options.bare else scenario_steps()
    runner = DemoRunner(stack, scenario, console, seconds=demo_options.seconds)
    async with runner.watch():
        result = await runner.run()
        if not demo_options.bare:
            table.print_summary(console, runner.view, result, stack)
        if demo_options.keep or demo_options.bare:
            console.print("\nthe environment keeps running until Ctrl-C. In another shell:", style="bold")
            console.print(
                _INSTRUCTIONS.format(
                    kubeconfig=stack.plane.kubeconfig("admin"),
                    job=_FIRST_JOB,
                    command=Path(sys.executable).parent / "volcano-global",
                    metrics=stack.metrics_url,
                    log=stack.log("controller"),
                )
            )
            with suppress(asyncio.CancelledError, KeyboardInterrupt):
                await runner.follow()
            console.print()
    return result


@contextmanager
def _environment(programs: Binaries, console: DemoConsole, demo_options: DemoOptions) -> Iterator[Stack]:
    """Start the control plane, create namespaces, queues and clusters, and yield the stack."""
    began = time.monotonic()
    karmada = demo_options.karmada

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
        if demo_options.console:
            options["console"] = ProcessOptions()
        with Stack(plane, options=options, karmada=karmada or True) as stack:
            report(f"certificates, webhook and policies are in effect; controller and {karmada_name} run")
            create_objects(plane.admin)
            report("namespaces, queues and three member clusters are created; the clock restarts at 0")
            if demo_options.console:
                operator, tenant = (plane.token(name) for name in ("admin", "tenant"))
                console.print(_CONSOLE.format(url=stack.console_url, operator=operator, tenant=tenant))
            yield stack
