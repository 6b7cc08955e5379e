"""Measures latencies of other tenants, which create jobs at a constant rate."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from controller.api.keys import JOBS, RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.kube.errors import ApiError
from tests.e2e.environment import job
from tests.hostile.traffic import at_rate
from tests.rig.binding_state import BindingState, parse_binding
from tests.watching import Watcher, watching

JOBS_PER_SECOND = 2


@dataclass(slots=True)
class Latencies:
    """Seconds of one phase."""

    creates: list[float] = field(default_factory=list)
    """Of a job's creation, by the API server with its webhooks."""
    admissions: list[float] = field(default_factory=list)
    """From the binding's creation to its admission, both as a watch shows them."""
    failures: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return count, median, 99th percentile and maximum of both latencies, in milliseconds."""
        kinds = (("create", self.creates), ("admission", self.admissions))
        return f"failures={len(self.failures)}; " + "; ".join(
            f"{name} n={len(times)} p50={1e3 * percentile(times, 50):.1f} p99={1e3 * percentile(times, 99):.1f} "
            f"max={1e3 * max(times, default=0):.1f} ms"
            for name, times in kinds
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the given percentile of *values*, 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


class Bystander(Watcher):
    """A tenant that creates jobs in a queue at a constant rate and deletes finished ones; a lost job stays pending."""

    def __init__(self, api: Api, namespace: str, queue: str) -> None:
        self._api = api
        self._namespace = namespace
        self._queue = queue
        self._submitted = 0
        self.waiting: dict[str, tuple[float, Latencies]] = {}
        """Pending jobs by name: when the binding was first observed, 0 before that."""
        self._finished: asyncio.Queue[str] = asyncio.Queue()
        self._deleted: set[str] = set()

    async def submit(self, latencies: Latencies, *, per_second: float, seconds: float) -> None:
        """Create jobs for *seconds*; a slow response does not delay the next job."""
        async with asyncio.TaskGroup() as tasks:
            await at_rate(per_second, seconds, lambda: tasks.create_task(self._create(latencies)))

    async def _create(self, latencies: Latencies) -> None:
        self._submitted += 1
        name = f"calm-{self._submitted}"
        began = time.monotonic()
        path = JOBS.item_path(self._namespace, "").rstrip("/")
        self.waiting[name] = (0.0, latencies)
        try:
            await self._api.create(path, msgspec.json.encode(job(name, self._queue, runtime="1s")))
        except (ApiError, OSError) as error:
            latencies.failures.append(f"{name}: {error}"[:300])
            del self.waiting[name]
        else:
            latencies.creates.append(time.monotonic() - began)

    async def follow(self) -> None:
        """Watch the bindings and delete the jobs that have finished, until cancelled."""
        path = RESOURCE_BINDINGS.item_path(self._namespace, "").rstrip("/")
        async with watching(self._api, path, self, decode=_decode):
            while True:
                name = await self._finished.get()
                with suppress(ApiError):
                    await self._api.delete(JOBS.item_path(self._namespace, name))

    def upsert(self, state: BindingState) -> None:
        name = state.job[1]
        seen, latencies = self.waiting.get(name, (None, None))
        if seen is not None and latencies is not None:
            if state.admitted:
                del self.waiting[name]
                latencies.admissions.append(time.monotonic() - seen if seen else 0.0)
            elif not seen:
                self.waiting[name] = (time.monotonic(), latencies)
        if state.is_finished and name not in self._deleted:
            self._deleted.add(name)
            self._finished.put_nowait(name)


def _decode(raw: bytes) -> BindingState:
    return parse_binding(msgspec.json.decode(raw))
