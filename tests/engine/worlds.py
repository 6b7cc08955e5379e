"""Random states, drawn from a seed or by hypothesis; a new resource or field of an object is added here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from controller.engine.engine import Engine
from controller.engine.policy import AdvanceReservation, EvictionPolicy, Policy
from controller.engine.state.clusters import (
    Affinity,
    ApiKind,
    Cluster,
    ClusterName,
    Placement,
    Requirement,
    Spread,
    Taint,
    Term,
    Toleration,
)
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState, queue_limits
from controller.engine.state.quota import Quota
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import Resources, fits, positive, scale, subtract, total
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    HyperJobGang,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)
from tests.engine.objects import workload

NOW = 1_000_000_000
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
FPGA = "example.com/fpga"
CLUSTERS = [ClusterName(name) for name in ("m1", "m2", "m3")]
QUEUES = [QueueName(f"q{number}") for number in range(7)]
ONE = (Spread("cluster", 1, 1),)
PARENTS = {QUEUES[2]: QUEUES[0], QUEUES[3]: QUEUES[0], QUEUES[5]: QUEUES[1], QUEUES[6]: QUEUES[5]}
"""A fixed hierarchy of QUEUES, with LEAVES."""
LEAVES = [name for name in QUEUES if name not in PARENTS.values()]


@dataclass(frozen=True, repr=False)
class Objects:
    """All objects of a state."""

    policy: Policy
    queues: tuple[Queue, ...]
    clusters: tuple[Cluster, ...]
    workloads: tuple[Workload, ...]

    def engine(self, now: int = NOW) -> Engine:
        """Return the state of these objects."""
        return build(self.policy, *self.workloads, *self.queues, *self.clusters, now=now)


def leaves(queues: Sequence[Queue]) -> list[QueueName]:
    parents = {queue.parent for queue in queues}
    return [queue.name for queue in queues if queue.name not in parents]


class RandomObjects:
    """Draws objects; *most* is the largest amount of a resource that a workload requests.

    If not *is_valid*, hierarchies may have cycles and unknown parents, and clusters no resources or no summary.
    """

    def __init__(
        self, random: Random, *, most: int = 6, resources: Sequence[str] = RESOURCES, is_valid: bool = True
    ) -> None:
        self.random, self.most, self.resources, self.is_valid = random, most, resources, is_valid
        self.clusters: Sequence[ClusterName] = CLUSTERS
        self.spreads: Sequence[tuple[Spread, ...]] = (ONE,) if is_valid else (ONE, ONE, ONE, ())

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def amounts(self, most: int, percent: int = 100, *, least: int = 0) -> dict[str, int]:
        """Return amounts of some resources; none unless the chance of *percent* happens."""
        happens = self.chance(percent)
        return {name: self.random.randint(least, most) for name in self.resources if happens and self.chance(70)}

    def cluster(self, name: ClusterName) -> Cluster:
        least = self.most if self.is_valid else 0
        has = {name: self.random.randint(least, 3 * self.most) for name in self.resources}
        has |= {name: 0 for name in self.resources if "/" in name and self.chance(15)}
        has_summary = self.is_valid or self.chance(90)
        used = self.amounts(self.most // 2, 30)
        if self.is_valid:
            used = {name: min(amount, has[name]) for name, amount in used.items()}
        return Cluster(
            name,
            enablements=frozenset({VOLCANO_JOB, ApiKind("apps/v1", "Deployment")}),
            ready=self.chance(95 if self.is_valid else 80),
            allocatable={"pods": 1_000_000, **has} if has_summary else None,
            used=used,
        )

    def queue(self, name: QueueName, parents: Sequence[QueueName]) -> Queue:
        return Queue(
            name,
            parent=self.random.choice(parents),
            weight=self.random.choice([1, 1, 2, 3]),
            priority=self.random.choice([0, 0, 0, 5]),
            capability=self.amounts(3 * self.most, 30, least=self.most // 2),
            deserved=self.amounts(self.most, 50),
            guarantee=self.amounts(self.most // 2, 30),
            reclaimable=self.chance(90),
            fifo=self.chance(25),
            state=QueueState.CLOSED if self.chance(2 if self.is_valid else 10) else QueueState.OPEN,
        )

    def hierarchy(self, count: int = len(QUEUES)) -> list[Queue]:
        """Return *count* queues; if valid, each below the root or an earlier one."""
        names = self.random.sample(QUEUES, count)
        others = [] if self.is_valid else [*QUEUES, QueueName("nowhere")]
        return [self.queue(name, [ROOT, ROOT, *(others or names[:number])]) for number, name in enumerate(names)]

    def fixed_hierarchy(self) -> list[Queue]:
        return [self.queue(name, [PARENTS.get(name, ROOT)]) for name in QUEUES]

    def requirements(self) -> SchedulingRequirements:
        """Return requirements whose gang minimum is a part of the requests, some of them for certain clusters."""
        requests = {"pods": 1000, **positive(self.amounts(self.most))}
        quarters = self.random.choice([4, 4, 4, 2, 1])
        names = (
            tuple(self.random.sample(self.clusters, self.random.randint(1, len(self.clusters))))
            if self.chance(20)
            else ()
        )
        placement = Placement(Affinity(names=names) if names else None, spread=self.random.choice(self.spreads))
        return SchedulingRequirements(
            requests, {name: amount * quarters // 4 for name, amount in requests.items()}, placement
        )

    def workload(
        self, number: int, requirements: SchedulingRequirements, *, on: str | None = None, **fields: object
    ) -> Workload:
        """Return a pending workload, or one that is admitted to the cluster *on*."""
        made = workload(
            f"job-{number}",
            requirements,
            on=on,
            admitted_at=NOW - self.random.choice([60, 600, 3000, 4000]) * 1000,
            **{
                "namespace": self.random.choice(["one", "two"]),
                "queue": self.random.choice(QUEUES),
                "priority": self.random.choice([0, 0, 0, 10, 20]),
                "created_at": self.random.randint(0, 5) * 1000,
                "evictions": self.random.choice([0, 0, 0, 1, 3]),
                "preserved": self.chance(10),
                "preempts": self.chance(90),
                "run_time_ms": self.random.choice([None, None, 1_000, 40_000, 2_000_000]),
                **fields,
            },
        )
        is_reported = self.chance(50)
        return replace(made, admission=made.admission and replace(made.admission, reported=is_reported))

    def workloads(self, numbers: range, queues: Sequence[QueueName]) -> list[Workload]:
        """Return workloads of a few kinds, of which some run, whatever there is."""
        kinds, made = [self.requirements() for _ in range(self.random.randint(1, 6))], []
        for number in numbers:
            on = self.random.choice([*[None] * len(self.clusters), *self.clusters])
            made.append(self.workload(number, self.random.choice(kinds), on=on, queue=self.random.choice(queues)))
        return made

    def fitting(self, workloads: Iterable[Workload], clusters: Iterable[Cluster]) -> Iterator[Workload]:
        """Yield *workloads* without the admissions of those that do not fit next to the ones before them."""
        free = {member.name: subtract(member.allocatable or {}, member.used) for member in clusters}
        for generated in workloads:
            requests, at = (
                generated.requirements.requests,
                generated.admission and generated.admission.cluster_charges[0].cluster,
            )
            if at in free and fits(requests, free[at]):
                free[at] = subtract(free[at], requests)
                yield generated
            else:
                yield replace(generated, state=WorkloadState.PENDING, admission=None)

    def policy(self, **fields: object) -> Policy:
        return Policy(
            queue_order=self.random.choice(["PriorityFirst", "FairShareFirst"]),
            tenant_fairness=self.random.choice(["None", "None", "Namespace", "NamespaceFirst"]),
            **fields,
        )

    def eviction(self, percent: int, runtimes: Sequence[int] = (0, 0, 300_000, 3_600_000)) -> EvictionPolicy:
        return EvictionPolicy(self.chance(percent), self.random.choice(runtimes), self.random.choice([1, 3, 9]))


class DetailedObjects(RandomObjects):
    """Draws clusters with taints, labels, regions and resource models, and requirements that depend on these and on
    data (C1, C3, C6).
    """

    def cluster(self, name: ClusterName) -> Cluster:
        made, random = super().cluster(name), self.random
        keys = [key for key in ("dedicated", "cluster.karmada.io/not-ready") if self.chance(7)]
        effects = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
        fpga = {FPGA: random.randint(0, 4)} if made.allocatable is not None and self.chance(30) else {}
        grades = tuple(self.amounts(self.most, least=1) for _ in range(random.randint(1, 2)) if self.chance(20))
        return replace(
            made,
            allocatable=made.allocatable and {**made.allocatable, **fpga},
            labels={"tier": random.choice(["x", "y"])} if self.chance(80) else {},
            region=random.choice(["r1", "r2", ""]),
            taints=tuple(Taint(key, "", random.choice(effects)) for key in keys),
            enablements=made.enablements if self.chance(90) else frozenset(),
            deleting=self.chance(5),
            grades=grades,
        )

    def affinity(self) -> Affinity:
        random = self.random
        labels = Requirement("tier", random.choice(["In", "NotIn"]), ("x",))
        return random.choice(
            [
                Affinity(),
                Affinity(labels=(labels,)),
                Affinity(fields=(Requirement("region", "In", ("r1",)),)),
                Affinity(excluded=frozenset(random.sample(self.clusters, 1))),
            ]
        )

    def data_clusters(self) -> frozenset[ClusterName]:
        return frozenset(self.random.sample(self.clusters, self.random.choice([0, 1, 1, 2, 3])))

    def requirements(self) -> SchedulingRequirements:
        """Return requirements of equal pods, some with node constraints."""
        made, random = super().requirements(), self.random
        count = random.randint(1, 3)
        fpga = {FPGA: random.randint(1, 2)} if self.chance(8) else {}
        small = {
            name: max(amount // count, self.chance(50)) for name, amount in made.requests.items() if name != "pods"
        }
        pod = positive({"pods": 1000, **small, **fpga})
        minimum = random.randint(1, count)
        claim = random.choice(["", "", '{"nodeSelector":{"a":"b"}}', None])
        terms = tuple(Term(name, self.affinity()) for name in ("t1", "t2"))
        placement = replace(
            made.placement,
            **random.choice([{}, {}, {"affinity": self.affinity()}, {"affinity": None, "terms": terms}]),
            tolerations=(Toleration("dedicated", "Exists"),) if self.chance(40) else (),
            spread=(Spread("region", 1, 1), *ONE) if self.chance(10) else made.placement.spread,
        )
        return replace(
            made,
            requests=scale(pod, count),
            gang_requests=scale(pod, minimum),
            placement=placement,
            pods=(pod,) if self.chance(85) else (),
            pod_sets=(PodSet(tuple(sorted(pod.items())), count, minimum, claim),) if self.chance(85) else (),
            data_clusters=self.data_clusters() if self.chance(8) else None,
            preferred_clusters=tuple(random.sample(self.clusters, random.randint(0, 2))) if self.chance(20) else (),
            observed_term="t2" if self.chance(5) else "",
        )


def evicting_policy(objects: RandomObjects) -> Policy:
    return objects.policy(reclaim=objects.eviction(75, [1000]), preemption=objects.eviction(50, [1000]))


def any_state(objects: RandomObjects) -> Objects:
    queues = objects.hierarchy(objects.random.randint(0, len(QUEUES)))
    workloads = objects.workloads(range(objects.random.randint(1, 14)), QUEUES)
    return Objects(objects.policy(), tuple(queues), tuple(map(objects.cluster, CLUSTERS)), tuple(workloads))


def crowd(objects: RandomObjects) -> Objects:
    """Return a state in which borrowing workloads fill the clusters, with up to three gangs among the pending ones."""
    objects.resources = objects.random.choice([("cpu",), ("cpu", "memory")])
    objects.clusters = CLUSTERS[: objects.random.randint(1, 2)]
    clusters = [objects.cluster(name) for name in objects.clusters]
    count = objects.random.randint(4, 14)
    workloads = objects.workloads(range(count), LEAVES[:2])
    workloads += objects.workloads(range(count, count + objects.random.randint(2, 8)), LEAVES)
    workloads = [*objects.fitting(workloads, clusters)]
    for number in range(objects.random.randint(0, 3)):
        workloads += gang(objects, number)
    return Objects(evicting_policy(objects), tuple(objects.fixed_hierarchy()), tuple(clusters), tuple(workloads))


def gang(objects: RandomObjects, number: int) -> Iterator[Workload]:
    """Yield the pending parts of a HyperJob, most of them equal."""
    size = objects.random.randint(2, 4)
    group = HyperJobGang(f"h{number}/1", size, objects.random.choice([size, size, size - 1, 2]))
    fields = {"queue": objects.random.choice(LEAVES), "priority": objects.random.choice([0, 5, 10]), "gang": group}
    same = objects.requirements()
    for part in range(size):
        made = objects.workload(part, objects.random.choice([same, objects.requirements()]), **fields)
        yield replace(made, uid=WorkloadUid(f"h{number}-{part}"), name=f"h{number}-{part}")


def drawn(**options: Any) -> st.SearchStrategy[RandomObjects]:
    return st.randoms(use_true_random=True).map(lambda random: RandomObjects(random, **options))


def states() -> st.SearchStrategy[Objects]:
    """States with unusable clusters, invalid queue trees and workloads that run whatever there is."""
    return drawn(is_valid=False).map(any_state)


def crowded() -> st.SearchStrategy[Objects]:
    return drawn(most=5).map(crowd)


def clusters() -> st.SearchStrategy[list[Cluster]]:
    return drawn(is_valid=False).map(lambda objects: [objects.cluster(name) for name in CLUSTERS])


def queues() -> st.SearchStrategy[list[Queue]]:
    """Trees to any depth, with cycles and unknown parents among them."""
    return drawn(is_valid=False).map(lambda objects: objects.hierarchy(objects.random.randint(0, len(QUEUES))))


def workloads(most: int = 14) -> st.SearchStrategy[list[Workload]]:
    return drawn(is_valid=False).map(lambda objects: objects.workloads(range(objects.random.randint(1, most)), QUEUES))


def policies() -> st.SearchStrategy[Policy]:
    return drawn().map(RandomObjects.policy)


def advance_reservations() -> st.SearchStrategy[AdvanceReservation]:
    """Reservations of queues, of workloads and for maintenance, which begin soon or have begun."""
    owners = st.one_of(
        st.just((None, None)),
        st.tuples(st.sampled_from(QUEUES), st.none()),
        st.tuples(st.none(), st.tuples(st.sampled_from(["one", "two"]), st.sampled_from(["job-0", "job-1"]))),
    )
    return st.builds(
        lambda number, names, begin, owner, amounts: AdvanceReservation(
            f"reserved-{number}", tuple(names), NOW + begin, NOW + begin + 60_000, *owner, amounts
        ),
        st.integers(0, 9),
        st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=2, unique=True),
        st.sampled_from([-1_000, 1_000]),
        owners,
        st.sampled_from([{}, {"cpu": 2}, {"cpu": 4, "nvidia.com/gpu": 1}]),
    )


def build(policy: Policy, *things: object, now: int = NOW) -> Engine:
    """Return a state with *things* added in their order."""
    engine = Engine(policy)
    for thing in things:
        add(engine, thing, now)
    return engine


def add(engine: Engine, thing: object, now: int) -> None:
    """Add or update *thing*."""
    match thing:
        case Workload():
            engine.workload_changed(thing, now)
        case Queue():
            engine.queue_changed(thing)
        case Cluster():
            engine.cluster_changed(thing, now)


def quota_of(engine: Engine) -> Quota:
    """Return the current quota, computed from the state."""
    tree = engine.tree()
    taken = total(charge for name, charge in engine.current_usage.items() if name == ROOT or name not in tree.nodes)
    return Quota(tree, queue_limits(tree, engine.cluster_usage.root_limit(), taken), engine.current_usage)


def total_by_queue(engine: Engine) -> Mapping[QueueName, Resources]:
    """Return the charges by queue, counted from the workloads themselves."""
    admitted = [charged for charged in engine.workloads.values() if charged.admission is not None]
    return {
        name: total(charged.admission.charge for charged in admitted if charged.queue == name and charged.admission)
        for name in {charged.queue for charged in admitted}
    }
