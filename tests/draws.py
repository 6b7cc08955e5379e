"""How many examples of a property are drawn, and which.

A run draws the same ones each time, so that what failed fails again, and what
passed tells of the change and not of luck. ``DRAWS=20`` in the environment
draws twenty times as many, and new ones each time: `make test-long` does.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("DRAWS", "0"))
"""How many times as many examples are drawn, new ones; 0 for the usual ones."""


def draws(count: int) -> settings:
    """Return the settings of a property of which *count* examples are enough in a usual run."""
    return settings(max_examples=count * (TIMES or 1))


def load() -> None:
    """Let all properties be drawn like that, those included that do not say how many examples are enough."""
    settings.register_profile(
        "draws",
        max_examples=100 * (TIMES or 1),
        derandomize=not TIMES,
        # How long an example takes, or is thought of, tells only how busy the machine is.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("draws")
