"""Types of the actuator: pending writes, retry state, and the interface of the cache that it updates."""

from dataclasses import dataclass
from typing import Protocol

from controller.backoff import Backoff
from controller.cache.objects import CachedBinding
from controller.engine.reasons import Refusal
from controller.engine.state.workloads import WorkloadUid
from controller.scheduling.writes import Write


class BindingSink(Protocol):
    """Receives observed bindings."""

    def decode(self, raw: bytes, /) -> CachedBinding:
        """Return the cached form of a binding."""

    def upsert(self, facts: CachedBinding, /) -> None:
        """Store *facts* unless a newer version is known."""


class AssumedState(Protocol):
    """Cached objects and the decisions that were assumed but not observed yet."""

    @property
    def bindings(self) -> BindingSink:
        """The sink of ResourceBindings."""

    @property
    def cluster_bindings(self) -> BindingSink:
        """The sink of ClusterResourceBindings."""

    def confirm(self, uid: WorkloadUid, resource_version: int, /) -> None:
        """Take the decision about *uid* as done, as of this version of the binding."""

    def roll_back(self, uid: WorkloadUid, refusal: Refusal | None, /) -> None:
        """Take the decision about *uid* back; it is not made again before the refusal ends, where there is one."""


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A write whose outcome is not known yet."""

    write: Write
    submitted_at: float
    backoff: Backoff
    unknown_until: float | None = None
    """Set while the outcome of the patch is unknown; after this time the server has given it up."""


@dataclass(slots=True)
class RetryState:
    """Backoff of a binding after rejected writes; *until* is in milliseconds."""

    backoff: Backoff
    until: int = 0
