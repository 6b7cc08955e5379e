"""Run the controller: `python -m controller --help`."""

import asyncio
import contextlib
import gc
import signal
import sys
import time
import uuid
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Never

import structlog

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration
from controller.api.flags import SettingsError
from controller.cache.dynamic_informers import DynamicInformers, build_informers, relist_configured
from controller.cache.store import Store
from controller.controllers.data_sources.controller import DataSourceController
from controller.controllers.data_sources.locator import DataSourceDependencies
from controller.controllers.hyperjob.controller import HyperJobController, hyperjob_dependencies
from controller.controllers.job_status.controller import JobStatusController, JobStatusDependencies
from controller.controllers.published_configuration.controller import ConfigurationPublisher
from controller.controllers.queue_commands.controller import CommandController, command_dependencies
from controller.controllers.queue_status.controller import QueueStatusController, QueueStatusDependencies
from controller.controllers.run_times.controller import RunTimesController
from controller.controllers.stale_status.controller import StaleStatusController
from controller.controllers.webhook_config.controller import (
    DesiredConfigFile,
    WebhookConfigController,
    WebhookConfigDependencies,
)
from controller.estimator.dispatcher import EstimatorDispatcher
from controller.kube.access_reviews import Access
from controller.kube.client import Api, Timeouts
from controller.kube.config_file import ConfigurationFile
from controller.kube.event_recorder import EventRecorder, RecorderOptions
from controller.kube.informer import WatchOptions
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.leader_election import Candidate, LeaderElection
from controller.kube.limited_server import raise_open_files
from controller.kube.logs import configure_logging
from controller.kube.serving_certificate import Certificate, CertificateError
from controller.kube.timing import Backoff, SteadyClock, wall_clock
from controller.reporting.decision_log.log import DecisionLog, DecisionLogOptions, DecisionRecorder
from controller.reporting.metrics import ControllerMetrics
from controller.reporting.probes import Readiness, Watchdog, serve_probes
from controller.reporting.state_collector import Caches
from controller.scheduling.actuator import Actuator, RateLimits
from controller.scheduling.loop import AdmissionLoop
from controller.scheduling.workload_events import WorkloadEvents
from controller.settings import ControllerSettings, parse_flags
from controller.visibility.https import serve_endpoint
from controller.visibility.server import Visibility

#: More than the maximum of writes in flight plus watches, so that the actuator is the limit and not the pool.
_CONNECTIONS = 1024 + 32

