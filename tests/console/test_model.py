"""The model follows the configuration that the controller publishes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from console.model import Model
from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration, published_data
from controller.api.keys import CONFIG_MAPS, PUBLISHED_CONFIGURATION, RUN_TIMES_NAME
from tests.cli.manifests import queue
from tests.console.consoles import NOW, cluster, console_of, model_of
from tests.controllers.memory import Traffic, connect, memory_server
from tests.deterministic.objects import CONFIGMAPS
from tests.deterministic.worlds import send
from tests.virtual_time import virtual_time

PATH = CONFIG_MAPS.item_path("ns", PUBLISHED_CONFIGURATION)
RECLAIM = load_configuration("reclaim: {enabled: true}")


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        pytest.param("DELETE", None, id="deleted"),
        pytest.param("PATCH", {"data": {"configuration.json": '{"ofALaterVersion": 1}'}}, id="unknown-keys"),
    ],
)
@virtual_time
async def test_last_read_configuration_stays_in_use(verb: str, body: Any) -> None:
    server = memory_server([CONFIGMAPS], lambda: 0)
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    document = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": published_data(RECLAIM)}
    send(server, "POST", PATH.rpartition("/")[0], document)
    model = Model(connect(server, Traffic()), namespace="ns", refresh_seconds=2)
    polling = asyncio.create_task(model._poll_configuration())
    await asyncio.sleep(5)
    assert (model.store.configuration, model.notice) == (RECLAIM, "")
    send(server, verb, PATH, body, "merge-patch" if body else "json")
    await asyncio.sleep(10)
    assert model.store.configuration == RECLAIM
    assert "pages use the one that was read last" in model.notice
    polling.cancel()


@virtual_time
async def test_configuration_that_cannot_be_read_is_noticed() -> None:
    server, traffic = memory_server([CONFIGMAPS], lambda: 0), Traffic()
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    document = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": published_data(RECLAIM)}
    send(server, "POST", PATH.rpartition("/")[0], document)
    model = Model(connect(server, traffic), namespace="ns", refresh_seconds=2)
    polling = asyncio.create_task(model._poll_configuration())
    await asyncio.sleep(5)
    traffic.error = lambda call: (500, "no space left")
    with capture_logs() as logs:
        await asyncio.sleep(60)
    assert "pages use the one that was read last" in model.notice
    assert [entry["event"] for entry in logs] == ["configuration not read", "run times not read"]
    polling.cancel()


@virtual_time
async def test_configuration_is_used_where_run_times_cannot_be_read() -> None:
    server, traffic = memory_server([CONFIGMAPS], lambda: 0), Traffic()
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    document = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": published_data(RECLAIM)}
    send(server, "POST", PATH.rpartition("/")[0], document)
    traffic.error = lambda call: (500, "no space left") if RUN_TIMES_NAME in call.request.path else None
    model = Model(connect(server, traffic), namespace="ns", refresh_seconds=2)
    polling = asyncio.create_task(model._poll_configuration())
    await asyncio.sleep(5)
    assert (model.store.configuration, model.notice) == (RECLAIM, "")
    polling.cancel()


@virtual_time
async def test_default_configuration_is_noticed_until_one_is_published() -> None:
    server = memory_server([CONFIGMAPS], lambda: 0)
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
    model = Model(connect(server, Traffic()), namespace="ns", refresh_seconds=2)
    polling = asyncio.create_task(model._poll_configuration())
    await asyncio.sleep(5)
    assert "pages use the defaults" in model.notice
    document = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": published_data(VolcanoGlobalConfiguration())}
    send(server, "POST", PATH.rpartition("/")[0], document)
    await asyncio.sleep(10)
    assert model.notice == ""
    polling.cancel()


async def test_pages_show_that_the_configuration_is_not_known(tmp_path: Path) -> None:
    model = model_of(tmp_path, queue("a"), cluster("m1"))
    async with console_of(model) as console:
        assert "configuration of the controller" not in await console.text("/")
        model.is_configuration_known = False
        model.refresh(NOW)
        assert "The configuration of the controller cannot be read" in await console.text("/")
