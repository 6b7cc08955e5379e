"""Ranked clusters after random changes of usage, compared with a choice among all clusters."""

from random import Random

import pytest

from controller.engine.placement.fit import choose_clusters, free_capacities
from controller.engine.placement.ranking import RankedClusters
from controller.engine.reasons import Refusal
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import Cluster, ClusterName, Placement
from controller.engine.state.resources import total
from controller.engine.state.workloads import Admission, ClusterCharge, SchedulingRequirements

GPU = "nvidia.com/gpu"
NAMES = [ClusterName(f"m{number}") for number in range(6)]
SHAPES = (
    SchedulingRequirements({"cpu": 3000, "memory": 7}, {"cpu": 2000, "memory": 5}, Placement()),
    SchedulingRequirements({"cpu": 2000, GPU: 1000, "pods": 1000}, {"cpu": 2000, GPU: 1000}, Placement()),
    SchedulingRequirements({"memory": 4}, {}, Placement(), preferred_clusters=(NAMES[3],)),
    SchedulingRequirements({"cpu": 3000}, {"cpu": 3000}, Placement(), pods=({"cpu": 3000},)),
)
SETTLE_MS = 30


def usage_of_clusters(random: Random) -> ClusterUsage:
    usage = ClusterUsage()
    for name in NAMES:
        allocatable = {"cpu": random.randint(0, 9) * 1000, "memory": random.randint(0, 20), "pods": 10_000}
        gpus = {GPU: random.randint(0, 3) * 1000} if random.random() < 0.5 else {}
        grades = ({"cpu": random.randint(2, 3) * 1000},) if random.random() < 0.5 else ()
        usage.update(Cluster(name, ready=True, allocatable={**allocatable, **gpus}, grades=grades), 0, 0)
    return usage


def change(random: Random, usage: ClusterUsage, admitted: list[Admission], now: int) -> None:
    name = random.choice(NAMES)
    if admitted and random.random() < 0.4:
        usage.remove_usage(admitted.pop(random.randrange(len(admitted))), now)
    elif random.random() < 0.02:
        usage.nominate(name, {"cpu": 1000})
    elif random.random() < 0.1:
        ended = {"cpu": 1000}
        usage.add_recently_freed(Admission(ended, (ClusterCharge(name, ended),)), now)
    else:
        charge = {"cpu": random.randint(0, 2) * 1000, "memory": random.randint(0, 3)}
        admitted.append(Admission(charge, (ClusterCharge(name, charge),)))
        usage.add_usage(admitted[-1], now)


@pytest.mark.parametrize("seed", range(20))
def test_ranked_clusters_choose_as_a_choice_among_all(seed):
    random = Random(seed)
    usage, admitted = usage_of_clusters(random), list[Admission]()
    fleet = total(cluster_state.allocatable for cluster_state in usage)
    ranked = [RankedClusters(shape, frozenset(NAMES), usage, fleet) for shape in SHAPES]
    compared = 0
    for now in range(200):
        change(random, usage, admitted, now)
        usage.refresh(now, SETTLE_MS)
        number, copies = random.randrange(len(SHAPES)), random.randint(1, 3)
        capacities = free_capacities(usage.cluster_state(name) for name in NAMES)
        expected = choose_clusters(SHAPES[number], capacities, copies)
        first = ranked[number].first(copies)
        if isinstance(expected, Refusal):
            assert len(first) < copies
            refusal = ranked[number].refusal()
            assert refusal in {expected, None}
            compared += refusal is not None
        else:
            assert first == [charge.cluster for charge in expected.cluster_charges]
    assert compared
