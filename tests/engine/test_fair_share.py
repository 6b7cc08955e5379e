"""Fair shares, quota and the division of one amount, compared with the slow solver of the reference model (Q2-Q4)."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.fairness.fair_share import Claim, FairShareDivision, divide, guarantees_exceed
from controller.engine.reasons import Reason
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, Tree, queue_limits
from controller.engine.state.quota import Quota
from controller.engine.steps import finish
from tests.draws import draws
from tests.engine.objects import cluster
from tests.reference import shares, state
from tests.work import work_of


def claim(name: str, cap: int, **due: int | None) -> Claim:
    return Claim(name, cap, **due)


@pytest.mark.parametrize(
    ("amount", "claims", "expected"),
    [
        pytest.param(-3, [claim("a", 5), claim("b", 5, guarantee=3)], {"a": 0, "b": 0}, id="less-than-nothing"),
        pytest.param(5, [], {}, id="no-children"),
        pytest.param(
            1, [claim("a", 1), claim("b", 1), claim("c", 1)], dict.fromkeys("abc", Fraction(1, 3)), id="thirds"
        ),
        pytest.param(
            10, [claim("a", 2, guarantee=6), claim("b", 10)], {"a": 6, "b": 4}, id="a-guarantee-is-kept-above-the-cap"
        ),
        pytest.param(
            10, [claim("a", 9, guarantee=12), claim("b", 9, guarantee=8)], {"a": 6, "b": 4}, id="guarantees-scaled-down"
        ),
        pytest.param(
            9,
            [claim("a", 9, deserved=6, guarantee=5), claim("b", 9, deserved=6)],
            {"a": 5, "b": 4},
            id="a-guarantee-is-a-floor-of-the-first-step",
        ),
        pytest.param(
            10, [claim("a", 10, weight=0), claim("b", 10, weight=1)], {"a": 5, "b": 5}, id="a-weight-below-one-is-one"
        ),
        pytest.param(
            10, [claim("a", 3, deserved=8), claim("b", 9)], {"a": 3, "b": 7}, id="what-is-not-wanted-is-not-deserved"
        ),
    ],
)
def test_amount_is_divided_as_computed_by_hand(amount: int, claims: list[Claim], expected: dict[str, int | Fraction]):
    assert divide(amount, claims) == expected


def test_work_of_a_division_is_bounded_for_a_thousand_claims():
    dice = random.Random(1)
    claims = [
        claim(
            f"q{number}",
            dice.randrange(2**40),
            guarantee=dice.choice([0, dice.randrange(2**30)]),
            deserved=dice.choice([None, dice.randrange(2**36)]),
            weight=dice.randrange(1, 100),
        )
        for number in range(1000)
    ]
    amount = Fraction(sum(sibling.cap for sibling in claims), 3)
    assert work_of(lambda: divide(amount, claims)) < 500_000


sizes = st.integers(0, 12) | st.integers(0, 2**40)
amounts = sizes | st.fractions(0, 100, max_denominator=30)


@st.composite
def siblings(draw, most: int = 7) -> list[Claim]:
    return [
        Claim(
            name=f"q{number}",
            cap=draw(sizes | st.fractions(0, 20, max_denominator=12)),
            guarantee=draw(st.just(0) | sizes),
            deserved=draw(st.none() | sizes),
            weight=draw(st.integers(1, 5) | st.integers(1, 65535)),
        )
        for number in range(draw(st.integers(0, most)))
    ]


def check_division(amount: int | Fraction, claims: list[Claim]) -> None:
    floors = {sibling.name: Fraction(sibling.guarantee) for sibling in claims}
    caps = {sibling.name: Fraction(sibling.cap) for sibling in claims}
    deserved = {sibling.name: sibling.deserved or 0 for sibling in claims}
    weights = {sibling.name: sibling.weight for sibling in claims}
    assert divide(amount, claims) == shares.divide(Fraction(amount), floors, caps, deserved, weights)
    assert guarantees_exceed(amount, claims) == (sum(floors.values()) > amount)


@given(amounts, siblings())
def test_division_equals_the_slow_solver(amount, claims):
    check_division(amount, claims)


@pytest.mark.long
@draws(20_000)
@given(amounts, siblings(most=12))
def test_division_of_many_claims_equals_the_slow_solver(amount, claims):
    check_division(amount, claims)


@given(amounts, siblings())
def test_amount_is_divided_fully_unless_all_caps_are_reached(amount, claims):
    divided = divide(amount, claims)
    filled = all(divided[sibling.name] == max(sibling.cap, sibling.guarantee) for sibling in claims)
    assert sum(divided.values()) == amount or (filled and sum(divided.values()) < amount)


@given(amounts, siblings().filter(len), st.integers(1, 9))
def test_more_weight_never_reduces_a_share(amount, claims, more):
    first, *others = claims
    heavier = Claim(first.name, first.cap, first.guarantee, first.deserved, first.weight + more)
    before, after = divide(amount, claims), divide(amount, [heavier, *others])
    assert after[first.name] >= before[first.name]
    assert all(after[sibling.name] <= before[sibling.name] for sibling in others)


@st.composite
def trees(draw) -> state.State:
    """Queues in trees up to five levels deep; usage and requests in leaves and, seldom, usage in parents."""
    queues, jobs, depth = [], [], {ROOT: 0}
    for number in range(draw(st.integers(1, 9))):
        name, parent = f"q{number}", draw(st.sampled_from([known for known in depth if depth[known] < 5]))
        depth[name] = depth[parent] + 1
        given_amounts = {
            "capability": draw(st.none() | st.integers(0, 40)),
            "deserved": draw(st.none() | st.integers(0, 25)),
            "guarantee": draw(st.just(0) | st.integers(0, 12)),
        }
        fields = {field: {} if amount is None else {"cpu": amount} for field, amount in given_amounts.items()}
        queues.append(Queue(QueueName(name), QueueName(parent), weight=draw(st.integers(1, 6)), **fields))
    parents = {queue.parent for queue in queues}
    for name in (queue.name for queue in queues):
        used = draw(st.sampled_from([0, 0, 0, 2]) if name in parents else st.just(0) | st.integers(0, 15))
        jobs.append(job_of(name, "runs", used, clusters=("m",)))
        jobs.append(job_of(name, "waits", 0 if name in parents else draw(st.integers(0, 40))))
    return state.State((cluster(cpu=draw(st.integers(0, 120))),), tuple(queues), tuple(jobs))


def job_of(queue: str, name: str, cpu: int, *, clusters: tuple[str, ...] = ()) -> state.Job:
    return state.Job(f"{queue}-{name}", queue, {"cpu": cpu}, {}, clusters=clusters, charge={"cpu": cpu})


def check_tree(world: state.State, asked: int) -> None:
    """Compare the fair shares, and in which queues *asked* exceeds a limit."""
    slow = shares.Tree(world)
    tree = Tree(world.queues)
    running = {job.name: job.clusters for job in world.jobs if job.clusters}
    waiting = [job for job in world.jobs if not job.clusters]
    charged = {QueueName(name): slow.direct(name, running) for name in slow.queues}
    quota = Quota(tree, queue_limits(tree, {"cpu": world.clusters[0].allocatable["cpu"]}), charged)
    wanted = {QueueName(job.queue): {"cpu": job.requests["cpu"] + charged[job.queue]["cpu"]} for job in waiting}
    division = FairShareDivision(quota)
    finish(division.divide(wanted))
    fair = {name: due.get("cpu", 0) for name, due in division.shares.items()}
    due = shares.fair_shares(slow, waiting, running)
    assert fair == {name: amounts["cpu"] for name, amounts in due.items()}
    for leaf in slow.leaves():
        job = job_of(leaf, "new", asked)
        slow.jobs[job.name] = job
        refusal = quota.refusal(tree.nodes[QueueName(leaf)], {"cpu": asked})
        assert (refusal is not None) == bool(slow.lacking(job, running))


@draws(100)
@given(trees(), st.integers(1, 20))
def test_fair_shares_and_quota_equal_the_slow_solver(world, asked):
    check_tree(world, asked)


@pytest.mark.long
@draws(20_000)
@given(trees(), st.integers(1, 20))
def test_fair_shares_of_20000_trees_equal_the_slow_solver(world, asked):
    check_tree(world, asked)


def queue(name: str, parent: str = ROOT, **given_amounts: int) -> Queue:
    return Queue(QueueName(name), QueueName(parent), **{field: {"cpu": cpu} for field, cpu in given_amounts.items()})


@pytest.mark.parametrize(
    ("queues", "reason", "named"),
    [
        pytest.param([queue("q")], Reason.INSUFFICIENT_CAPACITY, "root", id="no-limit"),
        pytest.param([queue("q", capability=8)], Reason.QUEUE_LIMIT_REACHED, "q", id="capability-of-the-fleet"),
        pytest.param([queue("q", capability=9)], Reason.INSUFFICIENT_CAPACITY, "root", id="larger-capability"),
        pytest.param(
            [queue("p", capability=7), queue("q", "p")], Reason.QUEUE_LIMIT_REACHED, "p", id="limit-of-the-parent"
        ),
        pytest.param(
            [queue("q"), queue("other", guarantee=1)], Reason.QUEUE_LIMIT_REACHED, "q", id="guarantee-of-a-sibling"
        ),
    ],
)
def test_refusal_names_the_queue_that_sets_the_limit(queues, reason, named):
    tree = Tree(queues)
    full = Quota(tree, queue_limits(tree, {"cpu": 8}), {QueueName("q"): {"cpu": 6}})
    refusal = full.refusal(tree.nodes[QueueName("q")], {"cpu": 3})
    assert (refusal.reason, refusal.queue) == (reason, named)
