"""What an actuator has to do and whom it tells: writes until their outcome is known, and the books they are kept in.

It sends nothing itself.
"""

from dataclasses import dataclass
from typing import Protocol

from controller.backoff import Backoff
from controller.cache.objects import CachedBinding
from controller.engine.reasons import Refusal
from controller.engine.workloads import WorkloadUid
from controller.writes import Write


class BindingSink(Protocol):
    """Where observations of bindings go."""

    def decode(self, raw: bytes, /) -> CachedBinding:
        """Return what is kept of a binding."""

    def upsert(self, facts: CachedBinding, /) -> None:
        """Take *facts*, unless something newer is known."""


class AssumedState(Protocol):
    """Who keeps what was observed, and what was decided and is not observed yet."""

    @property
    def bindings(self) -> BindingSink:
        """Where ResourceBindings go."""

    @property
    def cluster_bindings(self) -> BindingSink:
        """Where ClusterResourceBindings go."""

    def settle(self, uid: WorkloadUid, resource_version: int, /) -> None:
        """Take the decision about *uid* as done, as of this version of the binding."""

    def withdraw(self, uid: WorkloadUid, refusal: Refusal | None, /) -> None:
        """Take the decision about *uid* back; it is not made again before the refusal ends, where there is one."""


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A write until its outcome is known."""

    write: Write
    submitted_at: float
    backoff: Backoff
    unknown_until: float | None = None
    """Set while it is not known what became of the patch; at that time the server has given it up."""


@dataclass(slots=True)
class RetryState:
    """How often one binding's writes were refused, and until when it is left alone, in milliseconds."""

    backoff: Backoff
    until: int = 0
