"""Measures the controller process with a million pending workloads, which a streaming server generates.

The server shares this process; the controller is its own process, as installed. Capacity for some workloads is free
before the start, so that the first decision is an admission.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from controller.api.keys import RESOURCE_BINDINGS
from localup import ports
from localup.processes import ManagedProcess, is_http_ready
from tests.benchmarks.admission import process_seconds
from tests.benchmarks.figures import Figure, process_bytes
from tests.benchmarks.generated_objects import GeneratedState, Manifest
from tests.benchmarks.states import GIB, Size
from tests.benchmarks.streaming_server import StreamingServer, serving
from tests.deterministic.watches import Change

EVENTS = 100
CAPACITY_CHANGES = 5
"""Each changes the fair shares of all queues, so it takes longer than the end of a workload."""
ROOM = 50
"""For how many workloads of the first shape capacity is free at the start."""
QUIET_SECONDS = 3.0
"""Without a patch of a binding for so long, the controller has decided everything."""
_EVENT_TIMEOUT_SECONDS = 600
_START_TIMEOUT_SECONDS = 3600


@dataclass(slots=True)
class AdmissionTimes:
    """When bindings were admitted, on the monotonic clock."""

    at: list[float] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, change: Change) -> None:
        """Note an admission."""
        if change.kind.plural == RESOURCE_BINDINGS.plural and _is_suspended(change.previous) > _is_suspended(
            change.obj
        ):
            self.at.append(time.monotonic())
            self.changed.set()

    async def until(self, count: int, *, seconds: float) -> float:
        """Return when the admission number *count* was observed."""
        async with asyncio.timeout(seconds):
            while len(self.at) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.at[count - 1]


async def measure(size: Size, label: str) -> list[Figure]:
    """Run the benchmark and return its figures, with names that end in *label*."""
    state = GeneratedState(size)
    with TemporaryDirectory() as folder:
        async with serving(state) as server:
            server.add_capacity(0, ROOM)
            times = AdmissionTimes()
            server.server.observers.append(times.observe)
            controller = _controller(server, Path(folder))
            begun = time.monotonic()
            await asyncio.to_thread(controller.begin)
            try:
                return await _figures(server, controller, times, begun, label=label)
            finally:
                await asyncio.to_thread(controller.stop, grace_seconds=1)


def _controller(server: StreamingServer, folder: Path) -> ManagedProcess:
    port = ports.claim()
    flags = {"kubeconfig": server.kubeconfig(folder / "kubeconfig"), "host": "127.0.0.1", "port": port}
    command = ["-m", "controller", *(f"--{name}={value}" for name, value in flags.items())]
    return ManagedProcess(
        "controller", folder / "controller.log", command=lambda: command, is_ready=lambda: is_http_ready(port)
    )


async def _figures(
    server: StreamingServer, controller: ManagedProcess, times: AdmissionTimes, begun: float, *, label: str
) -> list[Figure]:
    seconds = await times.until(1, seconds=_START_TIMEOUT_SECONDS) - begun
    pid = controller.pid or 0
    cpu, served = process_seconds(pid), server.requests
    resident = process_bytes(pid, "VmRSS")
    print(f"{label}: first admission after {seconds:.1f} s and {cpu:.1f} CPU s, {served} requests", flush=True)
    await _quiet(times)
    finishes = [await _latency(partial(server.finish, number), times) for number in range(EVENTS)]
    cuts = statistics.quantiles(finishes, n=100)
    changes = [await _latency(partial(server.add_capacity, number), times) for number in range(CAPACITY_CHANGES)]
    return [
        Figure(f"controller_first_admission_seconds_{label}", seconds, "s"),
        Figure(f"controller_first_admission_cpu_seconds_{label}", cpu, "s"),
        Figure(f"controller_resident_gib_{label}", resident / GIB, "GiB"),
        Figure(f"controller_peak_gib_{label}", process_bytes(pid, "VmHWM") / GIB, "GiB"),
        Figure(f"controller_finish_to_patch_p50_ms_{label}", cuts[49], "ms"),
        Figure(f"controller_finish_to_patch_p99_ms_{label}", cuts[98], "ms"),
        Figure(f"controller_capacity_to_patch_ms_{label}", statistics.median(changes), "ms"),
    ]


async def _latency(change: Callable[[], None], times: AdmissionTimes) -> float:
    """Make a change that frees capacity; return the milliseconds until the next admission."""
    before = len(times.at)
    begun = time.monotonic()
    change()
    milliseconds = (await times.until(before + 1, seconds=_EVENT_TIMEOUT_SECONDS) - begun) * 1000
    await _quiet(times, seconds=0.1)
    return milliseconds


def _is_suspended(binding: Manifest | None) -> bool:
    return bool(binding and binding["spec"]["suspension"]["scheduling"])


async def _quiet(times: AdmissionTimes, seconds: float = QUIET_SECONDS) -> None:
    """Wait until nothing was admitted for *seconds*."""
    while True:
        count = len(times.at)
        await asyncio.sleep(seconds)
        if len(times.at) == count:
            return
