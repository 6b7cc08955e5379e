"""The clock of the decisions follows the system clock without its jumps."""

from itertools import pairwise

import pytest

from controller.kube.timing import SteadyClock


@pytest.mark.parametrize(
    ("jump", "passed"),
    [
        pytest.param(0, (5000, 5000), id="steady"),
        pytest.param(-600_000, (4500, 4500), id="set-back-runs-slower"),
        pytest.param(1000, (5500, 5500), id="set-forward-runs-faster"),
        pytest.param(700, (5500, 5200), id="until-it-has-caught-up"),
    ],
)
def test_steady_clock_follows_system_clock_without_jumps(jump, passed):
    day, up = [1_000_000_000], [50.0]
    clock = SteadyClock(lambda: day[0], lambda: up[0])
    times = [clock()]
    day[0] += jump
    assert clock() == times[0]
    for _ in passed:
        up[0] += 5
        day[0] += 5000
        times.append(clock())
    assert tuple(later - earlier for earlier, later in pairwise(times)) == passed
