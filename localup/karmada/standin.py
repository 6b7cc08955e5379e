"""Wires the controllers of the stand-in together and runs them."""

import asyncio
from typing import Any

import structlog

from controller.kube.client import Api
from localup.karmada.cache import ControlPlaneCache, Store
from localup.karmada.controller import Controller
from localup.karmada.controllers.clusters import ClusterStatusController, TaintController
from localup.karmada.controllers.dependencies import DependenciesDistributor, NamespaceSyncController
from localup.karmada.controllers.detector import Detector
from localup.karmada.controllers.dispatch import BindingController
from localup.karmada.controllers.eviction import (
    ApplicationFailoverController,
    GracefulEvictionController,
    NoExecuteTaintManager,
)
from localup.karmada.controllers.execution import ExecutionController
from localup.karmada.controllers.scheduler import Scheduler
from localup.karmada.controllers.status import BindingStatusController
from localup.karmada.members.summary import MemberRegistry
from localup.karmada.quirks import StandInSettings

log = structlog.get_logger()


class StandIn:
    """All controllers of the stand-in for one API server."""

    def __init__(self, api: Api, settings: StandInSettings) -> None:
        self._workers = settings.writes_in_flight
        quirks = settings.quirks
        self._cache = cache = ControlPlaneCache(
            api, settings.templates, dependents=quirks.dependents, in_flight=settings.writes_in_flight
        )
        registry = MemberRegistry(cache.clusters, pods_late=quirks.pods_late)
        self._execution = ExecutionController(
            cache, registry, run_time=settings.run_time_seconds, preserves=quirks.preserve
        )
        period, late = settings.status_period_seconds, quirks.summary_late
        clusters = ClusterStatusController(cache, registry, period=period, late=late)
        self._execution.add_event_handler(clusters.on_member_changed)
        detector = Detector(cache, multi_template=settings.multi_template, quirks=quirks)
        controllers: list[Controller[Any]] = [
            *(detector, self._execution, clusters),
            *_binding_controllers(cache, cache.bindings, settings),
            *_binding_controllers(cache, cache.cluster_bindings, settings),
        ]
        if quirks.taints:
            controllers.append(TaintController(cache, cache.clusters))
        if quirks.namespaces:
            controllers.append(NamespaceSyncController(cache))
        if quirks.dependents:
            controllers.append(DependenciesDistributor(cache))
        self._queues = [self._execution.reports, *(controller.queue for controller in controllers)]

    async def run(self) -> None:
        """Run informers, and after their first lists all controllers, until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run(synced=synced))
            await synced.wait()
            log.info("all lists applied, acting")
            tasks.create_task(self._execution.run())
            for queue in self._queues:
                tasks.create_task(queue.serve(self._workers))


def _binding_controllers(cache: ControlPlaneCache, bindings: Store, settings: StandInSettings) -> list[Controller[Any]]:
    """Return the controllers for bindings of one kind."""
    quirks = settings.quirks
    controllers: list[Controller[Any]] = [
        Scheduler(cache, bindings, settings),
        BindingController(cache, bindings),
        BindingStatusController(cache, bindings, stale=quirks.stale_status),
    ]
    if quirks.graceful_eviction:
        controllers.append(GracefulEvictionController(cache, bindings, timeout=quirks.graceful_eviction_timeout))
    if quirks.application_failover:
        controllers.append(ApplicationFailoverController(cache, bindings))
    if quirks.taint_eviction:
        controllers.append(NoExecuteTaintManager(cache, bindings))
    return controllers


async def serve(settings: StandInSettings, stopping: asyncio.Event) -> None:
    """Run the stand-in until *stopping* is set.

    Raises:
        KubeconfigError: The kubeconfig cannot be used.
    """
    async with Api.connect(settings.kubeconfig, user_agent="karmada-stand-in") as api, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(StandIn(api, settings).run())
        await stopping.wait()
        running.cancel()
    log.info("stand-in for Karmada stopped")
