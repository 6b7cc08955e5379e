"""Wires the controllers of the stand-in together and runs them."""

import asyncio
from typing import Any

import structlog

from controller.kube.client import Api
from localup.karmada.cache import Client, Informers, Store
from localup.karmada.controller import WorkQueue
from localup.karmada.controllers.clusters import ClusterStatusController
from localup.karmada.controllers.dependencies import DependenciesDistributor, NamespaceSyncController
from localup.karmada.controllers.detector import Detector
from localup.karmada.controllers.dispatch import BindingController
from localup.karmada.controllers.eviction import (
    ApplicationFailoverController,
    GracefulEvictionController,
    NoExecuteTaintManager,
    TaintController,
)
from localup.karmada.controllers.execution import ExecutionController
from localup.karmada.controllers.scheduler import Scheduler
from localup.karmada.controllers.status import BindingStatusController
from localup.karmada.members.summary import MemberRegistry
from localup.karmada.quirks import Settings

log = structlog.get_logger()


class StandIn:
    """All controllers of the stand-in for one API server."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._workers = settings.writes_in_flight
        quirks = settings.quirks
        self._informers = informers = Informers(settings.templates, dependents=quirks.dependents)
        self._client = client = Client(api, in_flight=settings.writes_in_flight)
        registry = MemberRegistry(informers.clusters, pods_late=quirks.pods_late)
        self._execution = ExecutionController(
            informers, client, registry, run_time=settings.run_time_seconds, preserves=quirks.preserve
        )
        period, late = settings.status_period_seconds, quirks.summary_late
        clusters = ClusterStatusController(informers, client, registry, period=period, late=late)
        self._execution.add_event_handler(clusters.on_member_changed)
        detector = Detector(informers, client, multi_template=settings.multi_template, quirks=quirks)
        self._queues: list[WorkQueue[Any]] = [
            *(detector.queue, self._execution.queue, self._execution.reports, clusters.queue),
            *_binding_queues(informers, informers.bindings, client, settings),
            *_binding_queues(informers, informers.cluster_bindings, client, settings),
        ]
        if quirks.taints:
            self._queues.append(TaintController(informers.clusters, client).queue)
        if quirks.namespaces:
            self._queues.append(NamespaceSyncController(informers, client).queue)
        if quirks.dependents:
            self._queues.append(DependenciesDistributor(informers, client).queue)

    async def run(self) -> None:
        """Run informers, and after their first lists all controllers, until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run(self._api, synced=synced))
            await synced.wait()
            log.info("all lists applied, acting")
            tasks.create_task(self._execution.run())
            for queue in self._queues:
                tasks.create_task(queue.serve(self._workers))


def _binding_queues(informers: Informers, bindings: Store, client: Client, settings: Settings) -> list[WorkQueue[Any]]:
    """Return the queues of the controllers for bindings of one kind."""
    quirks = settings.quirks
    queues: list[WorkQueue[Any]] = [
        Scheduler(bindings, informers.clusters, client, settings).queue,
        BindingController(informers, bindings, client).queue,
        BindingStatusController(informers, bindings, client, stale=quirks.stale_status).queue,
    ]
    if quirks.graceful_eviction:
        queues.append(GracefulEvictionController(bindings, client, timeout=quirks.graceful_eviction_timeout).queue)
    if quirks.application_failover:
        queues.append(ApplicationFailoverController(bindings, client).queue)
    if quirks.taint_eviction:
        queues.append(NoExecuteTaintManager(informers.clusters, bindings, client).queue)
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
