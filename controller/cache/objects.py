"""Cached objects: the small immutable values that the store keeps of each watched object.

There are up to 100,000 bindings and templates, so equal parts are shared and unused fields are left out. Most types are
msgspec structs: they are created faster than dataclasses and cost the garbage collector nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, NewType, Self

import msgspec
from msgspec import structs

from controller.api.bindings import Suspension
from controller.cache.record import AdmissionRecord
from controller.engine.placement.filter import has_effective_spread
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import ApiKind, Assignment, Cluster, ClusterName, Placement
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.requests import JobTemplate
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import WorkloadUid

GroupKind = NewType("GroupKind", str)

"""A kind without its version, ``Job.batch.volcano.sh``; ``Pod.`` in the core group."""

VOLCANO_JOB = GroupKind("Job.batch.volcano.sh")

BATCH_JOB = GroupKind("Job.batch")

POD = GroupKind("Pod.")


@lru_cache(maxsize=1024)
def group_kind(api: ApiKind) -> GroupKind:
    """Return the group and kind of *api*, without its version; all objects of a kind share the value."""
    return GroupKind(f"{api.kind}.{api.group}")


class ObjectKey(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str


class BindingKey(msgspec.Struct, frozen=True, gc=False):
    """Namespace and name of a binding; the namespace of a ClusterResourceBinding is empty.

    There may be a million: it takes half the memory of an `ObjectKey`, and the garbage collector does not track it.
    """

    namespace: str
    name: str


class TemplateKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """Group, kind, namespace and name of a template."""

    kind: GroupKind
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class WorkloadPhase(StrEnum):
    """Phase of a workload in one cluster, common to all kinds."""

    WAITING = "Waiting"
    RUNNING = "Running"
    FINISHED = "Finished"
    ABORTED = "Aborted"
    UNKNOWN = "Unknown"
    """Its Work cannot be applied, and no earlier status is known: it may have run or finished."""


class ClusterProgress(NamedTuple):
    """Status of a workload in one cluster, as that cluster reports it."""

    cluster: ClusterName
    phase: WorkloadPhase
    has_run: bool = False
    """It has run in this cluster, whatever its phase is now."""
    pods: tuple[tuple[str, int], ...] = ()
    """Number of pods that hold resources, by task, from a Volcano Job's ``taskStatusCount``."""
    replicas: int = 0
    """Number of replicas, for kinds that Karmada may divide."""
    failed: bool = False
    """It finished without success."""
    outdated_replicas: int = 0
    """Replicas of an earlier template, while a rollout is paused or not complete."""
    template_generation: int | None = None
    """Generation of the template that the cluster has, where Karmada reports it."""
    apply_error: str = ""
    """Why its Work cannot be applied there; then the other fields are those that were last known."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadRequests:
    """Requests of a template. Equal templates share one value, and values are compared by identity."""

    total: Resources
    pods: tuple[Resources, ...] = ()
    job: JobTemplate | None = None
    """The tasks from which the gang minimum is counted; ``None``: all pods start together."""
    replicas: int = 0
    """Number of equal replicas of a divisible kind, which Karmada counts."""
    node_claim: str | None = None
    """Node selector, affinity and tolerations of a replica, as JSON; ``None`` where unknown."""
    task_classes: tuple[str, ...] = ()
    """Names of the PriorityClasses that order the job's tasks."""
    digest: str = ""
    """Digest of the template without names: equal for templates with equal pods and images."""
    claims: tuple[str, ...] = ()
    """ResourceClaimTemplates of its pods, each name once."""
    has_long_grace_period: bool = False
    """Pods may run on for more than some minutes after their deletion (C2)."""


