"""Finds the ordered affinity term that Karmada's scheduler must observe before a decision is carried out (C1)."""

from controller.cache.objects import CachedBinding
from controller.engine.placement.filter import candidates
from controller.engine.plan import Admit
from controller.engine.state.cluster_usage import ClusterUsage


def first_unobserved_term(decision: Admit, facts: CachedBinding, ledger: ClusterUsage) -> str:
    """Return the affinity term to observe before *decision* is carried out, or an empty string if none is needed."""
    shape = decision.workload.requirements
    if shape.placement.affinity is not None or not shape.placement.terms:
        return ""
    term = candidates(shape, ledger.clusters).term
    begins_with = facts.observed_term or shape.placement.terms[0].name
    return term if term != begins_with else ""
