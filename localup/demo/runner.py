"""Implements `python -m localup demo`: starts the environment, runs the scenario and prints the result.

It watches the progress and fails when a process ends.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOB_KIND, HYPERJOBS, JOBS, RESOURCE_BINDINGS, Resource
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.informer import Informer
from localup import binaries
from localup.api import ApiError
from localup.apply import WaitTimeoutError
from localup.binaries import Binaries
from localup.controlplane import ControlPlane, Etcd
from localup.demo import table
from localup.demo.progress import (
    BindingStatus,
    DemoResult,
    HyperJobTracker,
    JobStage,
    PendingReasonReader,
    Timeline,
    TimelineEntry,
    evaluate,
    parse_binding,
)
from localup.demo.scenario import (
    EXAMPLES,
    DemoHyperJob,
    DemoJob,
    ScenarioStep,
    create_objects,
    join_clusters,
    queues,
    scenario_steps,
    submit,
    write_configuration,
)
from localup.demo.table import DemoConsole, UsageHistory, parse_queue_usage
from localup.karmada.objects import Key, Object, StoredObject, key_of
from localup.processes import ProcessError, ProcessOptions, tail
from localup.realkarmada.processes import Programs as Karmada
from localup.stack import Stack

#: The watched kinds.
WATCHED: Final = (JOBS, RESOURCE_BINDINGS, HYPERJOBS, BATCH_HYPERJOBS)


class View:
    """Processes changes of objects and tracks the progress of jobs and HyperJobs.

    Jobs outside the scenario are parts of HyperJobs or submitted by a user.
    """

    def __init__(self, jobs: Mapping[str, DemoJob], hyperjobs: Mapping[str, DemoHyperJob]) -> None:
        self._scenario, self._jobs = jobs, dict(jobs)
        self.timeline = Timeline()
        self.hyperjobs = HyperJobTracker(hyperjobs)
        self.usage = UsageHistory()
        self._early_bindings: dict[str, list[BindingStatus]] = {}
        """Binding versions observed before their jobs, which arrive through another watch."""

    def on_change(self, resource: Resource, old: Object | None, new: Object | None, at: float) -> list[TimelineEntry]:
        """Process an object before and after a change and return new timeline entries."""
        item = new or old or {}
        if resource == RESOURCE_BINDINGS:
            return self._on_binding(parse_binding(item), at, is_gone=new is None)
        if resource == JOBS:
            return self._on_job(item, at, is_gone=new is None)
        if new is not None:
            return self.hyperjobs.on_hyperjob(new, at)
        self.hyperjobs.forget(str(key_of(item)))
        return []

    @property
    def is_over(self) -> bool:
        """Whether all jobs and HyperJobs have reached their expected final state."""
        return self.timeline.is_over and all(hyperjob.is_settled for hyperjob in self.hyperjobs.all.values())

    @property
    def are_jobs_settled(self) -> bool:
        """Whether only HyperJobs are unfinished, and each was pending for its expected reason."""
        have_been_pending = all(progress.has_been_pending for progress in self.hyperjobs.all.values())
        return self.timeline.are_jobs_settled and have_been_pending

    def _on_binding(self, status: BindingStatus, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        if is_gone:
            self._early_bindings.pop(status.job, None)
            return []
        demo_job = self._jobs.get(status.job)
        if demo_job is None:
            self._early_bindings.setdefault(status.job, []).append(status)
            return []
        self.hyperjobs.on_binding(demo_job, status)
        return self.timeline.on_binding(status, at)

    def _on_job(self, job: Object, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        """Process a job outside the scenario."""
        name = str(key_of(job))
        if name in self._scenario:
            return []
        if is_gone:
            self._jobs.pop(name, None)
            self.timeline.remove(name)
            return []
        is_new = name not in self._jobs
        self._jobs[name] = demo_job = self._role(job)
        if not is_new:
            return []
        self.timeline.on_submitted(demo_job, at)
        before = self._early_bindings.pop(name, [])
        return [line for status in before for line in self._on_binding(status, at, is_gone=False)]

    def _role(self, job: Object) -> DemoJob:
        owners = job["metadata"].get("ownerReferences", ())
        owner = next((item["name"] for item in owners if item["kind"] == HYPERJOB_KIND), "")
        hyperjob = str(Key(key_of(job).namespace, owner)) if owner else ""
        known = self.hyperjobs.all.get(hyperjob)
        is_guest = not owner or (known is not None and known.spec is None)
        return DemoJob(dict(job), hyperjob=hyperjob, is_user_submitted=is_guest)


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
            await asyncio.to_thread(self._stack.controller.start)
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


_TENANTS: Final = ("team-a", "team-b")
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
            print_summary(console, runner.view, result, stack)
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


def print_summary(console: DemoConsole, view: View, result: DemoResult, stack: Stack) -> None:
    """Print the final tables, the observed ratios, and the result with excerpts of the relevant logs."""
    jobs = [progress for progress in view.timeline.jobs.values() if not progress.spec.hyperjob]
    hyperjobs = view.hyperjobs.all.values()
    console.print_tables(table.peak_table(view.usage, queues()), table.job_table(jobs), table.hyperjob_table(hyperjobs))
    for text in _sentences(view):
        console.print(text)
    if result.problems:
        console.print(f"\nthe demo failed with {len(result.problems)} problems:", style="bold red")
        for problem in result.problems:
            console.print(f"  {problem.text}")
        for name in result.logs_to_check:
            console.print(f"last lines of the log of {name}:\n{tail(stack.log(name))}")
        return
    waiting = result.inadmissible
    console.print(f"\n{result.ran} jobs have run; {len(waiting)} stay pending as expected:", style="bold green")
    for progress in waiting:
        console.print(f"  {progress.spec.name} {progress.pending_reason}")
    for hyperjob in result.hyperjobs:
        waited = f", none of them while it was pending as {hyperjob.reasons[0]}" if hyperjob.reasons else ""
        console.print(f"HyperJob {hyperjob.name}: {len(hyperjob.split)} parts were admitted in one plan{waited}")


def _sentences(view: View) -> Iterator[str]:
    """Yield what the scenario shows: fair share by weights, queue priority, and reclaim."""
    jobs = view.timeline.jobs.values()
    reclaimed_at = min((progress.times[JobStage.SUBMITTED] for progress in jobs if progress.spec.reclaims), default=inf)
    if contention := view.usage.contention(*_TENANTS, "cpu", before=reclaimed_at):
        lasted, *used = contention
        amounts = " and ".join(f"{name} {item:.1f}" for name, item in zip(_TENANTS, used, strict=True))
        ratio = f", 1 : {used[1] / used[0]:.1f}" if used[0] else ""
        yield f"weights 1 and 3: for {lasted:.1f} s both tenants had pending jobs; average CPUs: {amounts}{ratio}"
    waits = [
        max((item.waited for item in jobs if item.spec.queue in names and item.waited is not None), default=None)
        for names in (("urgent",), _TENANTS)
    ]
    if None not in waits:
        yield f"priority: jobs of queue urgent waited {waits[0]:.1f} s at most, jobs of the tenants {waits[1]:.1f} s"
    if evicted := sum(progress.evictions for progress in jobs):
        served = sum(progress.spec.reclaims and progress.stage is JobStage.FINISHED for progress in jobs)
        yield f"reclaim: {evicted} jobs were evicted to admit {served} jobs of a queue within its fair share"