class BindingDetails(msgspec.Struct, frozen=True, gc=False):
    """Fields of a binding that have their defaults in most bindings, so that equal details are shared."""

    evicting: tuple[Assignment, ...] = ()
    """Clusters of its graceful eviction tasks, with the replicas still there where Karmada reports them."""
    ended_at: int | None = None
    """Latest time at which it finished in a cluster, in milliseconds by that cluster's clock."""
    observed_term: str = ""
    record_error: str = ""
    """Why the admission annotation is not a valid record; empty if it is valid or absent."""
    has_annotations: bool = False
    has_empty_eviction_tasks: bool = False
    """``spec.gracefulEvictionTasks`` is an empty list, as after its last task was removed by hand."""
    has_policy: bool = True
    """A policy matches it; Karmada's scheduler ignores bindings without a policy."""
    is_dependency: bool = False
    """It was created as a dependency of another binding."""
    excludes_for_data: bool = False
    """Its affinity was changed for its DataSourceClaims."""
    deleting: bool = False
    preserved: bool = False
    """``preserveResourcesOnDeletion``: clearing its clusters would not stop it."""
    application_failover: bool = False
    """``failover.application``: Karmada recreates it in another cluster after it fails."""
    decode_error: str = ""
    """Which fields could not be read; empty if all could."""
    has_invalid_requests: bool = False
    """Karmada counted amounts that cannot be read or counted."""


NO_DETAILS = BindingDetails()


class CachedBinding(msgspec.Struct, frozen=True, gc=False):
    """A ResourceBinding or, without a namespace, a ClusterResourceBinding."""

    uid: WorkloadUid
    resource_version: int
    namespace: str
    name: str
    generation: int
    created_at: int
    """Creation time, in milliseconds."""
    api: ApiKind
    """API version and kind of the template."""
    template: TemplateKey
    template_uid: str
    placement: Placement
    clusters: tuple[Assignment, ...] | None = None
    """``spec.clusters``; ``None`` where the field is absent."""
    suspension: Suspension | None = None
    requests: WorkloadRequests | None = None
    """Requests that Karmada's interpreter counted, for kinds without a template that is counted here."""
    progress: tuple[ClusterProgress, ...] = ()
    """Its aggregated status, including clusters that ``spec.clusters`` does not list."""
    record: AdmissionRecord | None = None
    details: BindingDetails = NO_DETAILS

    @property
    def key(self) -> BindingKey:
        """Namespace and name of the binding."""
        return BindingKey(self.namespace, self.name)

    @property
    def is_suspended(self) -> bool:
        """Whether Karmada's scheduler ignores it because its scheduling is suspended."""
        return self.suspension is not None and bool(self.suspension.scheduling)

    @property
    def has_annotations(self) -> bool:
        """Whether it has any annotation."""
        return self.details.has_annotations

    @property
    def decode_error(self) -> str:
        """Which fields could not be read; empty if all could."""
        return self.details.decode_error

    @property
    def record_error(self) -> str:
        """Why the admission annotation is not a valid record; empty if it is valid or absent."""
        return self.details.record_error

    @property
    def is_dispatching_suspended(self) -> bool:
        """Whether its policy suspends dispatching to one of its clusters, which may run an earlier template."""
        if self.suspension is None:
            return False
        on_clusters = self.suspension.dispatching_on_clusters
        names = on_clusters.cluster_names if on_clusters is not None else None
        return bool(self.suspension.dispatching) or any(target.name in (names or ()) for target in self.targets)

    @property
    def has_suspension(self) -> bool:
        """Whether ``spec.suspension`` is set."""
        return self.suspension is not None

    @property
    def has_clusters(self) -> bool:
        """Whether ``spec.clusters`` is set."""
        return self.clusters is not None

    @property
    def has_eviction_tasks(self) -> bool:
        """Whether ``spec.gracefulEvictionTasks`` is set."""
        return bool(self.details.evicting) or self.details.has_empty_eviction_tasks

    @property
    def evicting_from(self) -> tuple[ClusterName, ...]:
        """Names of the clusters of its graceful eviction tasks."""
        return tuple(assignment.name for assignment in self.details.evicting)

    @property
    def targets(self) -> tuple[Assignment, ...]:
        """The clusters where it is placed, empty if none."""
        return self.clusters or ()


