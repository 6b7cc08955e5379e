"""Runs the engine on a state of the reference model."""

from controller.engine.engine import Engine
from controller.engine.plan import Admit, Plan
from controller.engine.policy import AdvanceReservation, Ageing, EvictionPolicy, HeadReservation, Policy
from controller.engine.state.clusters import Affinity, Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import Queue, QueueName, QueueState
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from tests.reference import state as plain
from tests.reference.state import Decision

NOW, LONG_AGO = plain.NOW * 1000, plain.BEGIN * 1000


def plan(state: plain.State) -> list[Decision]:
    """Return the engine's decisions on *state* in one plan."""
    return decisions(build(state).plan(NOW))


def plan_in_parts(state: plain.State, most: int) -> list[Decision]:
    """Return the engine's decisions in plans of at most *most* decisions each."""
    played = build(state)
    parts = [played.plan(NOW, most=most)]
    while parts[-1].is_cut:
        parts.append(played.plan(NOW, most=most))
    made = tuple(decision for part in parts for decision in part.decisions)
    return decisions(Plan(made, record_updates=tuple(note for part in parts for note in part.record_updates)))


def decisions(found: Plan) -> list[Decision]:
    """Return a plan's decisions in the reference model's form."""
    held = {note.workload.uid: note.nomination.cluster for note in found.record_updates if note.nomination is not None}
    result: list[Decision] = []
    beneficiary = None
    for each in [*found.decisions, None]:
        for_whom = None if each is None or isinstance(each, Admit) else each.preemptor
        if beneficiary is not None and for_whom != beneficiary and beneficiary in held:
            result.append(Decision("Nominate", beneficiary, held[beneficiary]))
        beneficiary = for_whom
        if isinstance(each, Admit):
            result.append(Decision("Admit", each.workload.name, each.clusters[0].name))
        elif each is not None:
            result.append(Decision("Evict", each.workload.name, each.preemptor or ""))
    return result


def build(state: plain.State) -> Engine:
    """Return an engine state with the same objects."""
    policy = Policy(
        queue_order=state.queue_order,
        tenant_fairness=state.tenant_fairness,
        reclaim=_eviction(state.reclaim),
        preemption=_eviction(state.preemption),
        ageing=_ageing(state.ageing),
        head_reservation=HeadReservation(after_ms=state.reservation_after * 1000),
        advance_reservations=tuple(map(_reservation, state.reservations)),
    )
    found = Engine(policy)
    for job in state.jobs:
        found.workload_changed(_workload(job), LONG_AGO)
    for queue in state.queues:
        found.queue_changed(_queue(queue))
    for cluster in state.clusters:
        allocatable = {"pods": 1_000_000, **cluster.allocatable}
        enablements = frozenset({VOLCANO_JOB})
        found.cluster_changed(
            Cluster(ClusterName(cluster.name), enablements=enablements, allocatable=allocatable), LONG_AGO
        )
    return found


def _eviction(setting: plain.Eviction | None) -> EvictionPolicy:
    if setting is None:
        return EvictionPolicy()
    return EvictionPolicy(enabled=True, min_runtime_ms=setting.min_runtime * 1000, max_evictions=setting.max_evictions)


def _ageing(setting: plain.Ageing | None) -> Ageing:
    return Ageing(setting.after * 1000, setting.step, setting.most) if setting else Ageing()


def _reservation(reservation: plain.Reservation) -> AdvanceReservation:
    return AdvanceReservation(
        reservation.name,
        (ClusterName(reservation.cluster),),
        since=reservation.begin * 1000,
        until=reservation.end * 1000,
        queue=QueueName(reservation.queue) if reservation.queue else None,
        amounts=reservation.amounts,
    )


def _queue(queue: plain.Queue) -> Queue:
    return Queue(
        QueueName(queue.name),
        parent=QueueName(queue.parent),
        weight=queue.weight,
        priority=queue.priority,
        capability=queue.capability,
        deserved=queue.deserved,
        guarantee=queue.guarantee,
        reclaimable=queue.reclaimable,
        fifo=queue.fifo,
        state=QueueState.CLOSED if queue.closed else QueueState.OPEN,
    )


def _workload(job: plain.Job) -> Workload:
    names = tuple(ClusterName(name) for name in job.affinity)
    placement = Placement(affinity=Affinity(names=names) if names else None, spread=(Spread("cluster", 1, 1),))
    shape = SchedulingRequirements(requests=job.requests, gang_requests=job.gang, placement=placement)
    bookings = (ClusterCharge(ClusterName(job.cluster), job.requests),) if job.cluster else ()
    return Workload(
        uid=WorkloadUid(job.name),
        namespace=job.namespace,
        name=job.name,
        kind="Job",
        queue=QueueName(job.queue),
        requirements=shape,
        priority=job.priority,
        created_at=LONG_AGO + job.since * 1000,
        state=WorkloadState.ADMITTED if job.cluster else WorkloadState.PENDING,
        admission=Admission(job.requests, bookings, admitted_at=NOW - job.ran * 1000) if job.cluster else None,
        details=WorkloadDetails(
            evictions=job.evictions,
            preempts=not job.never,
            preserved=job.preserved,
            has_run=bool(job.cluster),
            run_time_ms=job.run_time * 1000 if job.run_time is not None else None,
        ),
    )
