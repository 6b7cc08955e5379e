"""Wire type of Kubernetes' PriorityClass."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject


class PriorityClass(WatchedObject, frozen=True):
    """A PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClass)


def decode_priority_class(raw: bytes | memoryview) -> PriorityClass:
    """Decode a PriorityClass."""
    return lenient_decode.decode(_PRIORITY_CLASS, raw)