#: Time for the decision log to write its remaining entries.
_DECISION_LOG_STOP_SECONDS = 5

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Controller:
    """Creates, connects, starts and stops the parts of the controller process."""

    def __init__(self, settings: ControllerSettings, file: ConfigurationFile, api: Api, *, for_hyperjobs: Api) -> None:
        self.settings = settings
        self.file = file
        self.metrics = ControllerMetrics()
        self.store = Store(file.current)
        clock = SteadyClock()
        options = WatchOptions(page=settings.page_size, watch=settings.watch_seconds, silence=settings.silence_seconds)

        # Kubernetes: leadership, informers and events.
        candidate = Candidate(settings.identity, uuid.uuid4().hex[:8])
        self.election = LeaderElection(api, settings.lease_namespace, candidate=candidate, timings=settings.timings)
        self.informers = build_informers(api, self.store, options)
        self.kinds = DynamicInformers(api, self.store, self.informers, options=options)
        self.kinds.set_kinds(self.store.kinds)
        recorder_options = RecorderOptions(settings.identity, settings.events_per_second, settings.event_backlog)
        self.event_recorder = EventRecorder(
            api, metrics=self.metrics, is_busy=lambda: self.actuator.backlog > 0, options=recorder_options, clock=clock
        )

        # Scheduling: decisions and their writes.
        self.actuator = Actuator(api, self.store, metrics=self.metrics, may_write=self._may_write, clock=clock)
        self.actuator.limit(_limits(file.current))
        self.data_sources = DataSourceController(
            api,
            self.store,
            DataSourceDependencies(
                self._may_write,
                lambda: file.current.data_sources,
                settings.data_plugins_namespace,
                self.metrics.count_data_request,
            ),
            watch_options=options,
            clock=clock,
        )
        # ChainMap is invariant in its value type; the loop only reads `synced`.
        discovered: dict[str, Any] = {"managed-kinds": self.kinds}
        if settings.data_sources:
            discovered["data-sources"] = self.data_sources
        optional: ChainMap[str, Any] = ChainMap(self.data_sources.informers, discovered)
        caches: ChainMap[str, Any] = ChainMap(optional, self.informers)
        self.loop = AdmissionLoop(self.store, self.actuator, caches, metrics=self.metrics, clock=clock)
        self.workload_events = WorkloadEvents(self.store, self.event_recorder, may_write=self._may_write)
        self.estimators = EstimatorDispatcher(settings.estimator_access, self.store.on_estimate, metrics=self.metrics)
        self._create_controllers(api, for_hyperjobs, options, clock)
        if settings.hyperjobs:
            discovered["hyperjobs"] = self.hyperjobs
            optional.maps.insert(0, self.hyperjobs.caches)
        self._create_status_controllers(api, clock)
        self.metrics.register_state(
            lambda: self.loop.engine,
            self.store,
            Caches(self.informers, optional),
            leads=lambda: self.election.leads,
        )
        self.metrics.hyperjobs = self.hyperjobs.phases
        self.metrics.data_source_claims = self.data_sources.phases
        self.metrics.register_file("admission", lambda: file.error is not None)
        self.readiness = Readiness(self.informers, settings.fresh_seconds, lambda: self.loop.problem)
        self._connect()

    def _create_controllers(self, api: Api, for_hyperjobs: Api, options: WatchOptions, clock: SteadyClock) -> None:
        """Create the controllers of objects other than bindings."""
        file = self.file
        self.hyperjobs = HyperJobController(
            for_hyperjobs,
            hyperjob_dependencies(
                self.store, lambda: self.loop.engine, lambda: file.current, may_write=self._may_write
            ),
            watch_options=options,
            clock=clock,
        )
        self.publisher = ConfigurationPublisher(
            api,
            self.settings.lease_namespace,
            configuration=lambda: file.current,
            may_write=self._may_write,
            on_replace=self.store.note_former_configuration,
        )
        self.stale_status = StaleStatusController(api, self.store, may_write=self._may_write, clock=clock)
        self.run_times = RunTimesController(
            api, self.store, self.settings.lease_namespace, may_write=self._may_write, clock=clock
        )
        self.commands = CommandController(
            api,
            command_dependencies(
                self.store, lambda: self.loop.engine, may_write=self._may_write, record_event=self.event_recorder.record
            ),
            watch_options=options,
        )
        desired = DesiredConfigFile(self.settings.webhook_registration)
        desired.read()
        self.metrics.register_file("webhook-registration", lambda: desired.error is not None)
        self.webhook_config = WebhookConfigController(
            api,
            WebhookConfigDependencies(
                self._may_write, lambda: file.current.repair.webhook_configuration, self.event_recorder.record
            ),
            file=desired,
            metrics=self.metrics,
            watch_options=options,
        )

    def _create_status_controllers(self, api: Api, clock: SteadyClock) -> None:
        """Create the controllers of the statuses of Jobs and Queues."""
        file = self.file
        self.job_status = JobStatusController(
            api,
            self.store,
            JobStatusDependencies(
                engine=lambda: self.loop.engine,
                may_write=self._may_write,
                is_enabled=lambda: file.current.status.pending_jobs,
                is_busy=lambda: self.actuator.backlog > 0,
                record_event=self.event_recorder.record,
                per_second=self.settings.events_per_second,
            ),
            clock=clock,
        )
        self.queue_status = QueueStatusController(
            api,
            self.store,
            QueueStatusDependencies(
                engine=lambda: self.loop.engine,
                may_write=self._may_write,
                is_enabled=lambda: file.current.status.queues,
                is_busy=lambda: self.actuator.backlog > 0,
            ),
        )

    def _connect(self) -> None:
        """Add the handlers of each part to the events of the others."""
        self.election.on_change.append(self._on_leadership_change)
        self.actuator.on_write_confirmed += [
            self.workload_events.on_write,
            self.stale_status.on_write,
            self.job_status.on_write,
            lambda *_: self.queue_status.wake(),
        ]
        # The pending reasons of a HyperJob's parts and the capacity are current only after a cycle.
        self.loop.on_waits += [self.workload_events.on_waits, self.job_status.on_waits, lambda _: self.hyperjobs.wake()]
        self.loop.on_waits.append(lambda _: self.queue_status.wake())
        self.loop.on_queries.append(self.estimators.submit)
        self.store.on_binding += [self.run_times.on_binding, self.data_sources.on_binding]
        self.store.on_clusters += [
            self.data_sources.on_clusters,
            lambda: self.estimators.retain({cached.key for cached in self.store.clusters}),
        ]
        self.store.with_run_time = self.run_times.with_run_time
        self.store.on_change += [self.commands.wake, self.hyperjobs.wake]
        self.store.enable_node_estimates()
        if self.settings.hyperjobs:
            self.store.expect_hyperjobs()

    async def run(self, stop: asyncio.Event) -> None:
        """Watch, decide and write until *stop* is set; then wait for the writes in flight."""
        poll_seconds = self.settings.poll_seconds
        async with asyncio.TaskGroup() as group:
            acting = group.create_task(self.actuator.run())
            steps = (
                *(informer.run() for informer in self.informers.values()),
                self.kinds.run(),
                self.loop.run(),
                self.event_recorder.run(),
                self.estimators.run(),
                *((self.hyperjobs.run(),) if self.settings.hyperjobs else ()),
                *((self.data_sources.run(),) if self.settings.data_sources else ()),
                self.stale_status.run(),
                self.job_status.run(),
                self.queue_status.run(),
                self.run_times.run(),
                self.publisher.run(),
                self.commands.run(),
                self.webhook_config.run(),
                self.webhook_config.follow_file(poll_seconds=poll_seconds),
                self.file.follow(self._configure, poll_seconds=poll_seconds),
                Watchdog(self.metrics).run(),
            )
            deciding = [group.create_task(step) for step in steps]
            electing = group.create_task(self.election.run())
            await stop.wait()
            await self._drain(acting, deciding)
            electing.cancel()
            await asyncio.wait((electing,))
            self.election.on_change.remove(self._on_leadership_change)
            if self.actuator.is_drained:
                await self.election.release()

    def _may_write(self) -> bool:
        return self.election.may_write

    def _on_leadership_change(self) -> None:
        """Start to decide after acquiring leadership, or stop after losing it."""
        self.metrics.set_leading(leading=self.election.leads)
        if self.election.may_write:
            # What the former leader wrote last must be known.
            for informer in self.informers.values():
                informer.catch_up()
            self.kinds.look_up()
            self.hyperjobs.on_leading()
            self.workload_events.on_leading()
            self.stale_status.on_leading()
            self.run_times.on_leading()
            self.data_sources.on_leading()
            self.job_status.on_leading()
        else:
            self.actuator.drop_unsent()
            if not self.election.leads:
                self.loop.on_leadership_lost()
            self.event_recorder.clear()
            self.job_status.clear()
        self.loop.wake()
        self.hyperjobs.wake()
        self.webhook_config.wake()
        self.publisher.wake()

    async def _drain(self, acting: asyncio.Task[None], others: Iterable[asyncio.Task[Never]]) -> None:
        """Stop deciding and sending, then wait for the responses, or until no request can take effect any more."""
        log.info("controller stopping", under_way=self.actuator.in_progress)
        ends_at = time.monotonic() + self.settings.stop_seconds
        for task in others:
            task.cancel()
        self.actuator.stop()
        await asyncio.wait((acting,), timeout=self.settings.stop_seconds)
        acting.cancel()
        if time.monotonic() < self.actuator.drained_at <= ends_at:
            await asyncio.sleep(self.actuator.drained_at - time.monotonic())

    def _configure(self, configuration: VolcanoGlobalConfiguration) -> None:
        self.actuator.limit(_limits(configuration))
        self.webhook_config.wake()
        self.publisher.wake()
        self.data_sources.configure()
        self.job_status.configure()
        if self.store.configure(configuration):
            self.kinds.set_kinds(self.store.kinds)
            relist_configured(self.informers)


