"""Creates the jobs of Kueue's performance tests, and reports that an admitted one has completed after its run time."""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from controller.api.keys import JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.engine.state.hierarchy import ROOT
from controller.kube.client import Api
from controller.kube.errors import Conflict
from tests.benchmarks.resume_watch import Seen
from tests.benchmarks.seed import IN_FLIGHT, binding, create, finish_job
from tests.traces.cohorts import CohortShape, cohorts_load
from tests.traces.load import Job, Load, Manifest, manifests
from tests.watching import Watcher

_RETRY_SECONDS = 0.1
#: Concurrent creations: more would fill the API server's request queue and delay the measured patches.
_CREATIONS = 8
Key = tuple[str, str]
"""Namespace and name of a job."""


@dataclass(slots=True)
class JobRun:
    """Times of one job, in seconds of the monotonic clock; 0 before they are known."""

    job: Job
    created_at: float = 0
    admitted_at: float = 0
    """Of the last admission, as in Kueue's recorder."""
    finished_at: float = 0
    version: str = ""
    """The binding's last observed resourceVersion."""

    @property
    def ends_at(self) -> float:
        """When the run time is over."""
        return self.admitted_at + self.job.runtime / 1000


class JobRunner(Watcher):
    """Observes bindings, and reports that a job has completed when it was admitted for its run time."""

    def __init__(self, api: Api, jobs: Iterable[Job]) -> None:
        self.runs: dict[Key, JobRun] = {(job.namespace, job.name): JobRun(job) for job in jobs}
        self.admitted = self.finished = self.evictions = 0
        self.all_finished = asyncio.Event()
        self._api = api
        self._due: asyncio.Queue[JobRun] = asyncio.Queue()

    def upsert(self, seen: Seen) -> None:
        """Start the run time of an admitted job; an eviction ends it."""
        run = self.runs.get((seen.metadata.namespace, seen.metadata.name.removesuffix("-job")))
        if run is None:
            return
        run.version = seen.metadata.resource_version
        if seen.is_resumed and not run.admitted_at:
            run.admitted_at = time.monotonic()
            self.admitted += 1
            self._wake_at(run, run.ends_at)
        elif not seen.is_resumed and run.admitted_at:
            run.admitted_at = 0
            self.evictions += 1

    def forget(self, namespace: str, name: str) -> None:
        """Fail: every binding can be decoded."""
        raise ValueError(f"the binding {namespace}/{name} cannot be decoded")

    async def run(self) -> None:
        """Report completed jobs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._report())

    def _wake_at(self, run: JobRun, at: float) -> None:
        asyncio.get_running_loop().call_later(max(at - time.monotonic(), 0), self._due.put_nowait, run)

    async def _report(self) -> None:
        while True:
            run = await self._due.get()
            # After an eviction the timer of the last admission counts.
            if run.finished_at or not run.admitted_at or time.monotonic() < run.ends_at:
                continue
            try:
                await finish_job(self._api, run.job.namespace, run.job.name, resourceVersion=run.version)
            except Conflict:
                self._wake_at(run, time.monotonic() + _RETRY_SECONDS)
                continue
            run.finished_at = time.monotonic()
            self.finished += 1
            if self.finished == len(self.runs):
                self.all_finished.set()


class JobGenerator:
    """Creates the queues of a shape and their jobs, as Kueue's generator does.

    A queue is followed by its namespace and then by its jobs; each of its streams waits for the interval before a job.
    """

    def __init__(self, api: Api, shape: CohortShape, runner: JobRunner) -> None:
        self.created = 0
        self.begun_at = 0.0
        """When the first object was created, in seconds of the monotonic clock."""
        self._api = api
        self._intervals = {stream.name: stream.interval / 1000 for stream in shape.streams}
        self._load = cohorts_load(shape)
        self._runner = runner
        self._slots = asyncio.Semaphore(_CREATIONS)

    async def run(self) -> None:
        """Create everything."""
        self.begun_at = time.monotonic()
        for manifest in manifests(Load((), (), (), self._load.classes)):
            await create(self._api, PRIORITY_CLASSES.path, manifest)
        only_queues = replace(self._load, clusters=(), jobs=(), classes={})
        manifest_of = {manifest["metadata"]["name"]: manifest for manifest in manifests(only_queues)}
        for queue in self._load.queues:
            if queue.parent == ROOT:
                await create(self._api, QUEUES.path, manifest_of[queue.name])
        streams = jobs_by_stream(self._load.jobs)
        async with asyncio.TaskGroup() as group:
            for queue in self._load.queues:
                if queue.parent != ROOT:
                    group.create_task(self._fill_queue(manifest_of[queue.name], streams[queue.name]))

    async def _fill_queue(self, queue: Manifest, streams: Iterable[Sequence[Job]]) -> None:
        async with self._slots:
            await create(self._api, QUEUES.path, queue)
            await create(self._api, "/api/v1/namespaces", {"metadata": {"name": queue["metadata"]["name"]}})
        async with asyncio.TaskGroup() as group:
            for jobs in streams:
                group.create_task(self._create_jobs(jobs))

    async def _create_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            await asyncio.sleep(self._intervals[job.priority_class])
            manifest = job_manifest(job)
            folder = JOBS.item_path(job.namespace, "").rstrip("/")
            async with self._slots:
                self._runner.runs[job.namespace, job.name].created_at = time.monotonic()
                made = await create(self._api, folder, manifest)
                bound = binding(job.namespace, job.name, made["metadata"]["uid"])
                await create(self._api, RESOURCE_BINDINGS.item_path(job.namespace, "").rstrip("/"), bound)
            self.created += 1


def jobs_by_stream(jobs: Iterable[Job]) -> dict[str, list[list[Job]]]:
    """Return the jobs of each stream of each queue, in the order of their creation."""
    streams: dict[str, dict[str, list[Job]]] = defaultdict(lambda: defaultdict(list))
    for job in sorted(jobs, key=lambda job: job.at):
        streams[job.queue][job.priority_class].append(job)
    return {queue: list(of_queue.values()) for queue, of_queue in streams.items()}


def job_manifest(job: Job) -> Manifest:
    """Return the manifest of *job* without its annotations: Kueue's jobs have no run time estimate."""
    (manifest,) = manifests(Load((), (), (job,)))
    manifest["metadata"].pop("annotations")
    return manifest


def mean_wait(runs: Iterable[JobRun], priority_class: str) -> float:
    """Return the mean seconds from creation to admission of the jobs of one class."""
    return statistics.fmean(
        run.admitted_at - run.created_at for run in runs if run.job.priority_class == priority_class
    )
