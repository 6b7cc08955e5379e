"""Values of the current PriorityClasses."""

from collections.abc import Iterable

from controller.cache.objects import CachedPriorityClass


class Priorities:
    """Value and preemption policy of every PriorityClass, and the defaults for workloads without one."""

    def __init__(self, classes: Iterable[CachedPriorityClass] = ()) -> None:
        known = sorted(classes, key=lambda priority_class: priority_class.key)
        self._values = {priority_class.key: priority_class.value for priority_class in known}
        self._never = {priority_class.key for priority_class in known if not priority_class.preempts}
        # Kubernetes uses the smallest of several defaults.
        default = min(
            (priority_class for priority_class in known if priority_class.is_default),
            key=lambda priority_class: priority_class.value,
            default=None,
        )
        self.default = default.value if default else 0
        self.otherwise = self.default, default.preempts if default else True, default.key if default else ""
        """Value, preemption and name that count for a missing class or for none."""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def effective(self, name: str) -> str:
        """Return the class of a workload that names *name*: the default for none, empty where there is no default."""
        return name or self.otherwise[2]

    def value(self, name: str) -> int:
        """Return the value of a class; a missing class, or none, counts as the default (O2)."""
        return self._values.get(name, self.default)

    def preempts(self, name: str) -> bool:
        """Whether workloads of a class may preempt others (P2)."""
        return name not in self._never if name in self._values else self.otherwise[1]

    def task_value(self, name: str) -> int:
        """Return the value that orders tasks of a job; Volcano applies no default there (D4)."""
        return self._values.get(name, 0)
