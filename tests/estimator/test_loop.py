"""The controller's loop with fake estimators that are slow, fail or give invalid answers.

Nothing is measured in seconds: an estimator answers when the test lets it.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import Estimate, Query
from controller.estimator.dispatcher import EstimatorDispatcher
from controller.estimator.options import EstimatorError, EstimatorOptions
from controller.reporting.metrics import ControllerMetrics
from tests.benchmarks.seed import CLUSTER
from tests.retained import retained
from tests.scheduling.test_loop import looping
from tests.waiting import LIMIT_SECONDS

ON = VolcanoGlobalConfiguration(node_estimates="Estimator")


class ScriptedEstimators:
    """An estimator that the test plays."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Query] = asyncio.Queue()
        self.answers: asyncio.Queue[int | Exception] = asyncio.Queue()

    async def estimate(self, query: Query) -> Estimate:
        self.asked.put_nowait(query)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return Estimate(query, answer)

    async def close(self) -> None:
        """Hold nothing open."""

    async def next(self) -> Query:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.asked.get()


@asynccontextmanager
async def estimating():
    async with looping(cpus=8) as harness, asyncio.TaskGroup() as group:
        player = ScriptedEstimators()
        estimators = EstimatorDispatcher(
            EstimatorOptions(timeout_seconds=LIMIT_SECONDS),
            harness.store.on_estimate,
            metrics=harness.metrics,
            client_of=lambda _: player,
        )
        harness.loop.on_queries.append(estimators.submit)
        harness.store.enable_node_estimates()
        harness.store.configure(ON)
        running = group.create_task(estimators.run())
        yield harness, player
        running.cancel()


TASK = {
    "name": "main",
    "replicas": 1,
    "template": {
        "spec": {
            "nodeSelector": ["unreadable"],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }
    },
}
#: No estimator can be asked for this job.
UNREADABLE_NODE_CLAIM = {
    "metadata": {"name": "b", "namespace": "ns", "uid": "t"},
    "spec": {"queue": "default", "tasks": [TASK]},
}


async def test_others_are_admitted_while_an_estimate_is_outstanding():
    async with estimating() as (harness, player):
        harness.submit("a")
        assert (await player.next()).cluster == CLUSTER
        harness.update(harness.store.jobs, UNREADABLE_NODE_CLAIM)
        harness.bind("b")
        assert (await harness.actuator.next()).workload == "Job ns/b"
        assert harness.actuator.writes.empty()
        player.answers.put_nowait(3)
        assert (await harness.actuator.next()).workload == "Job ns/a"


@pytest.mark.parametrize("answer", [-5, EstimatorError("no"), RuntimeError("what is this")])
async def test_invalid_estimate_falls_back_to_the_cluster_summary(answer):
    async with estimating() as (harness, player):
        player.answers.put_nowait(answer)
        harness.submit("a")
        assert (await harness.actuator.next()).workload == "Job ns/a"
        harness.submit("b")
        assert (await harness.actuator.next()).workload == "Job ns/b"
        assert player.asked.qsize() == 1, "nobody waits for it again"


async def test_connections_to_clusters_that_left_are_closed():
    closed = asyncio.Queue[str]()

    class Unreachable(ScriptedEstimators):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name
            self.answers.put_nowait(EstimatorError("no"))

        async def close(self) -> None:
            closed.put_nowait(self.name)

    answers = asyncio.Queue[Estimate]()
    estimators = EstimatorDispatcher(
        EstimatorOptions(), answers.put_nowait, metrics=ControllerMetrics(), client_of=Unreachable
    )
    async with asyncio.TaskGroup() as group, asyncio.timeout(LIMIT_SECONDS):
        running = group.create_task(estimators.run())
        for name in ("kept", "left"):
            estimators.submit([Query(ClusterName(name), (), 0)])
            await answers.get()
        before = retained([estimators])
        estimators.retain({"kept"})
        assert await closed.get() == "left"
        after = retained([estimators])
        assert (before["EstimatorDispatcher._clients"], after["EstimatorDispatcher._clients"]) == (2, 1)
        assert (before["EstimatorDispatcher._unavailable"], after["EstimatorDispatcher._unavailable"]) == (2, 1)
        running.cancel()
