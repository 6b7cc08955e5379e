"""Charges of deleted workloads whose pods run on (C2).

Karmada leaves them running (``preserveResourcesOnDeletion``), or their grace period is long. No object describes these
pods any more. Their cluster counts them as external usage, and the queue stays charged until external usage falls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, Resources, add, clamp_non_negative, positive, subtract, total

#: A rise of external usage that lasts so many settle periods is not the late summary of a workload that has ended.
_LASTING_PERIODS: Final = 10


@dataclass(frozen=True, slots=True)
class Orphan:
    """The charge of one namespace in one queue for all its workloads left running in a cluster."""

    queue: QueueName
    namespace: str
    charge: Resources


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphaned charges of one cluster, the earliest first."""

    charges: tuple[Orphan, ...] = ()
    baseline: Resources = EMPTY
    """External usage without the orphans."""
    excess: Resources = EMPTY
    """The lowest external usage above baseline and orphans in the present window."""
    since: int = 0
    """When the present window began, in milliseconds."""

    @property
    def total(self) -> Resources:
        """Return the sum of all charges."""
        return total(orphaned.charge for orphaned in self.charges)

    def added(self, orphan: Orphan, external: Resources, now: int) -> "Orphans":
        """Return the charges with *orphan* added at *now*; *external* is external usage without it."""
        base = self if self.charges else Orphans(baseline=external, since=now)
        charges = {(orphaned.queue, orphaned.namespace): orphaned for orphaned in base.charges}
        key = orphan.queue, orphan.namespace
        known = charges.get(key)
        charges[key] = replace(orphan, charge=add(known.charge, orphan.charge)) if known is not None else orphan
        return replace(base, charges=tuple(charges.values()))

    def after(self, external: Resources, now: int, settle_ms: int) -> tuple["Orphans", tuple[Orphan, ...]]:
        """Return the remaining charges when external usage is *external* at *now*, and the ended ones.

        External usage also changes while the summary still includes finished workloads.
        Only a lasting rise moves the baseline, so that the end of a short one ends no charge.
        """
        if not self.charges:
            return self, ()
        is_over = now - self.since >= _LASTING_PERIODS * settle_ms
        baseline = add(self.baseline, self.excess) if is_over else self.baseline
        above = clamp_non_negative(subtract(external, baseline))
        remaining: list[Orphan] = []
        ended: list[Orphan] = []
        for orphaned, lost in self._losses(clamp_non_negative(subtract(self.total, above))):
            rest = positive(subtract(orphaned.charge, lost))
            if rest:
                remaining.append(replace(orphaned, charge=rest))
            if lost:
                ended.append(replace(orphaned, charge=lost))
        if not remaining:
            return NO_ORPHANS, tuple(ended)
        beyond = clamp_non_negative(subtract(above, total(orphaned.charge for orphaned in remaining)))
        excess = beyond if is_over else {name: min(beyond.get(name, 0), self.excess.get(name, 0)) for name in beyond}
        since = now if is_over else self.since
        return Orphans(tuple(remaining), baseline, positive(excess), since), tuple(ended)

    def _losses(self, missing: Resources) -> Iterator[tuple[Orphan, Resources]]:
        """Yield each charge with the part of *missing* that it loses; the earliest loses first."""
        for orphaned in self.charges:
            lost = positive({name: min(amount, missing.get(name, 0)) for name, amount in orphaned.charge.items()})
            missing = subtract(missing, lost)
            yield orphaned, lost


NO_ORPHANS: Final = Orphans()
