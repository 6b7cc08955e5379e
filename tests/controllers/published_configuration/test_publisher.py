"""The active configuration is published once, and again when it changes."""

import msgspec
import pytest

from controller.api.configuration import (
    VolcanoGlobalConfiguration,
    configuration_revision,
    load_configuration,
    published_data,
    read_published,
)
from controller.controllers.published_configuration.controller import ConfigurationPublisher
from controller.kube.errors import Conflict, NotFound

TENANTS = load_configuration("""
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
startupTimeout: 90s
exemptNamespaces: [z, a]
tenants: [{namespaces: [ml], queues: [a]}]
nodeShapes: [{clusters: {matchLabels: {tier: gpu}}, nodes: [{count: 2, allocatable: {cpu: 8}}]}]
integrations: [{apiVersion: apps/v1, kind: Deployment}]
""")


class Server:
    """An API server with at most one ConfigMap."""

    def __init__(self):
        self.data = None
        self.version = 0
        self.writes = 0
        self.is_created_meanwhile = False

    async def get(self, path):
        if self.data is None:
            raise NotFound(f"GET {path}", 404, "not found")
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.version)}, "data": self.data})

    async def create(self, path, body):
        if self.is_created_meanwhile:
            raise Conflict(f"POST {path}", 409, "already exists")
        return self._store(msgspec.json.decode(body)["data"])

    async def patch(self, path, body):
        test, add = msgspec.json.decode(body)
        assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": str(self.version)}
        return self._store(add["value"])

    def _store(self, data):
        self.data, self.version, self.writes = data, self.version + 1, self.writes + 1
        return b"{}"


def publisher(server, configuration):
    return ConfigurationPublisher(server, "ns", configuration=lambda: configuration, may_write=lambda: True)


@pytest.mark.parametrize("configuration", [VolcanoGlobalConfiguration(), TENANTS], ids=["defaults", "tenants"])
def test_published_configuration_is_read_back_unchanged(configuration):
    found, revision = read_published(published_data(configuration))
    assert (found, revision) == (configuration, configuration_revision(configuration))


async def test_configuration_is_written_once_until_it_changes():
    server = Server()
    await publisher(server, TENANTS).publish()
    await publisher(server, TENANTS).publish()  # a new leader
    assert (server.writes, read_published(server.data)[0]) == (1, TENANTS)
    await publisher(server, VolcanoGlobalConfiguration()).publish()
    assert read_published(server.data)[0] == VolcanoGlobalConfiguration()


async def test_concurrent_creation_is_no_error():
    server = Server()
    server.is_created_meanwhile = True
    await publisher(server, TENANTS).publish()
    assert server.writes == 0
