"""Why a HyperJob, or a part of it, waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why something waits: the engine's code, and a sentence."""

    reason: str
    message: str
