import pytest

from controller.backoff import Backoff


@pytest.mark.parametrize(
    ("dice", "delays"),
    [
        pytest.param(0.0, [0.5, 1, 2, 4, 5, 5], id="half-at-least"),
        pytest.param(1.0, [1, 2, 4, 8, 10, 10], id="never-above-the-most"),
    ],
)
def test_the_delay_doubles_within_its_jitter(dice, delays):
    backoff = Backoff(first=1, most=10, dice=lambda: dice)
    assert [backoff.failed() for _ in delays] == delays


def test_success_begins_again():
    backoff = Backoff(first=1, most=10, dice=lambda: 1.0)
    backoff.failed()
    backoff.failed()
    backoff.worked()
    assert backoff.failed() == 1


def test_a_server_that_names_a_time_is_not_asked_earlier():
    assert Backoff(first=1, most=10).failed(at_least=30) == 30


def test_ten_thousand_failures_do_not_overflow():
    backoff = Backoff(first=1, most=10, failures=10_000, dice=lambda: 1.0)
    assert backoff.failed() == 10
