"""Lists of the queues that a denial requests."""

import pytest

from controller.api.keys import QUEUES
from controller.kube.client import Api
from tests.scripted_server import listing, scripted_server, thing
from webhook.queue_cache import QueueCache, decode_cached
from webhook.watchers import ControlPlaneWatcher, PublishedBundle


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param("7", ["watched"], id="older-than-the-watch"),
        pytest.param("10", ["a", "b"], id="of-a-restored-server"),
        pytest.param("", ["watched"], id="older-than-the-first-list"),
    ],
)
async def test_requested_list_replaces_no_newer_queues(tmp_path, before, expected):
    queues = QueueCache()
    queues.replace([decode_cached(b'{"metadata": {"name": "watched"}}')])
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        watcher = ControlPlaneWatcher(api, queues, PublishedBundle("volcano-global"))
        watcher._informer.version = before

        async def changed_meanwhile(request):
            watcher._informer.version = "10"
            return await listing(thing("a", 1), version=9, token="next")(request)

        server.says("GET", QUEUES.path, changed_meanwhile, listing(thing("b", 2), version=9))
        assert await watcher.refresh_queues()
    assert sorted(queues.queues) == expected


async def test_requested_list_replaces_queues_of_the_same_age(tmp_path):
    queues = QueueCache()
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        server.says("GET", QUEUES.path, listing(thing("a", 1), version=9))
        watcher = ControlPlaneWatcher(api, queues, PublishedBundle("volcano-global"))
        watcher._informer.version = "9"
        assert await watcher.refresh_queues()
    assert sorted(queues.queues) == ["a"]
