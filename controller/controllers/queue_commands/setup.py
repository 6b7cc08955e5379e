"""Connects the command controller with the rest of the controller."""

from collections.abc import Callable, Iterator

from controller.api_client import Api
from controller.cache.informer import WatchOptions
from controller.cache.store import Store
from controller.controllers.queue_commands.controller import CommandController, CommandDependencies
from controller.engine.engine import Engine
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import QueueState
from controller.engine.state.workloads import Workload, WorkloadState
from controller.events.message import EventMessage


def command_dependencies(
    store: Store,
    state: Callable[[], Engine],
    *,
    may_write: Callable[[], bool],
    record_event: Callable[[EventMessage], None],
) -> CommandDependencies:
    """Return the dependencies, from *store* and *state*; before the first plan the running workloads are not known."""
    return CommandDependencies(
        may_write=lambda: may_write() and state().queue_shares is not None,
        has_workloads=lambda name: any(
            workload.queue == name and _has_pod_group(workload) for workload in state().workloads.values()
        ),
        closing_queues=lambda: _closing_queues(store),
        allows_namespace=store.allows_queue_commands,
        resume_workload=store.resume,
        record_event=record_event,
    )


def create_controller(
    api: Api, dependencies: CommandDependencies, store: Store, watch_options: WatchOptions
) -> CommandController:
    """Return the command controller; it checks closing queues after every change of *store*."""
    controller = CommandController(api, dependencies, watch_options=watch_options)
    previous = store.on_change

    def changed() -> None:
        previous()
        controller.wake()

    store.on_change = changed
    return controller


def _closing_queues(store: Store) -> Iterator[str]:
    return (facts.key for facts in store.queues if facts.queue.state is QueueState.CLOSING)


def _has_pod_group(workload: Workload) -> bool:
    """Return whether Volcano would have a PodGroup for it; finished and aborted workloads have none."""
    is_aborted = workload.hold is not None and workload.hold.reason is Reason.ABORTED
    return workload.state is WorkloadState.ADMITTED or (workload.state is WorkloadState.PENDING and not is_aborted)
