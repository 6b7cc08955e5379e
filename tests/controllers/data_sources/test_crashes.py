"""The process ends before and after each single write of a claim's life, and a new one completes it.

Every scenario runs once for each of its writes, with a crash there. It must reach the same end.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from controller.api.configuration import DataSources
from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES
from controller.controllers.data_sources.plugins import LocateError
from tests.controllers.data_sources.harness import CLAIMS, FINALIZER, SETTINGS, SOURCE_FINALIZER, Harness, run
from tests.deterministic.kinds import BINDINGS

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-app"}


async def create(harness: Harness) -> None:
    harness.claim("one")
    harness.claim("two")


async def change_data(harness: Harness) -> None:
    harness.claim("one")
    await asyncio.sleep(5)
    harness.merge(DATA_SOURCE_CLAIMS, "one", {"spec": {"dataSourceName": "prod.db.other"}})


async def change_workload(harness: Harness) -> None:
    harness.claim("one", workload=DEPLOYMENT)
    harness.binding("test-app")
    harness.binding("next-app")
    await asyncio.sleep(5)
    harness.merge(DATA_SOURCE_CLAIMS, "one", {"spec": {"workload": {"name": "next-app"}}})


async def delete_claim(harness: Harness) -> None:
    harness.claim("one", workload=DEPLOYMENT, metadata={"finalizers": [FINALIZER]})
    harness.claim("two")
    harness.binding("test-app")
    await asyncio.sleep(5)
    harness.remove(DATA_SOURCE_CLAIMS, "one")


async def delete_all_claims(harness: Harness) -> None:
    harness.options = DataSources(reclaim_policy="Delete")
    harness.claim("one")
    await asyncio.sleep(5)
    harness.remove(DATA_SOURCE_CLAIMS, "one")


async def delete_source(harness: Harness) -> None:
    harness.source("old", "prod.db.user", "m2", metadata={"finalizers": [SOURCE_FINALIZER]})
    harness.claim("one")
    await asyncio.sleep(5)
    harness.remove(DATA_SOURCES, "old")


async def move(harness: Harness) -> None:
    harness.options = DataSources(time_to_live="20s", on_move="Requeue")
    harness.claim("one", workload=DEPLOYMENT)
    harness.binding("test-app")
    await asyncio.sleep(5)
    harness.plugin.answers["prod.db.user"] = ("m2",)


async def vanish(harness: Harness) -> None:
    harness.options = DataSources(time_to_live="20s")
    harness.claim("one")
    await asyncio.sleep(5)
    harness.plugin.answers["prod.db.user"] = LocateError("gone", reason="NotFound", is_final=True)


async def change_source(harness: Harness) -> None:
    harness.source("by-hand", "x", "m1", system="hive")
    harness.claim("one", "x", workload=DEPLOYMENT, system="hive")
    harness.binding("test-app")
    await asyncio.sleep(5)
    harness.merge(DATA_SOURCES, "by-hand", {"spec": {"locality": {"clusterNames": ["m2"]}}})


async def delete_source_without_plugin(harness: Harness) -> None:
    harness.source("by-hand", "x", "m1", system="hive", metadata={"finalizers": [SOURCE_FINALIZER]})
    harness.claim("one", "x", workload=DEPLOYMENT, system="hive")
    harness.binding("test-app")
    await asyncio.sleep(5)
    harness.remove(DATA_SOURCES, "by-hand")


async def configure_plugin_later(harness: Harness) -> None:
    harness.configure(None)
    await asyncio.sleep(35)
    harness.claim("one")
    await asyncio.sleep(5)
    harness.configure(SETTINGS)


Scenario = Callable[[Harness], Awaitable[None]]
SCENARIOS = (
    *(create, change_data, change_workload, change_source, delete_claim, delete_all_claims, delete_source),
    *(delete_source_without_plugin, move, vanish, configure_plugin_later),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("side", ["fail_before", "fail_after"])
def test_crash_at_any_write_is_repaired(scenario: Scenario, side: str):
    expected = None
    for point in itertools.count(-1):
        pictures: list[Any] = []
        writes: list[int] = []

        async def life(harness: Harness, point: int = point, *, end: Any = pictures, count: Any = writes) -> None:
            crashed = asyncio.Event()
            setattr(harness.api, side, point if point >= 0 else None)
            harness.api.on_failure = crashed.set
            await scenario(harness)
            with suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await crashed.wait()
            count.append(len(harness.api.writes))
            await harness.stop()
            await harness.start()
            await asyncio.sleep(90)
            end.append(picture(harness))
            # Sources are not located again meanwhile.
            harness.options = DataSources()
            written = len(harness.api.writes)
            await asyncio.sleep(10)
            assert len(harness.api.writes) == written, harness.api.writes[written:]

        run(life)
        assert pictures[0] == (expected or pictures[0]), point
        expected = pictures[0]
        if point >= 0 and writes[0] <= point:
            return


def picture(harness: Harness) -> Any:
    """Return what the objects say, without times and versions; no claim may be bound to two sources."""
    claims = {
        name: (claim["status"]["phase"], claim["status"].get("boundDataSource"), claim["metadata"].get("finalizers"))
        for (_, name), claim in harness.server.objects(CLAIMS).items()
    }
    statuses = {name: source.get("status", {}) for name, source in harness.sources.items()}
    bound = {
        name: [reference["name"] for reference in status.get("claimRefs", ())] for name, status in statuses.items()
    }
    named = [name for names in bound.values() for name in names]
    assert len(named) == len(set(named))
    sources = {
        name: (source["spec"], statuses[name].get("boundClaims"), bound[name])
        for name, source in harness.sources.items()
    }
    bindings = harness.server.objects(BINDINGS)
    affinities = {name: obj["spec"]["placement"]["clusterAffinity"] for (_, name), obj in bindings.items()}
    return claims, sources, {name: sorted(affinity.get("exclude", ())) for name, affinity in affinities.items()}
