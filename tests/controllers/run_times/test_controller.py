import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from controller.api.configuration import load_configuration
from controller.api.keys import RUN_TIMES_KEY
from controller.cache.store import Store
from controller.controllers.run_times.controller import RunTimesController
from controller.engine.engine import Engine
from controller.forecast.codec import decode_run_times, encode_run_times
from controller.forecast.profiles import finished_runs
from controller.forecast.run_times import JobProfile, Outcome, Run, RunHistory, keys_of
from tests.cache import objects
from tests.controllers.memory import Traffic, connect, memory_server
from tests.deterministic.objects import CONFIGMAPS
from tests.deterministic.worlds import send
from tests.virtual_time import virtual_time

STARTED = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
NOW = int(datetime(2026, 1, 2, 4, 0, tzinfo=UTC).timestamp() * 1000)
PATH = "/api/v1/namespaces/karmada-system/configmaps/volcano-global-run-times"
HALF_PAST = "2026-01-02T03:30:00Z"


class World:
    """A controller with its cache, on an API server in memory."""

    def __init__(self, stored: str | None = None):
        self.server, self.traffic = memory_server([CONFIGMAPS], lambda: 0), Traffic(is_instant=True)
        send(self.server, "POST", "/api/v1/namespaces", {"metadata": {"name": "karmada-system"}})
        if stored is not None:
            body = {"metadata": {"name": "volcano-global-run-times"}, "data": {RUN_TIMES_KEY: stored}}
            send(self.server, "POST", PATH.rpartition("/")[0], body)
        self.leads = True
        self.store = store = objects.complete_store()
        self.controller = RunTimesController(
            connect(self.server, self.traffic), store, "karmada-system", may_write=lambda: self.leads, clock=lambda: NOW
        )
        self.controller.write_interval_seconds = 60
        store.on_binding.append(self.controller.on_binding)

    def binding(self, name: str = "j1", **more):
        record = objects.admission_record(
            f"rb-{name}", queue="a", charge={"cpu": "1"}, clusters=("m1",), admitted_at=STARTED
        )
        raw = objects.binding(name, **{"paused": False, "clusters": ["m1"], "record": record, **more})
        self.store.bindings.upsert(self.store.bindings.decode(raw))

    def job(self, name: str = "j1", **more):
        self.store.jobs.upsert(self.store.jobs.decode(objects.job(name, **more)))

    def run_of(self, name: str = "j1", phase="Completed"):
        self.job(name)
        self.binding(name, phases={"m1": "Running"})
        self.binding(name, phases={"m1": phase})

    @property
    def document(self) -> str:
        stored = send(self.server, "GET", PATH).body
        managers = {entry["manager"] for entry in self.server.managed_fields(stored["metadata"]["uid"])}
        assert "volcano-global-run-times" in managers
        return stored["data"][RUN_TIMES_KEY]

    @property
    def writes(self) -> int:
        return len(self.traffic.writes)

    def runs(self, *, evicted=False) -> list[Run]:
        digest = self.store.jobs.decode(objects.job("j1")).requests.digest
        histories = dict(decode_run_times(self.document)[0])
        history = histories.get(keys_of(JobProfile("a", "ml", digest))[0], RunHistory())
        return list(history.evicted if evicted else history.runs)


@asynccontextmanager
async def running(world: World):
    task = asyncio.create_task(world.controller.run())
    world.controller.on_leading()
    await asyncio.sleep(0.01)
    yield
    await asyncio.sleep(70)
    task.cancel()


@pytest.mark.parametrize(
    ("stored", "phase", "run"),
    [
        pytest.param(None, "Completed", Run(3600), id="completed"),
        pytest.param(None, "Failed", Run(3600, Outcome.FAILED), id="failed"),
        pytest.param("{", "Completed", Run(3600), id="unreadable"),
    ],
)
@virtual_time
async def test_observed_end_is_stored(stored, phase, run):
    world = World(stored)
    async with running(world):
        world.run_of(phase=phase)
    assert (world.runs(), world.writes) == ([run], 1)
    run_times, until = decode_run_times(world.document)
    assert (encode_run_times(run_times, until).decode(), until) == (world.document, NOW)


@virtual_time
async def test_failed_write_is_repeated_without_another_end():
    world = World()
    world.traffic.fail_before = 0
    async with running(world):
        world.run_of()
    assert (world.runs(), world.writes) == ([Run(3600)], 2)


