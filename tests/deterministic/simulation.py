"""Runs the whole system from one seed, hour by hour: activity with faults, then rest, in which everything must finish.

Every fourth hour has no faults and a stricter judge.
"""

import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from localup.karmada.objects import binding_key
from tests.deterministic import faults, kinds, operations, other_clients, propagation
from tests.deterministic.clock import simulate
from tests.deterministic.faults import Faults
from tests.deterministic.judge import Judge, describe
from tests.deterministic.objects import Kind, Object, path_of
from tests.deterministic.operations import CLASSES, CLUSTERS, HOSTILE, QUEUES, Operation
from tests.deterministic.system import System, wait_until
from tests.rig.binding_state import parse_binding

HOUR = 3600
ACTIVE_SECONDS = 1800
"""Part of an hour with operations and faults, by default."""
_STALL_SECONDS = 1400
"""After the faults a job finishes within this time: the best blocked one gets a reservation after ten minutes (O6),
and capacity when the longest job ends, which runs for 400 s."""
_DRAIN_SECONDS = 3 * HOUR
"""A backlog is finished within this time; an hour with a large one takes longer than an hour."""
_QUIET_SECONDS = 60
_AUDIT_SECONDS = 900
"""Every object of which an event was lost is found within this time after the faults, and written where it needs to."""
_CLEANUP_SECONDS = 60
_COMMAND_SECONDS = 60
"""A Command is executed within this time after the faults."""
_CALM_EVERY = 4
_RESTORE_ATTEMPTS = 120
_RESTORE_SECONDS = 5


@dataclass(frozen=True)
class Result:
    """What a run showed."""

    seed: int
    digest: str
    """Digest of all writes with their times."""
    violations: Sequence[str]
    occurrences: Counter[str]
    operations: Sequence[Operation]
    """Those that were carried out."""
    simulated_seconds: float
    hours: int
    """How many hours were begun; one with a large backlog takes longer than an hour."""
    requests: int


def script(seed: int, hours: int, active: float = ACTIVE_SECONDS) -> list[Operation]:
    """Return the operations and faults of a run, in order of time."""
    planned: list[Operation] = []
    for hour in range(hours):
        draw = random.Random(f"{seed}/{hour}")
        begin, calm = hour * HOUR, is_calm(seed, hour)
        end = begin + active
        planned += operations.script(draw, begin, end, calm=calm)
        planned += (other_clients if calm else faults).script(draw, begin, end)
    return sorted(planned, key=lambda operation: (operation.at, operation.name, operation.draw))


def is_calm(seed: int, hour: int) -> bool:
    """Return whether an hour has no faults, and a strict judge."""
    return (seed + hour) % _CALM_EVERY == 0


def run(
    seed: int,
    hours: int,
    *,
    chosen: Iterable[Operation] | None = None,
    calm: bool | None = None,
    active: float = ACTIVE_SECONDS,
    progress: Callable[[int, Counter[str]], None] = lambda _, __: None,
) -> Result:
    """Simulate *hours* from *seed*, until the first violation.

    *chosen* replaces the seed's operations, and *calm* its choice between a strict judge and one that expects faults.
    *active* is the part of each hour with operations, in seconds.
    """
    planned = sorted(script(seed, hours, active) if chosen is None else chosen, key=lambda operation: operation.at)
    with tempfile.TemporaryDirectory() as folder:

        async def main() -> Result:
            running = _Run(seed, Path(folder), planned, calm, active)
            with _errors_logged(running.system.failures):
                return await running.execute(hours, progress)

        return simulate(main, seed)


