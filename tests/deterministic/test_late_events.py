"""What the controllers and Karmada do where events are late, lost or misleading, on virtual time."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from controller.api.keys import ADMISSION_ANNOTATION, HYPERJOB_NAME_LABEL
from tests.deterministic import kinds
from tests.deterministic.clock import simulate
from tests.deterministic.network import Call, Event, EventStream, NoFaults, Route
from tests.deterministic.objects import Object
from tests.deterministic.operations import REFUSE_WORKS, create_cluster, describe_cluster, hyperjob, job
from tests.deterministic.reads import Response
from tests.deterministic.statuses import StatusError
from tests.deterministic.system import NAMESPACE, System

T = TypeVar("T")
TRAINER = {"name": "trainer", "templateSpec": job("h", "default", pods=1, cpu="1", seconds=60)["spec"]}


def run_system(folder: Path, scenario: Callable[[System], Awaitable[T]]) -> T:
    """Return the result of *scenario* on a running system with a cluster."""

    async def main() -> T:
        system = System(1, folder)
        await system.install()
        await create_cluster(system, "member1")
        system.start()
        await asyncio.sleep(5)
        result = await scenario(system)
        await system.stop()
        return result

    return simulate(main, 1)


def test_status_of_a_deleted_hyperjob_is_not_written_at_once(tmp_path):
    times = list[float]()

    class Gone(NoFaults):
        def on_request(self, call: Call, route: Route) -> None:
            if call.is_write and call.request.path.endswith("/hyperjobs/h/status"):
                times.append(asyncio.get_running_loop().time())
                error = StatusError(404, "NotFound", 'hyperjobs "h" not found', {})
                route.response = Response(error.code, error.status)

    async def create(system: System) -> None:
        system.network.faults = Gone()
        await system.create(kinds.HYPERJOBS, hyperjob("h", TRAINER))
        await asyncio.sleep(20)

    run_system(tmp_path, create)
    assert len(times) > 2
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1, times


def test_parts_are_not_deleted_again_with_each_hyperjob_change(tmp_path):
    deletions = list[str]()

    class Late(NoFaults):
        def on_request(self, call: Call, _: Route) -> None:
            if call.request.method == "DELETE" and call.client != "karmada":
                deletions.append(call.request.path.rpartition("/")[2])

        def on_events(self, call: Call, stream: EventStream, events: Sequence[Event]) -> Iterable[tuple[float, Event]]:
            return ((20 if kind == "DELETED" else 0, (kind, obj)) for kind, obj in events)

    async def shrink(system: System) -> None:
        await system.create(kinds.HYPERJOBS, hyperjob("h", {**TRAINER, "replicas": 2}))
        await asyncio.sleep(10)
        system.network.faults = Late()
        for attempt in range(5):
            patch = {"spec": {"replicatedJobs": [{**TRAINER, "replicas": 1}]}}
            patch["metadata"] = {"annotations": {"touched": str(attempt)}}
            await system.merge(kinds.HYPERJOBS, (NAMESPACE, "h"), patch)
            await asyncio.sleep(1)

    run_system(tmp_path, shrink)
    # Two Jobs and a policy; the second deletion of each shows that it is gone.
    assert 3 <= len(deletions) <= 6, deletions


def test_parts_are_evicted_together_after_a_late_discovery(tmp_path):
    """The API server answers the discovery of HyperJobs late after a restart, when a preemptor waits already."""

    class Undiscovered(NoFaults):
        def on_request(self, call: Call, route: Route) -> None:
            if call.request.path.endswith(("/training.volcano.sh/v1alpha1", "/batch.volcano.sh/v1alpha1")):
                route.response = Response(503, StatusError(503, "ServiceUnavailable", "starting", {}).status)

    async def restart(system: System) -> dict[str, bool]:
        system.configure(preemption={"enabled": True, "minRuntime": "5s", "gracePeriod": "0s"})
        await system.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await system.create(kinds.QUEUES, {"metadata": {"name": "default"}})
        one = {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}
        selector = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.name, "name": "urgent"}
        policy = {"resourceSelectors": [selector], "placement": {"spreadConstraints": [one]}}
        await system.create(kinds.POLICIES, {"metadata": {"name": "urgent", "namespace": NAMESPACE}, "spec": policy})
        half = {"name": "trainer", "templateSpec": job("h", "default", pods=1, cpu="7", seconds=600)["spec"]}
        made = hyperjob("h", {**half, "replicas": 2})
        made["metadata"]["annotations"] = {"volcano-global.io/runtime": "600s"}
        await system.create(kinds.HYPERJOBS, made)
        await asyncio.sleep(30)
        for controller in system.controllers:
            await controller.process.stop()
        await system.create(kinds.JOBS, job("urgent", "default", pods=1, cpu="6", seconds=600, priority="high"))
        system.network.faults = Undiscovered()
        for controller in system.controllers:
            controller.process.start()
        await asyncio.sleep(30)
        system.network.faults = NoFaults()
        await asyncio.sleep(30)
        bindings = system.server.objects(kinds.BINDINGS).items()
        return {name: "clusters" in binding["spec"] for (_, name), binding in bindings}

    placed = {"h-trainer-0-job": False, "h-trainer-1-job": False, "urgent-job": True}
    assert run_system(tmp_path, restart) == placed


def test_refused_works_change_nothing_that_ran_before(tmp_path):
    """Karmada reports no status of refused Works, also to controllers that start later."""

    def admitted_phases(system: System) -> dict[str, str | None]:
        """Return the phase in the record of each admitted job."""
        annotations = {
            name.removesuffix("-job"): json.loads(binding["metadata"]["annotations"][ADMISSION_ANNOTATION])
            for (_, name), binding in system.server.objects(kinds.BINDINGS).items()
            if not binding["spec"]["suspension"]["scheduling"]
        }
        return {name: record.get("lastPhase") for name, record in annotations.items()}

    async def refuse(system: System) -> list[dict[str, str | None]]:
        system.configure(startupTimeout="1m", resize={"gracePeriod": "0s"})
        await system.create(kinds.QUEUES, {"metadata": {"name": "default"}})
        selector = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.name}
        policy = {"metadata": {"name": "jobs", "namespace": NAMESPACE}, "spec": {"resourceSelectors": [selector]}}
        await system.create(kinds.POLICIES, policy)
        await system.create(kinds.JOBS, job("finished", "default", pods=2, cpu="1", seconds=10))
        await system.create(kinds.JOBS, job("running", "default", pods=2, cpu="1", seconds=3000))
        await asyncio.sleep(60)
        await describe_cluster(system, "member1", **{REFUSE_WORKS: "job updates may not change fields"})
        await system.create(kinds.JOBS, job("late", "default", pods=1, cpu="1", seconds=3000))
        await asyncio.sleep(20)
        states = [admitted_phases(system)]
        status = system.server.objects(kinds.JOBS)[NAMESPACE, "late"]["status"]["state"]
        assert status["reason"] == "WorkNotApplied"
        assert status["message"].endswith("job updates may not change fields")
        for controller in system.controllers:
            await controller.process.stop()
        for controller in system.controllers:
            controller.process.start()
        await asyncio.sleep(400)
        states.append(admitted_phases(system))
        await describe_cluster(system, "member1", **{REFUSE_WORKS: None})
        await asyncio.sleep(60)
        return [*states, admitted_phases(system)]

    known = {"finished": "Finished", "running": "Running"}
    while_refused, after_restart, applied = run_system(tmp_path, refuse)
    assert while_refused == {**known, "late": "Waiting"}
    assert after_restart == known, "the job that cannot start is taken back"
    assert applied.items() >= dict.fromkeys(known).items()


def test_standby_keeps_its_state_when_it_takes_over(tmp_path):
    """Until it may write, it leads for some seconds, in which nothing changes for its state."""

    async def take_over(system: System) -> list[bool]:
        await asyncio.sleep(30)
        leader, standby = sorted(system.controllers, key=lambda item: not item.leads)
        assert standby.controller is not None
        engine, former = standby.controller.loop.engine, leader.controller
        leader.process.kill()
        await asyncio.sleep(60)
        is_kept = [standby.leads, standby.controller.loop.engine is engine]
        standby.process.freeze()
        leader.process.start()
        await asyncio.sleep(60)
        assert leader.leads
        assert leader.controller is not former
        standby.process.resume()
        await asyncio.sleep(30)
        return [*is_kept, standby.controller.loop.engine is engine]

    assert run_system(tmp_path, take_over) == [True, True, False]


class LostEvents(NoFaults):
    """Loses one kind of event of one kind of object."""

    def __init__(self, kind: str, change: str) -> None:
        self.lost = kind, change

    def on_events(self, call: Call, stream: EventStream, events: Sequence[Event]) -> Iterable[tuple[float, Event]]:
        return ((0, (change, obj)) for change, obj in events if (obj["kind"], change) != self.lost)


def test_hyperjob_with_a_lost_create_event_is_split(tmp_path):
    async def create(system: System) -> int:
        system.network.faults = LostEvents("HyperJob", "ADDED")
        await system.create(kinds.HYPERJOBS, hyperjob("h", {**TRAINER, "replicas": 2}))
        await asyncio.sleep(70)
        return len(system.server.objects(kinds.JOBS))

    assert run_system(tmp_path, create) == 2


def test_part_that_lost_its_label_is_observed_again(tmp_path):
    """The watch of the parts selects this label, so it reports the Job as deleted and then as created."""

    async def remove_label(system: System) -> tuple[set[str], list[str]]:
        await system.create(kinds.HYPERJOBS, hyperjob("h", {**TRAINER, "replicas": 2}))
        await asyncio.sleep(10)
        without = {"metadata": {"labels": {HYPERJOB_NAME_LABEL: None}}}
        await system.merge(kinds.JOBS, (NAMESPACE, "h-trainer-0"), without)
        await asyncio.sleep(10)
        labels = {
            job["metadata"]["labels"].get(HYPERJOB_NAME_LABEL) for job in system.server.objects(kinds.JOBS).values()
        }
        await system.merge(kinds.HYPERJOBS, (NAMESPACE, "h"), {"spec": {"suspend": True}})
        await asyncio.sleep(10)
        return labels, list(system.server.objects(kinds.JOBS))

    assert run_system(tmp_path, remove_label) == ({"h"}, [])


def test_job_whose_work_karmada_missed_is_stopped(tmp_path):
    """Karmada looks for Works in its cache, and again only when the generation of the binding changes."""

    class LateWorks(NoFaults):
        def on_events(self, call: Call, _: EventStream, events: Sequence[Event]) -> Iterable[tuple[float, Event]]:
            return ((call.client == "karmada" and obj["kind"] == "Work", (kind, obj)) for kind, obj in events)

    async def place(system: System) -> tuple[list[bool], Object]:
        selector = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.name}
        policy = {"resourceSelectors": [selector], "placement": {}}
        await system.create(kinds.POLICIES, {"metadata": {"name": "jobs", "namespace": NAMESPACE}, "spec": policy})
        await system.create(kinds.JOBS, job("j", "unknown-queue", pods=1, cpu="1", seconds=3600))
        await asyncio.sleep(5)
        system.network.faults = LateWorks()
        [binding] = system.server.objects(kinds.BINDINGS)
        await system.merge(kinds.BINDINGS, binding, {"spec": {"clusters": [{"name": "member1"}]}})
        is_left = []
        for seconds in (30, 60):
            await asyncio.sleep(seconds)
            works = system.server.objects(kinds.WORKS)
            is_left.append(any(work["metadata"]["name"].startswith("j-") for work in works.values()))
        return is_left, system.server.objects(kinds.BINDINGS)[binding]

    is_left, binding = run_system(tmp_path, place)
    assert is_left == [True, False]
    assert "aggregatedStatus" not in binding["status"]


#: A watch takes about 40 s, and after each 15th one the versions of all objects are compared.
VERSION_CHECK_SECONDS = 900


def test_command_with_a_lost_create_event_is_executed(tmp_path):
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"}
    command = {"metadata": {"name": "c", "namespace": NAMESPACE}, "action": "ResumeJob", "target": target}

    async def create(system: System) -> list[Object]:
        system.network.faults = LostEvents("Command", "ADDED")
        await system.create(kinds.COMMANDS, command)
        await asyncio.sleep(VERSION_CHECK_SECONDS)
        return list(system.server.objects(kinds.COMMANDS).values())

    assert run_system(tmp_path, create) == []


def test_part_with_a_lost_delete_event_is_created_again(tmp_path):
    async def delete(system: System) -> tuple[int, int]:
        await system.create(kinds.HYPERJOBS, hyperjob("h", {**TRAINER, "replicas": 2}))
        await asyncio.sleep(30)
        system.network.faults = LostEvents("Job", "DELETED")
        await system.delete(kinds.JOBS, next(iter(system.server.objects(kinds.JOBS))))
        left = len(system.server.objects(kinds.JOBS))
        await asyncio.sleep(VERSION_CHECK_SECONDS)
        return left, len(system.server.objects(kinds.JOBS))

    assert run_system(tmp_path, delete) == (1, 2)


async def remove_webhooks(system: System, *, seconds: float) -> list[str]:
    """Remove the validating webhooks; return the notes of the events about them after so many seconds."""
    for key in list(system.server.objects(kinds.VALIDATING)):
        await system.merge(kinds.VALIDATING, key, {"webhooks": []})
    await asyncio.sleep(seconds)
    events = system.server.objects(kinds.EVENTS).values()
    return [event["note"] for event in events if event["regarding"]["kind"] == kinds.VALIDATING.name]


def test_changed_webhook_configuration_is_reported_in_10_s(tmp_path):
    async def change(system: System) -> list[str]:
        return await remove_webhooks(system, seconds=10)

    assert any("is missing" in note for note in run_system(tmp_path, change))


def test_webhook_configuration_with_a_lost_update_event(tmp_path):
    async def change(system: System) -> list[str]:
        system.network.faults = LostEvents(kinds.VALIDATING.name, "MODIFIED")
        return await remove_webhooks(system, seconds=VERSION_CHECK_SECONDS)

    assert any("is missing" in note for note in run_system(tmp_path, change))
