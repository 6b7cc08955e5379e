"""The processes of a simulation: the product's controller and webhook, and the stand-in for Karmada.

Each is the code that runs in production, without its ports, signals and certificates.
"""

import asyncio
import contextvars
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from controller.__main__ import Controller
from controller.kube.client import Api, Timeouts
from controller.kube.config_file import ConfigurationFile
from controller.kube.kubeconfig import ApiServerAccess
from controller.settings import ControllerSettings
from localup.karmada.settings import StandInSettings
from localup.karmada.standin import StandIn
from tests.deterministic.clock import PROCESS, ProcessState, SimulatedProcess, VirtualLoop
from tests.deterministic.network import MemorySession, Network
from webhook.app import App, Configuration, admission_handlers
from webhook.queue_cache import QueueCache
from webhook.settings import WebhookSettings
from webhook.watchers import ControlPlaneWatcher, PublishedBundle

T = TypeVar("T")
URL_OF_SERVER = "http://apiserver"
_RESTART_SECONDS = 10
_ACCESS = ApiServerAccess(URL_OF_SERVER, None, None, None, None)

Report = Callable[[str], None]
"""Called with what went wrong."""


def client(network: Network, process: str, *, user_agent: str, timeouts: Timeouts | None = None) -> Api:
    """Return the product's client for one process, connected to the in-memory server."""
    session: Any = MemorySession(network, process, user_agent)
    return Api(_ACCESS, session, timeouts=timeouts or Timeouts())


class Process:
    """A process that can be started, killed at any step, frozen and continued."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]], *, failed: Report) -> None:
        self.name = name
        self._main = main
        self._failed = failed
        self._simulated = SimulatedProcess(name, state=ProcessState.DEAD)
        self._task: asyncio.Task[None] | None = None
        self._context = contextvars.Context()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def context(self) -> contextvars.Context:
        """The context of its tasks."""
        return self._context

    @property
    def skew(self) -> float:
        """The difference of its wall clock, in seconds."""
        return self._simulated.skew

    @skew.setter
    def skew(self, seconds: float) -> None:
        self._simulated.skew = seconds

    def start(self) -> None:
        """Start it, unless it is running."""
        if self.is_running:
            return
        simulated = self._simulated = SimulatedProcess(self.name, skew=self.skew)
        self._context = contextvars.Context()
        self._context.run(PROCESS.set, simulated)
        self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)
        self._task.add_done_callback(lambda _: self._on_end(simulated), context=contextvars.Context())

    async def _run(self) -> None:
        try:
            await self._main()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- any failure ends the process, and is reported
            self._failed(f"process {self.name} ended: {_describe(error)}")

    @staticmethod
    def _on_end(simulated: SimulatedProcess) -> None:
        simulated.engine = ProcessState.DEAD

    def kill_after(self, steps: int) -> None:
        """Kill it after that number of its steps: between any two awaits."""
        self._simulated.steps_left = steps
        self._simulated.on_last_step = self.kill

    def kill(self) -> None:
        """Kill it: nothing that it does from now on has an effect."""
        self.resume()
        self._simulated.is_killed = True
        if self._task is not None:
            self._task.cancel()

    def freeze(self) -> None:
        """Stop its tasks and timers until ``resume``, as SIGSTOP does."""
        if self._simulated.state is ProcessState.RUNNING:
            self._simulated.state = ProcessState.FROZEN

    def resume(self) -> None:
        """Let it continue."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if self._simulated.state is ProcessState.FROZEN:
            loop.resume(self._simulated)

    async def stop(self) -> None:
        """Kill it and wait for its end."""
        self.kill()
        if self._task is not None:
            await asyncio.wait((self._task,))


async def _until_valid(read: Callable[[], T]) -> T:
    """Return what *read* returns; while the configuration is invalid, the process is restarted again and again."""
    while True:
        try:
            return read()
        except ValueError:
            await asyncio.sleep(_RESTART_SECONDS)


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


@dataclass(eq=False)
class ControllerProcess:
    """A controller with its process."""

    process: Process
    controller: Controller | None = None
    plans: int = 0
    """How many plans it has made."""

    @property
    def leads(self) -> bool:
        return self.process.is_running and self.controller is not None and self.controller.election.may_write


