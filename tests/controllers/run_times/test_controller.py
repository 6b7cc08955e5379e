import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from controller.api.keys import RUN_TIMES_KEY
from controller.cache.store import Store
from controller.controllers.run_times.controller import RunTimesController
from controller.forecast.codec import decode_run_times, encode_run_times
from controller.forecast.profiles import finished_runs
from controller.forecast.run_times import JobProfile, Outcome, Run, RunTimes
from controller.kube.errors import NotFound
from tests.cache import objects
from tests.virtual_time import virtual_time

STARTED = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
NOW = int(datetime(2026, 1, 2, 4, 0, tzinfo=UTC).timestamp() * 1000)
PATH = "/api/v1/namespaces/karmada-system/configmaps/volcano-global-run-times"


@dataclass
class FakeApi:
    """Stores one ConfigMap."""

    stored: bytes | None = None
    writes: list[bytes] = field(default_factory=list)

    async def get(self, path: str) -> bytes:
        assert path == PATH
        if self.stored is None:
            raise NotFound(f"GET {path}", 404, "not found")
        return self.stored

    async def apply(self, path: str, body: bytes, *, field_manager: str) -> bytes:
        assert (path, field_manager) == (PATH, "volcano-global-run-times")
        self.stored = body
        self.writes.append(body)
        return body


class World:
    def __init__(self, api: FakeApi):
        self.api = api
        self.leads = True
        self.store = Store()
        for collection in (
            self.store.bindings,
            self.store.cluster_bindings,
            self.store.queues,
            self.store.clusters,
            self.store.priority_classes,
            self.store.jobs,
        ):
            collection.replace([])
        self.controller = RunTimesController(
            api, self.store, "karmada-system", may_write=lambda: self.leads, clock=lambda: NOW
        )
        self.controller.write_interval_seconds = 0.05
        self.store.on_binding.append(self.controller.on_binding)

    def binding(self, name: str = "j1", **more):
        record = objects.admission_record(
            f"rb-{name}", queue="a", charge={"cpu": "1"}, clusters=("m1",), admitted_at=STARTED
        )
        raw = objects.binding(name, **{"paused": False, "clusters": ["m1"], "record": record, **more})
        self.store.bindings.upsert(self.store.bindings.decode(raw))

    def job(self, name: str = "j1", **more):
        self.store.jobs.upsert(self.store.jobs.decode(objects.job(name, **more)))

    def run_of(self, name: str = "j1", **phases):
        self.job(name)
        self.binding(name, phases={"m1": "Running"})
        self.binding(name, phases={"m1": phases.get("phase", "Completed")})

    @property
    def learned(self) -> RunTimes:
        return decode_run_times(json.loads(self.api.stored)["data"][RUN_TIMES_KEY])[0]

    def runs(self, name: str = "j1", *, evicted=False) -> list[Run]:
        digest = self.store.jobs.decode(objects.job(name)).requests.digest
        history = self.learned.history(JobProfile("a", "ml", digest))
        return list(history.evicted if evicted else history.runs)


@asynccontextmanager
async def running(world: World):
    task = asyncio.create_task(world.controller.run())
    world.controller.on_leading()
    await asyncio.sleep(0.01)
    yield
    await asyncio.sleep(0.2)
    task.cancel()


@virtual_time
async def test_observed_end_is_stored():
    world = World(FakeApi())
    async with running(world):
        world.run_of()
    assert world.runs() == [Run(3600)]
    assert len(world.api.writes) == 1


@virtual_time
async def test_failed_run_is_stored_as_failed():
    world = World(FakeApi())
    async with running(world):
        world.run_of(phase="Failed")
    assert world.runs() == [Run(3600, Outcome.FAILED)]


@virtual_time
async def test_evicted_run_is_stored_apart():
    world = World(FakeApi())
    async with running(world):
        world.job()
        world.binding(phases={"m1": "Running"})
        world.binding(paused=True, clusters=[], record=objects.admission_record("rb-j1", queue="a", evictions=1))
    assert world.runs() == []
    assert world.runs(evicted=True) == [Run(3600, Outcome.EVICTED)]


@virtual_time
async def test_nothing_is_written_while_nothing_ends():
    world = World(FakeApi())
    async with running(world):
        world.job()
        world.binding(phases={"m1": "Pending"})
        world.binding(phases={"m1": "Running"})
    assert world.api.writes == []


@virtual_time
async def test_many_ends_are_written_together():
    world = World(FakeApi())
    world.controller.write_interval_seconds = 60
    async with running(world):
        for number in range(50):
            world.run_of(f"j{number}")
    assert len(world.api.writes) == 1
    assert len(world.runs()) == 24


@virtual_time
async def test_new_leader_adds_to_what_was_stored():
    first = World(FakeApi())
    async with running(first):
        first.run_of()
    second = World(first.api)
    async with running(second):
        second.run_of("j2")
    assert second.runs() == [Run(3600), Run(3600)]


@virtual_time
async def test_new_leader_learns_what_finished_before():
    world = World(FakeApi())
    world.job()
    world.binding(phases={"m1": "Completed"}, since="2026-01-02T03:30:00Z")
    async with running(world):
        pass
    assert world.runs() == [Run(1800)]
    again = World(world.api)
    again.job()
    again.binding(phases={"m1": "Completed"}, since="2026-01-02T03:30:00Z")
    async with running(again):
        pass
    assert len(world.api.writes) == 1


@virtual_time
async def test_standby_neither_learns_nor_writes():
    world = World(FakeApi())
    world.leads = False
    async with running(world):
        world.run_of()
    assert world.api.writes == []


@virtual_time
async def test_unreadable_store_is_replaced():
    world = World(FakeApi(json.dumps({"data": {RUN_TIMES_KEY: "{"}}).encode()))
    async with running(world):
        world.run_of()
    assert world.runs() == [Run(3600)]


@virtual_time
async def test_stored_text_is_what_the_codec_writes():
    world = World(FakeApi())
    async with running(world):
        world.run_of()
    manifest = json.loads(world.api.stored)
    assert manifest["metadata"] == {"name": "volcano-global-run-times", "namespace": "karmada-system"}
    run_times, until = decode_run_times(manifest["data"][RUN_TIMES_KEY])
    assert encode_run_times(run_times, until).decode() == manifest["data"][RUN_TIMES_KEY]
    assert until == NOW


def test_estimate_and_accelerators_are_part_of_the_profile():
    world = World(FakeApi())
    world.job(requests={"nvidia.com/gpu": "8"}, spec={"runningEstimate": "1h30m"})
    world.binding(phases={"m1": "Completed"}, since="2026-01-02T03:30:00Z")
    [(_, profile, run)] = finished_runs(world.store)
    assert (profile.accelerators, profile.estimate, run) == ("nvidia.com/gpu=8000", 5400, Run(1800, estimate=5400))


def test_template_digest_leaves_names_out():
    store = Store()
    first, renamed, larger = (
        store.jobs.decode(objects.job(name, replicas=replicas)).requests.digest
        for name, replicas in (("a", 1), ("b", 1), ("a", 2))
    )
    assert first == renamed != larger
