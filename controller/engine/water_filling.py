"""The division of one resource among the children of one parent (Q4).

Water-filling: vessels of different floors and heights are filled from one
source to a common level, which is weighted max-min fairness as in Ghodsi et
al., "Dominant Resource Fairness" (NSDI 2011), here per resource, with
guarantees as floors and in two steps: what is deserved first, then the rest
by weight. The tree of queues is not known here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm


@dataclass(frozen=True, slots=True)
class Claim:
    """What one child may have and is due of one resource, in base units."""

    name: str
    cap: int | Fraction
    """The most that it can use: the smaller of its demand and its ceiling."""
    guarantee: int = 0
    """What it has whatever its cap."""
    deserved: int | None = None
    """What it is due before the surplus is shared; 0 means the same as not set."""
    weight: int = 1
    """Its part of the surplus; less than 1 counts as 1, as Volcano's webhook has it."""


@dataclass(frozen=True, slots=True)
class _Vessel:
    """What a child holds at a level: never less than its floor, *base* plus *slope* times the level up to its cap."""

    floor: int
    cap: int
    base: int
    slope: int

    @property
    def full(self) -> int:
        return max(self.floor, self.cap)

    def amount_at(self, rise: int, per: int) -> int:
        """Return *per* times what it holds at the level rise / per."""
        return max(self.floor * per, min(self.cap * per, self.base * per + self.slope * rise))


def divide(amount: int | Fraction, claims: Iterable[Claim]) -> dict[str, Fraction]:
    """Return what each claim is entitled to of *amount*, by name.

    Exact, whatever the order of *claims*. All of *amount* is given away unless
    every cap is reached. Guarantees that exceed it together are scaled down.
    """
    children = tuple(claims)
    unit = lcm(amount.denominator, *(claim.cap.denominator for claim in children))
    whole = max(amount.numerator * (unit // amount.denominator), 0)
    if guarantees_exceed(amount, children):
        return _scaled_down(children, Fraction(whole, unit))
    vessels = [_surplus(claim, unit) for claim in children]
    if sum(vessel.full for vessel in vessels) <= whole:
        return {claim.name: Fraction(vessel.full, unit) for claim, vessel in zip(children, vessels, strict=True)}
    entitled = [_base(claim, unit) for claim in children]
    if sum(vessel.full for vessel in entitled) > whole:
        vessels = entitled
    rise, per = _level(vessels, whole)
    return {
        claim.name: Fraction(vessel.amount_at(rise, per), per * unit)
        for claim, vessel in zip(children, vessels, strict=True)
    }


def guarantees_exceed(amount: int | Fraction, claims: Iterable[Claim]) -> bool:
    """Say whether the guarantees together are more than *amount*, so that ``divide`` scales them down (Q3)."""
    return sum(claim.guarantee for claim in claims) > max(amount, 0)


def _scaled_down(claims: Sequence[Claim], amount: Fraction) -> dict[str, Fraction]:
    part = amount / sum(claim.guarantee for claim in claims)
    return {claim.name: part * claim.guarantee for claim in claims}


def _base(claim: Claim, unit: int) -> _Vessel:
    """Return the first step's vessel: full where the claim has all it deserves."""
    deserved = (claim.deserved or 0) * unit
    return _Vessel(claim.guarantee * unit, min(_whole(claim.cap, unit), deserved), base=0, slope=deserved)


def _surplus(claim: Claim, unit: int) -> _Vessel:
    """Return the second step's vessel: it starts from what the claim deserves."""
    cap = _whole(claim.cap, unit)
    base = min(cap, (claim.deserved or 0) * unit)
    return _Vessel(claim.guarantee * unit, cap, base, slope=max(claim.weight, 1) * unit)


def _whole(amount: int | Fraction, unit: int) -> int:
    return amount.numerator * (unit // amount.denominator)


def _level(vessels: Sequence[_Vessel], amount: int) -> tuple[int, int]:
    """Return as (rise, per) the level rise / per at which *vessels* hold *amount*.

    They hold no more than that at level 0 and more when full.
    """
    held, slope, bends = 0, 0, []
    # Quotients by slopes differ by at least 1 / slope^2, so places this fine order them exactly.
    fineness = 2 * max(vessel.slope for vessel in vessels).bit_length()
    for vessel in vessels:
        held += max(vessel.floor, vessel.base)
        if vessel.cap <= vessel.floor:
            continue
        if vessel.base < vessel.floor:
            rise = vessel.floor - vessel.base
            bends.append(((rise << fineness) // vessel.slope, rise, vessel.slope, -rise, vessel.slope))
        else:
            slope += vessel.slope
        rise = vessel.cap - vessel.base
        bends.append(((rise << fineness) // vessel.slope, rise, vessel.slope, rise, -vessel.slope))
    for _, rise, per, constant, steeper in sorted(bends):
        # Up to this bend they hold ``held + slope * level``.
        if held * per + slope * rise >= amount * per:
            break
        held += constant
        slope += steeper
    return (amount - held, slope) if slope else (0, 1)