def controller_process(network: Network, name: str, configuration: Path, *, failed: Report) -> ControllerProcess:
    """Return a controller process that is not started."""
    settings = ControllerSettings(identity=name, admission_configuration=configuration)
    timeouts = Timeouts(
        connect=settings.connect_seconds,
        read=settings.read_seconds,
        write=settings.write_seconds,
        grace=settings.grace_seconds,
        page=settings.page_seconds,
    )

    async def main() -> None:
        file = ConfigurationFile(configuration)
        await _until_valid(file.read)
        api = client(network, name, user_agent="volcano-global-controller", timeouts=timeouts)
        hyperjob_api = client(network, name, user_agent="volcano-global-hyperjobs", timeouts=timeouts)
        running.controller = Controller(settings, file, api, for_hyperjobs=hyperjob_api)
        count_cycle = running.controller.metrics.count_cycle

        def count_plan(seconds: float) -> None:
            running.plans += 1
            count_cycle(seconds)

        running.controller.metrics.count_cycle = count_plan
        running.controller.store.on_error.append(lambda uid, error: failed(f"{name} quarantined {uid}: {error!r}"))
        await running.controller.run(asyncio.Event())

    running = ControllerProcess(Process(name, main, failed=failed))
    return running


class WebhookProcess:
    """The webhook, which answers reviews without TLS."""

    def __init__(self, network: Network, configuration: Path, *, failed: Report) -> None:
        self.process = Process("webhook", self._main, failed=failed)
        self.delay: Callable[[], float] = lambda: 0.002
        """Seconds until an answer."""
        self.fault: Callable[[tuple[int, bytes]], tuple[int, bytes]] = lambda answer: answer
        """Changes answers."""
        self._network = network
        self._configuration = configuration
        self._app: App | None = None

    async def _main(self) -> None:
        settings = WebhookSettings(admission_configuration=self._configuration)
        queues = QueueCache()
        configuration = await _until_valid(lambda: Configuration(self._configuration))
        app = App(settings, admission_handlers(configuration, queues), lambda: None)
        api = client(self._network, "webhook", user_agent="volcano-global-webhook")
        watcher = ControlPlaneWatcher(api, queues, PublishedBundle(settings.webhook_configuration))
        app.refresh_queues = watcher.refresh_queues
        self._app = app
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watcher.watch_queues())
            while True:
                await asyncio.sleep(settings.poll_seconds)
                configuration.refresh()

    async def review(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Answer one review; raise OSError without a running process, and TimeoutError after five seconds."""
        if not self.process.is_running or self._app is None:
            raise ConnectionRefusedError("connection refused")
        async with asyncio.timeout(5):
            await asyncio.sleep(self.delay())
            request: Any = _ReviewRequest(path, body)
            app = self._app
            answering = asyncio.get_running_loop().create_task(
                _answer(app, request), context=self.process.context.copy()
            )
            try:
                response = await asyncio.shield(answering)
            except asyncio.CancelledError:
                answering.cancel()
                raise
        return self.fault((response.status, bytes(response.body)))


async def _answer(app: App, request: Any) -> web.Response:
    response = await app.answer_review(request)
    assert isinstance(response, web.Response)
    return response


class _ReviewRequest:
    """The part of aiohttp's request that the webhook reads."""

    method = "POST"
    content_type = "application/json"
    headers: Mapping[str, str] = {"Content-Type": "application/json"}

    def __init__(self, path: str, body: bytes) -> None:
        self.path = path
        self.content_length = len(body)
        self.content = self
        self._body = body

    def is_eof(self) -> bool:
        return True

    def read_nowait(self) -> bytes:
        return self._body


def karmada_process(network: Network, *, failed: Report) -> Process:
    """Return the stand-in for Karmada, not started."""
    kinds = ("volcano-job", "deployment", "batch-job")
    settings = StandInSettings(template=kinds, run_time=60, status_period=5, taint_eviction=True)

    async def main() -> None:
        api = client(network, "karmada", user_agent="karmada-stand-in")
        source = random.Random(network.random.getrandbits(64))
        await StandIn(api, settings, now=lambda: time.time(), random=source).run()  # noqa: PLW0108 -- replaced later

    return Process("karmada", main, failed=failed)
