"""Workloads as the engine sees them: a gated binding together with its template.

A ``Workload`` is immutable and complete; after every change ``Engine`` receives a new one.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, NewType

from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.clusters import ApiKind, Assignment, ClusterName, Placement
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import EMPTY, Resources, total

WorkloadUid = NewType("WorkloadUid", str)

VOLCANO_JOB = ApiKind("batch.volcano.sh/v1alpha1", "Job")


@dataclass(frozen=True, slots=True)
class HyperJobGang:
    """Parts of one HyperJob that are admitted together (G1)."""

    key: str
    """Identifies the gang and the split of its HyperJob that it belongs to."""
    parts: int
    minimum: int
    """How many parts must be admitted in one plan; a single part is admitted like any other workload."""

    @property
    def hyperjob(self) -> str:
        """Return the HyperJob's uid, which precedes the split in the key."""
        return self.key.rpartition("/")[0]


class WorkloadState(StrEnum):
    """Where a workload is in its life cycle."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    FINISHED = "Finished"


class ReservedCluster(NamedTuple):
    """A cluster that a workload may not use, and the name of the advance reservation for which it is kept free."""

    cluster: ClusterName
    reservation: str


@dataclass(frozen=True, slots=True)
class SchedulingRequirements:
    """What a workload requests and which clusters it accepts; the same for all workloads of one class."""

    requests: Resources = EMPTY
    """The requests of all its pods, for one copy (D3)."""
    gang_requests: Resources = EMPTY
    """The gang minimum: what must be placeable at once (D4)."""
    placement: Placement = field(default_factory=Placement)
    api: ApiKind = VOLCANO_JOB
    pods: tuple[Resources, ...] = ()
    """The distinct requests of its pods, for clusters that report what one node can hold."""
    pod_sets: tuple[PodSet, ...] = ()
    """All its pods with their numbers; empty where they are unknown."""
    replicas: int = 0
    """The number of equal replicas of a divisible kind; 0 for an indivisible kind."""
    reverses_ties: bool = False
    """Of clusters with equal static weights, the last by name gets a remaining replica first (C4)."""
    observed_term: str = ""
    """The affinity term that Karmada's scheduler observed last (C1)."""
    evicting_from: frozenset[ClusterName] = frozenset()
    """Clusters named in its eviction tasks: no candidates (C1)."""
    data_clusters: frozenset[ClusterName] | None = None
    """Clusters that hold all its data; ``None`` where data do not restrict it (C6)."""
    excluded_clusters: frozenset[ClusterName] = frozenset()
    """Clusters excluded after a failed start, until they change (R1)."""
    retryable_clusters: frozenset[ClusterName] = frozenset()
    """Those of ``excluded_clusters`` that are candidates where no other cluster can ever hold it (R1)."""
    reserved_clusters: tuple[ReservedCluster, ...] = ()
    """Clusters kept free for advance reservations, by name (O11); set by ``Engine`` only."""
    amounts_reserved_by: tuple[str, ...] = ()
    """The advance reservations of amounts that it must leave free (O11); set by ``Engine`` only."""
    preferred_clusters: tuple[ClusterName, ...] = ()
    """Preferred clusters, the first most (C3)."""
    current_clusters: frozenset[ClusterName] = frozenset()
    """Clusters that it is placed on while it is pending; Karmada's filters accept them."""

    @property
    def is_divided(self) -> bool:
        """Return whether its replicas are divided among clusters (C4)."""
        return self.replicas > 0 and self.placement.divided

    @property
    def replica_requests(self) -> Resources:
        """Return the requests of one replica of a divisible workload; empty for an indivisible one."""
        return {name: amount // self.replicas for name, amount in self.requests.items()} if self.replicas else EMPTY

    @property
    def scheduling_key(self) -> tuple[object, ...]:
        """Return a hashable key that is equal for equal requirements."""
        return (
            tuple(sorted(self.requests.items())),
            tuple(sorted(self.gang_requests.items())),
            self.placement,
            self.api,
            tuple(tuple(sorted(pod.items())) for pod in self.pods),
            self.pod_sets,
            self.replicas,
            self.reverses_ties,
            self.observed_term,
            self.evicting_from,
            self.data_clusters,
            self.excluded_clusters,
            self.retryable_clusters,
            self.reserved_clusters,
            self.amounts_reserved_by,
            self.preferred_clusters,
            self.current_clusters,
        )


@dataclass(frozen=True, slots=True)
class ClusterCharge:
    """One workload's part of the usage of one cluster."""

    cluster: ClusterName
    charge: Resources


@dataclass(frozen=True, slots=True)
class Admission:
    """An admission: the charge, and its part on each cluster."""

    charge: Resources
    """The sum over all clusters (D5, D6)."""
    cluster_charges: tuple[ClusterCharge, ...]
    admitted_at: int = 0
    adopted: bool = False
    """It ran before installation and was admitted without a record (D10)."""
    resized: bool = False
    """The template requests more than the record charges (D7)."""
    increased: frozenset[str] = frozenset()
    """The resources of which a resized workload requests more; empty where unknown, so that all count."""
    reported: bool = False
    """The cluster's summary is known to include its pods (``plan`` over files: phase Running)."""
    still_running: bool = False
    """It is leaving clusters that report it running: their summaries include its pods, but may lose them before that is
    observed here."""
    ends_at: int | None = None
    """When the charge expires: the workload was evicted before Karmada placed it (P5). Milliseconds."""
    moved: bool = False
    """Its clusters were changed by others after its record was written (R1)."""
    raised_by: int = 0
    """By how much its job priority was raised when it was admitted, where older workloads raised it, too (O10)."""
    assumed: bool = field(default=False, compare=False)
    """It was decided here, and its write has not been observed yet. Matters only where the write is refused (C2)."""

    @property
    def clusters(self) -> set[ClusterName]:
        """Return the clusters with a part of the charge."""
        return {cluster_charge.cluster for cluster_charge in self.cluster_charges}


@dataclass(frozen=True, slots=True)
class Nomination:
    """Quota and capacity of one cluster that a preemptor waits for while its victims stop (P5)."""

    cluster: ClusterName
    since: int
    """When its preemption was decided, in milliseconds."""
    rank: int
    """Its order among the preemptions of that plan."""
    requests: Resources
    """What is set aside; the nomination ends when the workload requests something else."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota and cluster capacity set aside for a workload that was blocked for long (O6).

    Each part of a gang has its own.
    """

    since: int
    """When it began, in milliseconds."""
    cluster_charges: tuple[ClusterCharge, ...] = ()
    """Capacity by cluster; empty while no cluster is chosen or none is suitable."""
    requests: Resources | None = None
    """What is set aside; the reservation ends when the workload requests something else. ``None`` while unknown."""
    promised_start: int | None = None
    """The shadow time when it was granted, in milliseconds; ``None`` without known run times (O9)."""


class EvictionHistory(NamedTuple):
    """How often a workload was evicted (P4), and how often it failed to start since it last ran (R1)."""

    evictions: int = 0
    failed_starts: int = 0

    def after_eviction(self, *, has_run: bool, taken_back: bool, self_caused: bool) -> "EvictionHistory":
        """Return the counts after an eviction; one that was *taken back* before it ran is a failed start instead.

        A *self_caused* eviction counts only as the first one: a user could protect its workloads by more of them (P4).
        """
        in_vain = taken_back and not has_run
        evictions = max(self.evictions, 1) if self_caused else self.evictions + (not in_vain)
        return EvictionHistory(evictions, (0 if has_run else self.failed_starts) + in_vain)


@dataclass(frozen=True, slots=True)
class WorkloadDetails:
    """Fields of a workload that are equal in many workloads, so that these share them."""

    priority_class: str = ""
    """Its class, else the cluster's default; empty where there is neither."""
    task_classes: tuple[str, ...] = ()
    """The PriorityClasses of its tasks' pods by name, as they count in the member clusters."""
    unknown_class: bool = False
    """Its PriorityClass does not exist, so its priority is the cluster's default (O2)."""
    gang: HyperJobGang | None = None
    """The HyperJob gang that it is admitted with."""
    evictions: int = 0
    """How often it was evicted (P4)."""
    failed_starts: int = 0
    """How often it was evicted without having run (R1)."""
    has_run: bool = False
    """It runs, or has run since its admission, on its present clusters."""
    unplaced: bool = False
    """It is admitted, and Karmada found no cluster for it."""
    has_run_before: bool = False
    """It is unplaced, and has run since its admission before Karmada took its clusters away."""
    placed_at: int = 0
    """When others last changed its clusters, or it was scaled up from zero, after its admission, in milliseconds;
    0: never.
    """
    preserved: bool = False
    """Removing its clusters would not stop it: ``preserveResourcesOnDeletion`` (P4)."""
    has_long_grace_period: bool = False
    """Its pods may run on for more than some minutes after their deletion (C2)."""
    preempts: bool = True
    """``False`` for a PriorityClass with ``preemptionPolicy: Never`` (P2)."""
    nomination: Nomination | None = None
    """The nomination in its record."""
    reservation: Reservation | None = None
    """The head reservation in its record."""
    eviction_retry_at: int = 0
    """The write of its eviction was rejected, and is not tried again before. Milliseconds."""
    runs_after_finish: bool = False
    """It runs again after it had finished, and that is not accepted (D7); set by ``Engine`` only."""
    run_time_ms: int | None = None
    """The expected time from its admission to its end; ``None`` where unknown (O9)."""
    run_time_bounds_ms: tuple[int, ...] = ()
    """Run times exceeded half as probably as *run_time_ms*, a quarter as probably, ...; empty where that is exact."""
    last_admission: Admission | None = field(default=None, compare=False)
    """Its admission until it finished recently, with the time; set where the finish itself was not observed."""

    def shared(self) -> "WorkloadDetails":
        """Return equal details that are shared, except those with amounts of their own."""
        has_amounts = self.nomination or self.reservation or self.last_admission
        return self if has_amounts else _shared_details(self)

    def after_eviction(
        self, *, taken_back: bool, self_caused: bool = False, has_gang_run: bool = True
    ) -> "WorkloadDetails":
        """Return the details after an eviction.

        It is a failed start where it was *taken back* before it ran, or before enough parts of its HyperJob ran.
        """
        history, has_run = EvictionHistory(self.evictions, self.failed_starts), self.has_run and has_gang_run
        counts = history.after_eviction(has_run=has_run, taken_back=taken_back, self_caused=self_caused)
        return replace(self.without_claims(), has_run=False, has_run_before=False, **counts._asdict())

    def without_claims(self) -> "WorkloadDetails":
        """Return the details without nomination and reservation."""
        has_claims = self.nomination is not None or self.reservation is not None
        return replace(self, nomination=None, reservation=None) if has_claims else self


@lru_cache(maxsize=4096)
def _shared_details(details: WorkloadDetails) -> WorkloadDetails:
    """Return the first of equal details."""
    return details


NO_DETAILS = WorkloadDetails()


@dataclass(frozen=True, slots=True)
class Workload:
    """One gated binding; the names are the template's, the uid is the binding's."""

    uid: WorkloadUid
    namespace: str
    name: str
    kind: str
    queue: QueueName
    requirements: SchedulingRequirements
    priority: int = 0
    created_at: int = 0
    """When the template was created, in milliseconds; an evicted workload keeps it."""
    state: WorkloadState = WorkloadState.PENDING
    admission: Admission | None = None
    """Set while it holds charges; a pending workload that has it is still being evicted (P5)."""
    hold: Refusal | None = None
    """Why it does not compete, as far as its own objects show."""
    details: WorkloadDetails = NO_DETAILS

    @property
    def priority_class(self) -> str:
        """Return its PriorityClass, else the cluster's default; empty where there is neither."""
        return self.details.priority_class

    @property
    def gang(self) -> HyperJobGang | None:
        """Return the HyperJob gang that it is admitted with."""
        return self.details.gang

    @property
    def evictions(self) -> int:
        """Return how often it was evicted (P4)."""
        return self.details.evictions

    @property
    def has_run(self) -> bool:
        """Return whether it runs, or has run since its admission, on its present clusters."""
        return self.details.has_run

    @property
    def preserved(self) -> bool:
        """Return whether removing its clusters would not stop it (P4)."""
        return self.details.preserved

    @property
    def nomination(self) -> Nomination | None:
        """Return the nomination in its record."""
        return self.details.nomination

    @property
    def reservation(self) -> Reservation | None:
        """Return the head reservation in its record."""
        return self.details.reservation

    @property
    def eviction_retry_at(self) -> int:
        """Return before when its eviction is not tried again, in milliseconds."""
        return self.details.eviction_retry_at

    @property
    def run_time_ms(self) -> int | None:
        """Return the expected time from its admission to its end; ``None`` where unknown (O9)."""
        return self.details.run_time_ms

    @property
    def cluster_charges(self) -> tuple[ClusterCharge, ...]:
        """Return what it is charged with on each cluster."""
        return self.admission.cluster_charges if self.admission is not None else ()

    @property
    def is_being_evicted(self) -> bool:
        """Return whether it was evicted and has not stopped in its clusters yet."""
        return self.state is WorkloadState.PENDING and self.admission is not None

    def without_eviction(self) -> "Workload":
        """Return it without the hold for its eviction; other holds stay."""
        is_held = self.hold is not None and self.hold.reason is Reason.PREEMPTION_IN_PROGRESS
        return replace(self, hold=None) if is_held else self

    def has_eviction_expired(self, now: int) -> bool:
        """Return whether it was being evicted and its charge has expired by *now*."""
        ends_at = self.admission.ends_at if self.admission is not None else None
        return self.is_being_evicted and ends_at is not None and ends_at <= now

    @property
    def is_nominated(self) -> bool:
        """Return whether it is pending until its victims stop."""
        return self.nomination is not None and self.state is WorkloadState.PENDING and self.admission is None

    @property
    def has_reservation(self) -> bool:
        """Return whether it is pending with a head reservation; a nomination takes precedence over it."""
        return (
            self.reservation is not None
            and self.state is WorkloadState.PENDING
            and self.admission is None
            and self.nomination is None
        )

    @property
    def awaits_start(self) -> bool:
        """Return whether it was admitted here and has not run yet; adopted workloads are not timed (R1)."""
        admission = self.admission
        is_ours = admission is not None and not admission.adopted and admission.admitted_at > 0
        may_start = self.hold is None or self.hold.reason is Reason.REQUESTS_UNKNOWN
        return self.state is WorkloadState.ADMITTED and is_ours and not self.has_run and may_start

    @property
    def has_moved(self) -> bool:
        """Return whether others changed its clusters and its record does not reflect that yet (R1)."""
        return self.state is WorkloadState.ADMITTED and self.admission is not None and self.admission.moved

    @property
    def has_resized(self) -> bool:
        """Return whether it was admitted here and uses more than its charge (D7); adopted workloads may."""
        return self.is_admitted_here and (
            self.details.runs_after_finish or (self.admission is not None and self.admission.resized)
        )

    @property
    def has_aborted(self) -> bool:
        """Return whether it was admitted here and aborted since (D8); adopted workloads are not evicted."""
        return self.is_admitted_here and self.hold is not None and self.hold.reason is Reason.ABORTED

    @property
    def has_lost_data(self) -> bool:
        """Return whether it was admitted here, its data moved since, and it is to follow them (C6)."""
        return self.is_admitted_here and self.hold is not None and self.hold.reason is Reason.DATA_NOT_READY

    @property
    def is_admitted_here(self) -> bool:
        """Return whether it was admitted here, so that it may be evicted: adopted workloads stay (D10)."""
        return self.state is WorkloadState.ADMITTED and self.admission is not None and not self.admission.adopted

    def admitted(self, admission: Admission) -> "Workload":
        """Return the workload after an admission."""
        # Not replace(), which takes three times as long: each admission makes one.
        return Workload(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            kind=self.kind,
            queue=self.queue,
            requirements=self.requirements,
            priority=self.priority,
            created_at=self.created_at,
            state=WorkloadState.ADMITTED,
            admission=admission,
            details=self.details.without_claims(),
        )

    def evicted(self, reason: EvictionReason) -> "Workload":
        """Return the workload after an eviction for *reason*: pending, with its charges until it has stopped."""
        details = self.details.after_eviction(taken_back=False, self_caused=reason.is_self_caused)
        return replace(self, state=WorkloadState.PENDING, details=details)

    def stopped(self) -> "Workload":
        """Return the workload once it has stopped after an eviction; holds that this does not end stay."""
        lasting = {Reason.ABORTED, Reason.SUSPENDED, Reason.REQUESTS_UNKNOWN, Reason.NO_MATCHING_POLICY}
        hold = self.hold if self.hold is not None and self.hold.reason in lasting else None
        return replace(self, state=WorkloadState.PENDING, admission=None, hold=hold)

    def nominated_as(self, nomination: Nomination | None) -> "Workload":
        """Return the workload with *nomination*, or without one."""
        return replace(self, details=replace(self.details, nomination=nomination, reservation=None))

    def reserving(self, reservation: Reservation | None) -> "Workload":
        """Return the workload with the head reservation *reservation*, or without one."""
        return replace(self, details=replace(self.details, reservation=reservation))

    def expecting(self, run_time_ms: int, *bounds_ms: int) -> "Workload":
        """Return the workload with an expected run time and its less probable bounds."""
        details = replace(self.details, run_time_ms=run_time_ms, run_time_bounds_ms=bounds_ms)
        return replace(self, details=details.shared())

    @property
    def path(self) -> str:
        """Return ``Kind namespace/name``, as messages name it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Choice:
    """The clusters chosen for a workload and the charge on each."""

    assignments: tuple[Assignment, ...]
    cluster_charges: tuple[ClusterCharge, ...]

    @property
    def charge(self) -> Resources:
        """Return the sum over all clusters."""
        if len(self.cluster_charges) == 1:
            return self.cluster_charges[0].charge
        return total(cluster_charge.charge for cluster_charge in self.cluster_charges)
