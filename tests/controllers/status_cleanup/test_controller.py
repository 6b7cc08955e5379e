"""The stale status controller corrects only workloads that are still evicted when it writes."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cache.store import Store
from controller.controllers.status_cleanup.controller import StaleStatusController
from controller.kube.errors import NotFound
from tests.cache import objects
from tests.deterministic.clock import simulate

EVICTED = {"suspension": {"scheduling": True}}
SCHEDULED = {"conditions": [{"type": "Scheduled", "status": "True"}]}


class SlowApi:
    """An API server with newer objects than the cache."""

    def __init__(self, spec: dict[str, Any], status: dict[str, Any], *, has_job: bool = True) -> None:
        self.binding = {"spec": spec, "status": {**SCHEDULED, **status}}
        self.has_job = has_job
        self.patched: list[str] = []
        self.read: list[str] = []

    async def get(self, path: str) -> bytes:
        self.read.append(path.split("/")[-2])
        if "jobs" in path and not self.has_job:
            raise NotFound(f"GET {path}", 404, "not found")
        rest = self.binding if "resourcebindings" in path else {"status": {"state": {"phase": "Running"}}}
        return json.dumps({"metadata": {"uid": "u", "resourceVersion": "9"}, **rest}).encode()

    async def patch(self, path: str, *_: Any, **__: Any) -> None:
        self.patched.append(path.split("/")[-3])


def api_after(spec: dict[str, Any], *, has_job: bool = True, **status: Any) -> SlowApi:
    """Return the API server after a workload was evicted, whose binding has this *spec* and *status* now."""

    async def main() -> SlowApi:
        api, store = SlowApi(spec, status, has_job=has_job), Store()
        record = objects.admission_record(uid="rb-j1", queue="a", evictions=1)
        store.bindings.upsert(store.bindings.decode(objects.binding(record=record)))
        (binding,) = store.bindings
        assert binding.is_suspended
        controller = StaleStatusController(api, store, may_write=lambda: True, clock=lambda: 0)  # type: ignore[arg-type]
        write: Any = SimpleNamespace(effect="evict", uid=binding.uid)
        controller.on_write(write, binding)
        running = asyncio.get_running_loop().create_task(controller.run())
        await asyncio.sleep(5)
        running.cancel()
        return api

    return simulate(main, 1)


def test_status_of_evicted_workload_is_corrected():
    assert api_after(EVICTED).patched == ["resourcebindings", "jobs"]


def test_binding_is_corrected_although_its_job_is_deleted():
    assert api_after(EVICTED, has_job=False).patched == ["resourcebindings"]


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"suspension": {"scheduling": False}, "clusters": [{"name": "m1"}]}, {}, id="admitted-again"),
        pytest.param(EVICTED | {"clusters": [{"name": "m1"}]}, {}, id="placed"),
        pytest.param(EVICTED | {"gracefulEvictionTasks": [{"fromCluster": "m1"}]}, {}, id="evicted-again"),
        pytest.param(EVICTED, {"aggregatedStatus": [{"clusterName": "m1"}]}, id="reported"),
    ],
)
def test_status_is_unchanged_after_a_later_admission(spec, status):
    assert api_after(spec, **status).patched == []


def test_job_is_read_before_its_binding():
    """A later report of a cluster changes the version of the job, so the patch conflicts."""
    assert api_after(EVICTED).read[:2] == ["jobs", "resourcebindings"]
