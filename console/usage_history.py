"""Usage of the queues over the last hours, as numbers in arrays: there may be 10,000 queues."""

from array import array
from collections import deque
from collections.abc import Mapping, Sequence

from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import EMPTY, Resources

_MAX_AMOUNT = 2**63 - 1


class UsageHistory:
    """The usage of each queue at the last *length* times."""

    def __init__(self, length: int) -> None:
        self._times: deque[int] = deque(maxlen=length)
        self._amounts: dict[tuple[QueueName, str], array[int]] = {}
        """For each queue and resource in use one number for each time."""

    def append(self, at: int, usage: Mapping[QueueName, Resources]) -> None:
        """Add the usage at a time, in milliseconds; above the length the oldest one is dropped."""
        for queue, amounts in usage.items():
            for resource, amount in amounts.items():
                if amount and (queue, resource) not in self._amounts:
                    self._amounts[queue, resource] = array("q", [0] * len(self._times))
        is_full = len(self._times) == self._times.maxlen
        self._times.append(at)
        for (queue, resource), values in tuple(self._amounts.items()):
            values.append(min(usage.get(queue, EMPTY).get(resource, 0), _MAX_AMOUNT))
            if is_full and values.pop(0) and not any(values):
                del self._amounts[queue, resource]

    @property
    def times(self) -> Sequence[int]:
        """The times, in milliseconds."""
        return tuple(self._times)

    def amounts(self, queue: QueueName, resource: str) -> Sequence[int]:
        """Return the usage of a queue at each of the times, in base units."""
        return self._amounts.get((queue, resource)) or (0,) * len(self._times)
