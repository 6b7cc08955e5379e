"""Divides one resource among the children of one parent (Q4).

Water-filling: curves of different floors and heights are filled from one
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
class _ShareCurve:
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
    curves = [_surplus(claim, unit) for claim in children]
    if sum(curve.full for curve in curves) <= whole:
        return {claim.name: Fraction(curve.full, unit) for claim, curve in zip(children, curves, strict=True)}
    entitled = [_base(claim, unit) for claim in children]
    if sum(curve.full for curve in entitled) > whole:
        curves = entitled
    rise, per = _level(curves, whole)
    return {
        claim.name: Fraction(curve.amount_at(rise, per), per * unit)
        for claim, curve in zip(children, curves, strict=True)
    }


def guarantees_exceed(amount: int | Fraction, claims: Iterable[Claim]) -> bool:
    """Return whether the guarantees together exceed *amount*, so that ``divide`` scales them down (Q3)."""
    return sum(claim.guarantee for claim in claims) > max(amount, 0)


def _scaled_down(claims: Sequence[Claim], amount: Fraction) -> dict[str, Fraction]:
    part = amount / sum(claim.guarantee for claim in claims)
    return {claim.name: part * claim.guarantee for claim in claims}


def _base(claim: Claim, unit: int) -> _ShareCurve:
    """Return the curve of the first step, full where the claim has all it deserves."""
    deserved = (claim.deserved or 0) * unit
    return _ShareCurve(claim.guarantee * unit, min(_in_units(claim.cap, unit), deserved), base=0, slope=deserved)


def _surplus(claim: Claim, unit: int) -> _ShareCurve:
    """Return the curve of the second step, which starts from the deserved amount."""
    cap = _in_units(claim.cap, unit)
    base = min(cap, (claim.deserved or 0) * unit)
    return _ShareCurve(claim.guarantee * unit, cap, base, slope=max(claim.weight, 1) * unit)


def _in_units(amount: int | Fraction, unit: int) -> int:
    return amount.numerator * (unit // amount.denominator)


def _level(curves: Sequence[_ShareCurve], amount: int) -> tuple[int, int]:
    """Return as (rise, per) the level rise / per at which *curves* sum to *amount*.

    *amount* must be at least their sum at level 0 and less than their sum when full.
    """
    held, slope, bends = 0, 0, []
    # Quotients by slopes differ by at least 1 / slope^2, so places this fine order them exactly.
    fineness = 2 * max(curve.slope for curve in curves).bit_length()
    for curve in curves:
        held += max(curve.floor, curve.base)
        if curve.cap <= curve.floor:
            continue
        if curve.base < curve.floor:
            rise = curve.floor - curve.base
            bends.append(((rise << fineness) // curve.slope, rise, curve.slope, -rise, curve.slope))
        else:
            slope += curve.slope
        rise = curve.cap - curve.base
        bends.append(((rise << fineness) // curve.slope, rise, curve.slope, rise, -curve.slope))
    for _, rise, per, constant, steeper in sorted(bends):
        # Up to this bend the curves reach ``held + slope * level``.
        if held * per + slope * rise >= amount * per:
            break
        held += constant
        slope += steeper
    return (amount - held, slope) if slope else (0, 1)
