"""The entries of a decision journal, as values: what the World was told, and what it decided.

How they are written is ``lines``; what a decision says of itself is
``verdicts``.
"""

from dataclasses import dataclass

from controller.decision_log.records import Fields
from controller.engine.checkpoint import History
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import Estimate
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.workloads import Workload, WorkloadUid

#: Which spelling of the lines this is; another one is not read.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Header:
    """A World begins: an empty one, or one of which all is told next until its past is."""

    policy: Policy
    at: int
    version: str = ""
    """Of the program that writes."""
    identity: str = ""
    """Of the process that writes."""
    is_whole: bool = True
    """Whether it knows nothing yet; else what it knows follows, and ends with what it remembers."""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The operator's choices have changed."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """A queue is new, or another one."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue is no more."""

    name: QueueName


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """A cluster is new, or another one."""

    cluster: Cluster
    now: int


@dataclass(frozen=True, slots=True)
class ClusterRemoved:
    """A cluster is no more."""

    name: ClusterName


@dataclass(frozen=True, slots=True)
class ClusterEstimated:
    """A cluster's estimator has answered, or not."""

    estimate: Estimate
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A workload is new, or another one."""

    workload: Workload
    now: int


@dataclass(frozen=True, slots=True)
class WorkloadRemoved:
    """A workload is no more."""

    uid: WorkloadUid
    now: int


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """All that a World knew has been told; this is its past."""

    memory: History
    now: int


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A plan was made; its verdicts follow, so many."""

    number: int
    now: int
    most: int | None
    """After so many admissions it was to be cut."""
    revision: str
    verdicts: int


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One verdict of the plan before it."""

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
