"""The clusters, and one cluster with its workloads."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.listing import (
    Bar,
    ForbiddenError,
    NotVisibleError,
    Paging,
    Query,
    amounts_text,
    cluster_bar,
    page_of,
    paging,
    shown_resources,
    shown_snapshot,
)
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_time
from controller.cli.reports.plan import reservations_to_come, unusable_reason
from controller.engine.policy import AdvanceReservation
from controller.engine.reservations.advance import idle_for
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.clusters import ClusterName
from controller.engine.state.resources import Resources, total
from controller.engine.state.workloads import Workload, WorkloadState

SORTS = ("name", "usage", "admitted", "problem")
WORKLOAD_SORTS = ("usage", "name", "queue")


class ReservationRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One advance reservation on a cluster (O11); names only for readers of the workloads or the queue."""

    since: str | None = msgspec.field(name="from")
    until: str | None
    purpose: Literal["Maintenance", "Queue", "Workload"]
    in_force: bool
    amounts: str = ""
    """Empty for the whole cluster."""
    name: str = ""
    queue: str = ""
    workload: str = ""
    """``namespace/name``."""


class ClusterRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One cluster: what our workloads use, what others use, and what is nominated or reserved."""

    name: str
    ready: bool
    problem: str
    admitted: int
    nominated: int
    reserved: int
    bars: tuple[Bar, ...]
    reservations: tuple[ReservationRow, ...] = ()
    """Those in advance that have not ended, by begin."""


class ClustersView(msgspec.Struct, rename="camel", frozen=True):
    """The clusters."""

    time: str | None
    clusters: tuple[ClusterRow, ...]
    paging: Paging


class PlacedWorkload(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One workload on a cluster, or those of others together."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    queue: str = ""
    count: int = 1
    charge: str = ""
    since: str | None = None
    is_terminating: bool = False
    """It was evicted, or has finished elsewhere, and still uses the cluster."""


class ClusterView(msgspec.Struct, rename="camel", frozen=True):
    """One cluster."""

    time: str | None
    cluster: ClusterRow
    labels: dict[str, str]
    taints: tuple[str, ...]
    provider: str
    region: str
    workloads: tuple[PlacedWorkload, ...]
    paging: Paging


def clusters_view(model: Model, query: Query, reader: Reader) -> ClustersView:
    """Return the clusters; raise `ForbiddenError`."""
    snapshot = _snapshot(model, reader)
    states = [state for state in snapshot.current.clusters if query.text("q") in state.name]
    page = paging(len(states), query, SORTS)
    admitted = snapshot.current.admitted_on
    keys = {
        "name": lambda state: (state.name,),
        "usage": lambda state: (-_usage(state), state.name),
        "admitted": lambda state: (-admitted.get(state.name, 0), state.name),
        "problem": lambda state: (not unusable_reason(state), state.name),
    }
    names = [state.name for state in page_of(states, query, keys[page.sort])]
    rows = _with_reservations(cluster_rows(snapshot, names), model, reader)
    return ClustersView(format_time(snapshot.now), rows, page)


def _snapshot(model: Model, reader: Reader) -> Snapshot:
    if not reader.all_clusters:
        raise ForbiddenError("this page needs the permission to list clusters; the role volcano-global-reader has it")
    return shown_snapshot(model)


def _usage(state: ClusterState) -> float:
    parts = [
        (state.charged.get(name, 0) + state.external_usage.get(name, 0)) / amount
        for name, amount in state.allocatable.items()
        if amount > 0
    ]
    return max(parts, default=0.0)


def cluster_rows(snapshot: Snapshot, names: Iterable[str]) -> tuple[ClusterRow, ...]:
    """Return the rows of the clusters *names*, in their order."""
    held: dict[str, list[Resources]] = {}
    nominated: dict[str, int] = {}
    reserved: dict[str, int] = {}
    for workload in snapshot.engine.nominated.values():
        if workload.nomination is not None:
            nominated[workload.nomination.cluster] = nominated.get(workload.nomination.cluster, 0) + 1
            held.setdefault(workload.nomination.cluster, []).append(workload.requirements.gang_requests)
    for workload in snapshot.engine.with_reservation.values():
        for charge in workload.reservation.cluster_charges if workload.reservation is not None else ():
            reserved[charge.cluster] = reserved.get(charge.cluster, 0) + 1
            held.setdefault(charge.cluster, []).append(charge.charge)
    for reservation in reservations_to_come(snapshot):
        for cluster in reservation.clusters if reservation.since <= snapshot.now else ():
            idle = idle_for(replace(reservation, clusters=(cluster,)), snapshot.engine.cluster_usage)
            held.setdefault(cluster, []).append(idle)
    states = {state.name: state for state in snapshot.current.clusters}
    rows = []
    for name in names:
        state = states[ClusterName(name)]
        of_held = total(held.get(name, ()))
        bars = (
            cluster_bar(resource, state.charged, state.external_usage, state.allocatable, of_held)
            for resource in shown_resources(state.allocatable)
        )
        problem = unusable_reason(state)
        admitted = snapshot.current.admitted_on.get(name, 0)
        rows.append(
            ClusterRow(name, not problem, problem, admitted, nominated.get(name, 0), reserved.get(name, 0), tuple(bars))
        )
    return tuple(rows)


def _with_reservations(rows: Iterable[ClusterRow], model: Model, reader: Reader) -> tuple[ClusterRow, ...]:
    snapshot = shown_snapshot(model)
    coming = reservations_to_come(snapshot)
    return tuple(
        msgspec.structs.replace(
            row,
            reservations=tuple(
                _reservation_row(reservation, snapshot.now, model, reader)
                for reservation in coming
                if row.name in reservation.clusters
            ),
        )
        for row in rows
    )


def _reservation_row(reservation: AdvanceReservation, now: int, model: Model, reader: Reader) -> ReservationRow:
    queue, workload = reservation.queue, reservation.workload
    is_named = workload is not None and reader.may_read(workload[0])
    return ReservationRow(
        format_time(reservation.since),
        format_time(reservation.until),
        "Queue" if queue is not None else "Workload" if workload is not None else "Maintenance",
        reservation.since <= now,
        amounts_text(reservation.amounts),
        name=reservation.name if reader.all_workloads else "",
        queue=queue if queue is not None and reader.may_name(queue, model) else "",
        workload="/".join(workload) if workload is not None and is_named else "",
    )


def cluster_view(model: Model, query: Query, reader: Reader) -> ClusterView:
    """Return one cluster; raise `ForbiddenError` or `NotVisibleError`."""
    snapshot = _snapshot(model, reader)
    name = query.path["name"]
    state = next((cluster_state for cluster_state in snapshot.current.clusters if cluster_state.name == name), None)
    if state is None:
        raise NotVisibleError(f"there is no cluster {name!r} that you may see")
    placed = [
        (workload, charge.charge)
        for workload in snapshot.observed.values()
        if workload.admission is not None
        for charge in workload.admission.cluster_charges
        if charge.cluster == name
    ]
    page = paging(len(placed), query, WORKLOAD_SORTS)
    capacity = state.allocatable
    keys = {
        "usage": lambda item: (-_part(item[1], capacity), item[0].namespace, item[0].name, item[0].uid),
        "name": lambda item: (item[0].namespace, item[0].name, item[0].uid),
        "queue": lambda item: (item[0].queue, item[0].namespace, item[0].name, item[0].uid),
    }
    shown = page_of(placed, query, keys[page.sort])
    own = [item for item in shown if reader.may_read(item[0].namespace)]
    foreign = [item for item in shown if not reader.may_read(item[0].namespace)]
    rows = [_placed(workload, charge, model, reader) for workload, charge in own]
    if foreign:
        rows.append(PlacedWorkload(count=len(foreign), charge=amounts_text(total(charge for _, charge in foreign))))
    cluster = state.cluster
    return ClusterView(
        time=format_time(snapshot.now),
        cluster=_with_reservations(cluster_rows(snapshot, [name]), model, reader)[0],
        labels=dict(sorted(cluster.labels.items())) if cluster is not None else {},
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in cluster.taints) if cluster else (),
        provider=cluster.provider if cluster is not None else "",
        region=cluster.region if cluster is not None else "",
        workloads=tuple(rows),
        paging=page,
    )


def _placed(workload: Workload, charge: Resources, model: Model, reader: Reader) -> PlacedWorkload:
    return PlacedWorkload(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue if reader.may_name(workload.queue, model) else "",
        charge=amounts_text(charge),
        since=format_time(workload.admission.admitted_at if workload.admission is not None else None),
        is_terminating=workload.state is not WorkloadState.ADMITTED,
    )


def _part(charge: Resources, capacity: Resources) -> float:
    return max((amount / capacity[name] for name, amount in charge.items() if capacity.get(name)), default=0)
