"""Number and seed of the examples that hypothesis draws for each property.

By default every run draws the same few examples, so that failures are reproducible. ``DRAWS=20`` in the
environment draws at least twenty times as many from a new seed, as `make test-long` does.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("DRAWS", "0"))
"""Factor of the number of examples, drawn from a new seed; 0 for the default ones."""


def draws(count: int) -> settings:
    """Return the settings of a property for which *count* examples suffice in a normal run."""
    return settings(max_examples=count * (TIMES or 1))


def load() -> None:
    """Register and load the default profile of all properties."""
    settings.register_profile(
        "draws",
        max_examples=100 * TIMES or 50,
        derandomize=not TIMES,
        # The duration of an example depends on the machine's load.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("draws")
