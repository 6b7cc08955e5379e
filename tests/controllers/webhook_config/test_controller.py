import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.keys import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from controller.controllers.webhook_config.controller import (
    NAME,
    DesiredConfigFile,
    WebhookConfigController,
    WebhookConfigDependencies,
)
from controller.kube.events import EventMessage
from controller.kube.informer import WatchOptions
from controller.reporting.metrics import ControllerMetrics
from tests.controllers.memory import MemoryControlPlane, Traffic, connect
from tests.controllers.webhook_config.test_comparison import BUNDLE, FILE
from tests.deterministic import kinds
from tests.virtual_time import virtual_time

RESOURCES = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


class World:
    """A controller that repairs, on an API server in memory."""

    def __init__(self, file: Path = FILE):
        self.plane, self.traffic = MemoryControlPlane([kinds.MUTATING, kinds.VALIDATING], lambda: 0), Traffic()
        self.leads, self.events = True, list[EventMessage]()
        desired = DesiredConfigFile(file)
        desired.read()
        self.controller = WebhookConfigController(
            connect(self.plane.server, self.traffic),
            WebhookConfigDependencies(lambda: self.leads, lambda: self.leads, self.events.append),
            file=desired,
            metrics=ControllerMetrics(),
            watch_options=WatchOptions(),
        )

    def register(self, bundle: str) -> None:
        for resource, manifest in zip(RESOURCES, yaml.safe_load_all(FILE.read_text()), strict=True):
            for webhook in manifest["webhooks"]:
                webhook["clientConfig"]["caBundle"] = bundle
            self.plane.send("POST", resource.path, manifest)

    def webhooks(self, resource=MUTATING_WEBHOOKS) -> list[dict[str, Any]]:
        return self.plane.send("GET", resource.item_path("", NAME))["webhooks"]

    def change(self, **changes: Any) -> None:
        first, *others = self.webhooks()
        self.plane.merge(MUTATING_WEBHOOKS, NAME, {"webhooks": [{**first, **changes}, *others]})

    async def run(self, seconds: float) -> None:
        running = asyncio.create_task(self.controller.run())
        await asyncio.sleep(seconds)
        assert not running.done()
        running.cancel()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("bundle", ["", encoded("no certificate")])
@virtual_time
async def test_missing_ca_bundle_is_not_repaired_again_and_again(bundle):
    world = World()
    world.register(bundle)
    await world.run(60)
    assert len(world.traffic.writes) <= 2 * len(RESOURCES)
    world.change(failurePolicy="Ignore")
    await world.run(60)
    assert world.webhooks()[0]["failurePolicy"] == "Fail"


@virtual_time
async def test_new_leader_reports_what_it_found_as_standby():
    world = World()
    world.leads = False
    world.register("")
    running = asyncio.create_task(world.run(60))
    await asyncio.sleep(5)
    assert world.events == []
    world.leads = True
    world.controller.wake()
    await asyncio.sleep(5)
    assert {event.regarding[0].kind for event in world.events} == {resource.kind for resource in RESOURCES}
    assert len(world.events) == len(RESOURCES)
    await running


@virtual_time
async def test_invalid_ca_bundle_is_replaced_by_the_last_valid_one():
    world = World()
    world.register(BUNDLE)
    running = asyncio.create_task(world.run(60))
    await asyncio.sleep(5)
    client = {**world.webhooks()[0]["clientConfig"], "caBundle": encoded("no certificate")}
    world.change(clientConfig=client)
    await running
    assert {webhook["clientConfig"]["caBundle"] for webhook in world.webhooks()} == {BUNDLE}
    assert len(world.traffic.writes) == 1


@virtual_time
async def test_configuration_that_the_file_lacks_is_not_repaired(tmp_path):
    file = tmp_path / "webhooks.yaml"
    file.write_text(FILE.read_text().partition("\n---\n")[0])
    world = World(file)
    world.register(BUNDLE)
    world.plane.send("DELETE", VALIDATING_WEBHOOKS.item_path("", NAME))
    world.change(failurePolicy="Ignore")
    await world.run(5)
    assert world.webhooks()[0]["failurePolicy"] == "Fail"
    assert len(world.traffic.writes) == 1


@pytest.mark.parametrize(
    "webhooks",
    [
        *("", "webhooks: []", "webhooks: [{name: a}]", "webhooks: {name: a}"),
        *("webhooks: [{name: a, clientConfig: {}}]", "webhooks: [{name: a, clientConfig: {}, rules: [x]}]"),
    ],
)
def test_file_without_webhooks_is_refused(tmp_path, webhooks):
    file = DesiredConfigFile(tmp_path / "registration.yaml")
    says = "no webhooks with name, clientConfig and rules in its MutatingWebhookConfiguration"
    with pytest.raises(ValueError, match=says):
        file.parse(f"kind: MutatingWebhookConfiguration\n{webhooks}\n---\nkind: [other]\n")


@virtual_time
async def test_repair_after_an_outage_is_retried_soon_again():
    world = World()
    world.register(BUNDLE)
    running = asyncio.create_task(world.run(300))
    world.traffic.error = lambda call: (503, "overloaded") if call.is_write else None
    world.change(failurePolicy="Ignore")
    await asyncio.sleep(120)
    world.traffic.error = lambda _: None
    await asyncio.sleep(60)
    assert world.webhooks()[0]["failurePolicy"] == "Fail"
    failures = [(503, "overloaded")]
    world.traffic.error = lambda call: failures.pop() if call.is_write and failures else None
    world.change(failurePolicy="Ignore")
    await asyncio.sleep(5)
    assert world.webhooks()[0]["failurePolicy"] == "Fail"
    running.cancel()
