"""Random small states for comparing the engine with the reference model, and a shrinker for differing ones."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from itertools import product
from random import Random
from typing import TypeVar

from tests.reference.state import (
    BEGIN,
    NOW,
    ROOT,
    Ageing,
    Amounts,
    Cluster,
    Eviction,
    Job,
    Queue,
    Reservation,
    State,
)

GPU = "nvidia.com/gpu"
Thing = TypeVar("Thing", State, Queue, Job)


def draw(seed: int) -> State:
    """Return the state of a seed."""
    random = Random(seed)
    resources = random.choice([["cpu"], ["cpu"], ["cpu", "memory"], ["cpu", GPU]])
    clusters = tuple(_cluster(f"m{number}", random, resources) for number in range(random.choice([1, 1, 1, 2, 2, 3])))
    queues = tuple(_queues(random, resources))
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    state = State(
        clusters,
        queues,
        (),
        queue_order=random.choice(["PriorityFirst", "FairShareFirst"]),
        tenant_fairness=random.choice(["None", "None", "None", "Namespace", "NamespaceFirst"]),
        reclaim=_eviction(random, [0, 1, 1]),
        preemption=_eviction(random, [0, 0, 1]),
        reservation_after=600,
    )
    aged = _aged(_populated(state, random, resources, leaves), Random(f"ageing {seed}"))
    return _reserved(aged, Random(f"reserved {seed}"), resources, leaves)


def _reserved(state: State, random: Random, resources: list[str], leaves: list[str]) -> State:
    """Return *state*, in a third of all cases with amounts that are reserved in advance, and with run times."""
    if random.random() < 2 / 3:
        return state
    reservations = []
    for number in range(random.randint(1, 3)):
        begin = NOW + random.choice([-100, 50, 3000])
        amounts = _amounts(random, resources, 5) or {"cpu": 2}
        name, cluster = f"r{number}", random.choice(state.clusters).name
        end = begin + random.choice([1000, 50_000])
        reservations.append(Reservation(name, cluster, amounts, begin, end, random.choice([None, *leaves])))
    jobs = (replace(job, run_time=random.choice([None, 40, 2000, 100_000])) for job in state.jobs)
    return replace(state, reservations=tuple(reservations), jobs=tuple(jobs))


def _aged(state: State, random: Random) -> State:
    """Return *state*, in a third of all cases with ageing and jobs of very different ages."""
    if random.random() < 2 / 3:
        return state
    most = random.choice([5, 10, 15, 25])
    ageing = Ageing(random.choice([10_000, 20_000, 50_000]), random.choice([most, -(-most // 2), -(-most // 4)]), most)
    jobs = (replace(job, since=random.randrange(NOW - BEGIN)) for job in state.jobs)
    return replace(state, ageing=ageing, jobs=tuple(jobs))


def configurations() -> Iterator[State]:
    """Yield an empty state of every configuration, as input of ``reconfigure``."""
    for order, fairness in product(["PriorityFirst", "FairShareFirst"], ["None", "Namespace", "NamespaceFirst"]):
        for reclaim, preemption in product([None, Eviction()], repeat=2):
            yield State((), (), (), order, fairness, reclaim, preemption)


def name_of(configuration: State) -> str:
    """Return a short name of the configuration."""
    evictions = ("reclaim" if configuration.reclaim else "", "preemption" if configuration.preemption else "")
    return "-".join(filter(None, (configuration.queue_order, configuration.tenant_fairness, *evictions)))


def reconfigure(state: State, configuration: State) -> State:
    """Return *state* with another configuration, except for the drawn protection of victims."""
    drawn = state.reclaim or state.preemption or Eviction()
    return replace(
        state,
        queue_order=configuration.queue_order,
        tenant_fairness=configuration.tenant_fairness,
        reclaim=(state.reclaim or drawn) if configuration.reclaim else None,
        preemption=(state.preemption or drawn) if configuration.preemption else None,
    )


def _eviction(random: Random, odds: list[int]) -> Eviction | None:
    return Eviction(random.choice([0, 0, 300, 3600]), random.choice([1, 3])) if random.choice(odds) else None


def _amounts(random: Random, resources: list[str], most: int, least: int = 0) -> dict[str, int]:
    found = {name: random.randint(least, most) for name in resources}
    return {name: amount for name, amount in found.items() if amount}


def _cluster(name: str, random: Random, resources: list[str]) -> Cluster:
    return Cluster(
        name, {each: random.choice([0, 4, 8]) if each == GPU else random.randint(3, 12) for each in resources}
    )


def _queues(random: Random, resources: list[str]) -> Iterator[Queue]:
    names = list("abcdef"[: random.randint(1, 5)])
    random.shuffle(names)
    flat = random.random() < 0.5
    parents = [ROOT]
    for name in names:
        yield Queue(
            name,
            parent=ROOT if flat else random.choice([ROOT, *parents[-2:]]),
            weight=random.choice([1, 1, 1, 2, 3]),
            priority=random.choice([0, 0, 0, 5]),
            capability=_amounts(random, resources, 10, 1) if random.random() < 0.2 else {},
            deserved=_amounts(random, resources, 6) if random.random() < 0.5 else {},
            guarantee=_amounts(random, resources, 3) if random.random() < 0.25 else {},
            reclaimable=random.random() < 0.9,
            fifo=random.random() < 0.25,
            closed=random.random() < 0.07,
        )
        parents.append(name)


def _populated(state: State, random: Random, resources: list[str], leaves: list[str]) -> State:
    """Return *state* with jobs; the running ones fit together."""
    free = {cluster.name: dict(cluster.allocatable) for cluster in state.clusters}
    jobs = []
    for number in range(random.randint(2, 12)):
        requests = _amounts(random, resources, random.choice([2, 4, 6]), 0) or {"cpu": 1}
        at = random.choice(sorted(free)) if random.random() < 0.5 else None
        if at and any(amount > free[at].get(name, 0) for name, amount in requests.items()):
            at = None
        for name, amount in requests.items() if at else ():
            free[at][name] -= amount
        jobs.append(_job(f"j{number}", random, requests, at, random.choice(leaves)))
        if random.random() < 0.1:
            names = tuple(sorted(random.sample(sorted(free), random.randint(1, len(free)))))
            jobs[-1] = replace(jobs[-1], affinity=names)
    return replace(state, jobs=tuple(jobs))


def _job(name: str, random: Random, requests: Amounts, at: str | None, queue: str) -> Job:
    is_smaller = random.random() < 0.2
    return Job(
        name,
        queue,
        requests,
        {each: random.randint(0, amount) for each, amount in requests.items()} if is_smaller else requests,
        namespace=random.choice(["one", "two"]),
        priority=random.choice([0, 0, 0, 10, 20]),
        since=random.randint(0, 5),
        cluster=at,
        ran=random.choice([60, 600, 3000, 4000]),
        evictions=random.choice([0, 0, 0, 1, 3]),
        never=random.random() < 0.1,
        preserved=random.random() < 0.1,
    )


def shrink(state: State, differs: Callable[[State], bool]) -> State:
    """Return a smaller state that still differs, found by removing objects and resetting their fields."""
    while (smaller := next((each for each in _smaller(state) if _is_whole(each) and differs(each)), None)) is not None:
        state = smaller
    return state


def _is_whole(state: State) -> bool:
    names = {queue.name for queue in state.queues}
    clusters = {None, *(cluster.name for cluster in state.clusters)}
    are_known = all(job.queue in names and job.cluster in clusters for job in state.jobs)
    return are_known and all(queue.parent in {ROOT, *names} for queue in state.queues)


def _smaller(state: State) -> Iterator[State]:
    """Yield states with one object removed or simplified."""
    for number, queue in enumerate(state.queues):
        rest = _with(state.queues, number)
        moved = tuple(replace(each, parent=queue.parent) if each.parent == queue.name else each for each in rest)
        yield replace(state, queues=moved)
    yield from (replace(state, jobs=_with(state.jobs, number)) for number in range(len(state.jobs)))
    yield from (replace(state, clusters=_with(state.clusters, number)) for number in range(len(state.clusters)))
    yield from _simpler(state)
    for number, queue in enumerate(state.queues):
        yield from (replace(state, queues=_with(state.queues, number, simpler)) for simpler in _simpler(queue))
    for number, job in enumerate(state.jobs):
        fewer = [{**job.requests, name: amount - 1} for name, amount in job.requests.items() if amount > 1]
        plain = [replace(job, requests=each, gang=each) for each in [*fewer, job.requests]]
        for simpler in (*_simpler(job), *plain):
            if simpler != job:
                yield replace(state, jobs=_with(state.jobs, number, simpler))


def _simpler(thing: Thing) -> Iterator[Thing]:
    """Yield *thing* with one of its fields set to the default."""
    for field in fields(thing):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if default is not MISSING and getattr(thing, field.name) != default:
            yield replace(thing, **{field.name: default})


def _with(things: tuple, number: int, *others: object) -> tuple:
    """Return *things* with *others* in place of one of them."""
    return (*things[:number], *others, *things[number + 1 :])
