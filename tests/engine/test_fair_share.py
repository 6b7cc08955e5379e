from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.fairness.fair_share import fair_shares
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, Tree, queue_limits
from controller.engine.state.quota import Quota
from tests.draws import draws
from tests.engine.slow_fair_share import SlowTree

NAMES = [f"q{number}" for number in range(9)]


@st.composite
def trees(draw) -> dict[str, dict]:
    """Queues in trees up to five levels deep; charges on leaves and, seldom, on parents."""
    queues: dict[str, dict] = {}
    depth = {"root": 0}
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        parent = draw(st.sampled_from(["root", *(known for known in queues if depth[known] < 5)]))
        depth[name] = depth[parent] + 1
        queues[name] = {
            "parent": parent,
            "weight": draw(st.integers(1, 6)),
            "capability": draw(st.one_of(st.none(), st.integers(0, 40))),
            "deserved": draw(st.one_of(st.none(), st.integers(0, 25))),
            "guarantee": draw(st.one_of(st.just(0), st.integers(0, 12))),
            "charged": draw(st.one_of(st.just(0), st.integers(0, 15))),
            "waiting": draw(st.integers(0, 40)),
        }
    for name, queue in queues.items():
        if any(other["parent"] == name for other in queues.values()):
            queue["charged"] = draw(st.sampled_from([0, 0, 0, 2]))
    return queues


def fast(queues: dict[str, dict], pool: int) -> dict[str, Fraction]:
    """Return the fair shares that the engine computes."""
    tree = Tree(
        Queue(
            name=QueueName(name),
            parent=QueueName(each["parent"]),
            weight=each["weight"],
            **{key: {"cpu": each[key]} for key in ("capability", "deserved", "guarantee") if each[key] is not None},
        )
        for name, each in queues.items()
    )
    charged = {QueueName(name): {"cpu": each["charged"]} for name, each in queues.items() if each["charged"]}
    quota = Quota(tree, queue_limits(tree, {"cpu": pool}), charged)
    wanted = {QueueName(name): {"cpu": each["charged"] + each["waiting"]} for name, each in queues.items()}
    found = fair_shares(quota, wanted)
    return {str(name): due.get("cpu", Fraction(0)) for name, due in found.items()}


def agree(queues: dict[str, dict], pool: int) -> None:
    assert fast(queues, pool) == SlowTree(queues, pool).shares


@draws(60)
@given(trees(), st.integers(0, 120))
def test_fair_shares_equal_the_slow_solver(queues, pool):
    agree(queues, pool)


@pytest.mark.long
@draws(20_000)
@given(trees(), st.integers(0, 120))
def test_fair_shares_equal_the_slow_solver_on_20000_trees(queues, pool):
    agree(queues, pool)


@draws(50)
@given(trees(), st.integers(0, 120), st.data())
def test_more_weight_never_reduces_a_fair_share(queues, pool, data):
    name = data.draw(st.sampled_from(sorted(queues)))
    before = fast(queues, pool)[name]
    heavier = {**queues, name: {**queues[name], "weight": queues[name]["weight"] + 3}}
    assert fast(heavier, pool)[name] >= before


@draws(50)
@given(trees(), st.integers(0, 120))
def test_capacity_is_divided_fully_while_requested(queues, pool):
    shares = fast(queues, pool)
    tops = [name for name, each in queues.items() if each["parent"] == "root"]
    slow = SlowTree(queues, pool)
    caps = slow.ceilings("root", pool, pool)
    if all(shares[name] < min(slow.demand(name, *caps[name]), max(caps[name][0], 0)) for name in tops):
        assert sum(shares[name] for name in tops) == pool


def test_guarantee_without_requests_is_part_of_the_fair_share():
    queues = {"a": _queue(guarantee=4), "b": _queue(waiting=20)}
    assert fast(queues, 10) == {"root": 10, "a": 4, "b": 6}


def test_direct_charges_of_a_parent_are_not_divided():
    queues = {"p": _queue(charged=3), "c": _queue(parent="p", waiting=20)}
    assert fast(queues, 10) == {"root": 10, "p": 10, "c": 7}


def _queue(**given: object) -> dict:
    plain = {"parent": str(ROOT), "weight": 1, "capability": None, "deserved": None, "guarantee": 0}
    return {**plain, "charged": 0, "waiting": 0, **given}
