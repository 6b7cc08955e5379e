"""Entries of a decision log: inputs of the engine and its decisions.

``codec`` encodes them; ``records`` builds the fields of a decision.
"""

from dataclasses import dataclass

from controller.engine.checkpoint import History
from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.reporting.decision_log.records import Fields

#: Version of the line format; other versions are rejected.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Header:
    """Start of a file: an empty state, or a state with content up to a `CheckpointEntry`."""

    policy: Policy
    at: int
    version: str = ""
    """Version of the program that writes."""
    identity: str = ""
    """Identity of the process that writes."""
    is_whole: bool = True
    """Whether the state is empty; otherwise its content follows."""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The operator's policy has changed."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """A queue was created or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue was deleted."""

    name: QueueName


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """A cluster was created or changed."""

    cluster: Cluster
    now: int


@dataclass(frozen=True, slots=True)
class ClusterRemoved:
    """A cluster was deleted."""

    name: ClusterName


@dataclass(frozen=True, slots=True)
class ClusterEstimated:
    """A scheduler estimator has answered a query, or failed to."""

    estimate: Estimate
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A workload was created or changed."""

    workload: Workload
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadRemoved:
    """A workload was deleted."""

    uid: WorkloadUid
    now: int


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The rest of the state at the start of the file, after its queues and workloads."""

    memory: History
    now: int


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A plan was made; its decisions follow."""

    number: int
    now: int
    most: int | None
    """The maximum number of admissions of this plan."""
    revision: str
    verdicts: int


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision of the preceding plan."""

    fields: Fields


StateChange = (
    PolicyChanged
    | QueueChanged
    | QueueRemoved
    | ClusterChanged
    | ClusterRemoved
    | ClusterEstimated
    | WorkloadChanged
    | WorkloadRemoved
)
Entry = Header | StateChange | CheckpointEntry | PlanEntry | DecisionEntry
