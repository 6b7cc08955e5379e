"""What is kept of each watched object: small values, and never the object itself.

There are up to 100,000 bindings and templates, so what equals is shared and
what nobody asks for is left out; they are structs of msgspec, which are made
faster than dataclasses and cost the garbage collector nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType

import msgspec

from controller.engine.clusters import ApiKind, Assignment, Cluster, ClusterName, Placement
from controller.engine.queues import Queue, QueueName
from controller.engine.requests import JobTemplate
from controller.engine.resources import EMPTY, Resources
from controller.engine.workloads import WorkloadUid

GroupKind = NewType("GroupKind", str)
"""A kind without its version, ``Job.batch.volcano.sh``; ``Pod.`` in the core group."""

VOLCANO_JOB = GroupKind("Job.batch.volcano.sh")
BATCH_JOB = GroupKind("Job.batch")


def group_kind(api: ApiKind) -> GroupKind:
    """Return *api* without its version."""
    group, slash, _ = api.group_version.rpartition("/")
    return GroupKind(f"{api.kind}.{group if slash else ''}")


class ObjectKey(NamedTuple):
    """The name of an object; a cluster-scoped one has no namespace."""

    namespace: str
    name: str


class TemplateKey(NamedTuple):
    """The name of a template among those of all kinds."""

    kind: GroupKind
    namespace: str
    name: str


class WorkloadPhase(StrEnum):
    """How far a workload is in one cluster, whatever its kind calls it."""

    WAITING = "Waiting"
    RUNNING = "Running"
    FINISHED = "Finished"
    ABORTED = "Aborted"


class ClusterProgress(NamedTuple):
    """What one cluster tells of a workload."""

    cluster: ClusterName
    phase: WorkloadPhase
    ran: bool = False
    """It has run there, whatever it does now."""
    pods: tuple[tuple[str, int], ...] = ()
    """How many pods of each task there hold resources, as a Volcano Job's status counts them."""
    replicas: int = 0
    """How many replicas there are of a kind that Karmada may divide."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadRequests:
    """What a template asks for; one value is shared by all equal templates and compared by identity."""

    whole: Resources
    pods: tuple[Resources, ...] = ()
    job: JobTemplate | None = None
    """What the gang minimum is counted from, as the PriorityClasses stand; ``None``: all of it starts at once."""
    replicas: int = 0
    """How many equal replicas a divisible kind has."""
    node_claim: str | None = None
    """What a replica asks of its node, as JSON; ``None`` where that is not known."""
    task_classes: tuple[str, ...] = ()
    """The PriorityClasses that order the job's tasks, by name."""
    claims: tuple[str, ...] = ()
    """The ResourceClaimTemplates that its pods name: for a job each of them once, else those of every pod."""


class AdmissionRecord(msgspec.Struct, frozen=True, gc=False):
    """Our record on a binding, in the engine's units; times in milliseconds."""

    queue: QueueName
    charge: Resources = EMPTY
    clusters: tuple[ClusterName, ...] = ()
    admitted_at: int | None = None
    waiting_since: int | None = None
    reserved_since: int | None = None
    nominated_cluster: ClusterName | None = None
    nominated_clusters: Mapping[ClusterName, Resources] | None = None
    nominated_at: int | None = None
    nomination_rank: int | None = None
    nominated_requests: Resources | None = None
    aborted: bool = False
    aborted_generation: int | None = None
    evictions: int = 0
    attempts: int = 0
    startup_failed_at: int | None = None
    back_off_until: int | None = None
    clusters_changed_at: int | None = None
    excluded_clusters: tuple[tuple[ClusterName, str], ...] = ()
    """The clusters in which it did not start, each with a mark of how the cluster was."""
    plan: str = ""

    @property
    def admits(self) -> bool:
        """Say whether it records an admission; after an eviction the charge is empty."""
        return bool(self.charge)


@dataclass(frozen=True, slots=True)
class Suspension:
    """What a binding's ``spec.suspension`` says."""

    scheduling: bool = False
    dispatching: bool = False