@contextmanager
def _errors_logged(failures: list[str]) -> Iterator[None]:
    """Add each exception that a process logs as an error to *failures*: no fault explains a defect of the program."""
    before = structlog.get_config()
    is_quiet = not structlog.get_logger().is_enabled_for(logging.ERROR)

    def record(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        error = event.get("exc_info")
        if error and level in {"error", "critical"}:
            failures.append(f"{event['event']}: {(error if isinstance(error, BaseException) else sys.exc_info()[1])!r}")
        if is_quiet:
            raise structlog.DropEvent
        return event

    wrapper = structlog.make_filtering_bound_logger(logging.ERROR) if is_quiet else before["wrapper_class"]
    structlog.configure(wrapper_class=wrapper, processors=[record, *before["processors"]])
    try:
        yield
    finally:
        structlog.configure(**before)


class _Run:
    def __init__(self, seed: int, folder: Path, planned: Sequence[Operation], calm: bool | None, active: float) -> None:  # noqa: FBT001 -- private
        self.seed = seed
        self.calm = calm
        self.active = active
        self.system = System(seed, folder)
        self.faults = Faults(self.system)
        self.planned = list(planned)
        self.done: list[Operation] = []
        self.violations: list[str] = []
        self.loop = self.system.loop

    async def execute(self, hours: int, progress: Callable[[int, Counter[str]], None]) -> Result:
        system = self.system
        await system.install()
        await self._create_world()
        system.start()
        maintaining = self.loop.create_task(system.maintain())
        begun = 0
        for hour in range(hours):
            begun += 1
            await asyncio.sleep(max(0, hour * HOUR - self.loop.time()))
            await self._hour(hour)
            progress(hour + 1, system.occurrences)
            if self.violations:
                break
        await system.stop()
        maintaining.cancel()
        return Result(
            self.seed,
            system.digest,
            self.violations,
            system.occurrences,
            self.done,
            self.loop.time(),
            begun,
            system.network.requests,
        )

    async def _create_world(self) -> None:
        system = self.system
        for name, value in CLASSES.items():
            await system.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name, spec in QUEUES.items():
            await system.create(kinds.QUEUES, {"metadata": {"name": name}, "spec": dict(spec)})
        for name in CLUSTERS:
            await operations.create_cluster(system, name)
        for name in propagation.POLICIES:
            await propagation.restore_policy(system, name)

    async def _hour(self, hour: int) -> None:
        system = self.system
        judge = Judge(system, faults=not (is_calm(self.seed, hour) if self.calm is None else self.calm))
        tasks = [
            self.loop.create_task(judge.follow()),
            self.loop.create_task(judge.violated.wait()),
            self.loop.create_task(self._phases(hour, judge)),
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            task.result()
        judge.close()
        system.writes.clear()
        system.network.unanswered.clear()
        self.violations += [*judge.violations, *(f"{self.loop.time():.3f} s: {failure}" for failure in system.failures)]

    async def _phases(self, hour: int, judge: Judge) -> None:
        await self._act(hour)
        await self._heal()
        await self._drain(judge)
        await self._rest(judge)
        await self._clean(judge)

    async def _act(self, hour: int) -> None:
        """Carry out the operations of this hour."""
        begin = self.loop.time()
        async with asyncio.TaskGroup() as tasks:
            while self.planned and self.planned[0].at < (hour + 1) * HOUR:
                operation = self.planned.pop(0)
                await asyncio.sleep(max(0, begin + operation.at - hour * HOUR - self.loop.time()))
                self.done.append(operation)
                tasks.create_task(self._perform(operation))
            await asyncio.sleep(max(0, begin + self.active - self.loop.time()))

    async def _perform(self, operation: Operation) -> None:
        name, draw = operation.name, random.Random(operation.draw)
        if name in faults.REQUEST_FAULTS or name in faults.WATCH_FAULTS:
            self.faults.begin(name, draw)
            return
        self.system.occurrences[name] += 1
        action = {**operations.TENANTS, **operations.OPERATORS, **other_clients.ACTIONS, **faults.SYSTEM_FAULTS}[name]
        await action(self.system, draw)

    async def _heal(self) -> None:
        """End all faults, and give everything that operators configure the state in which every job can run."""
        system, server = self.system, self.system.server
        self.faults.end()
        system.network.is_listening = True
        for process in system.processes:
            process.resume()
            process.skew = 0
            process.start()
        # Its members start again from the status that they reported.
        await system.karmada.stop()
        system.karmada.start()
        # A cluster may have shrunk at the moment of an admission; the job returns after twice this time (R1).
        system.configure(startupTimeout="5m")
        await self._resume_aborted_jobs()
        written = (kinds.JOBS, kinds.BINDINGS, kinds.HYPERJOBS, kinds.DATA_SOURCE_CLAIMS, kinds.QUEUES, kinds.CLUSTERS)
        for kind in written:
            for key in sorted(key for key in server.objects(kind) if key[1].startswith(HOSTILE)):
                await system.delete(kind, key)
        await self._restore_queues()
        for name in propagation.POLICIES:
            await propagation.restore_policy(system, name)
        for name, value in CLASSES.items():
            await system.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name, capacity in CLUSTERS.items():
            await operations.create_cluster(system, name)
            await operations.restore_cluster(system, name, capacity)

    async def _resume_aborted_jobs(self) -> None:
        """Resume the jobs that a Command has aborted, also one that is only executed now."""
        system = self.system
        await wait_until(lambda: not system.server.objects(kinds.COMMANDS), _COMMAND_SECONDS)
        await asyncio.sleep(_COMMAND_SECONDS)
        for obj in list(system.server.objects(kinds.BINDINGS).values()):
            binding = parse_binding(obj)
            if binding.record.get("aborted"):
                await operations.command(system, kinds.JOBS, binding.job, "ResumeJob")

    async def _restore_queues(self) -> None:
        """Restore all queues, again where the webhook denies one.

        It does while siblings have more than their parent, and while workloads of the parent itself run.
        """
        system, wanted = self.system, {("", name) for name in QUEUES}
        for attempt in range(_RESTORE_ATTEMPTS):
            for name, spec in QUEUES.items():
                await self._restore(kinds.QUEUES, name, dict(spec))
                await system.merge(kinds.QUEUES, ("", name), {"status": {"state": "Open"}}, "/status")
            if attempt and system.server.objects(kinds.QUEUES).keys() >= wanted:
                return
            await asyncio.sleep(_RESTORE_SECONDS if attempt else 0)
        raise AssertionError("a queue was not restored")

    async def _restore(self, kind: Kind, name: str, spec: Object) -> None:
        stored = self.system.server.objects(kind).get(("", name))
        if stored is None:
            await self.system.create(kind, {"metadata": {"name": name}, "spec": spec})
        else:
            await self.system.send("PUT", path_of(kind, "", name), {**stored, "spec": spec})

    async def _drain(self, judge: Judge) -> None:
        """I4: every job that can be admitted finishes."""
        count, changed_at = len(judge.unfinished()), self.loop.time()

        def is_over() -> bool:
            nonlocal count, changed_at
            left = len(judge.unfinished())
            if left < count:
                count, changed_at = left, self.loop.time()
            return not (left or self._evicting()) or self.loop.time() - changed_at > _STALL_SECONDS

        await wait_until(is_over, _DRAIN_SECONDS, every=5)
        if left := judge.unfinished():
            bindings = self.system.server.objects(kinds.BINDINGS)
            stuck = {binding.uid for binding in left}
            lines = [describe(obj) for obj in bindings.values() if obj["metadata"]["uid"] in stuck]
            judge.report("I4 not finished after the faults: " + "; ".join(sorted(lines)))

    def _evicting(self) -> bool:
        """Return whether Karmada still evicts a workload, which ends within its timeout."""
        bindings = self.system.server.objects(kinds.BINDINGS).values()
        return any(binding["spec"].get("gracefulEvictionTasks") for binding in bindings)

    async def _rest(self, judge: Judge) -> None:
        """I7: at rest the controllers write nothing; and the state is complete."""
        await asyncio.sleep(_AUDIT_SECONDS if judge.has_faults else _QUIET_SECONDS)
        judge.judge_rest()
        before = len(self.system.writes)
        await asyncio.sleep(_QUIET_SECONDS)
        for write in self.system.writes[before:]:
            judge.report(f"I7 at rest: {write.verb} {write.resource} {write.namespace}/{write.name} {write.body}")

    async def _clean(self, judge: Judge) -> None:
        """Delete all jobs; nothing of them may remain."""
        system, server = self.system, self.system.server
        templates = (kinds.HYPERJOBS, kinds.JOBS, kinds.DEPLOYMENTS, kinds.BATCH_JOBS, kinds.DATA_SOURCE_CLAIMS)
        for kind in templates:
            for key in sorted(server.objects(kind)):
                await system.delete(kind, key)

        def left() -> list[str]:
            bindings = server.objects(kinds.BINDINGS)
            # A Work without a binding stays: Karmada's cache did not contain it when it deleted the binding's Works.
            works = [
                key[1]
                for key, work in server.objects(kinds.WORKS).items()
                if binding_key(work) in bindings or ("deletionTimestamp" in work["metadata"] and binding_key(work).name)
            ]
            return works + [key[1] for kind in (*templates, kinds.BINDINGS) for key in server.objects(kind)]

        if not await wait_until(lambda: not left(), _CLEANUP_SECONDS):
            names = left()
            judge.report(f"I2 objects of deleted jobs remain: {', '.join(sorted(names)[:10])}")
