"""Slow, independent implementation of Q1-Q4, for comparison with the engine's fair shares.

One resource, plain dictionaries, recursion as the rules state it; the
level is found by trying every breakpoint.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise

Curve = Callable[[Fraction], Fraction]


def fill(amount: Fraction, curves: dict[str, Curve], marks: Iterable[Fraction], most: Fraction) -> Fraction:
    """Return the largest level up to *most* at which all curves together stay within *amount*."""

    def held(level: Fraction) -> Fraction:
        return sum((curve(level) for curve in curves.values()), Fraction(0))

    points = sorted({Fraction(0), most, *(mark for mark in marks if 0 < mark < most)})
    best = points[0]
    for left, right in pairwise(points):
        if held(right) <= amount:
            best = right
            continue
        slope = (held(right) - held(left)) / (right - left)
        return left + (amount - held(left)) / slope if slope else right
    return best


def share_out(amount: Fraction, children: dict[str, dict]) -> dict[str, Fraction]:
    """Divide *amount* among children given as cap, guarantee, deserved (None: not set) and weight."""
    floors = sum(child["guarantee"] for child in children.values())
    if floors > amount:
        return {name: Fraction(child["guarantee"]) * amount / floors for name, child in children.items()}

    def entitled(child: dict) -> Curve:
        if child["deserved"] is None:
            return lambda _: Fraction(child["guarantee"])
        return lambda level: max(Fraction(child["guarantee"]), min(Fraction(child["cap"]), level * child["deserved"]))

    marks = []
    for child in children.values():
        if child["deserved"]:
            marks += [Fraction(child[part], child["deserved"]) for part in ("cap", "guarantee")]
    first = fill(amount, {name: entitled(child) for name, child in children.items()}, marks, Fraction(1))

    def base(child: dict) -> Fraction:
        return Fraction(0) if child["deserved"] is None else min(Fraction(child["cap"]), first * child["deserved"])

    def surplus(child: dict) -> Curve:
        return lambda level: max(
            Fraction(child["guarantee"]), min(Fraction(child["cap"]), base(child) + level * child["weight"])
        )

    curves = {name: surplus(child) for name, child in children.items()}
    marks = [
        (Fraction(child[part]) - base(child)) / child["weight"]
        for child in children.values()
        for part in ("cap", "guarantee")
    ]
    level = fill(amount, curves, marks, max([Fraction(1), *marks]) + 1)
    return {name: curve(level) for name, curve in curves.items()}


class SlowTree:
    """A tree of queues as ``{name: {parent, weight, capability, deserved, guarantee, charged, waiting}}``."""

    def __init__(self, queues: dict[str, dict], pool: int) -> None:
        self.queues = queues
        self.pool = pool
        self.shares: dict[str, Fraction] = {"root": Fraction(pool)}
        self._descend("root", Fraction(pool), pool, pool)

    def below(self, name: str) -> list[str]:
        return sorted(child for child, queue in self.queues.items() if queue["parent"] == name)

    def claimed(self, name: str) -> int:
        """Return the larger of its own guarantee and its children's, up to its own capability."""
        queue = self.queues[name]
        wanted = max(queue["guarantee"], sum(self.claimed(child) for child in self.below(name)))
        return wanted if queue["capability"] is None else min(wanted, queue["capability"])

    def granted(self, name: str, given_from: int) -> dict[str, int]:
        claimed = {child: self.claimed(child) for child in self.below(name)}
        over = sum(claimed.values())
        if over <= max(given_from, 0):
            return claimed
        return {child: amount * max(given_from, 0) // over for child, amount in claimed.items()}

    def ceilings(self, name: str, ceiling: int, given_from: int) -> dict[str, tuple[int, int]]:
        """Return each child's limit and guarantee."""
        granted = self.granted(name, given_from)
        found = {}
        for child, guarantee in granted.items():
            own = self.queues[child]["capability"]
            rest = ceiling - (sum(granted.values()) - guarantee)
            found[child] = (rest if own is None else min(rest, own), guarantee)
        return found

    def demand(self, name: str, ceiling: int, guarantee: int) -> int:
        queue = self.queues[name]
        if not self.below(name):
            return queue["charged"] + queue["waiting"]
        limits = self.ceilings(name, ceiling, guarantee)
        return queue["charged"] + sum(
            min(self.demand(child, *limit), max(limit[0], 0)) for child, limit in limits.items()
        )

    def _descend(self, name: str, share: Fraction, ceiling: int, guarantee: int) -> None:
        limits = self.ceilings(name, ceiling, guarantee)
        direct = 0 if name == "root" else self.queues[name]["charged"]
        children = {
            child: {
                "cap": min(self.demand(child, *limit), max(limit[0], 0)),
                "guarantee": limit[1],
                "deserved": self.queues[child]["deserved"],
                "weight": self.queues[child]["weight"],
            }
            for child, limit in limits.items()
        }
        if children:
            found = share_out(max(share - direct, Fraction(0)), children)
            self.shares |= found
            for child in children:
                self._descend(child, found[child], *limits[child])
