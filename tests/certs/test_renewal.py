"""Tests when a certificate must be renewed."""

from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import Lifetime, reason_to_reissue, reason_to_renew

START = datetime(2026, 1, 1, tzinfo=UTC)


def at_day(days: float) -> datetime:
    return START + timedelta(days=days)


def lifetime(*, days: float) -> Lifetime:
    return Lifetime(START, at_day(days))


@pytest.mark.parametrize(
    ("age_days", "reason"),
    [
        pytest.param(-1, "it is not valid yet", id="clock-behind"),
        pytest.param(0, None, id="new"),
        pytest.param(59.99, None, id="young"),
        pytest.param(60, "two thirds of its lifetime have passed", id="due"),
        pytest.param(90, "two thirds of its lifetime have passed", id="expired"),
        pytest.param(400, "two thirds of its lifetime have passed", id="clock-far-ahead"),
    ],
)
def test_leaf_is_renewed_at_two_thirds_of_its_lifetime(age_days, reason):
    assert reason_to_renew(lifetime(days=90), lifetime(days=365), at_day(age_days)) == reason


def test_leaf_that_outlives_its_issuer_is_renewed():
    assert reason_to_renew(lifetime(days=91), lifetime(days=90), at_day(0)) == "it outlives its issuer"
    assert reason_to_renew(lifetime(days=90), lifetime(days=90), at_day(0)) is None


def test_ca_is_its_own_issuer():
    assert reason_to_renew(lifetime(days=90), lifetime(days=90), at_day(60)) == "two thirds of its lifetime have passed"


@pytest.mark.parametrize(
    ("names", "required", "reason"),
    [
        pytest.param({"a", "b"}, {"a"}, None, id="extra-name"),
        pytest.param({"a"}, {"a"}, None, id="exact"),
        pytest.param({"a"}, {"a", "c", "b"}, "it does not cover b, c", id="missing-names"),
        pytest.param(set(), {"a"}, "it does not cover a", id="none"),
    ],
)
def test_leaf_is_reissued_for_missing_names(names, required, reason):
    assert reason_to_reissue(frozenset(names), frozenset(required)) == reason
