"""Charges against the limits of queues: which limit refuses them, and which queue the refusal names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, Tree, queue_limits
from controller.engine.state.quota import Quota
from tests.draws import draws
from tests.engine.test_fair_share import trees


def quota(*queues: Queue, pool: int, **charged: int) -> Quota:
    tree = Tree(queues)
    charges = {QueueName(name): {"cpu": amount} for name, amount in charged.items() if amount}
    return Quota(tree, queue_limits(tree, {"cpu": pool}), charges)


def queue(name: str, parent: str = "root", **amounts: int | None) -> Queue:
    given_amounts = {field: {"cpu": amount} for field, amount in amounts.items() if amount is not None}
    return Queue(QueueName(name), QueueName(parent), **given_amounts)


@pytest.mark.parametrize(
    ("queues", "reason", "named"),
    [
        pytest.param([queue("q")], Reason.INSUFFICIENT_CAPACITY, "root", id="no-limit"),
        pytest.param([queue("q", capability=8)], Reason.QUEUE_LIMIT_REACHED, "q", id="capability-of-the-fleet"),
        pytest.param([queue("q", capability=9)], Reason.INSUFFICIENT_CAPACITY, "root", id="larger-capability"),
        pytest.param([queue("p"), queue("q", "p")], Reason.INSUFFICIENT_CAPACITY, "root", id="no-limit-above"),
        pytest.param(
            [queue("p", capability=7), queue("q", "p")], Reason.QUEUE_LIMIT_REACHED, "p", id="limit-of-the-parent"
        ),
        pytest.param(
            [queue("q"), queue("other", guarantee=1)], Reason.QUEUE_LIMIT_REACHED, "q", id="guarantee-of-a-sibling"
        ),
    ],
)
def test_refusal_names_the_queue_that_sets_the_limit(queues, reason, named):
    full = quota(*queues, pool=8, q=6)
    refusal = full.refusal(full.tree.nodes[QueueName("q")], {"cpu": 3})
    assert (refusal.reason, refusal.queue) == (reason, named)


def exceeds(full: Quota, name: QueueName, asked: int) -> bool:
    """Return whether usage or reserved quota after an admission exceeds any limit on the path, computed anew."""
    after = full.overlay()
    after.add_usage(full.tree.nodes[name], {"cpu": asked})
    for node in full.tree.nodes[name].path():
        limit = full.limits[node.name].limit.get("cpu", 0)
        below = after.direct_usage(node.name, "cpu") + sum(after.reservation(child, "cpu") for child in node.children)
        before = full.direct_usage(node.name, "cpu") + sum(full.reservation(child, "cpu") for child in node.children)
        if after.usage(node.name, "cpu") > limit or (below > before and below > limit):
            return True
    return False


@draws(150)
@given(trees(), st.integers(0, 60), st.integers(1, 20), st.data())
def test_charge_is_refused_exactly_if_it_exceeds_a_limit(queues, pool, asked, data):
    full = quota(
        *(queue(name, each["parent"], **{key: each[key] for key in FIELDS}) for name, each in queues.items()),
        pool=pool,
        **{name: each["charged"] for name, each in queues.items()},
    )
    leaf = data.draw(st.sampled_from([node.name for node in full.tree.leaves() if node.name != ROOT]))
    refusal = full.refusal(full.tree.nodes[leaf], {"cpu": asked})
    assert (refusal is not None) == exceeds(full, leaf, asked)
    if refusal is not None and refusal.reason is Reason.QUEUE_LIMIT_REACHED:
        node = full.tree.nodes[QueueName(refusal.queue)]
        above = full.limits[node.parent.name].limit["cpu"]
        assert node.queue.capability.get("cpu") == above or full.limits[node.name].limit["cpu"] < above


FIELDS = "capability", "guarantee"
