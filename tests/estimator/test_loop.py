"""The controller's loop with fake estimators that are slow, fail or give invalid answers.

Nothing is measured in seconds: an estimator answers when the test lets it.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.engine.state.estimates import Estimate, Query
from controller.estimator.dispatcher import EstimatorDispatcher
from controller.estimator.options import EstimatorError, EstimatorOptions
from tests.benchmarks.seed import CLUSTER
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
    async with looping(cpus=8) as stage, asyncio.TaskGroup() as group:
        player = ScriptedEstimators()
        estimators = EstimatorDispatcher(
            EstimatorOptions(timeout_seconds=LIMIT_SECONDS),
            stage.store.on_estimate,
            metrics=stage.metrics,
            client_of=lambda _: player,
        )
        stage.loop.on_queries.append(estimators.submit)
        stage.store.enable_node_estimates()
        stage.store.configure(ON)
        running = group.create_task(estimators.run())
        yield stage, player
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
    async with estimating() as (stage, player):
        stage.submit("a")
        assert (await player.next()).cluster == CLUSTER
        stage.tell(stage.store.jobs, UNREADABLE_NODE_CLAIM)
        stage.bind("b")
        assert (await stage.hand.next()).workload == "Job ns/b"
        assert stage.hand.writes.empty()
        player.answers.put_nowait(3)
        assert (await stage.hand.next()).workload == "Job ns/a"


@pytest.mark.parametrize("answer", [-5, EstimatorError("no"), RuntimeError("what is this")])
async def test_invalid_estimate_falls_back_to_the_cluster_summary(answer):
    async with estimating() as (stage, player):
        player.answers.put_nowait(answer)
        stage.submit("a")
        assert (await stage.hand.next()).workload == "Job ns/a"
        stage.submit("b")
        assert (await stage.hand.next()).workload == "Job ns/b"
        assert player.asked.qsize() == 1, "nobody waits for it again"
