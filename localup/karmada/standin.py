"""The stand-in: its parts, wired together, from the first list to the last write."""

import asyncio
from typing import Any

import structlog

from controller.kube import Api
from localup.karmada.application_failover import ApplicationFailoverController
from localup.karmada.binding_controller import BindingController
from localup.karmada.binding_status_controller import BindingStatusController
from localup.karmada.client import Client
from localup.karmada.cluster_status_controller import ClusterStatusController
from localup.karmada.dependencies_distributor import DependenciesDistributor
from localup.karmada.detector import Detector
from localup.karmada.execution_controller import ExecutionController
from localup.karmada.graceful_eviction_controller import GracefulEvictionController
from localup.karmada.informers import Informers
from localup.karmada.member_registry import MemberRegistry
from localup.karmada.namespace_sync import NamespaceSyncController
from localup.karmada.scheduler import Scheduler
from localup.karmada.settings import Settings
from localup.karmada.store import Store
from localup.karmada.taints import NoExecuteTaintManager, TaintController
from localup.karmada.workqueue import WorkQueue

log = structlog.get_logger()


class StandIn:
    """All that the stand-in does for one API server."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._workers = settings.writes_in_flight
        behaviour = settings.behaviour
        self._mirror = mirror = Informers(settings.templates, dependents=behaviour.dependents)
        self._writer = writer = Client(api, in_flight=settings.writes_in_flight)
        fleet = MemberRegistry(mirror.clusters, pods_late=behaviour.pods_late)
        self._execution = ExecutionController(
            mirror, writer, fleet, run_time=settings.run_time_seconds, preserves=behaviour.preserve
        )
        period, late = settings.status_period_seconds, behaviour.summary_late
        clusters = ClusterStatusController(mirror, writer, fleet, period=period, late=late)
        self._execution.listen(clusters.something_happened)
        detector = Detector(mirror, writer, multi_template=settings.multi_template, behaviour=behaviour)
        self._queues: list[WorkQueue[Any]] = [
            *(detector.queue, self._execution.queue, self._execution.reports, clusters.queue),
            *_binding_queues(mirror, mirror.bindings, writer, settings),
            *_binding_queues(mirror, mirror.cluster_bindings, writer, settings),
        ]
        if behaviour.taints:
            self._queues.append(TaintController(mirror.clusters, writer).queue)
        if behaviour.namespaces:
            self._queues.append(NamespaceSyncController(mirror, writer).queue)
        if behaviour.dependents:
            self._queues.append(DependenciesDistributor(mirror, writer).queue)

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


def _binding_queues(mirror: Informers, bindings: Store, writer: Client, settings: Settings) -> list[WorkQueue[Any]]:
    """Return the queues of all that looks at bindings of one kind."""
    behaviour = settings.behaviour
    queues: list[WorkQueue[Any]] = [
        Scheduler(bindings, mirror.clusters, writer, settings).queue,
        BindingController(mirror, bindings, writer).queue,
        BindingStatusController(mirror, bindings, writer, stale=behaviour.stale_status).queue,
    ]
    if behaviour.graceful_eviction:
        queues.append(GracefulEvictionController(bindings, writer, timeout=behaviour.graceful_eviction_timeout).queue)
    if behaviour.application_failover:
        queues.append(ApplicationFailoverController(bindings, writer).queue)
    if behaviour.taint_eviction:
        queues.append(NoExecuteTaintManager(mirror.clusters, bindings, writer).queue)
    return queues


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
