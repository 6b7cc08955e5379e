"""The HyperJobs, and one HyperJob with its parts by cluster."""

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.decisions import DecisionRow, decisions_about
from console.views.forecasts import Forecasts, visible_start
from console.views.listing import (
    PAGE_SIZE,
    NotVisibleError,
    Paging,
    Query,
    amounts_text,
    page_of,
    paging,
    shown_snapshot,
)
from console.views.workloads import clusters_of, refusal_of
from controller.cli.render.amounts import format_time
from controller.cli.render.plan import StartReport
from controller.controllers.hyperjob.children import minimum_parts
from controller.controllers.hyperjob.observed import ObservedHyperJob
from controller.engine.state.workloads import WorkloadState
from controller.reporting.messages import pending_message

SORTS = ("phase", "name")


class HyperJobRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One HyperJob."""

    namespace: str
    name: str
    phase: str
    queue: str
    parts: int
    running: str
    clusters: str
    message: str = ""


class HyperJobsView(msgspec.Struct, rename="camel", frozen=True):
    """The HyperJobs of the namespaces that the reader may see."""

    time: str | None
    hyperjobs: tuple[HyperJobRow, ...]
    paging: Paging


class PartRow(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One part of a HyperJob."""

    name: str
    cluster: str
    pods: int
    phase: str
    why: str
    clusters: tuple[str, ...] = ()
    requests: str = ""
    reason: str = ""
    message: str = ""
    retries: int = 0
    start: StartReport | None = None


class HyperJobView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One HyperJob with a page of its parts."""

    time: str | None
    hyperjob: HyperJobRow
    min_available: int
    parts: tuple[PartRow, ...]
    paging: Paging
    is_split: bool
    decisions: tuple[DecisionRow, ...] = ()
    """About its parts, the newest first."""


def hyperjobs_view(model: Model, query: Query, reader: Reader) -> HyperJobsView:
    """Return the list."""
    snapshot = shown_snapshot(model)
    text = query.text("q")
    named = [observed for observed in _all(model) if text in observed.key.name or text in observed.key.namespace]
    readable = set(reader.readable({observed.key.namespace for observed in named}))
    chosen = [observed for observed in named if observed.key.namespace in readable]
    page = paging(len(chosen), query, SORTS)
    keys = {
        "phase": lambda observed: (
            observed.status.is_finished,
            observed.status.phase or "",
            *observed.key,
            observed.uid,
        ),
        "name": lambda observed: (*observed.key, observed.uid),
    }
    return HyperJobsView(
        format_time(snapshot.now), tuple(_row(observed) for observed in page_of(chosen, query, keys[page.sort])), page
    )


def _all(model: Model) -> list[ObservedHyperJob]:
    return [observed for collection in model.hyperjobs.values() for observed in collection]


def _row(observed: ObservedHyperJob) -> HyperJobRow:
    status = observed.status
    return HyperJobRow(
        namespace=observed.key.namespace,
        name=observed.key.name,
        phase=status.phase or "Pending",
        queue=status.queue,
        parts=len(status.split.parts) if status.split is not None else 0,
        running=status.parts_running,
        clusters=status.clusters,
        message=status.message or observed.decode_error,
    )


def hyperjob_view(model: Model, query: Query, reader: Reader, forecasts: Forecasts) -> HyperJobView:
    """Return one HyperJob; raise `NotVisibleError`."""
    snapshot = shown_snapshot(model)
    namespace, name = query.path["namespace"], query.path["name"]
    if not reader.may_read(namespace):
        raise _unknown(namespace, name)
    observed = next(
        (hyperjob for hyperjob in _all(model) if (hyperjob.key.namespace, hyperjob.key.name) == (namespace, name)), None
    )
    if observed is None:
        raise _unknown(namespace, name)
    workloads = {
        workload.name: workload
        for workload in snapshot.observed.values()
        if workload.gang is not None and workload.gang.hyperjob == observed.uid
    }
    split = observed.status.split.parts if observed.status.split is not None else ()
    page = paging(len(split), query, ("index",))
    start = (page.page - 1) * PAGE_SIZE
    parts = []
    for part in split[start : start + PAGE_SIZE]:
        workload = workloads.get(part.name)
        visible = reader.redacted(refusal_of(snapshot, workload) if workload is not None else None)
        is_known = workload is not None and workload.state is not WorkloadState.FINISHED
        parts.append(
            PartRow(
                name=part.name,
                cluster=part.cluster,
                pods=sum(part.pods),
                phase=str(workload.state) if workload is not None and is_known else part.phase,
                why=part.reason,
                clusters=clusters_of(workload) if workload is not None else (),
                requests=amounts_text(workload.requirements.requests) if workload is not None else "",
                reason=visible.reason if visible else "",
                message=pending_message(visible) if visible else "",
                retries=part.retries,
                start=visible_start(forecasts.starts.get(workload.uid), reader) if workload is not None else None,
            )
        )
    return HyperJobView(
        time=format_time(snapshot.now),
        hyperjob=_row(observed),
        min_available=minimum_parts(observed.hyperjob, len(split)) if observed.hyperjob is not None else len(split),
        parts=tuple(parts),
        paging=page,
        is_split=bool(split),
        decisions=decisions_about(model, {workload.uid for workload in workloads.values()}, reader),
    )


def _unknown(namespace: str, name: str) -> NotVisibleError:
    return NotVisibleError(f"there is no HyperJob {name!r} in namespace {namespace!r} that you may see")
