"""When the job status controller writes: one attempt at a time for each job, never at once after a rejection."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.cache.objects import VOLCANO_JOB, TemplateKey
from controller.cache.store import Store
from controller.controllers.job_status import controller as job_status
from controller.controllers.job_status.controller import JobStatusController, JobStatusDependencies
from controller.controllers.job_status.pending_status import PendingStatus, admitted_status
from controller.engine.plan import Wait
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadState, WorkloadUid
from controller.kube.errors import Conflict, Invalid
from tests.cache import objects
from tests.cache.fake_event_handler import FakeEventHandler, upsert
from tests.deterministic.clock import simulate


class RejectingApi:
    """An API server that answers every patch with a conflict."""

    def __init__(self) -> None:
        self.attempts: list[float] = []

    async def patch(self, *_: Any, **__: Any) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        raise Conflict("PATCH", 409, "the object has been modified")


class ValidatingApi(RejectingApi):
    """An API server that accepts only the statuses of some jobs."""

    async def patch(self, path: str, *_: Any, **__: Any) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        if "invalid" in path:
            raise Invalid(f"PATCH {path}", 422, "spec.tasks: Invalid value")
        await asyncio.sleep(0.01)
        self.written = path


def dependencies(**more: Any) -> JobStatusDependencies:
    """Return what the controller of an idle leader without workloads depends on, unless *more* replaces it."""
    usual = {
        "engine": lambda: SimpleNamespace(workloads={}),
        "may_write": lambda: True,
        "is_enabled": lambda: True,
        "is_busy": lambda: False,
        "record_event": lambda _: None,
        "per_second": 100,
    }
    return JobStatusDependencies(**{**usual, **more})


def test_rejected_status_delays_no_other_job():
    async def main() -> ValidatingApi:
        loop, store, api = asyncio.get_running_loop(), Store(), ValidatingApi()
        controller = JobStatusController(api, store, dependencies(), clock=lambda: int(loop.time() * 1000))
        for name in (*(f"invalid-{number}" for number in range(9)), "train"):
            store.jobs.upsert(store.jobs.decode(objects.job(name)))
            status = PendingStatus(Reason.NO_MATCHING_POLICY, str, 0)
            controller._queue(TemplateKey(VOLCANO_JOB, "ml", name), status)
        running = loop.create_task(controller.run())
        await asyncio.sleep(30)
        running.cancel()
        return api

    api = simulate(main, 1)
    assert (api.written.split("/")[-2], len(api.attempts)) == ("train", 10)
    assert api.attempts[-1] < 1


def test_statuses_of_one_namespace_do_not_delay_others():
    """At 20 per second, the statuses of 10,000 jobs of one tenant take eight minutes."""

    async def main() -> list[float]:
        loop, store, written = asyncio.get_running_loop(), Store(), list[float]()

        class Recording:
            async def patch(self, path: str, *_: Any, **__: Any) -> None:
                if "/namespaces/few/" in path:
                    written.append(loop.time())

        needed = dependencies(per_second=20)
        controller = JobStatusController(Recording(), store, needed, clock=lambda: int(loop.time() * 1000))

        def queue(namespace: str, name: str) -> None:
            store.jobs.upsert(store.jobs.decode(objects.job(name, namespace=namespace)))
            status = PendingStatus(Reason.NO_MATCHING_POLICY, str, int(loop.time() * 1000))
            controller._queue(TemplateKey(VOLCANO_JOB, namespace, name), status)

        for number in range(1000):
            queue("many", f"job-{number}")
        running = loop.create_task(controller.run())
        await asyncio.sleep(10)
        queue("few", "a")
        queue("few", "b")
        await asyncio.sleep(10)
        running.cancel()
        return written

    first, second = simulate(main, 1)
    assert first < second < 10.5


def test_statuses_enabled_later_are_written_for_unselected_jobs():
    events, enabled = list[str](), list[bool]()

    async def main() -> ValidatingApi:
        loop, store, api = asyncio.get_running_loop(), objects.complete_store(), ValidatingApi()
        needed = dependencies(is_enabled=lambda: bool(enabled), record_event=lambda event: events.append(event.reason))
        created_at = objects.CREATED_MS
        controller = JobStatusController(api, store, needed, clock=lambda: created_at + int(loop.time() * 1000))
        store.jobs.upsert(store.jobs.decode(objects.job()))
        running = loop.create_task(controller.run())
        await asyncio.sleep(60)
        assert not api.attempts
        enabled.append(True)
        await asyncio.sleep(20)
        running.cancel()
        return api

    assert simulate(main, 1).written.endswith("/jobs/j1/status")
    assert events == [Reason.NO_MATCHING_POLICY]


@pytest.mark.parametrize("leads_later", [False, True])
def test_refused_job_gets_a_status_after_karmada_has_removed_it(leads_later):
    async def main() -> ValidatingApi:
        loop, store, api = asyncio.get_running_loop(), Store(), ValidatingApi()
        workloads, leads = {"rb-j1": SimpleNamespace(state=WorkloadState.ADMITTED)}, not leads_later
        needed = dependencies(engine=lambda: SimpleNamespace(workloads=workloads), may_write=lambda: leads)
        controller = JobStatusController(api, store, needed, clock=lambda: int(loop.time() * 1000))
        running = loop.create_task(controller.run())
        for refused in ({}, {"m1": "no queue 'a'"}):
            bound = objects.binding(paused=False, clusters=["m1"], refused=refused)
            upsert(store, ("jobs", objects.job()), ("bindings", bound))
            store.sync_to(FakeEventHandler(), 0)
        leads = True
        controller.on_leading()
        await asyncio.sleep(30)
        running.cancel()
        return api

    api = simulate(main, 1)
    assert api.written.endswith("/jobs/j1/status")
    (at,) = api.attempts
    assert at >= 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"phase": "Pending", "reason": "QueueNotFound"}, {}, id="karmada-removed-it"),
        pytest.param({"phase": "Running"}, {"phase": "Pending", "reason": "Evicted"}, id="stale-status-was-corrected"),
    ],
)
def test_pending_reason_is_written_after_another_status(before, after):
    """Karmada removes the status of an evicted job with each change of its labels, for example by a GitOps tool."""

    async def main() -> ValidatingApi:
        loop, store, api = asyncio.get_running_loop(), Store(), ValidatingApi()
        queue, refusal = QueueName("a"), Refusal(Reason.QUEUE_NOT_FOUND, queue=QueueName("a"))
        workload = Workload(WorkloadUid("rb-j1"), "ml", "j1", "Job", queue, SchedulingRequirements())
        engine = SimpleNamespace(workloads={workload.uid: workload}, refusal=lambda _: refusal)
        controller = JobStatusController(
            api, store, dependencies(engine=lambda: engine), clock=lambda: int(loop.time() * 1000)
        )
        running = loop.create_task(controller.run())
        upsert(store, ("jobs", job_with_state(1, before)), ("bindings", objects.binding()))
        controller.on_waits([Wait(workload, refusal, 1)])
        await asyncio.sleep(30)
        assert not api.attempts
        upsert(store, ("jobs", job_with_state(2, after)))
        await asyncio.sleep(30)
        running.cancel()
        return api

    api = simulate(main, 1)
    assert (api.written.split("/")[-2], len(api.attempts)) == ("j1", 1)


def job_with_state(version: int, state: dict[str, str]) -> bytes:
    """Return a job with *state* in its status."""
    job = msgspec.json.decode(objects.job(version=version))
    return msgspec.json.encode({**job, "status": {"state": state}})


def attempts_of(*statuses: tuple[float, str], busy_until: float = 0, cleared_at: float = 20) -> list[float]:
    """Return when the controller tries to write statuses that are queued at these times.

    Until *busy_until* decisions are written; at *cleared_at* the controller loses leadership, until a moment later.
    """

    async def main() -> list[float]:
        loop, store, api = asyncio.get_running_loop(), Store(), RejectingApi()
        store.jobs.upsert(store.jobs.decode(objects.job()))
        store.bindings.upsert(store.bindings.decode(objects.binding()))
        (binding,) = store.bindings
        workloads = {binding.uid: SimpleNamespace(state=WorkloadState.PENDING)}
        needed = dependencies(
            engine=lambda: SimpleNamespace(workloads=workloads), is_busy=lambda: loop.time() < busy_until
        )
        controller = JobStatusController(api, store, needed, clock=lambda: int(loop.time() * 1000))
        running = loop.create_task(controller.run())
        loop.call_at(cleared_at, controller.clear)
        for at, reason in statuses:
            await asyncio.sleep(at - loop.time())
            if reason == "Admitted":
                workloads[binding.uid].state = WorkloadState.ADMITTED
                controller._queue(binding.template, replace(admitted_status(binding, 0), since=int(at * 1000)))
            else:
                controller._queue(binding.template, PendingStatus(reason, str, int(at * 1000)))
        await asyncio.sleep(7)
        running.cancel()
        return api.attempts

    return simulate(main, 1)


def test_status_is_tried_once_per_interval_after_a_conflict():
    attempts = attempts_of((0, "QueueLimitReached"), (0.3, "Admitted"))
    assert len(attempts) == 4
    assert all(later - earlier > 1.9 for earlier, later in itertools.pairwise(attempts))


def test_admission_is_written_at_once_before_an_earlier_due_time():
    (first, *_) = attempts_of((0, "Admitted"))
    assert first < 0.1


def test_leadership_lost_while_a_status_is_due_stops_nothing():
    attempts = attempts_of((0, "QueueLimitReached"), (1.5, "QueueLimitReached"), busy_until=1, cleared_at=0.5)
    assert len(attempts) > 1
    assert attempts[0] > 1.4


def test_times_of_the_newest_written_statuses_are_remembered(monkeypatch):
    monkeypatch.setattr(job_status, "_MAX_REMEMBERED", 2)

    async def main() -> list[str]:
        store, needed = Store(), SimpleNamespace(per_second=100, is_enabled=lambda: True)
        controller = JobStatusController(ValidatingApi(), store, needed, clock=lambda: 0)
        for name in ("a", "b", "a", "c"):
            job = store.jobs.decode(objects.job(name))
            await controller._write(job, PendingStatus(Reason.NO_MATCHING_POLICY, str, 0))
        return [key.name for key in controller._written_at]

    assert simulate(main, 1) == ["a", "c"]
