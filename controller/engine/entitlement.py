"""What every queue is entitled to: a parent's amount divided top down (Q4).

The division among the children of one parent is ``fairshare``; here it is
applied level by level, one resource at a time.
"""

from collections.abc import Mapping
from fractions import Fraction

from controller.engine.fairshare import Claim, divide
from controller.engine.queues import ROOT, QueueName
from controller.engine.quota import Quota
from controller.engine.resources import PODS, Resources
from controller.engine.tree import Node

Entitlements = Mapping[QueueName, Mapping[str, Fraction]]


def entitlements(quota: Quota, wanted: Mapping[QueueName, Resources]) -> Entitlements:
    """Return every queue's entitlement by resource, in base units; ``pods`` are nobody's due.

    *wanted* is each leaf's demand: its charges and those of its waiting
    workloads that are not held for another reason than room.
    """
    shares: dict[QueueName, dict[str, Fraction]] = {name: {} for name in quota.tree.nodes}
    for resource in sorted(_resources(quota, wanted) - {PODS}):
        demands = _demands(quota, wanted, resource)
        shares[ROOT][resource] = Fraction(_ceiling(quota, quota.tree.root, resource))
        for node in reversed(quota.tree.bottom_up()):
            if node.children:
                amount = shares[node.name][resource] - quota.booked_on(node.name, resource)
                claims = [_claim(quota, child, demands[child.name], resource) for child in node.children]
                for name, share in divide(max(amount, Fraction(0)), claims).items():
                    shares[QueueName(name)][resource] = Fraction(share)
    return shares


def _resources(quota: Quota, wanted: Mapping[QueueName, Resources]) -> set[str]:
    found = {name for demand in wanted.values() for name, amount in demand.items() if amount > 0}
    found.update(name for limit in quota.limits.values() for name in limit.guarantee)
    found.update(quota.allocated[ROOT])
    return found


def _ceiling(quota: Quota, node: Node, resource: str) -> int:
    return max(quota.limits[node.name].ceiling.get(resource, 0), 0)


def _demands(quota: Quota, wanted: Mapping[QueueName, Resources], resource: str) -> dict[QueueName, int]:
    """Return the demand of every queue: a leaf's own, a parent's from its children and direct charges."""
    demands: dict[QueueName, int] = {}
    for node in quota.tree.bottom_up():
        own = quota.booked_on(node.name, resource) if node.children else wanted.get(node.name, {}).get(resource, 0)
        below = (min(demands[child.name], _ceiling(quota, child, resource)) for child in node.children)
        demands[node.name] = own + sum(below)
    return demands


def _claim(quota: Quota, node: Node, demand: int, resource: str) -> Claim:
    return Claim(
        name=node.name,
        cap=min(demand, _ceiling(quota, node, resource)),
        guarantee=quota.limits[node.name].guarantee.get(resource, 0),
        deserved=node.queue.deserved.get(resource),
        weight=node.queue.weight,
    )
