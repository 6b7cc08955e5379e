"""Random states for property tests, small enough to shrink, with invalid trees and unusual values."""

from collections.abc import Mapping

from hypothesis import strategies as st

from controller.engine.engine import Engine
from controller.engine.policy import AdvanceReservation, Policy
from controller.engine.state.clusters import Affinity, ApiKind, Cluster, ClusterName, Placement, Spread
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState, queue_limits
from controller.engine.state.quota import Quota
from controller.engine.state.resources import Resources, total
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
    WorkloadUid,
)

NOW = 1_000_000_000
CLUSTERS = [ClusterName(name) for name in ("m1", "m2", "m3")]
QUEUES = [QueueName(f"q{number}") for number in range(6)]
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
ONE = (Spread("cluster", 1, 1),)


def amounts(most: int = 12) -> st.SearchStrategy[Resources]:
    return st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, most), max_size=3)


@st.composite
def clusters(draw) -> list[Cluster]:
    return [
        Cluster(
            name=name,
            enablements=frozenset({VOLCANO_JOB, ApiKind("apps/v1", "Deployment")}),
            ready=draw(st.sampled_from([True, True, True, False])),
            allocatable={"pods": 1_000_000, **draw(amounts(40))} if draw(st.integers(0, 9)) else None,
            used=draw(amounts(6)),
        )
        for name in CLUSTERS
    ]


@st.composite
def queues(draw) -> list[Queue]:
    """Trees to any depth, with cycles and unknown parents among them."""
    return [
        Queue(
            name=name,
            parent=draw(st.sampled_from([ROOT, ROOT, *QUEUES, QueueName("nowhere")])),
            weight=draw(st.integers(1, 5)),
            priority=draw(st.sampled_from([0, 0, 5])),
            capability=draw(amounts(30)) if draw(st.booleans()) else {},
            deserved=draw(amounts(15)) if draw(st.booleans()) else {},
            guarantee=draw(amounts(8)) if draw(st.booleans()) else {},
            fifo=draw(st.booleans()),
            state=draw(st.sampled_from([QueueState.OPEN] * 5 + [QueueState.CLOSED])),
        )
        for name in QUEUES
        if draw(st.integers(0, 7))
    ]


def shapes() -> st.SearchStrategy[SchedulingRequirements]:
    def shape(
        asked: Resources, part: int, names: tuple[ClusterName, ...], spread: tuple[Spread, ...]
    ) -> SchedulingRequirements:
        demand = {"pods": 1000, **asked}
        gang = {name: amount * part // 4 for name, amount in demand.items()}
        return SchedulingRequirements(
            demand, gang, Placement(affinity=Affinity(names=names) if names else None, spread=spread)
        )

    some = st.lists(st.sampled_from(CLUSTERS), max_size=2, unique=True).map(tuple)
    return st.builds(shape, amounts(), st.sampled_from([4, 4, 2, 1]), some, st.sampled_from([ONE, ONE, ONE, ()]))


@st.composite
def workloads(draw, most: int = 14) -> list[Workload]:
    kinds = draw(st.lists(shapes(), min_size=1, max_size=4))
    return [draw(workload(number, kinds)) for number in range(draw(st.integers(1, most)))]


@st.composite
def workload(draw, number: int, kinds: list[SchedulingRequirements]) -> Workload:
    shape = draw(st.sampled_from(kinds))
    on = draw(st.sampled_from([None, None, None, *CLUSTERS]))
    return Workload(
        uid=WorkloadUid(f"uid-{number}"),
        namespace=draw(st.sampled_from(["one", "two"])),
        name=f"job-{number}",
        kind="Job",
        queue=draw(st.sampled_from(QUEUES)),
        requirements=shape,
        priority=draw(st.sampled_from([0, 0, 10])),
        created_at=draw(st.integers(0, 5)) * 1000,
        state=WorkloadState.ADMITTED if on else WorkloadState.PENDING,
        admission=Admission(shape.requests, (ClusterCharge(on, shape.requests),), reported=draw(st.booleans()))
        if on
        else None,
    )


def policies() -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        queue_order=st.sampled_from(["PriorityFirst", "FairShareFirst"]),
        tenant_fairness=st.sampled_from(["None", "Namespace"]),
    )


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


def build(policy: Policy, *things: object) -> Engine:
    """Return a state with *things* added in their order."""
    state = Engine(policy)
    for thing in things:
        match thing:
            case Workload():
                state.workload_changed(thing, NOW)
            case Queue():
                state.queue_changed(thing)
            case Cluster():
                state.cluster_changed(thing, NOW)
    return state


def quota_of(state: Engine) -> Quota:
    """Return the current quota, computed from the state."""
    tree = state.tree()
    taken = total(charge for name, charge in state.current_usage.items() if name == ROOT or name not in tree.nodes)
    return Quota(tree, queue_limits(tree, state.cluster_usage.root_limit(), taken), state.current_usage)


def total_by_queue(state: Engine) -> Mapping[QueueName, dict[str, int]]:
    """Return the charges by queue, counted from the workloads themselves."""
    sums: dict[QueueName, dict[str, int]] = {}
    for each in state.workloads.values():
        if each.admission is not None:
            held = sums.setdefault(each.queue, {})
            for name, amount in each.admission.charge.items():
                held[name] = held.get(name, 0) + amount
    return sums
