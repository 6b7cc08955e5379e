"""Division among siblings: worked cases, properties, and comparison with a slow, independent solver."""

import random
import time
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.fairness.fair_share import Claim, divide, guarantees_exceed
from tests.draws import draws


def claim(name: str, cap: int, **due: int | None) -> Claim:
    return Claim(name, cap, **due)


@pytest.mark.parametrize(
    ("amount", "claims", "expected"),
    [
        pytest.param(8, [claim("a", 8), claim("b", 8, weight=3)], {"a": 2, "b": 6}, id="case-1-by-weight"),
        pytest.param(8, [claim("a", 8), claim("b", 2, weight=3)], {"a": 6, "b": 2}, id="case-2-surplus-flows-on"),
        pytest.param(
            12,
            [claim("a", 2, weight=2), claim("b", 10), claim("c", 3)],
            {"a": 2, "b": 7, "c": 3},
            id="case-3-caps-are-reached-one-by-one",
        ),
        pytest.param(
            6,
            [claim("a", 6, deserved=4), claim("b", 6, deserved=2), claim("c", 6)],
            {"a": 4, "b": 2, "c": 0},
            id="case-4-what-is-deserved-comes-first",
        ),
        pytest.param(
            12, [claim("a", 12, deserved=2), claim("b", 12, deserved=6)], {"a": 4, "b": 8}, id="case-12-then-the-rest"
        ),
        pytest.param(
            10, [claim("a", 10, guarantee=4), claim("b", 10)], {"a": 5, "b": 5}, id="case-13-a-guarantee-is-no-bonus"
        ),
        pytest.param(
            12,
            [claim(name, cap, deserved=4) for name, cap in (("a", 6), ("b", 6), ("c", 2))],
            {"a": 5, "b": 5, "c": 2},
            id="case-10",
        ),
        pytest.param(8, [claim("a", 8, deserved=4), claim("b", 8, deserved=4)], {"a": 4, "b": 4}, id="case-9"),
        pytest.param(0, [claim("a", 5), claim("b", 5, guarantee=3)], {"a": 0, "b": 0}, id="nothing-to-divide"),
        pytest.param(-3, [claim("a", 5)], {"a": 0}, id="less-than-nothing"),
        pytest.param(5, [], {}, id="no-children"),
        pytest.param(9, [claim("a", 4), claim("b", 3)], {"a": 4, "b": 3}, id="every-cap-is-reached"),
        pytest.param(
            1, [claim("a", 1), claim("b", 1), claim("c", 1)], dict.fromkeys("abc", Fraction(1, 3)), id="thirds"
        ),
        pytest.param(
            10, [claim("a", 2, guarantee=6), claim("b", 10)], {"a": 6, "b": 4}, id="a-guarantee-is-kept-above-the-cap"
        ),
        pytest.param(
            10,
            [claim("a", 2, guarantee=6), claim("b", 3), claim("c", 0)],
            {"a": 6, "b": 3, "c": 0},
            id="a-guarantee-above-the-cap-while-all-fits",
        ),
        pytest.param(
            10, [claim("a", 9, guarantee=12), claim("b", 9, guarantee=8)], {"a": 6, "b": 4}, id="guarantees-scaled-down"
        ),
        pytest.param(
            10, [claim("a", 9, guarantee=4), claim("b", 9, guarantee=6)], {"a": 4, "b": 6}, id="guarantees-fit-exactly"
        ),
        pytest.param(
            6,
            [claim("a", 9, deserved=8), claim("b", 9, deserved=4), claim("c", 9, guarantee=3)],
            {"a": 2, "b": 1, "c": 3},
            id="deserved-is-cut-in-proportion-beside-a-guarantee",
        ),
        pytest.param(
            9,
            [claim("a", 9, deserved=6, guarantee=5), claim("b", 9, deserved=6)],
            {"a": 5, "b": 4},
            id="a-guarantee-is-a-floor-of-the-first-step",
        ),
        pytest.param(
            10,
            [claim("a", 10, deserved=0), claim("b", 10, deserved=None)],
            {"a": 5, "b": 5},
            id="deserving-zero-is-as-not-set",
        ),
        pytest.param(
            10, [claim("a", 10, weight=0), claim("b", 10, weight=1)], {"a": 5, "b": 5}, id="a-weight-below-one-is-one"
        ),
        pytest.param(
            10, [claim("a", 3, deserved=8), claim("b", 9)], {"a": 3, "b": 7}, id="what-is-not-wanted-is-not-deserved"
        ),
        pytest.param(
            Fraction(7, 2),
            [Claim("a", Fraction(1, 3)), Claim("b", 10), Claim("c", 10, deserved=1)],
            {"a": Fraction(1, 3), "b": Fraction(13, 12), "c": Fraction(25, 12)},
            id="fractions-in-fractions-out",
        ),
    ],
)
def test_worked_cases_are_divided_as_expected(
    amount: int | Fraction, claims: list[Claim], expected: dict[str, int | Fraction]
):
    assert divide(amount, claims) == expected


def test_guarantees_above_the_amount_are_detected():
    claims = [claim("a", 9, guarantee=4), claim("b", 9, guarantee=7)]
    assert not guarantees_exceed(11, claims)
    assert guarantees_exceed(Fraction(21, 2), claims)
    assert guarantees_exceed(-1, [claim("a", 9, guarantee=1)])
    assert not guarantees_exceed(-1, [claim("a", 9)])


def test_dividing_a_thousand_claims_takes_milliseconds():
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
    amount = Fraction(sum(each.cap for each in claims), 3)
    began = time.process_time()
    divide(amount, claims)
    assert time.process_time() - began < 0.5  # about 0.004 on an idle core


# The slow solver implements Q4 by trying every level at which a share changes its slope.


