"""Whether Karmada's scheduler would begin with the ordered affinity that a decision rests on (C1).

Pure.
"""

from controller.cache.objects import CachedBinding
from controller.engine.candidates import candidates
from controller.engine.cluster_usage import ClusterUsage
from controller.engine.plan import Admit


def first_unobserved_term(decision: Admit, facts: CachedBinding, ledger: ClusterUsage) -> str:
    """Return the affinity term that must be observed before *decision* is carried out; nothing where none must be."""
    shape = decision.workload.shape
    if shape.placement.affinity is not None or not shape.placement.terms:
        return ""
    term = candidates(shape, ledger.clusters).term
    begins_with = facts.observed_term or shape.placement.terms[0].name
    return term if term != begins_with else ""
