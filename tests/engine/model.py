"""Explores every order of events in a small system, with the real engine.

A state is the API server's content, the writes in flight and the controller's memory. Every possible next
event is tried on a copy; known states are skipped. Only bindings, clusters and writes are simulated.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum

from controller.engine.engine import Engine
from controller.engine.plan import Admit, Evict, Plan, RecordUpdate
from controller.engine.policy import Policy
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)

CAPACITY = {ClusterName("m1"): 4, ClusterName("m2"): 4}
QUEUES = (
    Queue(QueueName("a"), capability={"cpu": 5}, deserved={"cpu": 3}),
    Queue(QueueName("b"), deserved={"cpu": 3}),
    Queue(QueueName("c"), guarantee={"cpu": 2}),
)
_ONE = Placement(spread=(Spread("cluster", 1, 1),))
_STEP = 40_000
"""Time between two events in milliseconds: longer than external usage takes to settle."""


def shape(cpu: int) -> SchedulingRequirements:
    return SchedulingRequirements({"cpu": cpu}, {"cpu": cpu}, _ONE)


#: Queue and requirements of each job; together they request more than the capacity.
JOBS: Mapping[str, tuple[QueueName, SchedulingRequirements]] = {
    "a1": (QueueName("a"), shape(3)),
    "a2": (QueueName("a"), shape(3)),
    "b1": (QueueName("b"), shape(2)),
    "c1": (QueueName("c"), shape(4)),
    "b2": (QueueName("b"), shape(4)),
    "c2": (QueueName("c"), shape(3)),
    "c3": (QueueName("c"), shape(3)),
}


class Phase(StrEnum):
    """What the API server knows of a job."""

    ABSENT = "absent"
    WAITING = "waiting"
    ADMITTED = "admitted"
    RUNNING = "running"
    LEAVING = "leaving"
    FINISHED = "finished"


CHARGED = {Phase.ADMITTED, Phase.RUNNING, Phase.LEAVING}


@dataclass(frozen=True)
class Binding:
    """A job as the API server stores it, with the admission record."""

    phase: Phase = Phase.ABSENT
    cluster: ClusterName | None = None
    evictions: int = 0
    nomination: Nomination | None = None
    reservation: Reservation | None = None


class BrokenError(Exception):
    """An invariant is violated."""


@dataclass
class Model:
    """One state, and its possible next events."""

    policy: Policy
    jobs: tuple[str, ...]
    crashes: int = 1
    """How often the controller may still restart."""
    refusals: int = 1
    """How often a write may still be rejected."""
    bindings: dict[str, Binding] = field(default_factory=dict)
    writes: dict[tuple[str, str], Admit | Evict | RecordUpdate] = field(default_factory=dict)
    """Writes in flight, by job and kind."""
    now: int = 1_000_000_000
    wakes: bool = False
    """Whether the controller plans again without an event."""
    state: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.bindings = dict.fromkeys(self.jobs, Binding())
        self.restart()

    def copy(self) -> "Model":
        """Return a copy that shares only the requirements, which are identified by id."""
        return deepcopy(self, {id(kind): kind for _, kind in JOBS.values()})

    # -- possible events ------------------------------------------------

    def events(self) -> Iterator[tuple[str, str]]:
        """Yield the possible next events."""
        for job, binding in self.bindings.items():
            match binding.phase:
                case Phase.ABSENT:
                    yield "arrive", job
                case Phase.ADMITTED if (job, "evict") not in self.writes:
                    yield "run", job
                case Phase.RUNNING if (job, "evict") not in self.writes:
                    yield "finish", job
                case Phase.LEAVING:
                    yield "gone", job
        yield from self._answers()
        if self.crashes:
            yield "crash", ""
        if self.wakes:
            yield "wait", ""

    def _answers(self) -> Iterator[tuple[str, str]]:
        for job, kind in self.writes:
            if kind == "evict" and (job, "admit") in self.writes:
                # The writes for one job are sent one after the other.
                continue
            yield f"acknowledge {kind}", job
            if self.refusals:
                yield f"refuse {kind}", job

    def apply(self, event: str, job: str) -> None:
        """Apply an event, and let the controller plan."""
        self.now += _STEP
        if event == "crash":
            self.crashes -= 1
            self.restart()
            return
        if event == "wait":
            self.plan()
            return
        verb, _, kind = event.partition(" ")
        if verb == "refuse":
            self.refusals -= 1
            del self.writes[job, kind]
            if kind == "admit":
                self.writes.pop((job, "evict"), None)
        elif verb == "acknowledge":
            self.bindings[job] = _written(self.bindings[job], self.writes.pop((job, kind)))
        else:
            self.bindings[job] = _moved(self.bindings[job], verb)
        self.sync_job(job)
        self.plan()

    def restart(self) -> None:
        """Restart with an empty memory and the API server's content; writes in flight are lost."""
        self.writes.clear()
        self.state = Engine(self.policy)
        for queue in QUEUES:
            self.state.queue_changed(queue)
        for job, binding in self.bindings.items():
            if binding.phase is not Phase.ABSENT:
                self.state.workload_changed(self.workload(job), self.now)
        self.plan()

    def plan(self) -> None:
        """Update the clusters' usage, plan, and start the writes."""
        for name, cpu in CAPACITY.items():
            used = sum(_cpu(job) for job, binding in self.bindings.items() if _runs_on(binding, name))
            enabled = frozenset({VOLCANO_JOB})
            seen = Cluster(name, enablements=enabled, allocatable={"cpu": cpu}, used={"cpu": used})
            self.state.cluster_changed(seen, self.now)
        plan = self.state.plan(self.now)
        self.wakes = plan.wake_at is not None
        self.start_writes(plan)
        self.check()

    def start_writes(self, plan: Plan) -> None:
        """Start the writes of a plan."""
        for note in plan.record_updates:
            self.writes[note.workload.name, "note"] = note
        for decision in plan.decisions:
            job = decision.workload.name
            phase = self.bindings[job].phase
            if isinstance(decision, Admit):
                if phase is not Phase.WAITING or (job, "admit") in self.writes:
                    raise BrokenError(f"{job} is admitted while it is {phase}")
                self.writes.pop((job, "note"), None)
                self.writes[job, "admit"] = decision
            else:
                if phase not in {Phase.ADMITTED, Phase.RUNNING} and (job, "admit") not in self.writes:
                    raise BrokenError(f"{job} is evicted while it is {phase}")
                self.writes[job, "evict"] = decision

    def sync_job(self, job: str) -> None:
        """Send the state of *job* to the controller, except while a write is in flight."""
        if not any(name == job for name, _ in self.writes):
            self.state.workload_changed(self.workload(job), self.now)

    def workload(self, job: str) -> Workload:
        """Return the job as the cache translates it."""
        binding, (queue, asked) = self.bindings[job], JOBS[job]
        admission = None
        if binding.phase in CHARGED and binding.cluster is not None:
            booking = ClusterCharge(binding.cluster, asked.requests)
            is_running = binding.phase is Phase.RUNNING
            admission = Admission(asked.requests, (booking,), admitted_at=0, reported=is_running)
        state = WorkloadState.ADMITTED if admission else WorkloadState.PENDING
        return Workload(
            uid=WorkloadUid(job),
            namespace="ns",
            name=job,
            kind="Job",
            queue=queue,
            requirements=asked,
            state=WorkloadState.FINISHED if binding.phase is Phase.FINISHED else _state(binding, state),
            admission=admission,
            hold=Refusal(Reason.PREEMPTION_IN_PROGRESS) if binding.phase is Phase.LEAVING else None,
            details=WorkloadDetails(
                evictions=binding.evictions,
                nomination=binding.nomination,
                reservation=binding.reservation if binding.nomination is None else None,
            ),
        )

    # -- invariants -----------------------------------------------------

    def check(self) -> None:
        """Check that charges stay within capacity, whatever the controller assumes (I1)."""
        charged = [(job, binding) for job, binding in self.bindings.items() if binding.phase in CHARGED]
        for name, cpu in CAPACITY.items():
            if sum(_cpu(job) for job, binding in charged if binding.cluster == name) > cpu:
                raise BrokenError(f"{name} is charged more than it has: {self.bindings}")
        for queue in QUEUES:
            ceiling = queue.capability.get("cpu", sum(CAPACITY.values()))
            if sum(_cpu(job) for job, _ in charged if JOBS[job][0] == queue.name) > ceiling:
                raise BrokenError(f"queue {queue.name} is charged more than its limit: {self.bindings}")

    @property
    def is_finished(self) -> bool:
        """Say whether nothing is left to do."""
        return all(binding.phase is Phase.FINISHED for binding in self.bindings.values())

    def key(self) -> object:
        """Return the identity of a state; times are left out where their order does not matter."""
        bindings = tuple(
            (
                job,
                binding.phase,
                binding.cluster,
                binding.evictions,
                binding.nomination and binding.nomination.cluster,
                bool(binding.reservation),
            )
            for job, binding in self.bindings.items()
        )
        return bindings, tuple(sorted(self.writes)), self.crashes, self.refusals, self.wakes, _memory(self.state)