def by_trying(amount: int | Fraction, claims: Sequence[Claim]) -> dict[str, Fraction]:
    amount = max(Fraction(amount), Fraction(0))
    floors = {each.name: Fraction(each.guarantee) for each in claims}
    if sum(floors.values()) > amount:
        return {name: floor * amount / sum(floors.values()) for name, floor in floors.items()}

    def first(level: Fraction) -> dict[str, Fraction]:
        return {
            each.name: max(floors[each.name], min(Fraction(each.cap), level * (each.deserved or 0))) for each in claims
        }

    levels = {Fraction(0), Fraction(1)}
    for each in claims:
        if each.deserved:
            levels |= {Fraction(each.guarantee, each.deserved), Fraction(each.cap) / each.deserved}
    base_level = highest(amount, first, sorted(level for level in levels if level <= 1))
    base = {each.name: min(Fraction(each.cap), base_level * (each.deserved or 0)) for each in claims}

    def second(level: Fraction) -> dict[str, Fraction]:
        return {
            each.name: max(floors[each.name], min(Fraction(each.cap), base[each.name] + level * each.weight))
            for each in claims
        }

    levels = {Fraction(0)}
    for each in claims:
        for bend in (each.guarantee, each.cap):
            levels.add(max(Fraction(0), (bend - base[each.name]) / each.weight))
    return second(highest(amount, second, sorted(levels)))


def highest(amount: Fraction, held_at, levels: list[Fraction]) -> Fraction:
    """Return the largest level, up to the last one, at which the sum is at most *amount*."""
    low = max(level for level in levels if sum(held_at(level).values()) <= amount)
    above = [level for level in levels if level > low]
    if not above:
        return low
    held_low, held_high = (sum(held_at(level).values()) for level in (low, above[0]))
    return low + (above[0] - low) * (amount - held_low) / (held_high - held_low)


small = st.integers(0, 12)
large = st.integers(0, 2**40)


@st.composite
def siblings(draw, sizes=small | large, most: int = 7) -> list[Claim]:
    count = draw(st.integers(0, most))
    return [
        Claim(
            name=f"q{number}",
            cap=draw(sizes | st.fractions(0, 20, max_denominator=12)),
            guarantee=draw(st.just(0) | sizes),
            deserved=draw(st.none() | sizes),
            weight=draw(st.integers(1, 5) | st.integers(1, 65535)),
        )
        for number in range(count)
    ]


amounts = small | st.integers(0, 60) | large | st.fractions(0, 100, max_denominator=30)


@given(amounts, siblings())
def test_division_equals_the_slow_solver(amount: int | Fraction, claims: list[Claim]):
    assert divide(amount, claims) == by_trying(amount, claims)


@pytest.mark.long
@draws(20_000)
@given(amounts, siblings(most=12))
def test_division_of_many_claims_equals_the_slow_solver(amount: int | Fraction, claims: list[Claim]):
    assert divide(amount, claims) == by_trying(amount, claims)


@given(amounts, siblings())
def test_amount_is_divided_fully_unless_all_caps_are_reached(amount: int | Fraction, claims: list[Claim]):
    shares = divide(amount, claims)
    filled = all(shares[each.name] == max(each.cap, each.guarantee) for each in claims)
    assert sum(shares.values()) == amount or (filled and sum(shares.values()) < amount)


@given(amounts, siblings())
def test_shares_stay_between_guarantee_and_cap(amount: int | Fraction, claims: list[Claim]):
    shares = divide(amount, claims)
    for each in claims:
        assert shares[each.name] <= max(each.cap, each.guarantee)
        assert shares[each.name] >= each.guarantee or guarantees_exceed(amount, claims)


@given(amounts, siblings(), st.randoms(use_true_random=False))
def test_order_of_claims_does_not_matter(amount: int | Fraction, claims: list[Claim], dice: random.Random):
    shuffled = dice.sample(claims, len(claims))
    assert divide(amount, shuffled) == divide(amount, claims)


@given(amounts, siblings().filter(len), st.integers(1, 9))
def test_more_weight_never_reduces_a_share(amount: int | Fraction, claims: list[Claim], more: int):
    first, *others = claims
    heavier = Claim(first.name, first.cap, first.guarantee, first.deserved, first.weight + more)
    before, after = divide(amount, claims), divide(amount, [heavier, *others])
    assert after[first.name] >= before[first.name]
    assert all(after[each.name] <= before[each.name] for each in others)


@given(amounts, siblings(), st.integers(0, 9))
def test_a_larger_amount_reduces_no_share(amount: int | Fraction, claims: list[Claim], more: int):
    before, after = divide(amount, claims), divide(amount + more, claims)
    assert all(after[each.name] >= before[each.name] for each in claims)


@given(amounts, siblings().filter(len), st.integers(1, 9))
def test_a_larger_cap_raises_no_other_share(amount: int | Fraction, claims: list[Claim], more: int):
    first, *others = claims
    wider = Claim(first.name, first.cap + more, first.guarantee, first.deserved, first.weight)
    before, after = divide(amount, claims), divide(amount, [wider, *others])
    assert after[first.name] >= before[first.name]
    assert all(after[each.name] <= before[each.name] for each in others)


@given(amounts, siblings(), st.integers(1, 1000))
def test_unit_of_amounts_does_not_matter(amount: int | Fraction, claims: list[Claim], factor: int):
    scaled = [
        Claim(
            each.name,
            each.cap * factor,
            each.guarantee * factor,
            None if each.deserved is None else each.deserved * factor,
            each.weight,
        )
        for each in claims
    ]
    shares = divide(amount, claims)
    assert divide(amount * factor, scaled) == {name: share * factor for name, share in shares.items()}
