"""The timeline of one workload: its logged decisions, and what the objects know."""

from collections.abc import Iterable

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.decisions import decision_row
from console.views.listing import shown_snapshot
from controller.cache.objects import CachedBinding, WorkloadPhase
from controller.cli.render.amounts import format_time
from controller.engine.state.workloads import Workload, WorkloadState

#: Logged steps, the last ones.
_MAX_LOGGED = 20


class Step(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One step of a workload's history; without a time where the control plane records none."""

    title: str
    at: str | None = None
    detail: str = ""
    tone: str = ""
    """``good``, ``bad`` or ``wait``."""
    moment: str = ""
    """The time of its logged plan, for the page of that moment."""


def timeline(model: Model, workload: Workload, reason: str, reader: Reader) -> Iterable[Step]:
    """Yield the steps from the decision log and from the objects, which know the present."""
    binding = shown_snapshot(model).binding(workload)
    yield Step("Created", format_time(workload.created_at))
    if binding is not None and not is_adopted(workload):
        yield Step("Suspended", format_time(binding.created_at), "its binding was suspended until it is admitted")
    logged = list(_logged_steps(model, workload, reader))
    yield from logged[-_MAX_LOGGED:]
    last = logged[-1].title if logged else ""
    # The plan that nominates a workload also logs why it is pending.
    decided = next((step.title for step in reversed(logged[-_MAX_LOGGED:]) if step.title != "Pending"), "")
    evictions = sum(step.title == "Evicted" for step in logged)
    if workload.evictions > evictions:
        times = "once" if workload.evictions == 1 else f"{workload.evictions} times"
        yield Step("Evicted", detail=f"{times} so far", tone="bad")
    if reason and (last != "Pending" or not logged[-1].detail.startswith(reason)):
        yield Step("Pending", detail=reason, tone="wait")
    if workload.nomination is not None and not decided.startswith("Nominated"):
        nomination = workload.nomination
        yield Step(f"Nominated to {nomination.cluster}", format_time(nomination.since), tone="wait")
    if workload.state is WorkloadState.ADMITTED:
        titles = [step.title for step in logged if step.title in {"Admitted", "Evicted"}]
        yield from _admitted_steps(workload, binding, is_logged=titles[-1:] == ["Admitted"])
    if workload.state is WorkloadState.FINISHED:
        yield Step("Finished", format_time(binding.details.ended_at if binding is not None else None), tone="good")


def is_adopted(workload: Workload) -> bool:
    """Return whether it runs without an admission (D10)."""
    return workload.admission is not None and workload.admission.adopted


def _admitted_steps(workload: Workload, binding: CachedBinding | None, *, is_logged: bool) -> Iterable[Step]:
    """Yield the steps of an admitted workload, of which the admission may be logged."""
    admission = workload.admission
    if is_adopted(workload):
        yield Step("Adopted", detail="it ran before the installation, or others started it", tone="good")
    elif admission is not None and not is_logged:
        clusters = ", ".join(charge.cluster for charge in admission.cluster_charges)
        yield Step("Admitted", format_time(admission.admitted_at), f"to {clusters}", "good")
    if binding is not None and binding.clusters:
        yield Step("Placed", detail="Karmada has placed it", tone="good")
    if workload.has_run:
        progress = binding.progress if binding is not None else ()
        running = [reported.cluster for reported in progress if reported.phase is WorkloadPhase.RUNNING]
        yield Step("Running", detail=f"on {', '.join(running)}" if running else "", tone="good")


#: Titles and tones of logged decisions.
_STEPS = {
    "Admit": ("Admitted", "good"),
    "Evict": ("Evicted", "bad"),
    "Wait": ("Pending", "wait"),
    "Requeue": ("Scheduled again", ""),
}


def _logged_steps(model: Model, workload: Workload, reader: Reader) -> Iterable[Step]:
    before = ""
    for decision in model.history.of_workload(workload.uid):
        row = decision_row(decision, model, reader)
        title, tone = _STEPS.get(row.action, (row.action, "wait"))
        detail = ": ".join(text for text in (row.reason, row.message) if text)
        if row.action == "Admit":
            detail = f"to {', '.join(row.clusters)}"
        elif row.action == "Keep":
            title, detail = f"{row.update[:1].upper()}{row.update[1:]}", ""
        elif row.preemptor:
            detail = f"{detail}, for {row.preemptor}"
        # A reason is logged again by a new leader, and when facts change that its message does not have.
        if row.action != "Wait" or detail != before:
            yield Step(title, format_time(decision.at), detail, tone, row.at)
        before = detail