def _limits(configuration: VolcanoGlobalConfiguration) -> RateLimits:
    patches = configuration.patches
    return RateLimits(patches.in_flight, patches.per_second, patches.burst)


async def connection(
    connect: Callable[[], AbstractAsyncContextManager[Api]], stack: AsyncExitStack, stop: asyncio.Event
) -> Api | None:
    """Return a connection as soon as the credentials can be read; they may be mounted after the start."""
    backoff = Backoff(initial=1, maximum=30)
    while not stop.is_set():
        try:
            return await stack.enter_async_context(connect())
        except KubeconfigError as error:
            delay = backoff.next_delay()
            log.error("cannot connect", error=str(error), again_in=round(delay, 1))  # noqa: TRY400 -- the message suffices
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await stop.wait()
    return None


def _connect(settings: ControllerSettings) -> AbstractAsyncContextManager[Api]:
    return Api.connect(
        settings.kubeconfig,
        context=settings.context,
        user_agent="volcano-global-controller",
        connections=_CONNECTIONS,
        timeouts=_timeouts(settings),
    )


def _connect_hyperjobs(settings: ControllerSettings) -> AbstractAsyncContextManager[Api]:
    """Connect with the HyperJob controller's own credentials."""
    agent = "volcano-global-hyperjobs"
    return Api.connect(settings.hyperjob_kubeconfig, user_agent=agent, timeouts=_timeouts(settings))