class StatusReason(StrEnum):
    """Reason in the status of a Volcano Job that no cluster reports, if it is not a pending reason."""

    ADMITTED = "Admitted"
    """It is admitted, and its clusters have not reported yet."""
    WORK_NOT_APPLIED = "WorkNotApplied"
    """It is admitted, and a cluster refuses it, so that it does not start."""
    EVICTED = "Evicted"
    """It was evicted, and its new pending reason is not written yet."""


class HyperJobReference(NamedTuple):
    """Reference of a Job to its HyperJob; it counts only if the HyperJob lists the Job."""

    hyperjob: str
    """UID of the HyperJob."""
    split: str
    """ID of the split for which the Job was created."""


@dataclass(frozen=True, slots=True)
class CachedHyperJob:
    """The parts of a HyperJob, as its spec and status list them."""

    namespace: str
    created_at: int
    """Creation time, in milliseconds."""
    split: str
    """ID of its current split."""
    parts: frozenset[str]
    """Names of its Jobs."""
    minimum: int
    """How many parts must be admitted together (G1)."""
    key: TemplateKey | None = None
    """Group, namespace and name, by which DataSourceClaims refer to it."""
    finished: frozenset[str] = frozenset()
    """Names of the parts that have completed or failed. They count as started, also once their Jobs are deleted."""
    deleting: bool = False


class CachedTemplate(msgspec.Struct, frozen=True, gc=False):
    """A template: a Volcano Job, or an object of another managed kind."""

    uid: str
    resource_version: int
    key: TemplateKey
    generation: int
    created_at: int
    """Creation time, in milliseconds; a workload's age in its queue."""
    queue: str = ""
    """The queue that it names; empty if none."""
    priority_class: str = ""
    running_estimate: int = 0
    """The user's estimate of its run time in seconds; 0 where there is none or it is invalid."""
    hyperjob: HyperJobReference | None = None
    """The HyperJob of which it is a part, if any."""
    preferred: tuple[ClusterName, ...] = ()
    """Clusters that its HyperJob prefers, in order (C3)."""
    deleting: bool = False
    requests: WorkloadRequests | None = None
    """Its requests; ``None`` where they are unreadable or counted by Karmada."""
    decode_error: str = ""
    """Which fields could not be read; empty if all could."""
    has_invalid_requests: bool = False
    """It requests amounts that cannot be read or counted."""
    suspended_by: str = ""
    """Path of the field by which it has no pods for now, such as ``spec.suspend``; empty if none is set."""
    published_reason: str | None = None
    """Reason that the controller wrote into the status of a pending Volcano Job; empty without a status, ``None`` where
    another client wrote the status.
    """

    def differs_in_status_only(self, other: Self) -> bool:
        """Return whether *other* is a version of the same object that is equal for the engine."""
        return structs.replace(self, resource_version=0, published_reason=None) == structs.replace(
            other, resource_version=0, published_reason=None
        )

    @property
    def classes(self) -> frozenset[str]:
        """PriorityClasses that affect it; the empty name stands for the cluster's default."""
        return frozenset({self.priority_class, *(self.requests.task_classes if self.requests else ())})


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Numbers of workloads and usage in a Queue's status; amounts are canonical quantities."""

    pending: int = 0
    inqueue: int = 0
    running: int = 0
    completed: int = 0
    unknown: int = 0
    """Volcano's count of jobs with pods in unknown states; it is always 0 here."""
    allocated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """A Queue."""

    uid: str
    resource_version: int
    queue: Queue
    decode_error: str = ""
    counts: QueueCounts | None = None
    """What its status shows; ``None`` if that is incomplete or cannot be read."""
    has_state: bool = False
    """Whether its status has a state; without one it is open."""

    @property
    def key(self) -> QueueName:
        """Name of the queue."""
        return self.queue.name


@dataclass(frozen=True, slots=True)
class CachedCluster:
    """A Cluster."""

    uid: str
    resource_version: int
    cluster: Cluster
    decode_error: str = ""

    @property
    def key(self) -> ClusterName:
        """Name of the cluster."""
        return self.cluster.name