def _written(binding: Binding, write: Admit | Evict | RecordUpdate) -> Binding:
    """Return *binding* after a write."""
    match write:
        case Admit():
            return replace(
                binding, phase=Phase.ADMITTED, cluster=write.clusters[0].name, nomination=None, reservation=None
            )
        case Evict():
            return replace(
                binding, phase=Phase.LEAVING, evictions=binding.evictions + 1, nomination=None, reservation=None
            )
        case RecordUpdate():
            return replace(binding, nomination=write.nomination, reservation=write.reservation)


def _moved(binding: Binding, verb: str) -> Binding:
    """Return *binding* after an event that the controller did not cause."""
    phases = {"arrive": Phase.WAITING, "run": Phase.RUNNING, "finish": Phase.FINISHED, "gone": Phase.WAITING}
    phase = phases[verb]
    return replace(binding, phase=phase, cluster=binding.cluster if phase in CHARGED else None)


def _state(binding: Binding, state: WorkloadState) -> WorkloadState:
    return WorkloadState.PENDING if binding.phase is Phase.LEAVING else state


def _runs_on(binding: Binding, cluster: ClusterName) -> bool:
    return binding.phase in {Phase.RUNNING, Phase.LEAVING} and binding.cluster == cluster


def _cpu(job: str) -> int:
    return JOBS[job][1].requests["cpu"]


def _memory(state: Engine) -> object:
    """Return what the controller remembers that may influence a decision."""
    workloads = tuple(
        (
            uid,
            each.state,
            _places(each),
            each.nomination and each.nomination.cluster,
            each.reservation and _reserved_clusters(each.reservation),
        )
        for uid, each in sorted(state.workloads.items())
    )
    sites = tuple(
        (site.name, *map(_amounts, (site.charged, site.reported, site.external_usage))) for site in state.cluster_usage
    )
    blocked = tuple(sorted((name, each.uid) for name, each in state.cycle.starvation_timers.heads.items()))
    return workloads, sites, blocked, state.queues.get(ROOT)


def _reserved_clusters(reserved: Reservation) -> tuple[ClusterName, ...]:
    return tuple(booking.cluster for booking in reserved.cluster_charges)


def _places(workload: Workload) -> object:
    admission = workload.admission
    return admission and (admission.reported, tuple(booking.cluster for booking in admission.cluster_charges))


def _amounts(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