class CachedBinding(msgspec.Struct, frozen=True, gc=False):
    """One ResourceBinding or, without a namespace, ClusterResourceBinding."""

    uid: WorkloadUid
    resource_version: int
    namespace: str
    name: str
    generation: int
    since: int
    """Its creation, in milliseconds."""
    api: ApiKind
    """The kind of its template."""
    template: TemplateKey
    template_uid: str
    placement: Placement
    clusters: tuple[Assignment, ...] | None = None
    """``spec.clusters``; ``None`` where the field is absent."""
    suspension: Suspension | None = None
    demand: WorkloadRequests | None = None
    """What Karmada's interpreter counted; for kinds whose template we do not count ourselves."""
    evicting: tuple[Assignment, ...] = ()
    """The clusters of its eviction tasks, with the replicas that are still there where Karmada tells."""
    progress: tuple[ClusterProgress, ...] = ()
    """What its aggregated status lists, whether or not ``spec.clusters`` does."""
    ended_at: int | None = None
    """When the last of the clusters in which it has ended tells that it did, in milliseconds by that one's clock."""
    observed_term: str = ""
    record: AdmissionRecord | None = None
    record_flaw: str = ""
    """Why an annotation that looks like our record is none."""
    has_annotations: bool = False
    claimed: bool = True
    """A policy claims it; Karmada's scheduler passes over what none claims."""
    attached: bool = False
    """Another binding brought it along as a dependency."""
    deleting: bool = False
    preserved: bool = False
    """``preserveResourcesOnDeletion``: taking its clusters away would not stop it."""
    fails_over: bool = False
    """``failover.application``: Karmada makes it again elsewhere once it has failed."""
    flaw: str = ""
    """What of it could not be read."""

    @property
    def key(self) -> ObjectKey:
        """Return its own name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def paused(self) -> bool:
        """Say whether Karmada's scheduler leaves it alone."""
        return self.suspension is not None and self.suspension.scheduling

    @property
    def has_suspension(self) -> bool:
        """Say whether ``spec.suspension`` is there."""
        return self.suspension is not None

    @property
    def has_clusters(self) -> bool:
        """Say whether ``spec.clusters`` is there."""
        return self.clusters is not None

    @property
    def evicting_from(self) -> tuple[ClusterName, ...]:
        """Return the clusters of its eviction tasks."""
        return tuple(each.name for each in self.evicting)

    @property
    def targets(self) -> tuple[Assignment, ...]:
        """Return the clusters it is placed on."""
        return self.clusters or ()


class HyperJobReference(NamedTuple):
    """That a Job is part of a HyperJob, as the Job says; only what the HyperJob says counts."""

    hyperjob: str
    """Its uid."""
    split: str
    """The split that the part was made for."""


@dataclass(frozen=True, slots=True)
class CachedHyperJob:
    """What a HyperJob says of its parts."""

    namespace: str
    since: int
    """Its creation, in milliseconds."""
    split: str
    """Tells one split of it from the next."""
    parts: frozenset[str]
    """The names of the Jobs that it consists of."""
    minimum: int
    """How many of them are admitted together at least (G1)."""


class CachedTemplate(msgspec.Struct, frozen=True, gc=False):
    """One template: a Volcano Job, or an object of a further gated kind."""

    uid: str
    resource_version: int
    key: TemplateKey
    generation: int
    since: int
    """Its creation, in milliseconds: its age in the queue."""
    queue: str = ""
    """The queue that it names, or nothing."""
    priority_class: str = ""
    claim: HyperJobReference | None = None
    """The HyperJob that controls it, and of which it claims to be a part."""
    preferred: tuple[ClusterName, ...] = ()
    """The clusters that the HyperJob names for it, the first one first (C3)."""
    deleting: bool = False
    demand: WorkloadRequests | None = None
    """What it asks for; ``None`` where that is unreadable or counted by Karmada."""
    flaw: str = ""
    """What of it could not be read."""

    @property
    def classes(self) -> frozenset[str]:
        """Return the PriorityClasses that matter to it; the empty name is the cluster's default."""
        return frozenset({self.priority_class, *(self.demand.task_classes if self.demand else ())})


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """One Queue."""

    uid: str
    resource_version: int
    queue: Queue
    flaw: str = ""

    @property
    def key(self) -> QueueName:
        """Return its name."""
        return self.queue.name


@dataclass(frozen=True, slots=True)
class CachedCluster:
    """One Cluster."""

    uid: str
    resource_version: int
    cluster: Cluster
    flaw: str = ""

    @property
    def key(self) -> ClusterName:
        """Return its name."""
        return self.cluster.name


@dataclass(frozen=True, slots=True)
class CachedPriorityClass:
    """One PriorityClass."""

    uid: str
    resource_version: int
    key: str
    value: int
    is_default: bool = False
    preempts: bool = True
    """``False`` with ``preemptionPolicy: Never``."""
