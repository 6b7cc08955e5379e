"""Wires the controllers of the stand-in together and runs them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import structlog

from controller.kube.client import Api
from localup.karmada.cache import ControlPlaneCache
from localup.karmada.clusters import ClusterController, ExecutionController
from localup.karmada.controller import Controller
from localup.karmada.detector import Detector
from localup.karmada.evictions import EvictionController
from localup.karmada.failover import ApplicationFailoverController
from localup.karmada.scheduler import Scheduler
from localup.karmada.settings import StandInSettings
from localup.karmada.works import BindingController, BindingStatusController, NamespaceSyncController

log = structlog.get_logger()

_WORKERS: Final = 16


class StandIn:
    """All controllers of the stand-in; *now* is the time of day in seconds, *random* the source of ids and backoffs."""

    def __init__(
        self,
        api: Api,
        settings: StandInSettings | None = None,
        *,
        now: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        settings = settings or StandInSettings()
        self._cache = ControlPlaneCache(api, settings.templates, now=now, random=random)
        self._controllers = list(_controllers(self._cache, settings))

    async def run(self) -> None:
        """Run informers, and after their first lists all controllers, until cancelled."""
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run(synced=synced))
            await synced.wait()
            log.info("all lists applied, acting")
            for controller in self._controllers:
                for queue in controller.queues:
                    tasks.create_task(queue.serve(_WORKERS))


def _controllers(cache: ControlPlaneCache, settings: StandInSettings) -> Iterator[Controller[Any]]:
    yield Detector(cache)
    clusters = ClusterController(cache, settings)
    yield clusters
    yield ExecutionController(cache, clusters, run_time=settings.run_time)
    for bindings in (cache.bindings, cache.cluster_bindings):
        yield Scheduler(cache, bindings)
        yield BindingController(cache, bindings)
        yield BindingStatusController(cache, bindings, unreported_jobs=settings.unreported_jobs)
        yield ApplicationFailoverController(cache, bindings)
        timeout = settings.graceful_eviction_timeout
        yield EvictionController(cache, bindings, timeout=timeout, by_taints=settings.taint_eviction)
    yield NamespaceSyncController(cache)
