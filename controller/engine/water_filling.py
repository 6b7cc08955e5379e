"""Divides one resource among the children of one parent (Q4).

Water-filling: vessels of different floors and heights are filled from one
source to a common level. This is weighted max-min fairness as in Ghodsi et al.,
"Dominant Resource Fairness" (NSDI 2011), here per resource, with guarantees as
floors and in two steps: first the deserved amounts, then the rest by weight.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm


@dataclass(frozen=True, slots=True)
class Claim:
    """One child's cap, guarantee, deserved amount and weight for one resource, in base units."""

    name: str
    cap: int | Fraction
    """The most it can use: the smaller of its requests and its limit."""
    guarantee: int = 0
    """Its share is never less, whatever its cap."""
    deserved: int | None = None
    """Due before the surplus is shared; 0 means the same as unset."""
    weight: int = 1
    """Its weight in the surplus; less than 1 counts as 1, as in Volcano's webhook."""


@dataclass(frozen=True, slots=True)
class _Vessel:
    """A child's share by level: at least its floor, otherwise *base* plus *slope* times the level up to its cap."""

    floor: int
    cap: int
    base: int
    slope: int

    @property
    def full(self) -> int:
        return max(self.floor, self.cap)

    def amount_at(self, rise: int, per: int) -> int:
        """Return *per* times the child's share at the level rise / per."""
        return max(self.floor * per, min(self.cap * per, self.base * per + self.slope * rise))


def divide(amount: int | Fraction, claims: Iterable[Claim]) -> dict[str, Fraction]:
    """Return the part of *amount* that each claim gets, by name.

    Exact, and independent of the order of *claims*. All of *amount* is divided
    unless every cap is reached. Guarantees that exceed it together are scaled down.
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
    """Return whether the guarantees together exceed *amount*, so that ``divide`` scales them down (Q3)."""
    return sum(claim.guarantee for claim in claims) > max(amount, 0)


def _scaled_down(claims: Sequence[Claim], amount: Fraction) -> dict[str, Fraction]:
    part = amount / sum(claim.guarantee for claim in claims)
    return {claim.name: part * claim.guarantee for claim in claims}


def _base(claim: Claim, unit: int) -> _Vessel:
    """Return the vessel of the first step, full where the claim has all it deserves."""
    deserved = (claim.deserved or 0) * unit
    return _Vessel(claim.guarantee * unit, min(_in_units(claim.cap, unit), deserved), base=0, slope=deserved)


def _surplus(claim: Claim, unit: int) -> _Vessel:
    """Return the vessel of the second step, which starts from the deserved amount."""
    cap = _in_units(claim.cap, unit)
    base = min(cap, (claim.deserved or 0) * unit)
    return _Vessel(claim.guarantee * unit, cap, base, slope=max(claim.weight, 1) * unit)


def _in_units(amount: int | Fraction, unit: int) -> int:
    return amount.numerator * (unit // amount.denominator)


def _level(vessels: Sequence[_Vessel], amount: int) -> tuple[int, int]:
    """Return as (rise, per) the level rise / per at which *vessels* hold *amount*.

    *amount* must be at least what they hold at level 0 and less than what they hold when full.
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
        # Up to this bend the vessels hold ``held + slope * level``.
        if held * per + slope * rise >= amount * per:
            break
        held += constant
        slope += steeper
    return (amount - held, slope) if slope else (0, 1)
