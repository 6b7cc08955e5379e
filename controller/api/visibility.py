"""Wire types of the read-only endpoints of the controller.

The visibility endpoint has the workloads of one namespace, and why they are pending. The history endpoint has logged
decisions, and the plan of one logged moment; its times are milliseconds since 1970, as in the decision log.
"""

from typing import Any

import msgspec

GROUP = "visibility.volcano-global.io"
API_VERSION = f"{GROUP}/v1alpha1"
RESOURCE = "workloads"

DECISIONS = "decisions"
DECISIONS_PATH = f"/apis/{API_VERSION}/{DECISIONS}"
MOMENT_PATH = f"{DECISIONS_PATH}/moment"

Amounts = dict[str, str]
"""Quantities by resource."""


def namespace_path(namespace: str) -> str:
    """Return the path of the workloads of *namespace*."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{RESOURCE}"


class VisibleWorkload(msgspec.Struct, rename="camel", frozen=True):
    """One workload of the namespace."""

    kind: str
    name: str
    queue: str
    state: str
    """``Pending``, ``Admitted`` or ``Finished``."""
    priority: int
    since: str | None
    """Creation of the template, which is its age in the queue; null if unknown."""
    position: int | None = None
    """Position in its queue, from 1; null, and reason and message empty, unless it is pending."""
    of: int | None = None
    """Pending workloads in its queue, those of other namespaces included."""
    reason: str = ""
    message: str = ""
    remedy: str = ""
    clusters: tuple[str, ...] = ()
    raised_priority: int | msgspec.UnsetType = msgspec.UNSET
    """The priority as raised by waiting; left out where it is not raised."""
    group: str = ""
    """The API group of *kind*; empty for the core group, and from an older controller."""


class VisibleQueue(msgspec.Struct, rename="camel", frozen=True):
    """A queue of the workloads of the namespace."""

    name: str
    pending: int
    """Pending workloads of the namespace."""
    others_pending: int
    """Pending workloads of all other namespaces."""
    allocated: dict[str, str]
    """What workloads of the namespace are charged with."""
    others_allocated: dict[str, str]
    """What all other workloads are charged with."""
    fair_share: dict[str, str]
    limit: dict[str, str]
    """Includes what ancestors allow."""


class VisibleWorkloads(msgspec.Struct, rename="camel", frozen=True):
    """The workloads of a namespace."""

    namespace: str
    items: tuple[VisibleWorkload, ...]
    """Pending ones first, by queue and position; at most 500."""
    remaining: int = 0
    """How many workloads were left out."""
    queues: tuple[VisibleQueue, ...] = ()
    """Those of the workloads that are not finished, at most 100."""
    api_version: str = API_VERSION
    kind: str = "WorkloadList"


class DecidedCluster(msgspec.Struct, frozen=True):
    """A cluster of a decision with the charge there."""

    name: str
    replicas: int | None = None
    charge: Amounts = {}


class LoggedDecision(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One record of the decision log; *at* is the time of its plan."""

    action: str
    uid: str
    kind: str
    name: str
    queue: str
    namespace: str = ""
    at: int = 0
    plan: int = 0
    rule: str = ""
    request: Amounts = {}
    of: str | None = None
    used: Amounts = {}
    limit: Amounts = {}
    reason: str | None = None
    message: str = ""
    facts: dict[str, Any] = {}
    position: int | None = None
    clusters: tuple[DecidedCluster, ...] = ()
    preemptor: str = msgspec.field(default="", name="forWhom")
    """The uid of the preemptor."""
    nominated_cluster: str = ""
    reserved_since: int | None = None
    reserved_cluster: str = ""
    """Several clusters are separated by commas."""


class Decisions(msgspec.Struct, rename="camel", frozen=True):
    """One page of decisions, the oldest first."""

    identity: str
    """The replica that wrote them."""
    since: int | None
    """The beginning of its log."""
    items: tuple[LoggedDecision, ...]
    position: str
    """Continues after this page, as the parameter `after`."""
    is_complete: bool
    """Whether the page reaches the end of the log, or the requested time."""
    is_gap: bool = False
    """Whether decisions after the requested position were deleted before they were read."""
    api_version: str = API_VERSION
    kind: str = "DecisionList"


class LoggedQueue(msgspec.Struct, rename="camel", frozen=True):
    """One queue before the plan of a moment; the numbers and amounts include the queues below it."""

    name: str
    path: tuple[str, ...]
    """From the root to it; empty for a queue that is not connected to the root."""
    weight: int
    priority: int
    pending: int
    admitted: int
    allocated: Amounts
    fair_share: Amounts
    limit: Amounts
    share: float | None
    """Usage divided by fair share, as if evictions in progress had ended; null if infinite, or without a fair share."""


class LoggedCluster(msgspec.Struct, rename="camel", frozen=True):
    """One cluster before the plan of a moment."""

    name: str
    admitted: int
    allocated: Amounts
    external: Amounts
    allocatable: Amounts


class LoggedWorkload(msgspec.Struct, rename="camel", frozen=True):
    """One workload that was pending before the plan of a moment."""

    uid: str
    kind: str
    namespace: str
    name: str
    queue: str
    position: int
    priority: int
    since: int
    requests: Amounts
    decision: LoggedDecision | None
    """What the plan decided; null if it did not come to it, because it was cut after a number of admissions."""
    borrows: bool = False
    """Whether a requested workload came after those within fair shares, when the first requested one was admitted."""


class Moment(msgspec.Struct, rename="camel", frozen=True):
    """The state before the last plan at or before a time, and that plan, as the decision log reproduces them."""

    identity: str
    version: str
    at: int
    plan: int
    revision: str
    queue_order: str
    tenant_fairness: str
    is_intact: bool
    """Whether the log was not altered, and this plan is reproduced as it was recorded."""
    queues: tuple[LoggedQueue, ...]
    clusters: tuple[LoggedCluster, ...]
    pending: tuple[LoggedWorkload, ...]
    """The first workloads of each queue, those that were decided, and the requested ones."""
    decisions: tuple[LoggedDecision, ...]
    omitted: int
    """Queues, clusters, pending workloads and decisions that were left out."""
    api_version: str = API_VERSION
    kind: str = "Moment"
