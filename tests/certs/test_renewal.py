"""When a certificate must be renewed."""

from datetime import UTC, datetime, timedelta

import pytest

from certs.renewal import Lifetime, reason_to_reissue, reason_to_renew

START = datetime(2026, 1, 1, tzinfo=UTC)


def at_day(days: float) -> datetime:
    return START + timedelta(days=days)


def life(*, days: float) -> Lifetime:
    return Lifetime(START, at_day(days))


@pytest.mark.parametrize(
    ("age_days", "reason"),
    [
        pytest.param(-1, "it is not valid yet", id="clock-behind"),
        pytest.param(0, None, id="new"),
        pytest.param(59.99, None, id="young"),
        pytest.param(60, "two thirds of its life are over", id="due"),
        pytest.param(90, "two thirds of its life are over", id="expired"),
        pytest.param(400, "two thirds of its life are over", id="clock-far-ahead"),
    ],
)
def test_leaf_is_renewed_at_two_thirds_of_its_lifetime(age_days, reason):
    assert reason_to_renew(life(days=90), life(days=365), at_day(age_days)) == reason


def test_leaf_that_outlives_its_issuer_is_renewed():
    assert reason_to_renew(life(days=91), life(days=90), at_day(0)) == "it outlives its issuer"
    assert reason_to_renew(life(days=90), life(days=90), at_day(0)) is None


def test_ca_is_its_own_issuer():
    assert reason_to_renew(life(days=90), life(days=90), at_day(60)) == "two thirds of its life are over"


@pytest.mark.parametrize(
    ("names", "wanted", "reason"),
    [
        pytest.param({"a", "b"}, {"a"}, None, id="more-than-wanted"),
        pytest.param({"a"}, {"a"}, None, id="as-wanted"),
        pytest.param({"a"}, {"a", "c", "b"}, "it is not made out to b, c", id="less"),
        pytest.param(set(), {"a"}, "it is not made out to a", id="none"),
    ],
)
def test_leaf_is_reissued_for_missing_names(names, wanted, reason):
    assert reason_to_reissue(frozenset(names), frozenset(wanted)) == reason
