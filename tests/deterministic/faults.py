"""Faults of a simulation: of the network, the API server, the processes, their clocks and what is written to them."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.deterministic import kinds, statuses
from tests.deterministic.network import Call, Event, EventStream, NoFaults, Route
from tests.deterministic.operations import HOSTILE, LEAVES, Operation, claim, job, times
from tests.deterministic.processes import Process
from tests.deterministic.reads import Response
from tests.deterministic.statuses import StatusError
from tests.deterministic.system import NAMESPACE, System

if TYPE_CHECKING:
    from tests.deterministic.objects import Object

_OURS = ("controller-a", "controller-b", "webhook")
_LATEST_EFFECT_SECONDS = 14
"""A write takes effect within the connection timeout and the server's own limit, or never."""

DURATIONS = ((5, 1.0), (30, 0.5), (90, 0.2), (200, 0.05))
"""Seconds of a fault of requests or watches, and how probable it is then."""

Change = Callable[[Call, Route, random.Random], None]


def _error(code: int, reason: str, message: str, seconds: int | None = None) -> Response:
    error = StatusError(code, reason, message, {"retryAfterSeconds": seconds} if seconds is not None else {})
    return Response(error.code, error.status)


def _refuse(_: Call, route: Route, __: random.Random) -> None:
    route.refused = True


def _lose_request(_: Call, route: Route, __: random.Random) -> None:
    route.lost = True


def _lose_answer(_: Call, route: Route, draw: random.Random) -> None:
    route.answer_lost = True
    route.there = draw.uniform(0, 2)


def _delay_request(call: Call, route: Route, draw: random.Random) -> None:
    """The request takes effect late, and its answer is often too late."""
    route.there = draw.uniform(0.5, _LATEST_EFFECT_SECONDS if call.is_write else 40)
    route.back = draw.uniform(0, 4)


def _reset(_: Call, route: Route, draw: random.Random) -> None:
    """The connection breaks after the request took effect."""
    route.reset = True
    route.back = draw.uniform(0, 1)


def _respond(code: int, reason: str, message: str, seconds: int | None = None) -> Change:
    def change(_: Call, route: Route, __: random.Random) -> None:
        route.response = _error(code, reason, message, seconds)

    return change


def _reject_patch(call: Call, route: Route, _: random.Random) -> None:
    """Another admission policy denies a patch: 422 without a failed test."""
    if call.request.method == "PATCH":
        error = statuses.rejected_patch()
        route.response = Response(error.code, error.status)


