"""Sends the engine's queries to the clusters' estimators, and returns their answers asynchronously."""

import asyncio
import time
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import structlog

from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import Estimate, Query
from controller.estimator.options import EstimatorError, EstimatorOptions

if TYPE_CHECKING:
    from controller.estimator.client import Client

#: Maximum number of concurrent queries; the engine limits those to one cluster.
_MAX_CONCURRENT: Final = 256

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Metrics(Protocol):
    """Counts queries."""

    def count_estimate(self, outcome: str, *, seconds: float) -> None:
        """Count one query, by its outcome."""


class EstimatorDispatcher:
    """The estimators of all clusters; ``run`` must be running to get answers."""

    def __init__(
        self,
        options: EstimatorOptions,
        on_estimate: Callable[[Estimate], None],
        *,
        metrics: Metrics,
        client_of: Callable[[str], "Client"] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._on_estimate = on_estimate
        self._metrics = metrics
        self._client_of = client_of or self._connect
        self._clock = clock
        self._clients: dict[ClusterName, Client] = {}
        self._unavailable: dict[ClusterName, str] = {}
        """Clusters with an estimator that did not answer the last query, and why."""
        self._queries: asyncio.Queue[Query] = asyncio.Queue()
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._group: asyncio.TaskGroup | None = None
        """The tasks of ``run``."""

    def retain(self, clusters: Container[ClusterName]) -> None:
        """Close the connections to the estimators of all other clusters, which have left."""
        for name in [name for name in self._clients if name not in clusters]:
            client = self._clients.pop(name)
            if self._group is not None:
                self._group.create_task(client.close())
        self._unavailable = {name: why for name, why in self._unavailable.items() if name in clusters}

    def submit(self, queries: Iterable[Query]) -> None:
        """Queue *queries*."""
        for query in queries:
            self._queries.put_nowait(query)

    async def run(self) -> NoReturn:
        """Send queries until cancelled, then close the connections."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    query = await self._queries.get()
                    await self._slots.acquire()
                    self._group.create_task(self._answer(query))
        finally:
            for client in self._clients.values():
                await client.close()

    async def _answer(self, query: Query) -> None:
        began = self._clock()
        try:
            estimate, outcome = await self._estimate(query)
        finally:
            self._slots.release()
        self._metrics.count_estimate(outcome, seconds=self._clock() - began)
        self._on_estimate(estimate)

    async def _estimate(self, query: Query) -> tuple[Estimate, str]:
        try:
            async with asyncio.timeout(self._options.timeout_seconds * 2):
                estimate = await self._client(query.cluster).estimate(query)
        except EstimatorError as error:
            self._mark_unavailable(query.cluster, str(error))
            return Estimate(query, is_silent=True), "late" if error.is_timeout else "failed"
        except TimeoutError:
            self._mark_unavailable(query.cluster, "no connection in time")
            return Estimate(query, is_silent=True), "late"
        except Exception as error:  # noqa: BLE001 -- an error of one estimator must not stop queries to the others
            self._mark_unavailable(query.cluster, f"{type(error).__name__}: {error}")
            return Estimate(query, is_silent=True), "failed"
        if self._unavailable.pop(query.cluster, None) is not None:
            log.info("estimator available", cluster=query.cluster)
        return estimate, "uncounted" if estimate.count is None else "counted"

    def _client(self, cluster: ClusterName) -> "Client":
        if cluster not in self._clients:
            self._clients[cluster] = self._client_of(cluster)
        return self._clients[cluster]

    def _connect(self, cluster: str) -> "Client":
        from controller.estimator.client import new_client  # noqa: PLC0415 -- gRPC is imported only where estimators are used

        return new_client(self._options, cluster, self._clock)

    def _mark_unavailable(self, cluster: ClusterName, why: str) -> None:
        if self._unavailable.get(cluster) is None:
            log.warning("estimator unavailable", cluster=cluster, error=why[:300], fallback="cluster summary")
        self._unavailable[cluster] = why
