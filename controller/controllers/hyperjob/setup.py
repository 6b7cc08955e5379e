"""Connects the HyperJob controller to the engine's clusters and queues, and to the store's bindings."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api_client import Api
from controller.cache.informer import WatchOptions
from controller.cache.store import Store
from controller.clock import Clock
from controller.controllers.hyperjob.controller import Dependencies, HyperJobController
from controller.controllers.hyperjob.pending_reason import PendingReason
from controller.controllers.hyperjob.split import CapacitySnapshot
from controller.engine.engine import Engine
from controller.engine.placement.fit import capacities_when_empty, free_capacities
from controller.engine.plan import Wait
from controller.engine.reasons import Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import Resources
from controller.reporting.messages import pending_message


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The parts of the admission controller that the HyperJob controller reads."""

    store: Store
    state: Callable[[], Engine]
    configuration: Callable[[], VolcanoGlobalConfiguration]
    may_write: Callable[[], bool]


def new_controller(api: Api, view: ControllerView, watch_options: WatchOptions, clock: Clock) -> HyperJobController:
    """Return a HyperJob controller that is triggered by every change of the store.

    The store's existing change handler keeps being called; the admission loop must have set it already.
    """
    store, state = view.store, view.state
    dependencies = Dependencies(
        may_write=view.may_write,
        capacity=lambda: capacity_snapshot(state(), view.configuration()),
        binding=store.bindings.get,
        pending_reason=lambda uid: pending_reason(state().refusal(uid)),
        hyperjob_changed=store.hyperjob_changed,
    )
    hyperjob_controller = HyperJobController(api, dependencies, watch_options=watch_options, clock=clock)
    listening = store.on_change

    def changed() -> None:
        listening()
        hyperjob_controller.wake()

    store.on_change = changed
    return hyperjob_controller


def resync_after_cycle(
    on_reasons: Callable[[tuple[Wait, ...]], None], hyperjob_controller: HyperJobController
) -> Callable[[tuple[Wait, ...]], None]:
    """Return a handler of pending reasons that calls *on_reasons* and then triggers the HyperJob controller.

    The pending reasons of parts and the clusters' capacity are current only after a cycle has processed the store's
    changes.
    """

    def waits(reasons: tuple[Wait, ...]) -> None:
        on_reasons(reasons)
        hyperjob_controller.wake()

    return waits


def capacity_snapshot(state: Engine, configuration: VolcanoGlobalConfiguration) -> CapacitySnapshot | None:
    """Return the capacity of the clusters and queues of *state*, ``None`` before its first cycle."""
    if state.queue_shares is None:
        return None
    queue_usage = state.queue_shares.quota

    def quota(name: str, demand: Resources) -> PendingReason | None:
        node = queue_usage.tree.nodes.get(QueueName(name or configuration.default_queue))
        return pending_reason(queue_usage.refusal(node, demand)) if node is not None else None

    return CapacitySnapshot(
        free_capacities(state.cluster_usage),
        capacities_when_empty(state.cluster_usage),
        quota,
        configuration.max_hyper_job_parts,
    )


def pending_reason(refusal: Refusal | None) -> PendingReason | None:
    """Return *refusal* with its message."""
    return None if refusal is None else PendingReason(refusal.reason, pending_message(refusal))
