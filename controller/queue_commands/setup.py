"""What the stage of Commands sees of the rest of the controller."""

from collections.abc import Callable, Iterator

from controller.cache.informer import WatchOptions
from controller.cache.store import Store
from controller.engine.queues import QueueState
from controller.engine.reasons import Reason
from controller.engine.state import State
from controller.engine.workloads import Workload, WorkloadState
from controller.events.message import EventMessage
from controller.kube import Api
from controller.queue_commands.controller import CommandController, CommandDependencies


def command_dependencies(
    store: Store,
    state: Callable[[], State],
    *,
    may_write: Callable[[], bool],
    record_event: Callable[[EventMessage], None],
) -> CommandDependencies:
    """Return what the stage asks of *store* and *world*; before the first cycle nobody knows who waits and runs."""
    return CommandDependencies(
        may_write=lambda: may_write() and state().queue_shares is not None,
        has_workloads=lambda name: any(
            each.queue == name and _has_pod_group(each) for each in state().workloads.values()
        ),
        closing_queues=lambda: _closing_queues(store),
        allows_namespace=store.allows_queue_commands,
        resume_workload=store.resume,
        record_event=record_event,
    )


def create_controller(
    api: Api, about: CommandDependencies, store: Store, watch_options: WatchOptions
) -> CommandController:
    """Return the stage; it looks at closing queues when *store* has news, and whoever listened before listens on."""
    made = CommandController(api, about, watch_options=watch_options)
    listening = store.on_change

    def changed() -> None:
        listening()
        made.wake()

    store.on_change = changed
    return made


def _closing_queues(store: Store) -> Iterator[str]:
    return (facts.key for facts in store.queues if facts.queue.state is QueueState.CLOSING)


def _has_pod_group(workload: Workload) -> bool:
    """Say whether Volcano would have a PodGroup for it: what is over or was aborted has none."""
    is_aborted = workload.hold is not None and workload.hold.reason is Reason.ABORTED
    return workload.state is WorkloadState.ADMITTED or (workload.state is WorkloadState.PENDING and not is_aborted)