def _timeouts(settings: ControllerSettings) -> Timeouts:
    return Timeouts(
        connect=settings.connect_seconds,
        read=settings.read_seconds,
        write=settings.write_seconds,
        grace=settings.grace_seconds,
        page=settings.page_seconds,
    )


@asynccontextmanager
async def _log_decisions(
    settings: ControllerSettings, loop: AdmissionLoop, metrics: ControllerMetrics
) -> AsyncIterator[None]:
    """Record the decisions of *loop* in files, if a path is configured, until the context ends."""
    if settings.decision_log is None:
        yield
        return
    options = DecisionLogOptions(settings.decision_log, settings.decision_log_mib << 20, settings.decision_log_files)
    decision_log = DecisionLog(options, settings.identity, on_lost=metrics.count_decision_log_loss)
    loop.decision_recorder = DecisionRecorder(decision_log)
    decision_log.start()
    loop.decision_recorder.start_file(loop.engine, wall_clock())
    try:
        yield
    finally:
        await asyncio.to_thread(decision_log.stop, _DECISION_LOG_STOP_SECONDS)


@asynccontextmanager
async def _serve_tenants(settings: ControllerSettings, process: Controller, api: Api) -> AsyncIterator[None]:
    """Serve the visibility endpoint, if a port is configured, until the context ends."""
    folder, port = settings.visibility_certificate_directory, settings.visibility_port
    if folder is None or port is None:
        yield
        return
    certificate = Certificate.read(folder)
    visibility = Visibility(Access(api), lambda: process.loop.engine, leads=lambda: process.election.leads)
    async with serve_endpoint(visibility, certificate, host=settings.host, port=port) as bound:
        log.info("visibility endpoint started", port=bound)
        following = asyncio.create_task(certificate.follow(seconds=settings.poll_seconds))
        try:
            yield
        finally:
            following.cancel()


async def serve(settings: ControllerSettings) -> None:
    """Run the controller until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    file = ConfigurationFile(settings.admission_configuration)
    await asyncio.to_thread(file.read)
    async with AsyncExitStack() as stack:
        api = await connection(lambda: _connect(settings), stack, stop)
        apart = settings.hyperjobs and settings.hyperjob_kubeconfig is not None
        for_hyperjobs = await connection(lambda: _connect_hyperjobs(settings), stack, stop) if apart else api
        if api is not None and for_hyperjobs is not None:
            process = Controller(settings, file, api, for_hyperjobs=for_hyperjobs)
            served = serve_probes(
                process.readiness.reason_not_ready,
                host=settings.host,
                port=settings.port,
                exposition=process.metrics.exposition,
            )
            port = await stack.enter_async_context(served)
            await stack.enter_async_context(_serve_tenants(settings, process, api))
            await stack.enter_async_context(_log_decisions(settings, process.loop, process.metrics))
            log.info("controller started", server=api.access.server, port=port)
            await process.run(stop)
    log.info("controller stopped")


def run_to_end(main: Coroutine[Any, Any, None]) -> None:
    """Run *main* on uvloop, which needs less CPU per request, or on asyncio's own loop where it is not installed."""
    try:
        import uvloop  # noqa: PLC0415 -- not available for every platform
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def main() -> None:
    """Parse the flags and run."""
    configure_logging()
    raise_open_files()
    # Cached objects live long and form no reference cycles, so frequent collections would be wasted.
    gc.set_threshold(50_000, 50, 1000)
    try:
        run_to_end(serve(parse_flags(sys.argv[1:])))
    except (SettingsError, ConfigurationError, CertificateError, OSError, ValueError) as error:
        sys.exit(f"controller: {error}")


if __name__ == "__main__":
    main()
