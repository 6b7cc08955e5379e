"""Why a HyperJob, or a part of it, is pending."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Code and message of a pending reason."""

    reason: str
    message: str
