"""Watches Commands and executes the supported ones; a Command is deleted first, and so executed at most once.

After an error it is executed later, unless the process ends or loses leadership meanwhile. If the CRD is not installed,
it is looked up periodically. Commands that Volcano executes in member clusters only (`RestartJob` and others) are left
alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import msgspec
import structlog

from controller.api.keys import COMMANDS, JOBS, QUEUES
from controller.api.meta import ObjectMeta
from controller.api.queues import Command, Queue, Target, decode_command, decode_queue
from controller.cache.objects import VOLCANO_JOB, ObjectKey, TemplateKey
from controller.cache.store import Store
from controller.cache.translate.units import parse_resource_version
from controller.controllers.queue_commands.transitions import (
    CLOSED_BY_PARENT,
    CommandError,
    HasWorkloads,
    QueueChange,
    QueueHierarchy,
    close_queue,
    open_queue,
)
from controller.engine.engine import Engine
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import QueueState
from controller.engine.state.workloads import Workload, WorkloadState
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from controller.kube.events import EventMessage, Reference
from controller.kube.informer import Informer, WatchOptions, audited_informer
from controller.kube.timing import Backoff

QUEUE_ACTIONS = {"OpenQueue", "CloseQueue"}

JOB_ACTIONS = {"AbortJob", "ResumeJob"}

_QUEUE_KIND = (QUEUES.group, QUEUES.kind)

_JOB_KIND = (JOBS.group, JOBS.kind)

#: Commands that are executed before further ones are looked at, which may be the operator's or another namespace's.
_MAX_IN_TURN = 32

#: Length to which texts of a Command are cut. Names are shorter, so that a cut text names nothing.
_MAX_TEXT_LENGTH = 254

#: Interval at which closing queues are checked, in seconds.
_CLOSING_POLL_SECONDS = 1.0

#: Interval at which a Command is checked again while this process is not the leader, in seconds.
_STANDBY_POLL_SECONDS = 0.5

_NOTHING_TO_ABORT = (
    "nothing was aborted: it has ended, is aborted already, has no binding yet, or was not admitted here;"
    " abort it in its member cluster, or delete it"
)

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ObservedCommand(NamedTuple):
    """A Command at one resourceVersion."""

    key: ObjectKey
    uid: str
    resource_version: int
    command: Command | None
    """Its fields that count; ``None`` where it is not executed here."""


def observe_command(raw: bytes) -> ObservedCommand:
    """Return the cached form of a Command."""
    command = decode_command(raw)
    meta, target = command.metadata, command.target
    texts = (text[:_MAX_TEXT_LENGTH] for text in (target.api_version, target.kind, target.name, target.uid))
    fields = Command(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, deletion_timestamp=meta.deletion_timestamp),
        action=command.action,
        target=Target(*texts),
    )
    return ObservedCommand(
        ObjectKey(meta.namespace, meta.name),
        meta.uid,
        parse_resource_version(meta.resource_version),
        fields if _is_supported(command) else None,
    )


@dataclass(frozen=True, slots=True)
class CommandDependencies:
    """The parts of the controller that the command controller needs."""

    may_write: Callable[[], bool]
    """Whether this process is the leader and has made its first plan."""
    has_workloads: HasWorkloads
    closing_queues: Callable[[], Iterable[tuple[str, int]]]
    """Returns name and resourceVersion of the queues in state Closing."""
    allows_namespace: Callable[[str], bool]
    """Whether Commands in a namespace may open and close queues; a Command does not say which user created it."""
    resume_workload: Callable[[TemplateKey, str], bool]
    """Makes an aborted workload pending again; a uid that is not empty names its template. Returns whether it did."""
    abort_workload: Callable[[TemplateKey, str], bool]
    """Aborts a workload that is pending or was admitted here, likewise. Returns whether it did."""
    record_event: Callable[[EventMessage], None]


class CommandController:
    """Watches and executes Commands while ``run`` is running."""

    def __init__(self, api: Api, dependencies: CommandDependencies, *, watch_options: WatchOptions) -> None:
        self.discovery_interval_seconds = 30.0
        """Interval of looking up the CRD while it is not installed."""
        self._api = api
        self._dependencies = dependencies
        self._watch_options = watch_options
        self._commands = Collection(observe_command, self._on_command)
        self._informer: Informer[Any] | None = None
        self._backoff = Backoff(initial=2, maximum=30)
        self._deleted: list[Command] = []
        """Deleted Commands that are not executed yet."""
        self._unwritten: list[QueueChange] = []
        """Changes of the current Command that are not written yet."""
        self._wake = asyncio.Event()
        self._queues_changed = asyncio.Event()

    def wake(self) -> None:
        """Check closing queues after a change."""
        self._queues_changed.set()

    async def run(self) -> NoReturn:
        """Watch and execute Commands until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._discover(group))
            group.create_task(self._close_empty_queues())
            while True:
                self._wake.clear()
                is_done = await self._retry_on_error("command not executed", self._process_commands)
                if len(self._commands) and not self._dependencies.may_write():
                    await asyncio.sleep(_STANDBY_POLL_SECONDS)
                elif is_done:
                    await self._wake.wait()
        raise AssertionError("the command controller runs until it is cancelled")

    async def _close_empty_queues(self) -> NoReturn:
        """Close queues in state Closing as soon as they are empty; a process that does not lead yet does so later."""
        while True:
            await self._queues_changed.wait()
            # The engine's state receives a change later than the store, and this may be the last change.
            await asyncio.sleep(_CLOSING_POLL_SECONDS)
            if not self._dependencies.may_write():
                continue
            self._queues_changed.clear()
            # The version is named, because the queue may have been opened since it was observed.
            due = [
                QueueChange(name, QueueState.CLOSED, resource_version=version)
                for name, version in self._dependencies.closing_queues()
                if not self._dependencies.has_workloads(name)
            ]
            await self._retry_on_error("queue not closed", partial(self._close, due))

    async def _close(self, changes: list[QueueChange]) -> None:
        """Close queues; raise the first refusal of the API server, so that it is tried again later."""
        for error in (await self._write_changes(changes)).values():
            raise error

    async def _retry_on_error(self, event: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Return whether *step* succeeded; after an error, log *event* and wait until the step may be repeated."""
        try:
            await step()
        except (ApiError, msgspec.MsgspecError) as error:
            delay = self._backoff.next_delay(at_least=error.retry_after if isinstance(error, ApiError) else None)
            log.warning(event, error=str(error), again_in=round(delay, 2))
            await asyncio.sleep(delay)
            self._queues_changed.set()
            return False
        self._backoff.reset()
        return True

    def _on_command(self, _: ObservedCommand | None, after: ObservedCommand | None) -> None:
        if after is not None:
            self._wake.set()

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        while self._informer is None:
            try:
                await self._api.list_page(COMMANDS.path, limit=1)
            except ApiError:
                await asyncio.sleep(self.discovery_interval_seconds)
                continue
            self._informer = audited_informer(self._api, COMMANDS.path, self._commands, options=self._watch_options)
            group.create_task(self._informer.run())

    # -- execution ------------------------------------------------------------

    async def _process_commands(self) -> None:
        if not self._dependencies.may_write():
            self._deleted.clear()
            self._unwritten.clear()
            return
        await self._write_changes(self._unwritten)
        await self._execute_deleted()
        # One that a finalizer retains was executed before.
        due = [
            (seen, seen.command)
            for seen in self._commands
            if seen.command is not None and seen.command.metadata.deletion_timestamp is None
        ]
        if len(due) > _MAX_IN_TURN:
            self._wake.set()
        for seen, command in self._in_turns(due):
            if not self._dependencies.may_write():
                return
            if await self._delete_command(seen):
                self._deleted.append(command)
                await self._execute_deleted()

    def _in_turns(self, due: Iterable[tuple[ObservedCommand, Command]]) -> list[tuple[ObservedCommand, Command]]:
        """Return the next of *due*: the Commands of operators before those of tenants, then the namespaces in turn."""
        by_namespace = defaultdict[str, list[tuple[ObservedCommand, Command]]](list)
        for item in due:
            by_namespace[item[0].key.namespace].append(item)
        turns = [
            (self._is_of_tenant(command), turn, seen.resource_version, (seen, command))
            for own in by_namespace.values()
            for turn, (seen, command) in enumerate(nsmallest(_MAX_IN_TURN, own, key=self._order))
        ]
        return [item for *_, item in nsmallest(_MAX_IN_TURN, turns, key=itemgetter(0, 1, 2))]

    def _order(self, item: tuple[ObservedCommand, Command]) -> tuple[bool, int]:
        return self._is_of_tenant(item[1]), item[0].resource_version

    def _is_of_tenant(self, command: Command) -> bool:
        is_allowed = self._dependencies.allows_namespace(command.metadata.namespace)
        return not is_allowed or command.action not in QUEUE_ACTIONS

    async def _delete_command(self, seen: ObservedCommand) -> bool:
        """Delete the Command; return whether it existed."""
        options = msgspec.json.encode({"preconditions": {"uid": seen.uid}})
        try:
            await self._api.delete(COMMANDS.item_path(*seen.key), options)
        except (Conflict, Forbidden, Invalid, NotFound) as error:
            if not isinstance(error, NotFound):
                log.warning("command not deleted", namespace=seen.key.namespace, name=seen.key.name, error=str(error))
            self._commands.remove(seen)
            return False
        self._commands.remove(seen)
        return True

    async def _execute_deleted(self) -> None:
        while self._deleted:
            command, hierarchy = self._deleted[0], None
            if command.action in QUEUE_ACTIONS and self._dependencies.allows_namespace(command.metadata.namespace):
                hierarchy = QueueHierarchy.of([decode_queue(raw) async for raw in self._api.list_items(QUEUES.path)])
            del self._deleted[0]
            await self._execute(command, hierarchy)

    async def _execute(self, command: Command, hierarchy: QueueHierarchy | None) -> None:
        """Execute *command* with the queues as they were read; ``None``: it may not change any."""
        namespace, target = command.metadata.namespace, command.target
        log.info("command received", action=command.action, target=target.name, namespace=namespace)
        if command.action in JOB_ACTIONS:
            self._execute_on_job(command)
            return
        if hierarchy is None:
            remedy = "create it in a namespace of queueCommandNamespaces"
            log.warning("command refused", action=command.action, queue=target.name, namespace=namespace, remedy=remedy)
            return
        try:
            changes = self._plan_changes(command, hierarchy)
        except CommandError as error:
            log.warning("command refused", action=command.action, queue=target.name, reason=str(error))
            if target.name in hierarchy.queues:
                self._record_event(
                    _reference(hierarchy.queues[target.name]), f"{command.action}Failed", str(error), is_bad=True
                )
            return
        notes = {change.queue: f"{change.queue} is {change.state}" for change in changes}
        self._unwritten = hierarchy.missing(changes)
        refused = await self._write_changes(self._unwritten)
        notes |= {queue: f"{queue} was not changed: {error.message}" for queue, error in refused.items()}
        reason = f"{command.action}Failed" if refused else command.action
        about = _reference(hierarchy.queues[target.name])
        self._record_event(about, reason, ", ".join(notes.values()), is_bad=bool(refused))

    def _execute_on_job(self, command: Command) -> None:
        namespace, target = command.metadata.namespace, command.target
        template = TemplateKey(VOLCANO_JOB, namespace, target.name)
        if command.action == "ResumeJob":
            if not self._dependencies.resume_workload(template, target.uid):
                log.info("no aborted workload to resume", namespace=namespace, name=target.name)
            return
        if self._dependencies.abort_workload(template, target.uid):
            return
        log.info("no workload to abort", namespace=namespace, name=target.name)
        if not target.uid:
            return
        about = Reference(JOBS.api_version, JOBS.kind, namespace, target.name, target.uid)
        self._record_event(about, "AbortJobFailed", _NOTHING_TO_ABORT, is_bad=True)

    def _plan_changes(self, command: Command, hierarchy: QueueHierarchy) -> list[QueueChange]:
        name, uid = command.target.name, command.target.uid
        queue = hierarchy.queues.get(name)
        if queue is None or (uid and uid != queue.metadata.uid):
            raise CommandError(f"queue {name!r} does not exist; create it first")
        return (
            open_queue(hierarchy, name)
            if command.action == "OpenQueue"
            else close_queue(hierarchy, name, self._dependencies.has_workloads)
        )

    async def _write_changes(self, changes: list[QueueChange]) -> dict[str, ApiError]:
        """Write changes from the top of the hierarchy; return the refusals of the API server by queue.

        The leader retries the remaining ones after another error.
        """
        refused: dict[str, ApiError] = {}
        while changes:
            if not self._dependencies.may_write():
                changes.clear()
                break
            queue = changes[0].queue
            try:
                await self._write_annotation(changes[0])
                changes[0] = replace(changes[0], by_parent=None)  # written once, also where the state is not
                await self._write_state(changes[0])
            except NotFound:
                log.info("queue deleted", queue=queue)
            except Conflict:
                if changes[0].resource_version is None:
                    raise
                self._queues_changed.set()  # it is checked again, perhaps with its new version
            except (Forbidden, Invalid) as error:
                # It would be refused again, and further Commands would wait for it.
                log.warning("queue not changed", queue=queue, state=changes[0].state, error=str(error))
                refused[queue] = error
            changes.pop(0)
        return refused

    async def _write_annotation(self, change: QueueChange) -> None:
        if change.by_parent is not None:
            marked = {"metadata": {"annotations": {CLOSED_BY_PARENT: change.by_parent}}}
            await self._api.patch(QUEUES.item_path("", change.queue), msgspec.json.encode(marked), kind="merge")

    async def _write_state(self, change: QueueChange) -> None:
        if change.state is None:
            return
        status: dict[str, Any] = {"status": {"state": change.state}}
        if change.resource_version is not None:
            status["metadata"] = {"resourceVersion": str(change.resource_version)}
        path = QUEUES.item_path("", change.queue)
        await self._api.patch(f"{path}/status", msgspec.json.encode(status), kind="merge")
        log.info("queue changed", queue=change.queue, state=change.state)

    def _record_event(self, about: Reference, reason: str, note: str, *, is_bad: bool = False) -> None:
        self._dependencies.record_event(
            EventMessage(
                about.uid, "warned", "Command", reason, (about,), lambda: note, "Warning" if is_bad else "Normal"
            )
        )


def _reference(queue: Queue) -> Reference:
    return Reference(QUEUES.api_version, QUEUES.kind, "", queue.metadata.name, queue.metadata.uid)


def _is_supported(command: Command) -> bool:
    """Return whether the Command is executed here; other controllers run only in member clusters."""
    of = command.target.group_kind
    return (of == _QUEUE_KIND and command.action in QUEUE_ACTIONS) or (
        of == _JOB_KIND and command.action in JOB_ACTIONS
    )


def command_dependencies(
    store: Store,
    engine: Callable[[], Engine],
    *,
    may_write: Callable[[], bool],
    record_event: Callable[[EventMessage], None],
) -> CommandDependencies:
    """Return the dependencies; before the first plan of the engine the running workloads are not known."""
    return CommandDependencies(
        may_write=lambda: may_write() and engine().queue_shares is not None,
        has_workloads=lambda name: any(
            workload.queue == name and _has_pod_group(workload) for workload in engine().workloads.values()
        ),
        closing_queues=lambda: _closing_queues(store),
        allows_namespace=lambda namespace: namespace in store.configuration.queue_command_namespaces,
        resume_workload=store.resume,
        abort_workload=store.abort,
        record_event=record_event,
    )


def _closing_queues(store: Store) -> Iterator[tuple[str, int]]:
    return ((facts.key, facts.resource_version) for facts in store.queues if facts.queue.state is QueueState.CLOSING)


def _has_pod_group(workload: Workload) -> bool:
    """Return whether Volcano would have a PodGroup for it; finished and aborted workloads have none."""
    is_aborted = workload.hold is not None and workload.hold.reason is Reason.ABORTED
    return workload.state is WorkloadState.ADMITTED or (workload.state is WorkloadState.PENDING and not is_aborted)
