"""What PriorityClasses are worth, as they stand."""

from collections.abc import Iterable

from controller.cache.objects import CachedPriorityClass


class Priorities:
    """The value of every PriorityClass, and of having none."""

    def __init__(self, classes: Iterable[CachedPriorityClass] = ()) -> None:
        known = sorted(classes, key=lambda each: each.key)
        self._values = {each.key: each.value for each in known}
        self._never = {each.key for each in known if not each.preempts}
        # Of several defaults Kubernetes takes the smallest.
        default = min((each for each in known if each.is_default), key=lambda each: each.value, default=None)
        self.default = default.value if default else 0
        self.otherwise = self.default, default.preempts if default else True, default.key if default else ""
        """What counts for a class that does not exist, or for none: its value, whether it preempts, its name."""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def effective(self, name: str) -> str:
        """Return the class of a workload that names *name*: the default for none, empty where there is no default."""
        return name or self.otherwise[2]

    def value(self, name: str) -> int:
        """Return the value of a class; one that does not exist, or none, counts as the default (O2)."""
        return self._values.get(name, self.default)

    def preempts(self, name: str) -> bool:
        """Say whether workloads of a class may have others evicted (P2)."""
        return name not in self._never if name in self._values else self.otherwise[1]

    def task_value(self, name: str) -> int:
        """Return the value that orders tasks inside a job, where Volcano knows no default (D4)."""
        return self._values.get(name, 0)
