"""Measures the loads of Kueue's performance tests end to end, at 50 writes a second as in Kueue's client.

The time is measured from the first created queue to the last reported completion. The limit applies to patches of
bindings, one for each admission; Kueue's applies to each kind of object as well. Creations and completions are not
limited.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from controller.api.keys import RESOURCE_BINDINGS
from controller.kube.client import Api
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions
from localup.stack import Stack
from tests.benchmarks.admission import cpu_seconds, ground, running
from tests.benchmarks.figures import Figure, process_bytes
from tests.benchmarks.kueue_load import JobGenerator, JobRunner, mean_wait
from tests.benchmarks.resume_watch import Seen
from tests.benchmarks.seed import offer_cluster
from tests.traces.cohorts import SMALL, THIRTY, THOUSAND, CohortShape, cohorts_load
from tests.watching import watching

WRITES_PER_SECOND = 50
BURST = 100
PROGRESS_SECONDS = 10
_TIMEOUT_SECONDS = 3600
_PATCHES = re.compile(r'^volcano_global_patch_duration_seconds_count{effect="(\w+)".*} (\S+)$', re.MULTILINE)
_CONFIGURATION = f"""\
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
patches: {{perSecond: {WRITES_PER_SECOND}, burst: {BURST}}}
"""


@dataclass(frozen=True, slots=True)
class Published:
    """What Kueue's periodic tests measure with the same load, in seconds."""

    makespan: float
    waits: Mapping[str, float]
    """Mean time to admission of each class."""
    goal: float
    """For our makespan."""


PUBLISHED: Mapping[CohortShape, Published] = {
    THIRTY: Published(351, {"large": 16.5, "medium": 76.8, "small": 215.5}, 300),
    THOUSAND: Published(1179, {"large": 105.6, "medium": 256.4, "small": 700.4}, 1010),
}


def measure(*, quick: bool, size: int | None = None) -> list[Figure]:
    """Play the load with *size* queues, or both, and return the figures."""
    shapes = {shape.cohorts * shape.queues: shape for shape in ((SMALL,) if quick else PUBLISHED)}
    if size is not None and size not in shapes:
        raise SystemExit(f"--size {size}: Kueue's tests have {' or '.join(map(str, shapes))} queues")
    figures: list[Figure] = []
    for queues, shape in shapes.items():
        if size in {None, queues}:
            with ground() as plane:
                figures += asyncio.run(_measure(plane, shape))
    return figures


async def _measure(plane: ControlPlane, shape: CohortShape) -> list[Figure]:
    file = plane.folder / "admission.yaml"
    file.write_text(_CONFIGURATION)
    options = {"controller": ProcessOptions(flags=["--admission-configuration", file])}
    async with Api.connect(plane.kubeconfig("admin")) as api:
        await offer_cluster(api, shape.cohorts * shape.capacity)
        async with running(Stack(plane, webhook=False, karmada=False, options=options)) as stack:
            runner = JobRunner(api, cohorts_load(shape).jobs)
            before = cpu_seconds(stack)
            generator = JobGenerator(api, shape, runner)
            await _play(api, generator, runner)
            cpu, patches = cpu_seconds(stack) - before, _patches(stack.metrics())
            peak = process_bytes(stack.controller.pid or 0, "VmHWM")
    label = f"kueue_{shape.cohorts * shape.queues}"
    print(f"{label}: patches {dict(patches)}", flush=True)
    return [
        *_times(label, shape, runner, generator.begun_at),
        Figure(f"{label}_patches_per_job", patches.total() / len(runner.runs), ""),
        Figure(f"{label}_evictions", runner.evictions, ""),
        Figure(f"{label}_controller_cpu_seconds", cpu, "s"),
        Figure(f"{label}_controller_peak_mib", peak / 2**20, "MiB"),
    ]


async def _play(api: Api, generator: JobGenerator, runner: JobRunner) -> None:
    """Create all jobs and run the admitted ones until the last has completed; print the progress."""
    decode = msgspec.json.Decoder(Seen).decode
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        watching(api, RESOURCE_BINDINGS.path, runner, decode=decode),
        asyncio.TaskGroup() as group,
    ):
        background = [group.create_task(work) for work in (runner.run(), _show(generator, runner))]
        await generator.run()
        await runner.all_finished.wait()
        for task in background:
            task.cancel()


async def _show(generator: JobGenerator, runner: JobRunner) -> None:
    begun = time.monotonic()
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        states = f"{generator.created:,} created, {runner.admitted:,} admitted, {runner.finished:,} finished"
        print(f"{time.monotonic() - begun:.0f} s: {states}, {runner.evictions:,} evictions", flush=True)


def _patches(metrics: str) -> Counter[str]:
    """Return the number of patches of bindings by effect, in the text of *metrics*."""
    counts: Counter[str] = Counter()
    for effect, value in _PATCHES.findall(metrics):
        counts[effect] += round(float(value))
    return counts


def _times(label: str, shape: CohortShape, runner: JobRunner, begun: float) -> Iterator[Figure]:
    """Yield the makespan and the mean time to admission of each class, with those of Kueue."""
    published, runs = PUBLISHED.get(shape), runner.runs.values()
    makespan = max(run.finished_at for run in runs) - begun
    goal, baseline = (f"<= {published.goal:.0f}", published.makespan) if published else (None, None)
    yield Figure(f"{label}_makespan_seconds", makespan, "s", goal=goal, baseline=baseline)
    yield Figure(f"{label}_least_seconds_at_the_rate", (len(runs) - BURST) / WRITES_PER_SECOND, "s")
    for stream in shape.streams:
        baseline = published.waits[stream.name] if published else None
        yield Figure(
            f"{label}_mean_seconds_to_admission_{stream.name}", mean_wait(runs, stream.name), "s", baseline=baseline
        )
