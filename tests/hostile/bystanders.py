"""Measures latencies of other tenants: a steady stream of jobs and of webhook reviews."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

from controller.api.keys import JOBS, RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.kube.errors import ApiError
from controller.kube.informer import Informer
from tests.e2e.environment import job
from tests.e2e.observer import BindingSnapshot, read
from tests.webhook.reviews import job_binding, review, review_of, task, volcano_job, wire

JOBS_PER_SECOND = 2
REVIEWS_PER_SECOND = 10
_REVIEWS = (
    ("/resourcebindings/mutate", wire(review(job_binding()))),
    ("/jobs/mutate", wire(review_of(volcano_job(task("main", 2))))),
    ("/jobs/validate", wire(review_of(volcano_job(task("main", 2))))),
)


@dataclass(slots=True)
class Latencies:
    """Seconds of one phase."""

    creates: list[float] = field(default_factory=list)
    """Of a job's creation, by the API server with its webhooks."""
    admissions: list[float] = field(default_factory=list)
    """From the binding's creation to its admission, both as a watch shows them."""
    reviews: list[float] = field(default_factory=list)
    """Of one review by the webhook."""
    failures: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return count, median, 99th percentile and maximum of each kind, in milliseconds."""
        kinds = (("create", self.creates), ("admission", self.admissions), ("review", self.reviews))
        return "; ".join(
            f"{name} n={len(each)} p50={1e3 * percentile(each, 50):.1f} p99={1e3 * percentile(each, 99):.1f} "
            f"max={1e3 * max(each, default=0):.1f} ms"
            for name, each in kinds
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the given percentile of *values*, 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


class Bystander:
    """A tenant that creates jobs in a queue at a constant rate and deletes finished ones."""

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
        due = asyncio.get_running_loop().time()
        end = due + seconds
        async with asyncio.TaskGroup() as tasks:
            while due < end:
                self._submitted += 1
                tasks.create_task(self._create(f"calm-{self._submitted}", latencies))
                due += 1 / per_second
                await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))

    async def _create(self, name: str, latencies: Latencies) -> None:
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
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Informer(self._api, path, decode=read, sink=self).run())
            while True:
                name = await self._finished.get()
                with suppress(ApiError):
                    await self._api.delete(JOBS.item_path(self._namespace, name))

    def replace_in_steps(self, moments: Sequence[BindingSnapshot], **_: object) -> Iterator[None]:
        return (self.upsert(moment) for moment in moments)

    def upsert(self, moment: BindingSnapshot) -> None:
        seen, latencies = self.waiting.get(moment.job, (None, None))
        if seen is not None and latencies is not None:
            if moment.is_admitted:
                del self.waiting[moment.job]
                latencies.admissions.append(time.monotonic() - seen if seen else 0.0)
            elif not seen:
                self.waiting[moment.job] = (time.monotonic(), latencies)
        if moment.is_finished and moment.job not in self._deleted:
            self._deleted.add(moment.job)
            self._finished.put_nowait(moment.job)

    def forget(self, _: str, __: str) -> None:
        """Leave an object that cannot be read as it was."""

    def remove(self, _: BindingSnapshot) -> None:
        """Leave deleted jobs that were not admitted among the waiting ones."""


async def ask(url: str, certificates: Path, latencies: Latencies) -> None:
    """Send reviews of valid objects to the webhook at a constant rate, until cancelled."""
    trusted = ssl.create_default_context(cafile=certificates / "serving" / "ca.crt")
    due, number = asyncio.get_running_loop().time(), 0
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session,
        asyncio.TaskGroup() as tasks,
    ):
        while True:
            path, body = _REVIEWS[number % len(_REVIEWS)]
            tasks.create_task(_ask(session, url + path, body, latencies))
            number, due = number + 1, due + 1 / REVIEWS_PER_SECOND
            await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes, latencies: Latencies) -> None:
    began = time.monotonic()
    try:
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        latencies.failures.append(f"{url}: {error!r}"[:300])
        return
    latencies.reviews.append(time.monotonic() - began)
    if answer.status != 200 or '"allowed":true' not in text.replace(" ", ""):
        latencies.failures.append(f"{url}: {answer.status} {text[:200]}")
