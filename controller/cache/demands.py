"""What a workload asks for, by whom it is counted: its template, or Karmada's interpreter, or both.

Pure. Karmada counts requests only and no sidecars, so that it may say too
little of a pod (D2); how many replicas there are, it knows best.
"""

from controller.cache.facts import VOLCANO_JOB, BindingFacts, Demand, TemplateFacts
from controller.cache.pool import Pool
from controller.engine.resources import larger, requested, scale

_Both = tuple[Demand, Demand, Demand]


class Demands:
    """Makes demands, and makes equal ones once."""

    def __init__(self) -> None:
        self._both: Pool[_Both] = Pool()

    def of(self, binding: BindingFacts, template: TemplateFacts | None) -> Demand | None:
        """Return what is asked for, ``None`` where nobody knows."""
        own = template.demand if template else None
        if binding.template.kind == VOLCANO_JOB or binding.demand is None:
            return own
        if own is None or not own.pods or not binding.demand.replicas:
            return binding.demand
        told, counted = binding.demand, own
        # The ids stay theirs while the value is kept, because what they belong to is kept beside it.
        return self._both.get((id(told), id(counted)), lambda: (_joined(told, counted), told, counted))[0]


def _joined(told: Demand, counted: Demand) -> Demand:
    """Return the replicas that Karmada tells of, each with the larger of the two requests."""
    pod = larger(told.pods[0], counted.pods[0])
    whole = requested(scale(pod, told.replicas))
    return Demand(whole, pods=(pod,), replicas=told.replicas, node_claim=counted.node_claim)
