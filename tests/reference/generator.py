"""Random small states for comparing the engine with the reference model, and a shrinker for differing ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, replace
from itertools import product
from random import Random
from typing import TypeVar

from controller.engine.plan import Evict
from controller.engine.policy import AdvanceReservation, Ageing, EvictionPolicy, Policy
from controller.engine.state.clusters import Affinity, ClusterName, Spread
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState
from controller.engine.state.workloads import (
    Admission,
    ClusterCharge,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from tests.engine.worlds import CLUSTERS, NOW, ONE, Objects, RandomObjects, leaves
from tests.reference.engine import LONG_AGO
from tests.reference.state import reported_on, total
from tests.workloads import changed

GPU = "nvidia.com/gpu"
Thing = TypeVar("Thing", Policy, Queue, WorkloadDetails)


def draw(seed: int) -> Objects:
    """Return the state of a seed; what runs on a single cluster fits there."""
    random = Random(seed)
    resources = random.choice([["cpu"], ["cpu"], ["cpu", "memory"], ["cpu", GPU]])
    objects = RandomObjects(random, most=random.choice([2, 4, 6]), resources=resources)
    objects.clusters = CLUSTERS[: random.choice([1, 1, 1, 2, 2, 3])]
    clusters = [objects.cluster(name) for name in objects.clusters]
    if len(clusters) > 1 and objects.chance(50):
        clusters = [replace(cluster, ready=objects.chance(70)) for cluster in clusters]
    if objects.chance(60):
        objects.spreads = (ONE, ONE, (), (Spread("cluster", 1, 2),))
    queues = objects.hierarchy(random.randint(1, 5))
    workloads = [*objects.fitting(objects.workloads(range(random.randint(2, 12)), leaves(queues)), clusters)]
    workloads = [_copied(workload, objects) if objects.chance(60) else workload for workload in workloads]
    clusters = [replace(cluster, used=total([cluster.used, reported_on(cluster, workloads)])) for cluster in clusters]
    policy = objects.policy(reclaim=objects.eviction(67), preemption=objects.eviction(33), ageing=_ageing(random))
    state = Objects(policy, tuple(queues), tuple(clusters), tuple(workloads))
    if policy.ageing.is_on:
        aged = (replace(workload, created_at=NOW - random.randrange(100_000_000)) for workload in state.workloads)
        state = replace(state, workloads=tuple(aged))
    return _reserved(state, objects)


def draw_gangs(seed: int) -> Objects:
    """Return the state of a seed with further HyperJobs, parts of which may run, where nothing is evicted."""
    state, random = draw(seed), Random(f"gangs {seed}")
    objects = RandomObjects(
        random, most=random.choice([2, 4, 6]), resources=random.choice([["cpu"], ["cpu", "memory"]])
    )
    objects.clusters = [cluster.name for cluster in state.clusters]
    queues = tuple(replace(queue, fifo=objects.chance(50)) for queue in state.queues)
    if objects.chance(50):
        queues = tuple(replace(queue, guarantee={}) for queue in queues)
    parts = [part for number in range(random.randint(1, 3)) for part in _parts(objects, number, leaves(queues))]
    workloads = [*state.workloads, *parts]
    random.shuffle(workloads)
    policy = reconfigure(state, Policy(state.policy.queue_order, state.policy.tenant_fairness)).policy
    policy = replace(policy, ageing=Ageing())
    return replace(state, policy=policy, queues=queues, workloads=tuple(objects.fitting(workloads, state.clusters)))


def draw_gang_evictions(seed: int) -> Objects:
    """Return a state of full clusters with running HyperJobs, or of one cluster with pending ones too."""
    random = Random(f"gang evictions {seed}")
    resources = random.choice([["cpu"], ["cpu"], ["cpu", "memory"]])
    objects = RandomObjects(random, most=random.choice([2, 3, 4]), resources=resources)
    has_preemptors = objects.chance(60)
    objects.clusters = CLUSTERS[: 1 if has_preemptors else random.choice([1, 2, 3])]
    queues = [replace(queue, state=QueueState.OPEN) for queue in objects.hierarchy(random.randint(2, 5))]
    queues = [queue if objects.chance(25) else replace(queue, capability={}, guarantee={}) for queue in queues]
    names = leaves(queues)
    lenders = random.sample(names, min(len(names), random.choice([1, 1, 2])))
    running = [
        part for number in range(random.randint(1, 3)) for part in _together(objects, f"h{number}", lenders, names)
    ]
    running += [objects.workload(number, _whole(objects), queue=random.choice(names)) for number in range(objects.most)]
    running = [_admitted(workload, random.choice(objects.clusters), objects) for workload in running]
    pending = [
        objects.workload(number, objects.requirements(), queue=random.choice(names), priority=random.choice([0, 5, 10]))
        for number in range(10, 10 + random.randint(1, 5))
    ]
    if has_preemptors:
        for number in range(random.randint(1, 2)):
            pending += _together(objects, f"g{number}", names, names)
    clusters = []
    for name in objects.clusters:
        charged = total(
            job.requirements.requests for job in running if job.admission.cluster_charges[0].cluster == name
        )
        has = {resource: charged.get(resource, 0) + random.choice([0, 0, 0, 1, 2]) for resource in resources}
        clusters.append(replace(objects.cluster(name), used={}, allocatable={"pods": 1_000_000, **has}))
    workloads = random.sample([*running, *pending], len(running) + len(pending))
    policy = objects.policy(
        reclaim=objects.eviction(80, [0, 0, 300_000]), preemption=objects.eviction(50, [0, 0, 300_000])
    )
    return Objects(policy, tuple(queues), tuple(clusters), tuple(workloads))


def _together(
    objects: RandomObjects, name: str, queues: Sequence[QueueName], others: Sequence[QueueName]
) -> list[Workload]:
    """Return the parts of a HyperJob, most of them equal and in one of *queues*."""
    random, size = objects.random, objects.random.randint(1, 4)
    gang = HyperJobGang(f"{name}/1", size, max(random.choice([size, size, size - 1, size - 2]), 1))
    queue, priority, same, since = (
        random.choice(queues),
        random.choice([0, 0, 5]),
        _whole(objects),
        objects.random.randint(0, 5),
    )
    parts = (
        objects.workload(
            part,
            random.choice([same, same, _whole(objects)]),
            namespace="one",
            queue=random.choice([queue, queue, queue, queue, random.choice(others)]),
            priority=random.choice([priority, priority, priority, 5]),
            created_at=since * 1000,
            preserved=objects.chance(4),
            evictions=random.choice([0] * 9 + [3]),
            gang=gang,
        )
        for part in range(size)
    )
    return [replace(part, uid=WorkloadUid(f"{name}-{n}"), name=f"{name}-{n}") for n, part in enumerate(parts)]


def _whole(objects: RandomObjects) -> SchedulingRequirements:
    """Return requirements that go whole to any one cluster."""
    made = objects.requirements()
    return replace(made, placement=replace(made.placement, affinity=None, spread=ONE))


def _admitted(workload: Workload, cluster: ClusterName, objects: RandomObjects) -> Workload:
    requests, ran = workload.requirements.requests, objects.random.choice([60, 600, 3000, 4000])
    admission = Admission(requests, (ClusterCharge(cluster, requests),), admitted_at=NOW - ran * 1000)
    return replace(workload, state=WorkloadState.ADMITTED, admission=admission)


def draw_evicting(seed: int) -> Objects | None:
    """Return the state of a seed after a plan with evictions, of which some have ended; ``None`` after another plan."""
    state, random = draw(seed), Random(f"evicting {seed}")
    objects = RandomObjects(random, resources=[name for name in state.clusters[0].allocatable if name != "pods"])
    objects.clusters = [cluster.name for cluster in state.clusters]
    played = state.engine(LONG_AGO)
    if not any(isinstance(decision, Evict) for decision in played.plan(NOW).decisions):
        return None
    left = [workload for workload in played.workloads.values() if objects.chance(85)]
    left = [replace(each, admission=None) if each.is_being_evicted and objects.chance(40) else each for each in left]
    added = objects.workloads(range(100, 100 + random.choice([0, 1, 2, 4])), leaves(state.queues))
    pending = (replace(each, state=WorkloadState.PENDING, admission=None) for each in added)
    return replace(state, workloads=(*left, *pending))


def _parts(objects: RandomObjects, number: int, queues: Sequence[QueueName]) -> Iterator[Workload]:
    """Yield the parts of a HyperJob, most of them equal, pending and in one queue."""
    random, size = objects.random, objects.random.randint(2, 4)
    hyperjob = HyperJobGang(f"h{number}/1", size, random.choice([size, size, size, size - 1, 2, 1]))
    queue, priority, same = random.choice(queues), random.choice([0, 5, 10]), objects.requirements()
    of_all = {"namespace": random.choice(["one", "two"]), "created_at": random.randint(0, 5) * 1000, "gang": hyperjob}
    for part in range(size):
        requirements = random.choice([same, same, objects.requirements()])
        if objects.chance(25):
            affinity = Affinity(names=(random.choice(objects.clusters),))
            requirements = replace(requirements, placement=replace(requirements.placement, affinity=affinity))
        made = objects.workload(
            part,
            requirements,
            on=random.choice([*[None] * 8, *objects.clusters]),
            queue=random.choice([queue, queue, queue, random.choice(queues)]),
            priority=random.choice([priority, priority, priority, 5]),
            **of_all,
        )
        yield replace(made, uid=WorkloadUid(f"h{number}-{part}"), name=f"h{number}-{part}")


def _copied(workload: Workload, objects: RandomObjects) -> Workload:
    """Return *workload*, admitted to two clusters where it is pending and may be copied to these."""
    placement, requests = workload.requirements.placement, workload.requirements.requests
    names = [name for name in objects.clusters if placement.affinity is None or name in placement.affinity.names][:2]
    if workload.admission is not None or placement.spread == ONE or len(names) < 2:
        return workload
    charges = tuple(ClusterCharge(name, requests) for name in names)
    admission = Admission(total([requests, requests]), charges, admitted_at=NOW - 600_000, reported=objects.chance(50))
    return replace(workload, state=WorkloadState.ADMITTED, admission=admission)


def _ageing(random: Random) -> Ageing:
    """Return ageing that is on in a third of all cases."""
    most = random.choice([5, 10, 15, 25])
    ageing = Ageing(random.choice([10, 20, 50]) * 1_000_000, random.choice([most, -(-most // 2), -(-most // 4)]), most)
    return random.choice([Ageing(), Ageing(), ageing])


def _reserved(state: Objects, objects: RandomObjects) -> Objects:
    """Return *state*, in a third of all cases with amounts that are reserved in advance."""
    random, reservations = objects.random, []
    for number in range(random.choice([0, 0, random.randint(1, 3)])):
        begin = NOW + random.choice([-100, 50, 3000]) * 1000
        reservation = AdvanceReservation(
            f"r{number}",
            (random.choice(state.clusters).name,),
            since=begin,
            until=begin + random.choice([1000, 50_000]) * 1000,
            queue=random.choice([None, *leaves(state.queues)]),
            amounts=objects.amounts(5) or {"cpu": 2},
        )
        reservations.append(reservation)
    return replace(state, policy=replace(state.policy, advance_reservations=tuple(reservations)))


def configurations() -> Iterator[Policy]:
    """Yield every configuration, as input of ``reconfigure``."""
    on_or_off = [EvictionPolicy(), EvictionPolicy(enabled=True)]
    for order, fairness in product(["PriorityFirst", "FairShareFirst"], ["None", "Namespace", "NamespaceFirst"]):
        for reclaim, preemption in product(on_or_off, repeat=2):
            yield Policy(order, fairness, reclaim=reclaim, preemption=preemption)


def name_of(configuration: Policy) -> str:
    """Return a short name of the configuration."""
    evictions = [name for name in ("reclaim", "preemption") if getattr(configuration, name).enabled]
    return "-".join((configuration.queue_order, configuration.tenant_fairness, *evictions))


def reconfigure(state: Objects, configuration: Policy) -> Objects:
    """Return *state* with another configuration, except for the drawn protection of victims."""
    policy = replace(
        state.policy,
        queue_order=configuration.queue_order,
        tenant_fairness=configuration.tenant_fairness,
        reclaim=replace(state.policy.reclaim, enabled=configuration.reclaim.enabled),
        preemption=replace(state.policy.preemption, enabled=configuration.preemption.enabled),
    )
    return replace(state, policy=policy)


def shrink(state: Objects, differs: Callable[[Objects], bool]) -> Objects:
    """Return a smaller state that still differs, found by removing objects and resetting their fields."""
    while (
        smaller := next(
            (candidate for candidate in _smaller(state) if _is_whole(candidate) and differs(candidate)), None
        )
    ) is not None:
        state = smaller
    return state


def _is_whole(state: Objects) -> bool:
    names, clusters = {queue.name for queue in state.queues}, {cluster.name for cluster in state.clusters}
    charges = [
        charge for workload in state.workloads if workload.admission for charge in workload.admission.cluster_charges
    ]
    are_known = {workload.queue for workload in state.workloads} <= names and {
        charge.cluster for charge in charges
    } <= clusters
    return are_known and {queue.parent for queue in state.queues} <= {ROOT, *names}


def _smaller(state: Objects) -> Iterator[Objects]:
    """Yield states with one object removed or simplified."""
    for number, queue in enumerate(state.queues):
        rest = _with(state.queues, number)
        moved = tuple(replace(other, parent=queue.parent) if other.parent == queue.name else other for other in rest)
        yield replace(state, queues=moved)
    for number in range(len(state.workloads)):
        yield replace(state, workloads=_with(state.workloads, number))
    yield from (replace(state, clusters=_with(state.clusters, number)) for number in range(len(state.clusters)))
    yield from (replace(state, policy=policy) for policy in _simpler(state.policy))
    for number, queue in enumerate(state.queues):
        yield from (replace(state, queues=_with(state.queues, number, simpler)) for simpler in _simpler(queue))
    for number, workload in enumerate(state.workloads):
        for simpler in _simpler_workloads(workload):
            if simpler != workload:
                yield replace(state, workloads=_with(state.workloads, number, simpler))


def _simpler_workloads(workload: Workload) -> Iterator[Workload]:
    yield from (replace(workload, details=details) for details in _simpler(workload.details))
    yield from (replace(workload, **{name: 0}) for name in ("priority", "created_at"))
    if workload.admission:
        yield changed(workload, state=WorkloadState.PENDING, admission=None)
        return
    asked = workload.requirements.requests
    fewer = [{**asked, name: amount - 1} for name, amount in asked.items() if amount > 1 and name != "pods"]
    for requests in [*fewer, asked]:
        plain = replace(workload.requirements, requests=requests, gang_requests=requests)
        yield replace(workload, requirements=plain)
        yield replace(workload, requirements=replace(plain, placement=replace(plain.placement, affinity=None)))


def _simpler(thing: Thing) -> Iterator[Thing]:
    """Yield *thing* with one of its fields set to the default."""
    for field in fields(thing):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and getattr(thing, field.name) != default:
            yield replace(thing, **{field.name: default})


def _with(things: tuple, number: int, *others: object) -> tuple:
    """Return *things* with *others* in place of one of them."""
    return (*things[:number], *others, *things[number + 1 :])
