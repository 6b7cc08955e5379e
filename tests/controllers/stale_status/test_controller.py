"""The stale status controller corrects only workloads that are still evicted when it writes."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.controllers.stale_status.controller import StaleStatusController
from controller.controllers.stale_status.patches import binding_status_patch, job_status_patch
from controller.kube.errors import Invalid, NotFound
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


def evicted(store: Store, name: str = "j1", *, evictions: int = 1) -> CachedBinding:
    """Store a suspended binding that was evicted so many times."""
    record = objects.admission_record(uid=f"rb-{name}", queue="a", evictions=evictions)
    store.bindings.upsert(store.bindings.decode(objects.binding(name, record=record)))
    return next(binding for binding in store.bindings if binding.name == f"{name}-job")


async def corrected(api: SlowApi, store: Store, begin: Callable[[StaleStatusController], None]) -> list[str]:
    """Return what the controller has patched in five seconds after *begin*."""
    controller = StaleStatusController(api, store, may_write=lambda: True, clock=lambda: 0)  # type: ignore[arg-type]
    begin(controller)
    running = asyncio.get_running_loop().create_task(controller.run())
    await asyncio.sleep(5)
    assert not running.done()
    running.cancel()
    return api.patched


def write_of(binding: CachedBinding, effect: str = "evict") -> Any:
    return SimpleNamespace(effect=effect, uid=binding.uid)


def api_after(
    spec: dict[str, Any],
    *,
    has_job: bool = True,
    leaves: bool = False,
    effect: str = "evict",
    evictions: int = 1,
    **status: Any,
) -> SlowApi:
    """Return the API server after a write with that *effect*; the binding has this *spec* and *status* now.

    If it *leaves*, the status ends after two seconds.
    """

    async def main() -> SlowApi:
        api, store = SlowApi(spec, status, has_job=has_job), Store()
        binding = evicted(store, evictions=evictions)
        assert binding.is_suspended
        if leaves:
            asyncio.get_running_loop().call_later(2, api.binding.update, {"status": dict(SCHEDULED)})
        await corrected(api, store, lambda controller: controller.on_write(write_of(binding, effect), binding))
        return api

    return simulate(main, 1)


def test_status_of_evicted_workload_is_corrected():
    """The job is read first: a later report of a cluster changes its version, so the patch conflicts."""
    api = api_after(EVICTED)
    assert (api.patched, api.read[:2]) == (["resourcebindings", "jobs"], ["jobs", "resourcebindings"])
    assert api_after(EVICTED, has_job=False).patched == ["resourcebindings"]


@pytest.mark.parametrize(
    ("effect", "evictions", "is_corrected"),
    [
        pytest.param("note", 1, True, id="evicted-by-others"),
        pytest.param("note", 0, False, id="queue-recorded"),
        pytest.param("clear", 0, True, id="placed-before-its-admission"),
    ],
)
def test_status_is_corrected_after_others_placed_or_evicted_it(effect, evictions, is_corrected):
    assert bool(api_after(EVICTED, effect=effect, evictions=evictions).patched) == is_corrected


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


def test_status_is_corrected_after_a_report_that_the_cache_lacks():
    api = api_after(EVICTED, leaves=True, aggregatedStatus=[{"clusterName": "m1"}])
    assert api.patched == ["resourcebindings", "jobs"]


class ValidatingApi(SlowApi):
    """An API server that accepts only the statuses of some jobs."""

    async def patch(self, path: str, *_: Any, **__: Any) -> None:
        if "jobs/invalid" in path:
            raise Invalid(f"PATCH {path}", 422, "spec.tasks: Invalid value")
        self.patched.append(path.split("/")[-2])


def test_rejected_status_delays_no_other_workload():
    async def main() -> list[str]:
        store = objects.complete_store()
        for name in (*(f"invalid-{number}" for number in range(9)), "train"):
            evicted(store, name)
        return await corrected(ValidatingApi(EVICTED, {}), store, StaleStatusController.on_leading)

    assert "train" in simulate(main, 1)


def test_eviction_during_a_correction_is_corrected_too():
    """The workload is admitted and evicted again while the request for its job is in flight."""

    class EvictingApi(SlowApi):
        evict_again: Callable[[], None]

        async def patch(self, path: str, *_: Any, **__: Any) -> None:
            await super().patch(path)
            if self.patched == ["resourcebindings", "jobs"]:
                self.evict_again()

    async def main() -> list[str]:
        api, store = EvictingApi(EVICTED, {}), Store()
        binding = evicted(store)

        def evict(controller: StaleStatusController) -> None:
            api.evict_again = lambda: controller.on_write(write_of(binding), binding)
            api.evict_again()

        return await corrected(api, store, evict)

    assert simulate(main, 1) == ["resourcebindings", "jobs"] * 2


class NestedApi(SlowApi):
    """An API server with a job that is nested as deeply as the API server allows."""

    async def get(self, path: str) -> bytes:
        raw = await super().get(path)
        return raw if "resourcebindings" in path else raw[:-1] + b', "spec": ' + b'{"a":' * 9_000 + b"1" + b"}" * 9_001


def test_status_of_deeply_nested_job_is_corrected():
    async def main() -> list[str]:
        store = objects.complete_store()
        evicted(store)
        return await corrected(NestedApi(EVICTED, {}), store, StaleStatusController.on_leading)

    assert simulate(main, 1) == ["resourcebindings", "jobs"]


META = {"metadata": {"uid": "u", "resourceVersion": "7", "name": "train"}}


def job(**status: Any) -> dict[str, Any]:
    return {**META, "status": status}


def test_running_status_is_corrected_to_pending():
    patch = job_status_patch(job(state={"phase": "Running"}, running=3, minAvailable=3, retryCount=1), 0)
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert patch["status"]["state"].items() >= {"phase": "Pending", "reason": "Evicted"}.items()
    assert patch["status"]["state"]["lastTransitionTime"] == "1970-01-01T00:00:00Z"
    assert patch["status"]["running"] == 0
    assert "retryCount" not in patch["status"]
    assert job_status_patch(job(state={"phase": []}), 0) is not None, "a wrong type is no phase"


@pytest.mark.parametrize(
    "status", [{}, {"state": {"phase": "Pending"}}, {"state": None}, {"pending": 0}, {"state": []}]
)
def test_correct_status_is_unchanged(status):
    assert job_status_patch(job(**status), 0) is None
    assert job_status_patch(META, 0) is None


def test_only_scheduled_condition_is_corrected():
    scheduled = {"type": "Scheduled", "status": "True", "reason": "Success", "message": "well"}
    applied = {"type": "FullyApplied", "status": "False", "reason": "FullyAppliedFailed"}
    patch = binding_status_patch({**META, "status": {"conditions": [scheduled, applied]}}, 0)
    first, second = patch["status"]["conditions"]
    assert (first["type"], first["status"], first["reason"]) == ("Scheduled", "False", "Evicted")
    assert second == applied


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        [],
        {"conditions": "none"},
        {"conditions": ["odd"]},
        {"conditions": [{"type": "Scheduled", "status": "False"}]},
    ],
)
def test_unscheduled_condition_is_unchanged(status):
    assert binding_status_patch({**META, "status": status}, 0) is None
