"""What advance reservations of amounts keep free on one cluster, at the times when one of them begins (O11)."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from controller.engine.state.resources import EMPTY, Resources, elementwise_max, positive, remaining, total


@dataclass(frozen=True, slots=True)
class ReservationInForce:
    """The amounts of one reservation that is in force when one of the cluster's reservations begins."""

    name: str
    amounts: Resources
    lacking: Resources
    """The amounts without what its own workloads are expected to use then."""


@dataclass(frozen=True, slots=True)
class ReservationBegin:
    """The reservations in force when the first of them begins, or now where it has begun."""

    in_force: tuple[ReservationInForce, ...]
    released: Resources = EMPTY
    """What running workloads are expected to release until then."""

    def set_aside(self, names: Collection[str]) -> Resources:
        """Return what must be free now in addition to the requests of a workload that *names* keep off."""
        if self.in_force[0].name not in names:
            return EMPTY
        lacking = total(amounts.lacking for amounts in self.in_force if amounts.name in names)
        return positive(remaining(lacking, self.released))

    @property
    def without_releases(self) -> "ReservationBegin":
        """Return the same with all amounts, whoever uses them, and without expected releases."""
        return ReservationBegin(tuple(replace(amounts, lacking=amounts.amounts) for amounts in self.in_force))


@dataclass(frozen=True, slots=True)
class AmountsInAdvance:
    """What reservations keep free on one cluster."""

    begins: tuple[ReservationBegin, ...]
    """One for each reservation that has not ended; it is the first in force."""
    _known: dict[tuple[str, ...], Resources] = field(default_factory=dict, compare=False, repr=False)
    _assured: list["AmountsInAdvance"] = field(default_factory=list, compare=False, repr=False)

    def binds(self, names: Collection[str]) -> bool:
        """Return whether one of the reservations *names* keeps amounts of this cluster free."""
        return any(begin.in_force[0].name in names for begin in self.begins)

    def set_aside(self, names: tuple[str, ...]) -> Resources:
        """Return what must be free now in addition to the requests of a workload that *names* keep off."""
        known = self._known.get(names)
        if known is None:
            known = EMPTY
            for begin in self.begins:
                known = elementwise_max(known, begin.set_aside(names))
            self._known[names] = known
        return known

    def first(self, names: tuple[str, ...]) -> str:
        """Return the reservation of *names* that begins first."""
        return next(begin.in_force[0].name for begin in self.begins if begin.in_force[0].name in names)

    @property
    def without_releases(self) -> "AmountsInAdvance":
        """Return the same with all amounts, for a search that assumes that some running workloads are evicted."""
        if not self._assured:
            self._assured.append(AmountsInAdvance(tuple(begin.without_releases for begin in self.begins)))
        return self._assured[0]
