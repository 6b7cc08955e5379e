"""How the actuator handles every response, and none."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import WorkloadUid
from controller.kube.client import Api, Timeouts
from controller.kube.timing import Backoff
from controller.reporting.metrics import ControllerMetrics
from controller.scheduling.actuator import Actuator, RateLimiter, RateLimits
from controller.scheduling.writes import Write
from tests.cache.fake_event_handler import upsert
from tests.cache.objects import binding, raw
from tests.scripted_server import ScriptedServer, answering, cut, refusing, scripted_server, silent
from tests.virtual_time import virtual_time
from tests.waiting import LIMIT_SECONDS, poll


def path(uid: str) -> str:
    return f"/bindings/{uid}"


def stored(name: str = "u1", *, uid: str = "", version: int = 5, paused: bool = True) -> dict[str, Any]:
    return json.loads(binding(name, uid=uid or name, version=version, paused=paused))


def placed(phase: str, *, version: int) -> bytes:
    """Return a binding that is placed in a cluster which reports *phase*."""
    return binding("u1", uid="u1", version=version, paused=False, clusters=["m"], phases={"m": phase})


class RecordingStore(Store):
    """A store that records how writes end."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed: list[tuple[str, int]] = []
        self.rolled_back: list[tuple[str, Refusal | None]] = []
        self.changed = asyncio.Event()

    def confirm(self, uid: WorkloadUid, resource_version: int) -> None:
        super().confirm(uid, resource_version)
        self.confirmed.append((uid, resource_version))
        self.changed.set()

    def roll_back(self, uid: WorkloadUid, refusal: Refusal | None) -> None:
        super().roll_back(uid, refusal)
        self.rolled_back.append((uid, refusal))
        self.changed.set()

    async def wait_for_outcomes(self, count: int = 1) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(self.confirmed) + len(self.rolled_back) < count:
                self.changed.clear()
                await self.changed.wait()


class ActuatorHarness:
    """An actuator with its dependencies."""

    def __init__(self, api: Api) -> None:
        self.store, self.metrics = RecordingStore(), ControllerMetrics()
        self.leading = asyncio.Event()
        self.leading.set()
        self.actuator = Actuator(api, self.store, metrics=self.metrics, may_write=self.leading.is_set)
        self.actuator.retries = partial(Backoff, initial=0.02, maximum=0.02)

    def admit(self, uid: str = "u1", *, resource_version: int = 5) -> None:
        self.actuator.submit(Write("admit", WorkloadUid(uid), path(uid), b"[]", resource_version, f"Job ns/{uid}"))

    def evict(self, uid: str = "u1", *, unless_run: bool = False) -> None:
        path_of, workload = path(uid), f"Job ns/{uid}"
        self.actuator.submit(Write("evict", WorkloadUid(uid), path_of, b"[]", 5, workload, unless_run=unless_run))


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


DEFAULT_TIMEOUTS, SHORT_TIMEOUTS = Timeouts(), Timeouts(write=0.15, grace=0.05)


@asynccontextmanager
async def acting(
    server: ScriptedServer, tmp_path: Path, timeouts: Timeouts = DEFAULT_TIMEOUTS
) -> AsyncIterator[ActuatorHarness]:
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig"), timeouts=timeouts) as api:
        harness = ActuatorHarness(api)
        async with asyncio.TaskGroup() as group:
            group.create_task(harness.actuator.run())
            yield harness
            harness.actuator.stop()


async def test_response_of_an_observed_write_is_not_decoded(server, tmp_path):
    server.says("PATCH", path("u1"), answering(200, stored(version=9, paused=False)))
    confirmed = []
    async with acting(server, tmp_path) as harness:
        upsert(harness.store, ("bindings", raw(stored(version=9, paused=False))))
        known = harness.store.binding("u1")
        harness.actuator.on_write_confirmed.append(lambda _, facts: confirmed.append(facts))
        harness.admit(resource_version=5)
        await harness.store.wait_for_outcomes()
    assert confirmed[0] is known
    assert harness.store.confirmed == [("u1", 9)]