@dataclass(frozen=True, slots=True)
class CachedPriorityClass:
    """A PriorityClass."""

    uid: str
    resource_version: int
    key: str
    value: int
    is_default: bool = False
    preempts: bool = True
    """``False`` with ``preemptionPolicy: Never``."""


class BindingCondition(StrEnum):
    """A deviation of a binding that is repaired by a write, or only reported."""

    RESIZED = "Resized"
    """It requests more than its record charges (D7)."""
    ADOPTED = "Adopted"
    """It runs without an admission record (D10)."""
    MOVED = "Moved"
    """Others have changed its clusters since its admission (R1); once accepted, the record is updated."""
    REPLICAS_REDIVIDED = "ReplicasRedivided"
    """Karmada has divided its replicas differently, as it may; not reported."""
    WORK_NOT_REMOVED = "WorkNotRemoved"
    """A cluster that it has left still reports it: Karmada has missed its Work there, and processes the binding again
    when it changes; not reported.
    """
    NOT_SUSPENDED = "NotSuspended"
    """It is neither suspended nor placed nor recorded: it bypassed the webhook (D10)."""
    PLACED_WITHOUT_ADMISSION = "PlacedWithoutAdmission"
    """It is suspended and placed without a record that admits it; its clusters are cleared."""
    RESUMED_BY_OTHERS = "ResumedByOthers"
    """It is placed and resumed by others while its record does not admit it; it is charged by its template (R2)."""
    RESUSPENDED_AFTER_ADMISSION = "ResuspendedAfterAdmission"
    """It is admitted and was suspended by others; it is resumed."""
    EVICTED_BY_OTHERS = "EvictedByOthers"
    """Its record admits it, and others have suspended it and removed its clusters: it is pending again, and the record
    is updated.
    """
    ADMITTED_WITHOUT_POLICY = "AdmittedWithoutPolicy"
    """Its record admits it, and it has no policy and no clusters any more: it is suspended, because Karmada would place
    it, uncharged until then, once a policy matches it again (D9).
    """
    SUSPENDED_BUT_NOT_MANAGED = "SuspendedButNotManaged"
    """It is suspended and needs no admission, or no longer: it is resumed."""
    QUEUE_NOT_RECORDED = "QueueNotRecorded"
    """It is pending, its kind is not Volcano Job, and it has no record yet: its queue is written to the record (Q6)."""
    RETRY_REQUESTED = "RetryRequested"
    """It was aborted, and a retry is requested; the record is updated (D8)."""
    ABORT_REQUESTED = "AbortRequested"
    """It is pending, and a Command aborts it; the record is updated (D8)."""
    INVALID_RECORD = "InvalidRecord"
    """Its admission annotation is not a valid record."""
    UNREADABLE = "Unreadable"
    """It, or its template, has a field that cannot be read."""
    PLACED_ON_ALL_CLUSTERS = "PlacedOnAllClusters"
    """Its policy lets Karmada duplicate it to every candidate cluster; each copy is charged (D5)."""
    WORK_NOT_APPLIED = "WorkNotApplied"
    """Karmada cannot apply its Work in one of its clusters, and reports no status from there; its last known progress
    counts (R1).
    """
    PHASE_NOT_RECORDED = "PhaseNotRecorded"
    """Its record does not contain the phase that was last known before its Work could not be applied, or still contains
    it afterwards; not reported.
    """
    APPLICATION_FAILOVER = "ApplicationFailover"
    """Karmada recreates the failed job in another cluster, repeatedly; each run is charged (D7)."""
    RESOURCES_PRESERVED = "ResourcesPreserved"
    """Clearing its clusters would not stop it, so it is never evicted for another workload (P4)."""


