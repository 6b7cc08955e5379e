"""What PriorityClasses are worth, as they stand."""

from collections.abc import Iterable

from controller.cache.facts import PriorityClassFacts


class Priorities:
    """The value of every PriorityClass, and of having none."""

    def __init__(self, classes: Iterable[PriorityClassFacts] = ()) -> None:
        known = sorted(classes, key=lambda each: each.key)
        self._values = {each.key: each.value for each in known}
        # Of several defaults Kubernetes takes the smallest.
        self.default = min((each.value for each in known if each.is_default), default=0)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def value(self, name: str) -> int:
        """Return the value of a class; one that does not exist, or none, counts as the default (O2)."""
        return self._values.get(name, self.default)

    def task_value(self, name: str) -> int:
        """Return the value that orders tasks inside a job, where Volcano knows no default (D4)."""
        return self._values.get(name, 0)
