"""The active configuration is published once, and again when it changes."""

import json

import pytest

from controller.api.configuration import (
    VolcanoGlobalConfiguration,
    configuration_revision,
    load_configuration,
    published_data,
    read_published,
)
from controller.api.keys import CONFIG_MAPS, PUBLISHED_CONFIGURATION
from controller.controllers.published_configuration.controller import ConfigurationPublisher
from tests.controllers.memory import Traffic, connect, memory_server
from tests.deterministic.objects import CONFIGMAPS
from tests.deterministic.worlds import send
from tests.virtual_time import virtual_time

TENANTS = load_configuration("""
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
startupTimeout: 90s
exemptNamespaces: [z, a]
tenants: [{namespaces: [ml], queues: [a]}]
nodeShapes: [{clusters: {matchLabels: {tier: gpu}}, nodes: [{count: 2, allocatable: {cpu: 8}}]}]
integrations: [{apiVersion: apps/v1, kind: Deployment}]
""")

KINDS_OF_TENANTS = VolcanoGlobalConfiguration(
    exempt_namespaces=TENANTS.exempt_namespaces, integrations=TENANTS.integrations
)

PATH = CONFIG_MAPS.item_path("ns", PUBLISHED_CONFIGURATION)


class ControlPlane:
    """An API server in memory, and the configuration that it stores."""

    def __init__(self):
        self.server, self.traffic = memory_server([CONFIGMAPS], lambda: 0), Traffic()
        self.replaced = []
        send(self.server, "POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})

    async def publish(self, configuration):
        await ConfigurationPublisher(
            connect(self.server, self.traffic),
            "ns",
            configuration=lambda: configuration,
            may_write=lambda: True,
            on_replace=self.replaced.append,
        ).publish()

    @property
    def stored(self):
        return read_published(send(self.server, "GET", PATH).body["data"])[0]


@pytest.mark.parametrize("configuration", [VolcanoGlobalConfiguration(), TENANTS], ids=["defaults", "tenants"])
def test_published_configuration_is_read_back_unchanged(configuration):
    published, revision = read_published(published_data(configuration))
    assert (published, revision) == (configuration, configuration_revision(configuration))


@virtual_time
async def test_configuration_is_written_once_until_it_changes():
    plane = ControlPlane()
    await plane.publish(TENANTS)
    await plane.publish(TENANTS)  # a new leader
    assert (len(plane.traffic.writes), plane.stored, plane.replaced) == (1, TENANTS, [])
    await plane.publish(VolcanoGlobalConfiguration())
    assert (len(plane.traffic.writes), plane.stored) == (2, VolcanoGlobalConfiguration())
    assert plane.replaced == [TENANTS]


@virtual_time
async def test_kinds_of_a_newer_version_are_read_after_a_rollback():
    plane, data = ControlPlane(), published_data(TENANTS)
    data["configuration.json"] = json.dumps(json.loads(data["configuration.json"]) | {"newKey": {"a": 1}})
    body = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": data}
    send(plane.server, "POST", PATH.rpartition("/")[0], body)
    await plane.publish(VolcanoGlobalConfiguration())
    assert (plane.stored, plane.replaced) == (VolcanoGlobalConfiguration(), [KINDS_OF_TENANTS])


@pytest.mark.parametrize("data", [{"a": "b"}, {"configuration.json": "{"}, {"configuration.json": "[]"}])
@virtual_time
async def test_unreadable_published_configuration_is_replaced(data):
    plane = ControlPlane()
    body = {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": data}
    send(plane.server, "POST", PATH.rpartition("/")[0], body)
    await plane.publish(TENANTS)
    assert (plane.stored, plane.replaced) == (TENANTS, [])


@virtual_time
async def test_concurrent_creation_is_no_error():
    plane, other = ControlPlane(), {"metadata": {"name": PUBLISHED_CONFIGURATION}, "data": {"a": "b"}}
    plane.traffic.on_write = lambda: send(plane.server, "POST", PATH.rpartition("/")[0], other)  # it arrives first
    await plane.publish(TENANTS)
    assert send(plane.server, "GET", PATH).body["data"] == {"a": "b"}
