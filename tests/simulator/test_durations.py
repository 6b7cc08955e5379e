import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.simulator.trace import DurationError, format_duration, parse_duration, seconds


@pytest.mark.parametrize(
    ("text", "span"),
    [("0s", 0), ("90s", 90_000), ("200ms", 200), ("1h30m", 5_400_000), ("1s200ms", 1200), ("5m5ms", 300_005)],
)
def test_duration_is_parsed(text, span):
    assert parse_duration(text) == span


@pytest.mark.parametrize("text", ["", "90", "1.5s", "-1s", "1d", "s", "1 s", "\uff11s", "9" * 13 + "s"])
def test_invalid_duration_is_rejected_with_the_format(text):
    with pytest.raises(DurationError, match="such as 90s or 1h30m"):
        parse_duration(text)


@given(st.integers(0, 10**12))
def test_durations_round_trip(span):
    assert parse_duration(format_duration(span)) == span


def test_whole_seconds_are_integers():
    assert [repr(seconds(span)) for span in (0, 2000, 66_100)] == ["0", "2", "66.1"]
