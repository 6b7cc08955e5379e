"""Workloads: one gated binding with the template it stands for.

A ``Workload`` is the whole truth about one of them at one moment; the World
is told a new one whenever something about it changes.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

from controller.engine.clusters import ApiKind, Assignment, ClusterName, Placement
from controller.engine.queues import QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.requests import PodSet
from controller.engine.resources import EMPTY, PODS, Resources

WorkloadUid = NewType("WorkloadUid", str)

VOLCANO_JOB = ApiKind("batch.volcano.sh/v1alpha1", "Job")


@dataclass(frozen=True, slots=True)
class HyperJobGang:
    """The parts of one HyperJob that are admitted together (G1)."""

    key: str
    """Tells one group from another, and one split of a HyperJob from the next."""
    parts: int
    minimum: int
    """How many of the parts must be admitted in one plan; one part alone is admitted as any other workload."""

    @property
    def hyperjob(self) -> str:
        """Return the uid of the HyperJob, which the key begins with."""
        return self.key.partition("/")[0]


class WorkloadState(StrEnum):
    """Where a workload stands between being paused and being over."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class SchedulingRequirements:
    """What a workload asks for; equal ones are tried once for all that share it."""

    requests: Resources = EMPTY
    """The whole of it, once (D3)."""
    gang_requests: Resources = EMPTY
    """What must be placeable at once (D4)."""
    placement: Placement = field(default_factory=Placement)
    api: ApiKind = VOLCANO_JOB
    pods: tuple[Resources, ...] = ()
    """The distinct requests of its pods, for clusters that tell what one node takes."""
    pod_sets: tuple[PodSet, ...] = ()
    """All of its pods, counted; empty where nobody has counted them."""
    replicas: int = 0
    """How many equal replicas a divisible kind has; 0 for an indivisible one."""
    observed_term: str = ""
    """The affinity term that Karmada's scheduler last observed (C1)."""
    evicting_from: frozenset[ClusterName] = frozenset()
    """Clusters named in its eviction tasks: no candidates (C1)."""
    excluded_clusters: frozenset[ClusterName] = frozenset()
    """Clusters left out for it until they change (R1)."""
    preferred_clusters: tuple[ClusterName, ...] = ()
    """The clusters it asks for first, in order (C3)."""
    current_clusters: frozenset[ClusterName] = frozenset()
    """The clusters it is placed on already: Karmada's filters let them pass."""

    @property
    def replica_requests(self) -> Resources:
        """What one replica of a divisible workload asks for; empty for an indivisible one."""
        return {name: amount // self.replicas for name, amount in self.requests.items()} if self.replicas else EMPTY

    @property
    def scheduling_key(self) -> tuple[object, ...]:
        """Return what makes two shapes the same, hashable."""
        return (
            tuple(sorted(self.requests.items())),
            tuple(sorted(self.gang_requests.items())),
            self.placement,
            self.api,
            tuple(tuple(sorted(pod.items())) for pod in self.pods),
            self.pod_sets,
            self.replicas,
            self.observed_term,
            self.evicting_from,
            self.excluded_clusters,
            self.preferred_clusters,
            self.current_clusters,
        )


@dataclass(frozen=True, slots=True)
class ClusterCharge:
    """What one cluster is booked with for one workload."""

    cluster: ClusterName
    charge: Resources


@dataclass(frozen=True, slots=True)
class Admission:
    """That a workload was let in: its charge and where it is booked."""

    charge: Resources
    """The total over all clusters (D5, D6)."""
    cluster_charges: tuple[ClusterCharge, ...]
    admitted_at: int = 0
    adopted: bool = False
    """It ran before we came: admitted without a record of ours (D10)."""
    resized: bool = False
    """Its template asks for more than its record charged (D7)."""
    reported: bool = False
    """Its pods are known to be in the cluster's summary already (``plan`` over files: phase Running)."""
    ends_at: int | None = None
    """When the charge ends by itself: it was evicted before Karmada had placed it (P5)."""
    moved: bool = False
    """Others have changed its clusters since its record was written (R1)."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """What is held for a workload while those evicted for it leave (P5): quota and room for all of it."""

    cluster: ClusterName
    since: int
    """When its exchange was decided, in milliseconds."""
    rank: int
    """Its place among the exchanges of that plan."""
    requests: Resources
    """What is held; the hold lapses when the workload asks for something else."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What is kept for a workload that was blocked for long (O6): quota, and room on each cluster where it will go.

    Each part of a group has its own.
    """

    since: int
    """When that began, in milliseconds."""
    cluster_charges: tuple[ClusterCharge, ...] = ()
    """By cluster; empty where none is chosen yet, or none would do."""
    requests: Resources | None = None
    """What is kept; it lapses when the workload asks for something else. ``None`` until that is known."""


class EvictionHistory(NamedTuple):
    """How often a workload was evicted (P4), and how often it has tried in vain to start since it last ran (R1)."""

    evictions: int = 0
    failed_starts: int = 0

    def after_eviction(self, *, has_run: bool, taken_back: bool) -> "EvictionHistory":
        """Return them once it is gone again: one that was *taken back* before it ran was not evicted."""
        in_vain = taken_back and not has_run
        return EvictionHistory(self.evictions + (not in_vain), (0 if has_run else self.failed_starts) + in_vain)


@dataclass(frozen=True, slots=True)
class Workload:
    """One gated binding at one moment; names are the template's, the uid is the binding's."""

    uid: WorkloadUid
    namespace: str
    name: str
    kind: str
    queue: QueueName
    requirements: SchedulingRequirements
    priority: int = 0
    priority_class: str = ""
    """The class it names, else the cluster's default; empty where there is neither."""
    task_classes: tuple[str, ...] = ()
    """The PriorityClasses of its tasks' pods, by name, which count in the members."""
    unknown_class: bool = False
    """Its PriorityClass does not exist, so *priority* is the cluster's default (O2)."""
    created_at: int = 0
    """Its age begins here: the template's creation; evicted ones keep theirs. Milliseconds."""
    state: WorkloadState = WorkloadState.PENDING
    admission: Admission | None = None
    """Set while it holds charges, whatever its state; a pending one that has it is still leaving (P5)."""
    hold: Refusal | None = None
    """Why it is kept back whatever room there is, as far as its own objects tell."""
    gang: HyperJobGang | None = None
    """The parts it is admitted together with."""
    evictions: int = 0
    """How often it was evicted (P4)."""
    failed_starts: int = 0
    """How often it was taken back without having run (R1)."""
    has_run: bool = False
    """It runs, or has run since it was admitted, on the clusters where it is now."""
    unplaced: bool = False
    """It is admitted, and Karmada has no cluster for it."""
    placed_at: int = 0
    """When others last changed its clusters after its admission, in milliseconds; 0: never."""
    preserved: bool = False
    """Taking its clusters away would not stop it: ``preserveResourcesOnDeletion`` (P4)."""
    preempts: bool = True
    """``False`` for a PriorityClass with ``preemptionPolicy: Never`` (P2)."""
    nomination: Nomination | None = None
    """What its record says is held for it."""
    reservation: Reservation | None = None
    """What its record says is kept for it."""
    eviction_retry_at: int = 0
    """Its eviction was refused, and is not tried again before. Milliseconds."""
    runs_after_finish: bool = False
    """It had finished, and runs again; known to the World alone."""
    last_admission: Admission | None = field(default=None, compare=False)
    """What it held until it finished lately, and when that was: all that is told of it is that it has."""

    @property
    def eviction_history(self) -> EvictionHistory:
        """Return what is counted of its past."""
        return EvictionHistory(self.evictions, self.failed_starts)

    @property
    def is_leaving(self) -> bool:
        """Say whether it was evicted and is not gone from its clusters yet."""
        return self.state is WorkloadState.PENDING and self.admission is not None

    def has_left(self, now: int) -> bool:
        """Say whether it was leaving, and its charge has ended by itself by *now*."""
        ends_at = self.admission.ends_at if self.admission is not None else None
        return self.is_leaving and ends_at is not None and ends_at <= now

    @property
    def is_nominated(self) -> bool:
        """Say whether it waits for others to leave."""
        return self.nomination is not None and self.state is WorkloadState.PENDING and self.admission is None

    @property
    def has_reservation(self) -> bool:
        """Say whether it waits and room is kept for it; what is held for it in an exchange comes before that."""
        return (
            self.reservation is not None
            and self.state is WorkloadState.PENDING
            and self.admission is None
            and self.nomination is None
        )

    @property
    def awaits_start(self) -> bool:
        """Say whether we admitted it and it has yet to run; what ran before we came is left alone (R1)."""
        admission = self.admission
        is_ours = admission is not None and not admission.adopted and admission.admitted_at > 0
        return self.state is WorkloadState.ADMITTED and is_ours and not self.has_run and self.hold is None

    @property
    def has_moved(self) -> bool:
        """Say whether others have changed its clusters, and its record does not say so yet (R1)."""
        return self.state is WorkloadState.ADMITTED and self.admission is not None and self.admission.moved

    @property
    def has_resized(self) -> bool:
        """Say whether we admitted it and it holds more than we let it in with (D7); what ran before is left alone."""
        is_ours = self.state is WorkloadState.ADMITTED and self.admission is not None and not self.admission.adopted
        return is_ours and (self.runs_after_finish or (self.admission is not None and self.admission.resized))

    @property
    def has_aborted(self) -> bool:
        """Say whether we admitted it and it has aborted since (D8); what ran before we came is left alone."""
        is_ours = self.state is WorkloadState.ADMITTED and self.admission is not None and not self.admission.adopted
        return is_ours and self.hold is not None and self.hold.reason is Reason.ABORTED

    @property
    def path(self) -> str:
        """Return ``Kind namespace/name``, as messages name it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a workload would go: its clusters, and what each is charged with."""

    assignments: tuple[Assignment, ...]
    cluster_charges: tuple[ClusterCharge, ...]

    @property
    def charge(self) -> Resources:
        """Return the total over all clusters."""
        sums: dict[str, int] = {}
        for booking in self.cluster_charges:
            for name, amount in booking.charge.items():
                sums[name] = sums.get(name, 0) + amount
        return sums


def asks_pods_only(amounts: Resources) -> bool:
    """Say whether nothing but ``pods`` is asked for."""
    return all(name == PODS or amount <= 0 for name, amount in amounts.items())
