"""Lists of the queues that a denial requests."""

import pytest

from controller.api.keys import QUEUES
from controller.kube.client import Api
from tests.scripted_server import listing, scripted_server, thing
from webhook.queue_cache import QueueCache, decode_cached
from webhook.watchers import ControlPlaneWatcher, PublishedBundle


@pytest.mark.parametrize(
    ("version", "expected"),
    [pytest.param(8, ["watched"], id="older-than-the-watch"), pytest.param(9, ["a", "b"], id="as-new-as-the-watch")],
)
async def test_requested_list_replaces_no_newer_queues(tmp_path, version, expected):
    queues = QueueCache()
    queues.replace([decode_cached(b'{"metadata": {"name": "watched"}}')])
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        pages = listing(thing("a", 1), version=version, token="next"), listing(thing("b", 2), version=version)
        server.says("GET", QUEUES.path, *pages)
        watcher = ControlPlaneWatcher(api, queues, PublishedBundle("volcano-global"))
        watcher._informer.version = "9"
        assert await watcher.refresh_queues()
    assert sorted(queues.queues) == expected