async def test_rejected_patch_backs_off_longer_each_time(server, tmp_path):
    server.says("PATCH", path("u1"), refusing(422, "denied by a policy"))
    server.says("GET", path("u1"), answering(200, stored(version=5)))
    delays = []
    async with acting(server, tmp_path) as harness:
        for times in range(1, 6):
            before = time.time_ns() // 1_000_000
            harness.admit(resource_version=5)
            await harness.store.wait_for_outcomes(times)
            refusal = harness.store.rolled_back[-1][1]
            assert refusal.reason is Reason.STARTUP_BACKOFF
            delays.append(refusal.until - before)
    assert delays[0] >= 1000
    assert all(later > earlier for earlier, later in zip(delays[::2], delays[2::2], strict=False))
    assert delays[-1] > 10_000


PAUSED, RESUMED = answering(200, stored(version=6)), answering(200, stored(version=7, paused=False))
RECREATED = answering(200, stored("u1", uid="u2", version=9, paused=False))
IS_READ = [refusing(503), RESUMED]


@pytest.mark.parametrize(
    ("patch_answers", "get_answers", "confirmed", "cached"),
    [
        pytest.param([RESUMED], [], True, ("u1", 7), id="written"),
        pytest.param([refusing(429, retry_after=0.2), RESUMED], [], True, ("u1", 7), id="throttled-and-sent-again"),
        pytest.param([refusing(422)], [PAUSED], False, ("u1", 6), id="conflict"),
        pytest.param([refusing(422)], [RESUMED], True, ("u1", 7), id="rejected-with-its-effect-in-place"),
        *(pytest.param([refusing(status)], [], False, None, id=str(status)) for status in (400, 401, 403, 404)),
        pytest.param([silent], IS_READ, True, ("u1", 7), id="timeout"),
        pytest.param([cut], IS_READ, True, ("u1", 7), id="cut"),
        pytest.param([refusing(500)], IS_READ, True, ("u1", 7), id="internal-error"),
        pytest.param([refusing(504)], IS_READ, True, ("u1", 7), id="gateway-timeout"),
        pytest.param([answering(200, "<html>")], IS_READ, True, ("u1", 7), id="not-a-binding"),
        pytest.param([refusing(500)], [refusing(404)], False, None, id="deleted-meanwhile"),
        pytest.param([refusing(500)], [RECREATED], False, ("u2", 9), id="recreated-meanwhile"),
    ],
)
async def test_write_is_confirmed_or_rolled_back(server, tmp_path, *, patch_answers, get_answers, confirmed, cached):
    server.says("PATCH", path("u1"), *patch_answers)
    server.says("GET", path("u1"), *get_answers)
    async with acting(server, tmp_path, SHORT_TIMEOUTS if silent in patch_answers else DEFAULT_TIMEOUTS) as harness:
        began = time.monotonic()
        harness.admit()
        await harness.store.wait_for_outcomes()
        assert time.monotonic() - began >= 0.2 * (len(patch_answers) - 1)
    assert harness.store.confirmed == ([cached] if confirmed else [])
    assert [uid for uid, _ in harness.store.rolled_back] == ([] if confirmed else ["u1"])
    assert [(cached_binding.uid, cached_binding.resource_version) for cached_binding in harness.store.bindings] == (
        [cached] if cached else []
    )
    assert (len(server.seen("PATCH")), len(server.seen("GET"))) == (len(patch_answers), len(get_answers))


async def test_binding_is_read_after_a_response_that_fails_to_decode(server, tmp_path, monkeypatch):
    server.says("PATCH", path("u1"), RESUMED)
    server.says("GET", path("u1"), RESUMED)
    async with acting(server, tmp_path) as harness:
        decode, failures = harness.store.bindings.decode, [TypeError("unhashable type: 'list'")]

        def fail_once(body: bytes) -> CachedBinding:
            if failures:
                raise failures.pop()
            return decode(body)

        monkeypatch.setattr(harness.store.bindings, "decode", fail_once)
        harness.admit()
        await harness.store.wait_for_outcomes()
    assert (harness.store.confirmed, len(server.seen("GET"))) == ([("u1", 7)], 1)


async def test_unknown_outcome_stays_charged_until_write_timeout(server, tmp_path):
    server.says("PATCH", path("u1"), cut)
    server.says("GET", path("u1"), answering(200, stored(version=5)))
    async with acting(server, tmp_path, SHORT_TIMEOUTS) as harness:
        began = time.monotonic()
        harness.admit()
        await harness.store.wait_for_outcomes()
        assert time.monotonic() - began >= 0.2
    assert len(harness.store.rolled_back) == 1
    assert len(server.seen("GET")) > 1


