"""Computes the fair share of every queue: each parent's amount is divided top down (Q4).

``divide`` divides among the children of one parent by water-filling. It is applied
level by level, one resource at a time, and after a change of requests only where
the result can differ.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from controller.engine.state.hierarchy import ROOT, Node, QueueName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import PODS, Resources
from controller.engine.steps import Steps


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
    first_step = [_base(claim, unit) for claim in children]
    if sum(curve.full for curve in first_step) > whole:
        curves = first_step
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


FairShares = Mapping[QueueName, Mapping[str, Fraction]]


class FairShareDivision:
    """The fair shares of a tree by resource, in base units, updated incrementally; limits and guarantees are constant.

    ``pods`` are not shared. ``update`` must be called for every queue whose requests or direct charges change.
    """

    def __init__(self, quota: Quota) -> None:
        self.shares: dict[QueueName, dict[str, Fraction]] = {name: {} for name in quota.tree.nodes}
        self._quota = quota
        self._divisions: dict[str, _ResourceDivision] = {}

    def divide(self, requested: Mapping[QueueName, Resources]) -> Steps[None]:
        """Divide every resource, with a step for each queue.

        *requested* has the requests of each leaf: its charges and those of its competing pending workloads.
        """
        for resource in sorted(_resources(self._quota, requested)):
            self._divisions[resource] = _ResourceDivision(self._quota, resource, requested)
            self._store(resource, self._divisions[resource].shares)
            yield len(self.shares)

    def update(self, requested: Mapping[QueueName, Resources], changed: Iterable[QueueName]) -> set[QueueName]:
        """Apply the new requests of the *changed* queues; return the queues whose fair share changed."""
        nodes = [self._quota.tree.nodes[name] for name in sorted({*changed}) if name in self._quota.tree.nodes]
        result: set[QueueName] = set()
        for node in nodes:
            for resource in _new_resources(requested.get(node.name, {}), self._divisions):
                self._divisions[resource] = _ResourceDivision(self._quota, resource, requested)
                result |= self._store(resource, self._divisions[resource].shares)
        for resource, part in self._divisions.items():
            result |= self._store(resource, part.update(requested, nodes))
        return result

    def _store(self, resource: str, shares: Mapping[QueueName, Fraction]) -> set[QueueName]:
        for name, share in shares.items():
            self.shares[name][resource] = share
        return set(shares)


def _resources(quota: Quota, requested: Mapping[QueueName, Resources]) -> set[str]:
    result = {name for limit in quota.limits.values() for name in limit.guarantee}
    result.update(quota.allocated[ROOT])
    for of_queue in requested.values():
        result.update(_new_resources(of_queue, result))
    return result - {PODS}


def _new_resources(requested: Resources, known: Iterable[str]) -> list[str]:
    return [name for name, amount in requested.items() if amount > 0 and name not in known and name != PODS]


class _ResourceDivision:
    """The division of one resource."""

    def __init__(self, quota: Quota, resource: str, requested: Mapping[QueueName, Resources]) -> None:
        self._quota = quota
        self._resource = resource
        self._requested: dict[QueueName, int] = {}
        self._children_may_use: dict[QueueName, int] = dict.fromkeys(quota.tree.nodes, 0)
        """What the children of each queue may use of their requests."""
        for node in quota.tree.bottom_up():
            self._requested[node.name] = self._requested_by(node, requested)
            if node.parent is not None:
                self._children_may_use[node.parent.name] += min(self._requested[node.name], self._limit(node))
        self._direct = {name: quota.direct_usage(name, resource) for name in quota.tree.nodes}
        self.shares = {ROOT: Fraction(max(quota.divisible(resource), 0))}
        for node in reversed(quota.tree.bottom_up()):
            self.shares |= self._divide(node)

    def update(self, requested: Mapping[QueueName, Resources], nodes: Iterable[Node]) -> dict[QueueName, Fraction]:
        """Apply the present requests of *nodes*; return the shares that changed."""
        stale: dict[QueueName, Node] = {}
        for node in nodes:
            direct = self._quota.direct_usage(node.name, self._resource)
            if node.children and direct != self._direct[node.name]:
                stale[node.name] = node
            self._direct[node.name] = direct
            self._raise(node, requested, stale)
        return self._redivide(stale)

    def _raise(self, node: Node, requested: Mapping[QueueName, Resources], stale: dict[QueueName, Node]) -> None:
        """Update the requests of *node* and its ancestors; add parents whose division changes to *stale*."""
        for above in node.path():
            before, after = self._requested[above.name], self._requested_by(above, requested)
            if before == after:
                return
            self._requested[above.name] = after
            limit = self._limit(above)
            caps = min(before, limit), min(after, limit)
            if caps[0] == caps[1] or above.parent is None:
                return
            self._children_may_use[above.parent.name] += caps[1] - caps[0]
            share = self.shares[above.name]
            if not (share < caps[0] and share <= caps[1]):
                # A share below both caps does not depend on the cap, so the division stays the same.
                stale[above.parent.name] = above.parent

    def _redivide(self, stale: dict[QueueName, Node]) -> dict[QueueName, Fraction]:
        changed: dict[QueueName, Fraction] = {}
        while stale:
            node = stale.pop(min(stale, key=lambda name: (stale[name].depth, name)))
            for name, share in self._divide(node).items():
                if share != self.shares[name]:
                    self.shares[name] = changed[name] = share
                    child = self._quota.tree.nodes[name]
                    if child.children:
                        stale[name] = child
        return changed

    def _divide(self, node: Node) -> dict[QueueName, Fraction]:
        if not node.children:
            return {}
        amount = self.shares[node.name] - self._direct[node.name]
        claims = [self._claim(child) for child in node.children]
        return {QueueName(name): share for name, share in divide(max(amount, Fraction(0)), claims).items()}

    def _limit(self, node: Node) -> int:
        return max(self._quota.limits[node.name].limit.get(self._resource, 0), 0)

    def _requested_by(self, node: Node, requested: Mapping[QueueName, Resources]) -> int:
        """Return a queue's requests: a leaf's own, a parent's direct charges and what its children may use."""
        if not node.children:
            return requested.get(node.name, {}).get(self._resource, 0)
        return self._quota.direct_usage(node.name, self._resource) + self._children_may_use[node.name]

    def _claim(self, node: Node) -> Claim:
        return Claim(
            name=node.name,
            cap=min(self._requested[node.name], self._limit(node)),
            guarantee=self._quota.limits[node.name].guarantee.get(self._resource, 0),
            deserved=node.queue.deserved.get(self._resource),
            weight=node.queue.weight,
        )
