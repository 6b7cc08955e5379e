"""Runs fault scenarios with controllers behind proxies, and checks the invariants at the end."""

import asyncio
import itertools
import json
import re
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controller.api.keys import CLUSTERS, JOBS, LEASES, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.reporting.decision_log.replay import replay
from localup import ports
from localup.controlplane import ControlPlane
from localup.credentials import issue
from localup.processes import ManagedProcess, is_http_ready
from tests.rig import audit
from tests.rig.binding_state import BindingState
from tests.rig.fake_karmada import FakeKarmada
from tests.rig.history import History, followed, present, run_in_background
from tests.rig.invariants import Evidence, violations
from tests.rig.proxy import Proxy, open_proxy, proxied_kubeconfig
from tests.waiting import LIMIT_SECONDS, poll

#: Maximum delay of events: without faults, and with faults in watches.
MAX_EVENT_DELAY, MAX_EVENT_DELAY_WITH_FAULTS = 1.0, 10.0
_EVER = datetime.min.replace(tzinfo=UTC)
LEASE = LEASES.item_path("karmada-system", "volcano-global-controller")
CONFIGURATION = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
#: Short lease times in proportion: a lease outlives the last write of its holder.
SHORT_INTERVALS = (
    *("--write-seconds", "1", "--grace-seconds", "0.5", "--connect-seconds", "1", "--read-seconds", "3"),
    *("--lease-seconds", "6", "--renew-seconds", "3", "--retry-seconds", "0.3"),
    *("--page-seconds", "5", "--watch-seconds", "4", "--silence-seconds", "6", "--fresh-seconds", "8"),
)