@virtual_time
async def test_evicted_run_is_stored_apart():
    world = World()
    async with running(world):
        world.job()
        world.binding(phases={"m1": "Running"})
        world.binding(paused=True, clusters=[], record=objects.admission_record("rb-j1", queue="a", evictions=1))
    assert world.runs() == []
    assert world.runs(evicted=True) == [Run(3600, Outcome.EVICTED)]


@virtual_time
async def test_admission_that_ends_before_a_start_is_no_run():
    """It shows nothing of the run time; a few failed starts would make it look many times longer."""
    world = World()
    async with running(world):
        world.job()
        world.binding(phases={"m1": "Pending"})
        world.binding(paused=True, clusters=[], record=objects.admission_record("rb-j1", queue="a", attempts=1))
    assert world.writes == 0


@virtual_time
async def test_runs_that_a_new_rule_calls_finished_are_not_learned():
    world = World()
    rule = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, finished: {path: state.phase, values: [Running]}}"
    async with running(world):
        world.job()
        world.binding(version=7, phases={"m1": "Running"})
        assert world.store.configure(load_configuration(f"integrations: [{rule}]"))
        world.binding(version=7, phases={"m1": "Running"})
    assert world.writes == 0


@virtual_time
async def test_nothing_is_written_by_a_standby_or_before_an_end():
    world = World()
    async with running(world):
        world.job()
        world.binding(phases={"m1": "Pending"})
        world.binding(phases={"m1": "Running"})
    world.leads = False
    async with running(world):
        world.run_of("j2")
    assert world.writes == 0


@virtual_time
async def test_nothing_is_written_once_the_lease_is_lost():
    world = World()

    def lose(_: object) -> None:
        world.leads = False

    world.traffic.error = lose
    async with running(world):
        world.run_of()
    assert world.writes == 0


@virtual_time
async def test_ends_of_one_minute_are_written_together():
    world = World()
    async with running(world):
        for number in range(50):
            world.run_of(f"j{number}")
            await asyncio.sleep(1)
        assert world.writes == 1
    assert (world.writes, len(world.runs())) == (2, 24)


@virtual_time
async def test_new_leader_adds_what_finished_since_to_what_was_stored():
    first = World()
    first.job()
    first.binding(phases={"m1": "Completed"}, since=HALF_PAST)
    async with running(first):
        pass
    assert first.runs() == [Run(1800)]
    second = World(first.document)
    second.job()
    second.binding(phases={"m1": "Completed"}, since=HALF_PAST)
    async with running(second):
        pass
    assert second.writes == 0
    async with running(second):
        second.run_of("j2")
    assert second.runs() == [Run(1800), Run(3600)]


@pytest.mark.parametrize(
    ("spec", "ends"), [pytest.param({"runningEstimate": "1h"}, 0, id="estimate"), pytest.param({}, 4, id="four-runs")]
)
@virtual_time
async def test_run_time_of_a_pending_workload_becomes_known(spec, ends):
    world = World()
    world.store.with_run_time = world.controller.with_run_time
    world.job("waits", spec=spec)
    world.binding("waits", paused=True, clusters=[], record=None)
    engine = Engine()
    world.store.sync_to(engine, NOW)
    [waits] = engine.workloads.values()
    async with running(world):
        for number in range(ends):
            world.run_of(f"j{number}")
    world.store.sync_to(engine, NOW)
    assert (waits.run_time_ms, engine.workloads[waits.uid].run_time_ms is None) == (None, False)


def test_estimate_and_accelerators_are_part_of_the_profile():
    world = World()
    world.job(requests={"nvidia.com/gpu": "8"}, spec={"runningEstimate": "1h30m"})
    world.binding(phases={"m1": "Completed"}, since=HALF_PAST)
    [(_, profile, run)] = finished_runs(world.store)
    assert (profile.accelerators, profile.estimate, run) == ("nvidia.com/gpu=8000", 5400, Run(1800, estimate=5400))


def test_template_digest_leaves_names_out():
    first, renamed, larger = (
        Store().jobs.decode(objects.job(name, replicas=replicas)).requests.digest
        for name, replicas in (("a", 1), ("b", 1), ("a", 2))
    )
    assert first == renamed != larger
