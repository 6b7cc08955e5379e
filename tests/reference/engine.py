"""Runs the engine on a state of the reference model."""

from controller.engine.plan import Admit, Plan
from controller.engine.reasons import Reason
from controller.engine.state.workloads import WorkloadUid
from tests.engine.worlds import NOW, Objects
from tests.reference.state import Decision

LONG_AGO = NOW - 100_000_000


def plan(objects: Objects) -> list[Decision]:
    """Return the engine's decisions on *objects* in one plan."""
    return decisions(objects.engine(LONG_AGO).plan(NOW))


def plan_in_parts(objects: Objects, most: int | None) -> tuple[list[Decision], dict[WorkloadUid, Reason]]:
    """Return decisions and pending reasons of plans of at most *most* decisions each."""
    played = objects.engine(LONG_AGO)
    parts = [played.plan(NOW, most=most)]
    while parts[-1].is_cut:
        parts.append(played.plan(NOW, most=most))
    made = tuple(decision for part in parts for decision in part.decisions)
    notes = tuple(note for part in parts for note in part.record_updates)
    return decisions(Plan(made, record_updates=notes)), dict(played.last_reasons)


def decisions(engine_plan: Plan) -> list[Decision]:
    """Return a plan's decisions in the reference model's form."""
    held = {
        note.workload.uid: note.nomination.cluster for note in engine_plan.record_updates if note.nomination is not None
    }
    result: list[Decision] = []
    beneficiary = None
    for decision in [*engine_plan.decisions, None]:
        for_whom = None if decision is None or isinstance(decision, Admit) else decision.preemptor
        if beneficiary is not None and for_whom != beneficiary and beneficiary in held:
            result.append(Decision("Nominate", beneficiary, held[beneficiary]))
        beneficiary = for_whom
        if isinstance(decision, Admit):
            clusters = ",".join(sorted(assignment.name for assignment in decision.clusters))
            result.append(Decision("Admit", decision.workload.name, clusters))
        elif decision is not None:
            result.append(Decision("Evict", decision.workload.name, decision.preemptor or ""))
    return result
