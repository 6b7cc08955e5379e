"""Random clusters of nodes and gangs, and an exhaustive search for a placement of the gang.

A fleet is one cluster: nodes of a few sizes with pods on them, counted in Karmada's default grades as Karmada
counts them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from controller.cache.store import Store
from controller.cache.translate.units import format_resources
from controller.engine.policy import NodeShapes
from controller.engine.state.clusters import Affinity, Cluster, NodeShape, Placement, Spread
from controller.engine.state.requests import PodSet
from controller.engine.state.resources import Resources, fits, scale, subtract, total
from controller.engine.state.workloads import SchedulingRequirements
from localup.karmada.member import Node
from tests.cache.objects import cluster
from tests.clusters import with_models

GI = 2**30
GPU = "nvidia.com/gpu"
#: (CPUs, GiB, GPUs) of common cloud node types.
SIZES = ((4, 16, 0), (8, 64, 0), (16, 64, 1), (32, 128, 4), (64, 512, 0), (96, 768, 8), (128, 1024, 8))


@dataclass(frozen=True, slots=True)
class Fleet:
    """One cluster's nodes, and a gang to place."""

    nodes: tuple[Node, ...]
    gang: tuple[tuple[Resources, int], ...]
    """Number of pods by request, ``pods`` included."""

    @property
    def shape(self) -> SchedulingRequirements:
        """Return the gang as a workload that runs whole on one cluster."""
        asked = total(scale(request, count) for request, count in self.gang)
        sets = tuple(PodSet(tuple(sorted(request.items())), count, count) for request, count in self.gang)
        placement = Placement(spread=(Spread("cluster", 1, 1),))
        return SchedulingRequirements(
            asked, asked, placement, pods=tuple(request for request, _ in self.gang), pod_sets=sets
        )

    @property
    def cluster(self) -> Cluster:
        """Return the cluster as the controller reads it from Karmada's Cluster object."""
        has, used = total(node.allocatable for node in self.nodes), total(node.used for node in self.nodes)
        told = json.loads(cluster("m", used=format_resources(used), **format_resources(has)))
        return Store().clusters.decode(json.dumps(with_models(told, self.nodes)).encode()).cluster

    @property
    def node_shapes(self) -> NodeShapes:
        """Return the nodes as an operator describes them, with 0 for missing resources."""
        nothing = dict.fromkeys((name for node in self.nodes for name in node.allocatable), 0)
        sizes = [tuple(sorted({**nothing, **node.allocatable}.items())) for node in self.nodes]
        shapes = tuple(NodeShape(sizes.count(size), size) for size in sorted(set(sizes)))
        return NodeShapes(Affinity(), shapes)

    def fits_empty(self) -> bool:
        """Say whether the gang fits while nothing runs."""
        return has_place(self.gang, [node.allocatable for node in self.nodes])

    def fits_now(self) -> bool:
        """Say whether the gang fits next to the running pods."""
        return has_place(self.gang, self.free)

    @property
    def free(self) -> list[Resources]:
        """Return what each node has left."""
        return [subtract(node.allocatable, node.used) for node in self.nodes]


def fleet(seed: int) -> Fleet:
    """Return a random fleet: up to six nodes, up to twelve pods of up to three requests."""
    random = Random(seed)
    sizes = random.sample(SIZES, random.randint(1, 3))
    nodes = tuple(_node(random, random.choice(sizes)) for _ in range(random.randint(1, 6)))
    largest = max(sizes)
    room, gang = random.randint(1, 12), []
    for _ in range(random.randint(1, 3)):
        count = random.randint(1, max(1, room // 2))
        room -= count
        gang.append((_request(random, largest if random.random() < 0.5 else random.choice(sizes)), count))
    return Fleet(nodes, tuple(gang))


def _node(random: Random, size: tuple[int, int, int]) -> Node:
    cpus, memory, gpus = size
    has = {"cpu": 1000 * cpus, "memory": memory * GI, "pods": 110_000, **({GPU: 1000 * gpus} if gpus else {})}
    if random.random() < 0.4:
        return Node(has)
    used = {"cpu": 500 * random.randint(0, 2 * cpus), "memory": random.randint(0, memory) * GI}
    used |= {"pods": 1000 * random.randint(1, 20), GPU: 1000 * random.randint(0, gpus)}
    return Node(has, {name: amount for name, amount in used.items() if amount})


def _request(random: Random, size: tuple[int, int, int]) -> Resources:
    cpus, memory, gpus = size
    part = random.choice((0.05, 0.1, 0.25, 0.3, 0.5, 0.6, 1))
    asked = {"cpu": 500 * max(1, int(2 * cpus * part)), "memory": max(1, int(memory * part * random.random())) * GI}
    if gpus and random.random() < 0.8:
        asked[GPU] = 1000 * random.randint(1, gpus)
    return {**asked, "pods": 1000}


def has_place(gang: Sequence[tuple[Resources, int]], nodes: Sequence[Resources]) -> bool:
    """Say whether every pod has a node, by trying all placements; failed ones are not tried twice."""
    pods = sorted((request for request, count in gang for _ in range(count)), key=lambda pod: sorted(pod.items()))
    names = sorted({name for pod in pods for name in pod})
    failed = set()

    def place(number: int, left: tuple[tuple[int, ...], ...]) -> bool:
        if number == len(pods):
            return True
        if (number, left) in failed:
            return False
        for node in sorted(set(left)):
            has = dict(zip(names, node, strict=True))
            if fits(pods[number], has):
                rest = list(left)
                rest[rest.index(node)] = tuple(has[name] - pods[number].get(name, 0) for name in names)
                if place(number + 1, tuple(sorted(rest))):
                    return True
        failed.add((number, left))
        return False

    return place(0, tuple(sorted(tuple(node.get(name, 0) for name in names) for node in nodes)))