@pytest.mark.parametrize(
    ("uids", "most_at_once"),
    [
        pytest.param([f"u{number}" for number in range(10)], 3, id="in-flight-limit"),
        pytest.param(["u1"] * 3, 1, id="one-at-a-time-for-one-binding"),
    ],
)
async def test_requests_in_flight_stay_within_limit(server, tmp_path, uids, most_at_once):
    now, most = 0, 0

    async def counted(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return await answering(200, stored(request.path.rpartition("/")[2], paused=False))(request)

    async with acting(server, tmp_path) as harness:
        harness.actuator.limit(RateLimits(in_flight=3))
        for uid in uids:
            server.says("PATCH", path(uid), counted)
            harness.admit(uid)
        await harness.store.wait_for_outcomes(len(uids))
    assert most == most_at_once
    assert len(server.seen("PATCH")) == len(uids)


@pytest.mark.parametrize(("burst", "expected"), [(1, [1, 1, 1]), (8, [8, 4, 8])])
@virtual_time
async def test_burst_is_sent_at_once_after_a_pause(burst, expected):
    limiter = RateLimiter(lambda: None)
    limiter.limits = RateLimits(in_flight=100, per_second=4, burst=burst)
    sent = []
    for pause in (0, 1, 60):
        await asyncio.sleep(pause)
        sent.append(next(number for number in range(100) if not limiter.try_acquire()))
    assert sent == expected


@virtual_time
async def test_writes_after_a_burst_follow_at_the_rate():
    sent = []
    limiter = RateLimiter(lambda: sent.extend(time.monotonic() for _ in range(100) if limiter.try_acquire()))
    limiter.limits = RateLimits(in_flight=20, per_second=4, burst=8)
    while limiter.try_acquire():
        pass
    began = time.monotonic()
    await asyncio.sleep(2)
    assert [at - began for at in sent] == pytest.approx([0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2])


@pytest.mark.parametrize(("per_second", "expected"), [(0, 256), (1, 32), (50, 50), (1000, 256)])
async def test_decisions_are_about_a_second_ahead_of_a_limited_rate(server, tmp_path, per_second, expected):
    async with acting(server, tmp_path) as harness:
        harness.actuator.limit(RateLimits(per_second=per_second))
        assert harness.actuator.max_backlog == expected


async def test_standby_writes_nothing_and_rolls_back(server, tmp_path):
    async with acting(server, tmp_path) as harness:
        harness.leading.clear()
        harness.admit()
        await harness.store.wait_for_outcomes()
    assert harness.store.rolled_back == [("u1", None)]
    assert not server.requests


def hold_patch(server):
    """Answer the patch of u1 only when the second event is set; the first one is set when it arrives."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def held(request):
        arrived.set()
        await go_on.wait()
        return await answering(200, stored(paused=False))(request)

    server.says("PATCH", path("u1"), held)
    return arrived, go_on


async def test_lost_leadership_drops_unsent_and_finishes_sent_writes(server, tmp_path):
    arrived, go_on = hold_patch(server)
    async with acting(server, tmp_path) as harness:
        harness.actuator.limit(RateLimits(in_flight=1))
        for uid in ("u1", "u2", "u2", "u3"):
            harness.admit(uid)
        await arrived.wait()
        harness.leading.clear()
        harness.actuator.drop_unsent()
        assert not harness.actuator.is_drained
        assert harness.store.rolled_back == [("u2", None), ("u3", None)]
        go_on.set()
        await harness.store.wait_for_outcomes(3)
        assert harness.actuator.in_progress == 0
    assert harness.store.confirmed == [("u1", 5)]
    assert harness.actuator.is_drained
    assert len(server.seen("PATCH")) == 1


async def test_retry_is_dropped_after_another_leader(server, tmp_path):
    """The other leader may have given the capacity to another workload."""
    server.says("PATCH", path("u1"), refusing(429, retry_after=0.2), answering(200, stored(version=7, paused=False)))
    async with acting(server, tmp_path) as harness:
        upsert(harness.store, ("bindings", raw(stored())))
        harness.admit()
        await poll(lambda: len(server.seen("PATCH")) == 1, "sent")
        harness.leading.clear()
        harness.actuator.drop_unsent()
        harness.leading.set()
        await harness.store.wait_for_outcomes()
    assert (harness.store.rolled_back, len(server.seen("PATCH"))) == ([("u1", None)], 1)


@pytest.mark.parametrize(
    ("phase", "unless_run", "is_sent"),
    [
        pytest.param("Running", False, True, id="running"),
        pytest.param("Completed", False, False, id="finished"),
        pytest.param("Pending", True, True, id="not-started"),
        pytest.param("Running", True, False, id="started-late"),
    ],
)
async def test_retried_eviction_leaves_a_finished_or_started_job(server, tmp_path, *, phase, unless_run, is_sent):
    """A finished job would run again, and one that has run is not taken back because it did not start (R1)."""
    server.says("PATCH", path("u1"), refusing(429, retry_after=0.2), answering(200, stored(version=7)))
    async with acting(server, tmp_path) as harness:
        upsert(harness.store, ("bindings", placed("Pending", version=5)))
        harness.evict(unless_run=unless_run)
        await poll(lambda: len(server.seen("PATCH")) == 1, "sent")
        upsert(harness.store, ("bindings", placed(phase, version=6)))
        await harness.store.wait_for_outcomes()
    assert len(server.seen("PATCH")) == (2 if is_sent else 1)
    assert harness.store.rolled_back == ([] if is_sent else [("u1", None)])


async def test_write_behind_another_is_dropped_after_another_leader(server, tmp_path):
    arrived, go_on = hold_patch(server)
    async with acting(server, tmp_path) as harness:
        upsert(harness.store, ("bindings", raw(stored())))
        harness.admit()
        harness.admit()
        await arrived.wait()
        harness.leading.clear()
        harness.actuator.drop_unsent()
        harness.leading.set()
        go_on.set()
        await harness.store.wait_for_outcomes(2)
    assert (harness.store.confirmed, harness.store.rolled_back) == ([("u1", 5)], [("u1", None)])
    assert len(server.seen("PATCH")) == 1


async def test_end_of_a_rejected_nomination_is_not_written(server, tmp_path):
    server.says("PATCH", path("u1"), answering(422, {"reason": "Invalid"}), answering(200, stored(version=7)))
    async with acting(server, tmp_path) as harness:
        upsert(harness.store, ("bindings", raw(stored())))
        for recorded in ("m1", ""):
            harness.actuator.submit(
                Write("hold", WorkloadUid("u1"), path("u1"), b"[]", 5, "Job ns/u1", recorded=recorded)
            )
        await harness.store.wait_for_outcomes(2)
    assert len(server.seen("PATCH")) == 1
    assert harness.store.confirmed == []


async def test_stop_finishes_requests_in_flight(server, tmp_path):
    arrived, go_on = hold_patch(server)
    async with acting(server, tmp_path) as harness:
        harness.actuator.limit(RateLimits(in_flight=1))
        harness.admit("u1")
        harness.admit("u2")
        await arrived.wait()
        harness.actuator.stop()
        go_on.set()
    assert harness.store.confirmed == [("u1", 5)]
    assert len(server.seen("PATCH")) == 1


async def test_cancelled_request_is_never_drained(server, tmp_path):
    """Releasing the lease now would allow two concurrent writers."""
    server.says("PATCH", path("u1"), silent)
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        harness = ActuatorHarness(api)
        acting = asyncio.create_task(harness.actuator.run())
        harness.admit()
        async with asyncio.timeout(LIMIT_SECONDS):
            while not server.requests:  # noqa: ASYNC110 -- the scripted server gives no event
                await asyncio.sleep(0.01)
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)
    assert not harness.actuator.is_drained


async def test_unreachable_server_keeps_decision_charged(tmp_path):
    async with scripted_server() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    async with Api.connect(kubeconfig) as api:
        harness = ActuatorHarness(api)
        async with asyncio.TaskGroup() as group:
            group.create_task(harness.actuator.run())
            harness.admit()
            await asyncio.sleep(0.1)
            assert harness.actuator.in_progress == 1
            assert not harness.store.rolled_back
            harness.actuator.stop()