REQUEST_FAULTS: Mapping[str, Change] = {
    "refused-connection": _refuse,
    "lost-request": _lose_request,
    "lost-answer": _lose_answer,
    "slow-server": _delay_request,
    "reset-connection": _reset,
    "error-401": _respond(401, "Unauthorized", "Unauthorized"),
    "error-403": _respond(403, "Forbidden", "denied by a policy"),
    "error-409": _respond(409, "Conflict", "the object has been modified; please apply your changes"),
    "error-410": _respond(410, "Expired", "The provided continue parameter is too old"),
    "error-422": _reject_patch,
    "error-429": _respond(429, "TooManyRequests", "Too many requests, please try again later.", 1),
    "error-500": _respond(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
    "error-503": _respond(503, "ServiceUnavailable", "apiserver is shutting down"),
    "error-504": _respond(504, "Timeout", "Timeout: request did not complete within requested timeout"),
}
WATCH_FAULTS = (
    "lost-event",
    "duplicate-event",
    "late-event",
    "reordered-event",
    "stalled-watch",
    "cut-watch",
    "truncated-watch",
    "expired-watch",
)


@dataclass(frozen=True)
class _Window:
    """A fault that happens with a probability until a time."""

    name: str
    ends: float
    probability: float
    clients: Sequence[str]
    draw: random.Random


class Faults(NoFaults):
    """The faults of the network that are in force; each occurrence is counted."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._windows: list[_Window] = []
        system.network.faults = self

    def begin(self, name: str, draw: random.Random) -> None:
        """Let the fault *name* happen for some time."""
        now = self._system.loop.time()
        clients = draw.choice((_OURS, _OURS[:2], _OURS[:1], _OURS[1:2]))
        seconds, probability = draw.choice(DURATIONS)
        self._windows.append(_Window(name, now + seconds, probability, clients, draw))

    def end(self) -> None:
        """End all faults."""
        self._windows.clear()

    def _active(self, client: str) -> Iterator[_Window]:
        if not self._windows:
            return
        now = self._system.loop.time()
        self._windows = [window for window in self._windows if window.ends > now]
        yield from (window for window in self._windows if client in window.clients)

    def on_request(self, call: Call, route: Route) -> None:
        for window in self._active(call.client):
            change = REQUEST_FAULTS.get(window.name)
            if change is not None and window.draw.random() < window.probability:
                before = replace(route)
                change(call, route, window.draw)
                if route != before:
                    self._system.occurrences[window.name] += 1
                    return

    def on_events(self, call: Call, stream: EventStream, events: Sequence[Event]) -> Iterable[tuple[float, Event]]:
        active = [window for window in self._active(call.client) if window.name in WATCH_FAULTS]
        if not active or not events or stream.watch.ended:
            return [(0, event) for event in events]
        arriving = [(0.0, event) for event in events]
        for window in active:
            if window.draw.random() < window.probability:
                self._system.occurrences[window.name] += 1
                arriving = self._spoil(window, stream, arriving)
        return arriving

    def _spoil(
        self, window: _Window, stream: EventStream, events: list[tuple[float, Event]]
    ) -> list[tuple[float, Event]]:
        draw, loop = window.draw, self._system.loop
        if window.name == "lost-event":
            return events[:-1]
        if window.name == "duplicate-event":
            return [*events, *events[-1:]]
        if window.name == "late-event":
            return [(draw.uniform(0.5, 20), event) for _, event in events]
        if window.name == "reordered-event":
            return draw.sample(events, len(events)) if len(events) > 1 else [*events, *events]
        if window.name == "stalled-watch":
            stream.is_stalled = True
        elif window.name == "truncated-watch":
            loop.call_soon(stream.truncate)
        elif window.name == "expired-watch":
            stream.watch.end(statuses.expired("too old resource version").status)
        else:
            loop.call_soon(stream.fail, ConnectionResetError("cut"))
        return events


# -- processes, servers, clocks and what is written ---------------------------------------


def _controller(system: System, *, leads: bool) -> Process:
    """Return the process that leads, or does not; where there is none, the first or second one."""
    processes = (item.process for item in system.controllers if item.leads is leads)
    return next(processes, system.controllers[0 if leads else 1].process)


async def _kill(process: Process, draw: random.Random, seconds: Sequence[float]) -> None:
    """Kill a process at a random step, and start it again later."""
    process.kill_after(draw.randint(1, 400))
    await asyncio.sleep(draw.choice(seconds))
    process.kill()
    await asyncio.sleep(0.5)
    process.start()


async def kill_leader(system: System, draw: random.Random) -> None:
    await _kill(_controller(system, leads=True), draw, (2, 20, 60))


async def kill_standby(system: System, draw: random.Random) -> None:
    await _kill(_controller(system, leads=False), draw, (2, 20))


async def freeze_leader(system: System, draw: random.Random) -> None:
    process = _controller(system, leads=True)
    process.freeze()
    await asyncio.sleep(draw.choice((1, 8, 20, 45, 90)))
    process.resume()


async def kill_webhook(system: System, draw: random.Random) -> None:
    await system.webhook.process.stop()
    await asyncio.sleep(draw.choice((1, 10, 40)))
    system.webhook.process.start()


async def slow_webhook(system: System, draw: random.Random) -> None:
    system.webhook.delay = lambda: draw.uniform(0.5, 7)
    await asyncio.sleep(draw.choice((10, 60)))
    system.webhook.delay = lambda: 0.002


async def wrong_webhook(system: System, draw: random.Random) -> None:
    """The webhook answers nonsense."""
    answers = [(500, b"{}"), (200, b"garbage"), (200, b'{"response": {"uid": "other", "allowed": true}}'), (200, b"")]
    system.webhook.fault = lambda answer: draw.choice(answers) if draw.random() < 0.5 else answer
    await asyncio.sleep(draw.choice((5, 30)))
    system.webhook.fault = lambda answer: answer


async def kill_karmada(system: System, draw: random.Random) -> None:
    system.karmada.kill_after(draw.randint(1, 400))
    await asyncio.sleep(draw.choice((2, 15)))
    await system.karmada.stop()
    system.karmada.start()


async def stop_server(system: System, draw: random.Random) -> None:
    """The API server is down for some time; all connections break."""
    system.network.is_listening = False
    system.network.cut()
    await asyncio.sleep(draw.choice((0.5, 5, 40)))
    system.network.is_listening = True


async def compact_store(system: System, draw: random.Random) -> None:
    """Forget all changes and break the watches, so that they resume from an expired version."""
    system.server.expires_as_status = draw.random() < 0.5
    system.server.compact()
    system.network.cut()


async def jump_clock(system: System, draw: random.Random) -> None:
    """Set the wall clock of a process."""
    process = draw.choice(system.processes[1:3])
    process.skew = draw.choice((-600, -30, 30, 600, 0))


async def break_configuration(system: System, draw: random.Random) -> None:
    texts = ("{", "kind: Wrong\n", "", "apiVersion: config.volcano-global.io/v1alpha1\nkind: V\nreclaim: 7\n", "- a\n")
    system.configuration_file.write_text(draw.choice(texts))


async def tamper_webhook(system: System, draw: random.Random) -> None:
    """Weaken the webhook configuration of queues; the one of bindings stays, because without it nothing is gated."""
    for key, configuration in list(system.server.objects(kinds.VALIDATING).items()):
        webhooks = [
            {**webhook, "failurePolicy": draw.choice(("Ignore", "Fail"))} for webhook in configuration["webhooks"]
        ]
        await system.merge(kinds.VALIDATING, key, {"webhooks": webhooks})


_AMOUNTS = ("-1", "1e30", "1Ei", "9" * 40, "abc", "0", "1e-9", "0.0001", "12345678901234567890")


async def write_hostile_object(system: System, draw: random.Random) -> None:
    """Create an object that a careless reader would fail on."""
    await draw.choice(HOSTILE_OBJECTS)(system, draw, f"{HOSTILE}{draw.getrandbits(32):x}")


async def _hostile_amounts(system: System, draw: random.Random, name: str) -> None:
    await system.create(kinds.JOBS, job(name, "default", pods=1, cpu=draw.choice(_AMOUNTS), seconds=10))


async def _hostile_counts(system: System, draw: random.Random, name: str) -> None:
    made = job(name, "default", pods=draw.choice((0, -5, 10**9, 2**63)), cpu="1", seconds=10)
    await system.create(kinds.JOBS, made)


async def _hostile_spec(system: System, draw: random.Random, name: str) -> None:
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    specs: tuple[Any, ...] = (
        {},
        {"tasks": None},
        {"tasks": "x"},
        {"tasks": [{"template": deep}]},
        {"queue": 7, "tasks": []},
        {"queue": "\U0001f40b" * 200, "tasks": [{"name": "a"}]},
        {"tasks": [{"replicas": "1", "template": {"spec": {"containers": [None]}}}]},
    )
    await system.create(kinds.JOBS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": draw.choice(specs)})


async def _hostile_record(system: System, draw: random.Random, name: str) -> None:
    """A job that brings an admission record and HyperJob marks with it."""
    made = job(name, draw.choice(LEAVES), pods=1, cpu="1", seconds=10)
    made["metadata"]["annotations"] |= {
        "volcano-global.io/admission": json.dumps({"uid": "x", "charge": {"cpu": "-100"}, "clusters": ["member1"]}),
        "volcano-global.io/group": '{"uid": "x", "split": []}',
        "volcano-global.io/part": '{"index": 0, "attempt": 0}',
    }
    made["metadata"]["labels"] = {"volcano.sh/hyperjob-name": "other"}
    await system.create(kinds.JOBS, made)


async def _hostile_cluster(system: System, draw: random.Random, name: str) -> None:
    await system.create(kinds.CLUSTERS, {"metadata": {"name": name}, "spec": {"syncMode": "Push"}})
    summary: Any = draw.choice(
        (None, {}, {"allocatable": {"cpu": draw.choice(_AMOUNTS)}}, {"allocated": {"cpu": "5"}}, {"allocatable": 7})
    )
    ready = [{"type": "Ready", "status": "False", "lastTransitionTime": system.timestamp()}]
    await system.merge(
        kinds.CLUSTERS, ("", name), {"status": {"resourceSummary": summary, "conditions": ready}}, "/status"
    )


async def _hostile_queue(system: System, draw: random.Random, name: str) -> None:
    specs: tuple[Object, ...] = (
        {"parent": name},
        {"parent": "absent"},
        {"weight": -1},
        {"capability": {"cpu": draw.choice(_AMOUNTS)}},
        {"deserved": {"cpu": "1e400"}, "guarantee": {"resource": {"x" * 300: "1"}}},
    )
    await system.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": draw.choice(specs)})


async def _hostile_hyperjob(system: System, draw: random.Random, name: str) -> None:
    specs: tuple[Any, ...] = (
        {},
        {"replicatedJobs": []},
        {"replicatedJobs": [{"name": "x", "replicas": 0, "templateSpec": {"tasks": []}}]},
        {"replicatedJobs": [{"name": "x", "replicas": 10**7, "templateSpec": {"tasks": [{"name": "w"}]}}]},
        {"replicatedJobs": None},
    )
    metadata = {"name": name, "namespace": NAMESPACE}
    await system.create(kinds.HYPERJOBS, {"metadata": metadata, "spec": draw.choice(specs)})


async def _hostile_claim(system: System, draw: random.Random, name: str) -> None:
    made = claim(name, "only-member1", kinds.JOBS)
    specs: tuple[Any, ...] = (
        None,
        {},
        {**made["spec"], "system": 7},
        {**made["spec"], "workload": None},
        {**made["spec"], "workload": {**made["spec"]["workload"], "namespace": "default"}},
        {**made["spec"], "dataSourceName": "\U0001f40b" * 600},
        {**made["spec"], "attributes": {str(number): "x" for number in range(100)}},
    )
    await system.create(kinds.DATA_SOURCE_CLAIMS, {**made, "spec": draw.choice(specs)})


HOSTILE_OBJECTS: Sequence[Callable[[System, random.Random, str], Awaitable[None]]] = (
    _hostile_amounts,
    _hostile_counts,
    _hostile_spec,
    _hostile_record,
    _hostile_cluster,
    _hostile_queue,
    _hostile_hyperjob,
    _hostile_claim,
)

SYSTEM_FAULTS: Mapping[str, Callable[[System, random.Random], Awaitable[None]]] = {
    "killed-leader": kill_leader,
    "killed-standby": kill_standby,
    "frozen-leader": freeze_leader,
    "killed-webhook": kill_webhook,
    "slow-webhook": slow_webhook,
    "wrong-webhook": wrong_webhook,
    "killed-karmada": kill_karmada,
    "stopped-server": stop_server,
    "compacted-store": compact_store,
    "clock-jump": jump_clock,
    "bad-configuration": break_configuration,
    "tampered-webhook": tamper_webhook,
    "hostile-object": write_hostile_object,
}


def script(draw: random.Random, begin: float, end: float) -> list[Operation]:
    """Return the faults between *begin* and *end*: in 1,000 hours at least 1,000 of each kind."""
    rates = {
        **dict.fromkeys(REQUEST_FAULTS, 3.0),
        **dict.fromkeys(WATCH_FAULTS, 4.0),
        **dict.fromkeys(SYSTEM_FAULTS, 3.5),
        "killed-leader": 5.0,
        "hostile-object": 6.0,
    }
    return [
        Operation(at, name, draw.getrandbits(48))
        for name, per_hour in rates.items()
        for at in times(draw, per_hour, begin, end)
    ]
