"""Orders in which the parts of a HyperJob are placed: each part takes capacity from those after it."""

from collections.abc import Sequence
from enum import Enum, auto
from fractions import Fraction

from controller.engine.placement.feasibility_cache import FeasibilityCache
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import SchedulingRequirements, Workload


class PartOrder(Enum):
    """The orders; the first one in which enough parts fit is used."""

    BY_NAME = auto()
    MOST_CONSTRAINED_FIRST = auto()
    """By the number of clusters that a part may use, then the largest part first."""
    SMALLEST_FIRST = auto()
    """So that most parts fit, where not all are needed."""


class PartSorter:
    """Sorts pending parts of one HyperJob, which are given by name."""

    def __init__(
        self, parts: Sequence[Workload], pending: PendingWorkloads, feasibility_cache: FeasibilityCache
    ) -> None:
        self._parts = parts
        self._requirements = {part.uid: pending.class_of(part.uid).requirements for part in parts}
        """The requirements of each part; equal ones are one object."""
        self._feasibility_cache = feasibility_cache

    @property
    def has_equal_parts(self) -> bool:
        """Return whether all parts have the same requirements, so that their order changes nothing."""
        return len({id(requirements) for requirements in self._requirements.values()}) <= 1

    def in_order(self, order: PartOrder) -> list[Workload]:
        """Return the parts in *order*; equal ones by name."""
        if order is PartOrder.BY_NAME:
            return [*self._parts]
        allocatable = self._feasibility_cache.allocatable

        def key(part: Workload) -> tuple[int, Fraction]:
            requirements = self._requirements[part.uid]
            share = _dominant_share(requirements.requests, allocatable)
            if order is PartOrder.SMALLEST_FIRST:
                return 0, share
            return self._choices_of(requirements), -share

        return sorted(self._parts, key=key)

    def _choices_of(self, requirements: SchedulingRequirements) -> int:
        """Return by how many clusters a part may be placed in another way."""
        candidates = self._feasibility_cache.get(requirements).candidates
        return len(candidates.names) - candidates.copies


def _dominant_share(requests: Resources, allocatable: Resources) -> Fraction:
    shares = (
        Fraction(amount, allocatable[name]) for name, amount in requests.items() if amount > 0 and allocatable.get(name)
    )
    return max(shares, default=Fraction(0))
