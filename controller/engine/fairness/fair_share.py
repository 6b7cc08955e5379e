"""Computes the fair share of every queue: each parent's amount is divided top down (Q4).

``water_filling`` divides among the children of one parent. This module applies
it level by level, one resource at a time, and after a change of requests only
where the result can differ.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from controller.engine.fairness.water_filling import Claim, divide
from controller.engine.state.hierarchy import Node
from controller.engine.state.queues import ROOT, QueueName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import PODS, Resources

FairShares = Mapping[QueueName, Mapping[str, Fraction]]


def fair_shares(quota: Quota, requested: Mapping[QueueName, Resources]) -> FairShares:
    """Return every queue's fair share by resource, in base units; ``pods`` are not shared.

    *requested* has the requests of each leaf: its charges and those of its competing
    pending workloads.
    """
    return FairShareDivision(quota, requested).shares


class FairShareDivision:
    """The fair shares of a tree, updated incrementally; limits and guarantees are constant.

    ``update`` must be called for every queue whose requests or direct charges change.
    """

    def __init__(self, quota: Quota, requested: Mapping[QueueName, Resources]) -> None:
        self.shares: dict[QueueName, dict[str, Fraction]] = {name: {} for name in quota.tree.nodes}
        self._quota = quota
        self._divisions = {
            resource: _ResourceDivision(quota, resource, requested) for resource in sorted(_resources(quota, requested))
        }
        for resource, part in self._divisions.items():
            for name, share in part.shares.items():
                self.shares[name][resource] = share

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
        self.shares = {ROOT: Fraction(self._limit(quota.tree.root))}
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
            ceiling = self._limit(above)
            caps = min(before, ceiling), min(after, ceiling)
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
