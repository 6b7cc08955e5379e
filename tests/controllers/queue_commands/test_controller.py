"""The command controller on an API server in memory and virtual time: each Command is executed exactly once."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from controller.api.keys import COMMANDS, JOBS, QUEUES
from controller.cache.objects import TemplateKey
from controller.controllers.queue_commands.controller import (
    CommandController,
    CommandDependencies,
    observe_command,
)
from controller.kube.events import EventMessage
from controller.kube.informer import WatchOptions
from tests.controllers.memory import MemoryControlPlane, Traffic, connect
from tests.deterministic import kinds
from tests.deterministic.network import Call
from tests.virtual_time import virtual_time


class Harness(MemoryControlPlane):
    """A control plane with the queue ``q``, and the controller."""

    def __init__(self) -> None:
        super().__init__(kinds.SYSTEM, asyncio.get_running_loop().time)
        self.traffic = Traffic()
        self.traffic.error = self.error
        self.refused: list[tuple[str, str, int]] = []
        """Method, end of the path and status of requests that are answered with an error, once each."""
        self.busy = False
        self.leads_for = 100
        """Number of writes after which the process loses leadership."""
        self.closing: list[tuple[str, int]] = []
        """The closing queues as the controller has observed them."""
        self.events = list[EventMessage]()
        self.aborted: list[tuple[str, str, str]] = []
        """Namespace, name and uid of the jobs that were to be aborted."""
        self.queue("q")

    def abort(self, template: TemplateKey, uid: str) -> bool:
        self.aborted.append((template.namespace, template.name, uid))
        return template.name == "pending"

    def queue(self, name: str, parent: str = "root") -> None:
        head = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind}
        self.send("POST", QUEUES.path, {**head, "metadata": {"name": name}, "spec": {"parent": parent}})

    def error(self, call: Call) -> tuple[int, str] | None:
        for refused in self.refused:
            method, end, status = refused
            if not call.is_watch and call.request.method == method and call.request.path.endswith(end):
                self.refused.remove(refused)
                return status, "refused"
        return None

    def command(self, action: str, queue: str = "q", namespace: str = "", **metadata: Any) -> None:
        target = {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": queue}
        head = {"apiVersion": COMMANDS.api_version, "kind": COMMANDS.kind, "metadata": {"name": "c", **metadata}}
        folder = COMMANDS.item_path(namespace or self.namespace, "").rstrip("/")
        self.send("POST", folder, {**head, "action": action, "target": target})

    def command_on_job(self, action: str, job: str) -> None:
        target = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": job, "uid": f"uid-{job}"}
        head = {
            "apiVersion": COMMANDS.api_version,
            "kind": COMMANDS.kind,
            "metadata": {"name": f"{action}-{job}".lower()},
        }
        self.send("POST", self.folder(COMMANDS), {**head, "action": action, "target": target})

    def states(self) -> list[str]:
        """Return how often the status of the queue was written."""
        return [write for write in self.traffic.writes if write.endswith("/queues/q/status")]

    def state(self, queue: str = "q") -> str:
        return self.send("GET", self.path(QUEUES, queue)).get("status", {}).get("state", "Open")

    @asynccontextmanager
    async def running(self) -> Any:
        dependencies = CommandDependencies(
            may_write=lambda: len(self.traffic.writes) < self.leads_for,
            has_workloads=lambda _: self.busy,
            closing_queues=lambda: self.closing,
            allows_namespace=lambda namespace: namespace == self.namespace,
            resume_workload=lambda *_: False,
            abort_workload=self.abort,
            record_event=self.events.append,
        )
        controller = CommandController(connect(self.server, self.traffic), dependencies, watch_options=WatchOptions())
        task = asyncio.create_task(controller.run())
        await asyncio.sleep(1)
        yield controller
        assert not task.done(), task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(("DELETE", "/commands/c", 503), id="deletion"),
        pytest.param(("GET", "/queues", 503), id="list-of-queues"),
        pytest.param(("PATCH", "/queues/q/status", 503), id="status-of-the-queue"),
    ],
)
@virtual_time
async def test_command_is_executed_after_an_error(refused):
    harness = Harness()
    async with harness.running():
        harness.refused.append(refused)
        harness.command("CloseQueue")
        await asyncio.sleep(5)
        assert harness.refused == []
        assert harness.state() == "Closed"
        assert harness.send("GET", harness.folder(COMMANDS))["items"] == []


@virtual_time
async def test_annotation_is_written_once_if_the_status_is_refused():
    harness = Harness()
    harness.queue("child", "q")
    async with harness.running():
        harness.refused.append(("PATCH", "/queues/child/status", 503))
        harness.command("CloseQueue")
        await asyncio.sleep(5)
        assert (harness.state("child"), harness.refused) == ("Closed", [])
        assert sum(write.endswith("/queues/child") for write in harness.traffic.writes) == 1


@virtual_time
async def test_repeated_command_writes_nothing():
    harness = Harness()
    async with harness.running():
        for number in range(2):
            harness.command("CloseQueue", name=f"close-{number}")
            await asyncio.sleep(1)
        assert (harness.state(), len(harness.states())) == ("Closed", 1)
        assert [event.note() for event in harness.events] == ["q is Closed"] * 2


@virtual_time
async def test_abort_command_without_effect_is_a_warning_event():
    harness = Harness()
    async with harness.running():
        for action, job in (("AbortJob", "pending"), ("AbortJob", "finished"), ("RestartJob", "pending")):
            harness.command_on_job(action, job)
        await asyncio.sleep(5)
        left = [item["action"] for item in harness.send("GET", harness.folder(COMMANDS))["items"]]
    assert left == ["RestartJob"]
    assert [(name, uid) for _, name, uid in harness.aborted] == [
        ("pending", "uid-pending"),
        ("finished", "uid-finished"),
    ]
    (event,) = harness.events
    assert (event.reason, event.kind, event.regarding[0].name) == ("AbortJobFailed", "Warning", "finished")
    assert "nothing was aborted" in event.note()


@virtual_time
async def test_command_with_a_finalizer_is_executed_once():
    harness = Harness()
    async with harness.running():
        harness.command("CloseQueue", finalizers=["example.com/wait"])
        await asyncio.sleep(5)
        assert len(harness.states()) == 1
    async with harness.running():
        assert len(harness.states()) == 1, "nor after a restart"


@virtual_time
async def test_command_that_may_not_be_deleted_blocks_no_other():
    harness = Harness()
    async with harness.running():
        harness.refused.append(("DELETE", "/commands/b", 403))
        harness.command("OpenQueue", name="b")
        harness.command("CloseQueue")
        await asyncio.sleep(5)
        assert harness.state() == "Closed"
        assert len(harness.states()) == 1


@virtual_time
async def test_queue_that_cannot_be_changed_blocks_no_command():
    """The stored spec of a child violates a rule of the webhook."""
    harness = Harness()
    for name in ("invalid", "valid"):
        harness.queue(name, parent="q")
    harness.queue("other")
    async with harness.running():
        harness.refused.append(("PATCH", "/queues/invalid", 422))
        harness.command("CloseQueue")
        harness.command("CloseQueue", "other", name="later")
        await asyncio.sleep(5)
    states = {name: harness.state(name) for name in ("q", "invalid", "valid", "other")}
    assert states == {"q": "Closed", "invalid": "Open", "valid": "Closed", "other": "Closed"}
    failed, done = harness.events
    assert (failed.reason, failed.kind, done.reason) == ("CloseQueueFailed", "Warning", "CloseQueue")
    assert "invalid was not changed: refused" in failed.note()
    assert done.note() == "other is Closed"


@pytest.mark.parametrize("opened", [False, True])
@virtual_time
async def test_closing_queue_that_was_opened_meanwhile_stays_open(opened):
    """Its last workload ends while the controller has not yet observed that it was opened."""
    harness = Harness()
    closing = harness.send("PATCH", f"{harness.path(QUEUES, 'q')}/status", {"status": {"state": "Closing"}})
    harness.closing = [("q", int(closing["metadata"]["resourceVersion"]))]
    if opened:
        harness.send("PATCH", f"{harness.path(QUEUES, 'q')}/status", {"status": {"state": "Open"}})
    async with harness.running() as controller:
        controller.wake()
        await asyncio.sleep(5)
        assert harness.state() == ("Open" if opened else "Closed")


@virtual_time
async def test_closing_queue_with_a_new_version_is_closed():
    """Its status shows other counts, which is no reason to check it."""
    harness = Harness()
    closing = harness.send("PATCH", f"{harness.path(QUEUES, 'q')}/status", {"status": {"state": "Closing"}})
    harness.closing = [("q", int(closing["metadata"]["resourceVersion"]) - 1)]
    async with harness.running() as controller:
        controller.wake()
        await asyncio.sleep(5)
        assert harness.state() == "Closing"
        harness.closing = [("q", int(closing["metadata"]["resourceVersion"]))]
        await asyncio.sleep(5)
        assert harness.state() == "Closed"


@virtual_time
async def test_refused_closing_of_a_queue_is_logged_as_such():
    harness = Harness()
    closing = harness.send("PATCH", f"{harness.path(QUEUES, 'q')}/status", {"status": {"state": "Closing"}})
    harness.closing = [("q", int(closing["metadata"]["resourceVersion"]))]
    async with harness.running() as controller:
        harness.refused.append(("PATCH", "/queues/q/status", 503))
        with capture_logs() as logs:
            controller.wake()
            await asyncio.sleep(5)
        assert harness.state() == "Closed"
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["event"] for entry in warnings] == ["queue not closed"]
    assert warnings[0]["again_in"] >= 1


@pytest.mark.parametrize(("leads_after", "empty_after"), [(3.0, 0.0), (0.0, 0.5)])
@virtual_time
async def test_queue_is_closed_without_another_change(leads_after, empty_after):
    """The process begins to lead after the last change, or the engine receives it later than the store."""
    harness = Harness()
    closing = harness.send("PATCH", f"{harness.path(QUEUES, 'q')}/status", {"status": {"state": "Closing"}})
    harness.closing = [("q", int(closing["metadata"]["resourceVersion"]))]
    harness.busy = empty_after > 0
    leads_for = harness.leads_for
    harness.leads_for = 0 if leads_after else leads_for
    async with harness.running() as controller:
        controller.wake()
        await asyncio.sleep(max(leads_after, empty_after))
        harness.busy, harness.leads_for = False, leads_for
        await asyncio.sleep(3)
        assert harness.state() == "Closed"


@pytest.mark.parametrize("writes", [1, 2])
@virtual_time
async def test_nothing_is_written_after_leadership_is_lost(writes):
    harness = Harness()
    harness.leads_for = writes
    harness.command("CloseQueue", name="a")
    harness.command("OpenQueue", name="b")
    async with harness.running():
        await asyncio.sleep(5)
        assert len(harness.traffic.writes) == writes


@virtual_time
async def test_commands_of_tenants_do_not_delay_the_operator():
    harness = Harness()
    harness.leads_for = 1000
    harness.queue("late")
    harness.send("POST", "/api/v1/namespaces", {"metadata": {"name": "tenant"}})
    for number in range(600):
        harness.command("OpenQueue", namespace="tenant", name=f"c-{number}")
    harness.command("CloseQueue", name="first")
    async with harness.running():
        assert harness.traffic.writes[0].endswith("/commands/first")
        before = len(harness.traffic.writes)
        assert before < 400, "many of the tenant's Commands are left"
        harness.command("CloseQueue", "late", name="late")
        while harness.state("late") == "Open":  # noqa: ASYNC110 -- on virtual time
            await asyncio.sleep(0.01)
        assert len(harness.traffic.writes) - before < 40
        await asyncio.sleep(30)
        assert len(harness.traffic.writes) == 601 + 3


@virtual_time
async def test_commands_of_a_namespace_do_not_delay_others():
    harness = Harness()
    harness.leads_for = 1000
    for namespace in ("many", "few"):
        harness.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for number in range(600):
        harness.command("OpenQueue", namespace="many", name=f"c-{number}")
    async with harness.running():
        before = len(harness.traffic.writes)
        for name in ("a", "b"):
            harness.command("OpenQueue", namespace="few", name=name)
        await asyncio.sleep(30)
    executed = harness.traffic.writes[before:]
    of_few = [index for index, write in enumerate(executed) if "/namespaces/few/" in write]
    assert len(executed) > 300, "many of the others were left"
    assert len(of_few) == 2
    assert max(of_few) < 40


def test_cached_command_has_only_its_small_fields():
    target = {"apiVersion": f"{QUEUES.group}/v1", "kind": "Queue", "name": "q" * 100_000}
    metadata = {"name": "c", "uid": "u", "resourceVersion": "1", "annotations": {"x": "y" * 100_000}}
    document = {"metadata": metadata, "action": "CloseQueue", "target": target}
    cached = observe_command(msgspec.json.encode(document))
    assert len(msgspec.json.encode(cached.command)) < 1000
    assert observe_command(msgspec.json.encode({**document, "action": "x" * 100_000})).command is None