@dataclass
class ControllerInstance:
    """Controller with its own proxy."""

    part: ManagedProcess
    proxy: Proxy
    port: int
    decision_log: Path
    """Path of the decision log by default."""

    async def start(self) -> None:
        """Start it and return when it is ready."""
        await asyncio.to_thread(self.part.start)

    async def begin(self) -> None:
        """Start it without waiting."""
        await asyncio.to_thread(self.part.begin)

    async def stop(self) -> None:
        """Terminate it and wait for its end."""
        await asyncio.to_thread(self.part.stop)

    def kill(self) -> None:
        """Kill it."""
        self.part.kill()

    def differences(self) -> list[str]:
        """Return the decisions in its logs that a replay decides differently (TC7)."""
        differences = []
        for path in sorted(self.decision_log.parent.glob(f"{self.decision_log.name}*")):
            with path.open("rb") as lines:
                findings, _ = replay(lines)
            if not findings.is_identical:
                differences.append(f"TC7 {path.name}: {findings.differences[:1] or findings.first_tampered_line}")
        return differences

    async def page(self, path: str) -> str:
        """Return its HTTP page at *path*; fail if the process has ended."""
        self.part.check()
        return await asyncio.to_thread(_fetch, f"http://127.0.0.1:{self.port}{path}")

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", await self.page("/metrics"), re.MULTILINE)
        return sum(map(float, values))

    def log(self) -> str:
        """Return the end of what it has logged since its last start."""
        return self.part.output[-4000:]

    async def wait_for_log(self, text: str, *, times: int = 1, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until it has logged *text* so many times since its last start."""
        await poll(lambda: self.part.output.count(text) >= times, f"log of {text!r}", seconds=seconds, log=self.log)


@dataclass
class Harness:
    """A control plane with its history, the fake Karmada and the controllers."""

    plane: ControlPlane
    karmada: FakeKarmada
    configuration: Path
    """The configuration file of the controllers, if they have one."""
    stack: AsyncExitStack
    """Resources that are closed with the harness."""
    controllers: list[ControllerInstance] = field(default_factory=list)
    ungated: set[str] = field(default_factory=set)
    stamps: set[tuple[str, ...]] = field(default_factory=set)
    came_back_at: datetime = _EVER
    logged: int = 0
    """Size of the audit log at the start."""

    @property
    def history(self) -> History:
        """The history of the store."""
        return self.karmada.history

    @property
    def controller(self) -> ControllerInstance:
        """The first controller."""
        return self.controllers[0]

    @property
    def proxy(self) -> Proxy:
        """The proxy of the first controller."""
        return self.controllers[0].proxy

    async def prepare(self, *jobs: str, cpu: str = "4", **queue: Any) -> None:
        """Create queue ``q``, cluster ``m1`` and these jobs of one CPU."""
        await self.karmada.queue("q", **queue)
        await self.karmada.cluster("m1", cpu=cpu)
        for name in jobs:
            await self.karmada.job(name, "q")

    async def start(self, *jobs: str, **options: Any) -> None:
        """Create the objects of ``prepare`` and start the first controller."""
        await self.prepare(*jobs, **options)
        await self.controller.start()

    def configure(self, **keys: Any) -> None:
        """Write the configuration."""
        self.configuration.write_text(json.dumps({**CONFIGURATION, **keys}))

    def record(self, name: str) -> dict[str, Any]:
        """Return the admission record of a job, empty without one."""
        return self.bindings()[name].record

    def bindings(self) -> Mapping[str, BindingState]:
        """Return the current bindings by job."""
        return self.karmada.bindings()

    async def until(
        self, question: Callable[[Mapping[str, BindingState]], bool], what: str, *, seconds: float = LIMIT_SECONDS
    ) -> None:
        """Wait until the condition holds (I4); the error shows all bindings, violations and logs."""
        try:
            await self.karmada.until(question, what, seconds=seconds)
        except AssertionError as error:
            logs = "\n".join(controller.log() for controller in self.controllers)
            raise AssertionError(f"{error}; found so far {self.violations()}\n{logs}") from error

    async def done(self, *names: str, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until these jobs have finished."""
        await self.until(
            lambda seen: all(name in seen and seen[name].is_finished for name in names),
            f"{names} done",
            seconds=seconds,
        )

    async def admitted(self, *names: str, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until these jobs are admitted."""
        await self.until(
            lambda seen: all(name in seen and seen[name].admitted for name in names),
            f"{names} admitted",
            seconds=seconds,
        )

    def requests(self, *, statuses: bool = False) -> list[audit.Request]:
        """Return the controllers' writes of this scenario, those of the statuses of jobs only with *statuses*."""
        writes = audit.by_controller(self.plane.audit_log, since=self.logged)
        return [
            item
            for item in writes
            if item.namespace == self.karmada.namespace
            and item.at >= self.came_back_at
            and (statuses or item.resource != "jobs")
        ]

    def _with_failed_writes(self) -> frozenset[str]:
        """Return the jobs for which more writes were sent than executed."""
        sent = Counter(call.job for controller in self.controllers for call in controller.proxy.calls if call.is_write)
        sent.subtract(request.name.removesuffix("-job") for request in self.requests() if request.done)
        return frozenset(job for job, lost in sent.items() if lost > 0)

    def violations(self) -> list[str]:
        """Return all violations so far."""
        changes = sorted((change for change in self.history.changes if change.kind), key=lambda change: change.revision)
        return violations(
            Evidence(
                changes,
                self.requests(statuses=True),
                ungated=frozenset(self.ungated),
                stamps=frozenset(self.stamps),
                classes=self.karmada.classes,
                with_failed_writes=self._with_failed_writes(),
                max_event_delay=MAX_EVENT_DELAY
                if not any(controller.proxy.spoiled for controller in self.controllers)
                else MAX_EVENT_DELAY_WITH_FAULTS,
            )
        )

    async def check_invariants(self) -> None:
        """Wait until the history is complete and fail on any violation."""
        await self.history.reached(await present(self.plane.etcd.url))
        violated = self.violations()
        if violated:
            raise AssertionError("\n".join(violated))

    async def expect_pending_reasons(self) -> None:
        """Wait until the leader reports a reason for every pending job (I8)."""
        await self.history.reached(await present(self.plane.etcd.url))

        async def counts() -> tuple[int, float]:
            gated = [binding for binding in self.bindings().values() if binding.gated and not binding.is_divided]
            pending = sum(binding.suspended and not binding.is_finished for binding in gated)
            return pending, await self.controller.metric("volcano_global_pending_workloads_by_reason")

        await poll(counts, "I8 pending jobs and those with a reason", until=lambda seen: seen[0] == seen[1])

    async def expect_no_writes(self, *, seconds: float = 1.5, statuses: bool = False) -> None:
        """Verify that idle controllers write nothing for some time (I7).

        Statuses of jobs follow the decisions at a limited rate; they count only with *statuses*.
        """
        # The audit log may still lack earlier requests.
        begun, before = datetime.now(UTC), self.proxy.writes
        await asyncio.sleep(seconds)
        late = [request for request in self.requests(statuses=statuses) if request.at > begun]
        assert (late, self.proxy.writes) == ([], before), "I7 a quiet system was written to"

    async def restart_history(self) -> None:
        """Restart the history after a restore of the store; the earlier one must be checked already."""
        self.came_back_at = datetime.now(UTC)
        followed_again = followed(self.plane.etcd.url, self.plane.prefix)
        self.karmada.history = await self.stack.enter_async_context(followed_again)

    async def clear(self) -> None:
        """Delete all created objects."""
        api = self.karmada.api
        for path in (
            self.karmada.folder(RESOURCE_BINDINGS),
            self.karmada.folder(JOBS),
            QUEUES.path,
            CLUSTERS.path,
        ):
            await api.delete(path)
        for _, name in tuple(self.history.now.get("priorityclasses", ())):
            if not name.startswith("system-"):
                await self.karmada.delete(f"{PRIORITY_CLASSES.path}/{name}")


def controller_process(plane: ControlPlane, *, name: str, port: int, flags: Sequence[str | Path]) -> ManagedProcess:
    """Return a controller that is not started; *flags* set its connection."""
    address, identity = ("--host", "127.0.0.1", "--port", str(port)), ("--identity", name)
    return ManagedProcess(
        name,
        plane.folder / f"{name}-{port}.log",
        command=lambda: ["-m", "controller", *address, *SHORT_INTERVALS, *identity, *flags],
        is_ready=lambda: is_http_ready(port),
    )


@asynccontextmanager
async def controller_instance(
    plane: ControlPlane, folder: Path, *flags: str | Path, name: str = "first"
) -> AsyncIterator[ControllerInstance]:
    """Yield a controller behind a proxy, not started; it ends with the block."""
    keys = folder / f"keys-{name}-{uuid.uuid4().hex[:6]}"
    keys.mkdir()
    credentials = issue(keys)
    certificate, key = keys / "apiserver.crt", keys / "apiserver.key"
    port = ports.claim()
    async with open_proxy(plane.url, ca=plane.ca, certificate=certificate, key=key) as proxy:
        users = {"--kubeconfig": "controller", "--hyperjob-kubeconfig": "hyperjobs"}
        ways = [
            (
                flag,
                proxied_kubeconfig(proxy, plane.kubeconfig(f"volcano-global-{user}"), ca=credentials.ca, folder=keys),
            )
            for flag, user in users.items()
        ]
        decision_log = keys / "decisions.jsonl"
        own = (*itertools.chain(*ways), "--decision-log", decision_log)
        made = ControllerInstance(
            controller_process(plane, name=name, port=port, flags=[*own, *flags]), proxy, port, decision_log
        )
        try:
            yield made
        finally:
            await asyncio.to_thread(made.part.kill)
            ports.release(port)


@asynccontextmanager
async def open_harness(
    plane: ControlPlane,
    folder: Path,
    *flags: str | Path,
    configuration: Mapping[str, Any] | None = None,
    controllers: int = 1,
    plays: bool = True,
) -> AsyncIterator[Harness]:
    """Yield a harness and check the invariants at its end; the controllers have a file with this *configuration*."""
    namespace = f"rig-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api.connect(plane.kubeconfig("admin")))
        since = await present(plane.etcd.url)
        history = await stack.enter_async_context(followed(plane.etcd.url, plane.prefix, since=since))
        await api.create("/api/v1/namespaces", b'{"metadata": {"name": "%s"}}' % namespace.encode())
        karmada = FakeKarmada(api, namespace, history)
        await karmada.delete(LEASE)
        harness = Harness(plane, karmada, folder / "configuration.json", stack, logged=audit.size(plane.audit_log))
        if configuration is not None:
            harness.configure(**configuration)
            flags = (*flags, "--admission-configuration", harness.configuration, "--poll-seconds", "0.05")
        for number in range(controllers):
            made = controller_instance(plane, folder, *flags, name=f"controller-{number}")
            harness.controllers.append(await stack.enter_async_context(made))
        try:
            async with run_in_background(*([harness.karmada.run()] if plays else [])):
                yield harness
                await harness.check_invariants()
        finally:
            for controller in harness.controllers:
                controller.kill()
            await harness.clear()
        if differences := [what for controller in harness.controllers for what in controller.differences()]:
            raise AssertionError("\n".join(differences))


def _fetch(url: str) -> str:
    """Return the body at *url*, whatever its status."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
