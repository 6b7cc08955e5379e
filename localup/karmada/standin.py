"""The stand-in: its parts, wired together, from the first list to the last write."""

import asyncio

import structlog

from controller.kube import Api
from localup.karmada.clusters import Clusters
from localup.karmada.collector import Collector
from localup.karmada.detector import Detector
from localup.karmada.dispatcher import Dispatcher
from localup.karmada.execution import Execution
from localup.karmada.fleet import Fleet
from localup.karmada.mirror import Mirror
from localup.karmada.scheduler import Scheduler
from localup.karmada.settings import Settings
from localup.karmada.writer import Writer

log = structlog.get_logger()


class StandIn:
    """All that the stand-in does for one API server."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._workers = settings.writes_in_flight
        self._mirror = mirror = Mirror(settings.templates)
        self._writer = writer = Writer(api, in_flight=settings.writes_in_flight)
        fleet = Fleet(mirror.clusters)
        self._execution = Execution(mirror, writer, fleet, run_time=settings.run_time_seconds)
        clusters = Clusters(mirror, writer, fleet, period=settings.status_period_seconds)
        self._execution.listen(clusters.queue.add)
        self._queues = (
            Detector(mirror, writer, multi_template=settings.multi_template).queue,
            Scheduler(mirror, writer, settings).queue,
            Dispatcher(mirror, writer).queue,
            self._execution.queue,
            self._execution.reports,
            Collector(mirror, writer).queue,
            clusters.queue,
        )

    async def run(self) -> None:
        """Follow the API server, and act once everything has been listed; until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mirror.follow(self._api, synced=synced))
            await synced.wait()
            log.info("all lists applied, acting")
            tasks.create_task(self._execution.run())
            for queue in self._queues:
                tasks.create_task(queue.serve(self._workers))


async def serve(settings: Settings, stopping: asyncio.Event) -> None:
    """Run the stand-in until *stopping* is set.

    Raises:
        KubeconfigError: The kubeconfig cannot be used.
    """
    async with Api.connect(settings.kubeconfig, user_agent="karmada-stand-in") as api, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(StandIn(api, settings).run())
        await stopping.wait()
        running.cancel()
    log.info("stand-in for Karmada stopped")
