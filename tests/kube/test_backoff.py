"""Delays between retries: they double with jitter, up to a maximum, and follow Retry-After."""

import pytest

from controller.kube.timing import Backoff


@pytest.mark.parametrize(
    ("jitter", "delays"),
    [
        pytest.param(0.0, [0.5, 1, 2, 4, 5, 5], id="half-at-least"),
        pytest.param(1.0, [1, 2, 4, 8, 10, 10], id="never-above-the-most"),
    ],
)
def test_delay_doubles_within_jitter(jitter, delays):
    backoff = Backoff(initial=1, maximum=10, jitter=lambda: jitter)
    assert [backoff.next_delay() for _ in delays] == delays


def test_delay_is_bounded_by_retry_after_and_maximum():
    backoff = Backoff(initial=1, maximum=10, failures=10_000, jitter=lambda: 1.0)
    assert (backoff.next_delay(), backoff.next_delay(at_least=30)) == (10, 30)
    backoff.reset()
    assert backoff.next_delay() == 1