REPAIRABLE = frozenset(
    {
        BindingCondition.PLACED_WITHOUT_ADMISSION,
        BindingCondition.WORK_NOT_REMOVED,
        BindingCondition.RESIZED,
        BindingCondition.MOVED,
        BindingCondition.REPLICAS_REDIVIDED,
        BindingCondition.RESUSPENDED_AFTER_ADMISSION,
        BindingCondition.EVICTED_BY_OTHERS,
        BindingCondition.ADMITTED_WITHOUT_POLICY,
        BindingCondition.SUSPENDED_BUT_NOT_MANAGED,
        BindingCondition.QUEUE_NOT_RECORDED,
        BindingCondition.RETRY_REQUESTED,
        BindingCondition.ABORT_REQUESTED,
        BindingCondition.NOT_SUSPENDED,
        BindingCondition.PHASE_NOT_RECORDED,
    }
)

"""Conditions that a write repairs."""


def is_duplicated(placement: Placement) -> bool:
    """Whether a workload that is not divided may be placed on more than one cluster."""
    names = placement.affinity.names if placement.affinity is not None else ()
    limits = [constraint for constraint in placement.spread if constraint.by == "cluster" and constraint.maximum == 1]
    return len(names) != 1 and not (limits and has_effective_spread(placement))


def aborted_reason(binding: CachedBinding) -> Refusal | None:
    """Return the reason for the eviction of an admitted workload that was aborted (D8)."""
    if not binding.progress:
        return None
    phases = {
        progress.phase
        for progress in binding.progress
        if progress.cluster in {target.name for target in binding.targets}
    }
    return (
        Refusal(Reason.ABORTED)
        if WorkloadPhase.ABORTED in phases and phases <= {WorkloadPhase.ABORTED, WorkloadPhase.FINISHED}
        else None
    )


def was_evicted_unplaced(binding: CachedBinding) -> bool:
    """Whether *binding* was evicted, perhaps before Karmada placed it: its record names the intended clusters.

    If the controller did not evict it, its record still admits it.
    """
    record = binding.record
    if not binding.is_suspended or record is None or not record.clusters:
        return False
    return not record.admits or not (binding.targets or binding.progress)


def left_clusters(binding: CachedBinding) -> set[ClusterName]:
    """Return the clusters that report it where it is not placed, without eviction tasks: Karmada removes it there."""
    details = binding.details
    # A dependency is also where the bindings that require it are placed.
    if not binding.progress or details.evicting or details.deleting or details.is_dependency:
        return set()
    return {reported.cluster for reported in binding.progress} - {target.name for target in binding.targets}


def is_dependency_only(binding: CachedBinding) -> bool:
    """Whether a binding exists only because another binding depends on it."""
    return binding.details.is_dependency and not binding.details.has_policy


def is_same_object(binding: CachedBinding, template: CachedTemplate | None) -> bool:
    """Whether *template* is the object of the binding, not another object with the same name."""
    return template is not None and (
        not binding.template_uid or not template.uid or binding.template_uid == template.uid
    )


def is_finished(binding: CachedBinding) -> bool:
    """Whether it is finished in every cluster where it is placed (D8); one without replicas has nothing to finish."""
    if not binding.progress:
        return False
    reported = {progress.cluster: progress.phase for progress in binding.progress}
    phases = [reported.get(target.name) for target in binding.targets if target.replicas != 0]
    return bool(phases) and all(phase is WorkloadPhase.FINISHED for phase in phases)


def is_aborted(binding: CachedBinding) -> bool:
    """Whether it was aborted and evicted for that, or is about to be evicted."""
    return (binding.record is not None and binding.record.aborted) or aborted_reason(binding) is not None


def may_be_aborted(binding: CachedBinding) -> bool:
    """Whether a Command may abort it: it is pending or was admitted here, and is neither finished nor aborted (D8)."""
    record = binding.record
    if is_finished(binding) or (record is not None and record.aborted):
        return False
    return binding.is_suspended or (record is not None and record.admits)


def clusters_changed_at(binding: CachedBinding) -> int:
    """Return when others last changed its clusters, according to its record; 0 if never."""
    record = binding.record
    return record.clusters_changed_at or 0 if record is not None and record.admits else 0
