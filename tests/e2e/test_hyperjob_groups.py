"""G1 on a real API server: while one HyperJob part does not fit, no member cluster gets any part.

Cases are the documented HyperJob, two of upstream's design document, and two that are split automatically. Each is
created before the capacity for its last part.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from controller.api.hyperjobs import HYPERJOB_RESOURCES
from controller.api.keys import JOBS, Resource
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment
from tests.e2e.hyperjobs import auto, grow, names, submit, until, works
from tests.files import EXAMPLES, read_object


@dataclass(frozen=True)
class Case:
    """A HyperJob, the clusters without capacity for one part, the expected reason, and the capacity added later."""

    hyperjob: Mapping[str, Any] | None
    clusters: Mapping[str, Mapping[str, str]]
    reason: str
    message: str
    room: Mapping[str, Mapping[str, str]]
    places: Sequence[str]
    """Clusters of its parts in order."""
    queue: str = "ml"

    @property
    def manifest(self) -> dict[str, Any]:
        if self.hyperjob is not None:
            return dict(self.hyperjob)
        return read_object(EXAMPLES / "hyperjob-conceptual.yaml")

    @property
    def resource(self) -> Resource:
        return next(resource for resource in HYPERJOB_RESOURCES if resource.api_version == self.manifest["apiVersion"])


def gpus(**amounts: int) -> dict[str, dict[str, str]]:
    return {name.replace("_", "-"): {"cpu": "1000", "memory": "4Ti", "gpu": str(n)} for name, n in amounts.items()}


def ascends(kind: str, **amounts: int) -> dict[str, dict[str, str]]:
    return {
        f"cluster-ascend-{name}".replace("_", "-"): {"cpu": "1000", f"huawei.com/ascend{kind}": str(count)}
        for name, count in amounts.items()
    }


def ascend(kind: str, *clusters: str) -> dict[str, Any]:
    """Return one of upstream's jobs; its resource gets a domain, which the API server requires."""
    amounts = {f"huawei.com/ascend{kind}": 1}
    term = {"matchExpressions": [{"key": "hardware-type", "operator": "In", "values": [f"Ascend{kind.upper()}"]}]}
    worker = task("worker", 64, gpu=0)
    pod = worker["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    pod["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return replicated(f"trainer-{kind}", worker, clusterNames=list(clusters))


CASES = {
    "documented": Case(
        None,
        gpus(cluster_a=32, cluster_b=31),
        "ExceedsEveryCluster",
        "llm-train-hyperjob-1",
        gpus(cluster_b=32),
        ["cluster-a", "cluster-b"],
        queue="global-ai",
    ),
    "two-of-128": Case(
        document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2),
        gpus(one=128, two=127),
        "HyperJobDoesNotFit",
        "llm-trainer-1",
        gpus(two=128),
        ["one", "two"],
    ),
    "two-kinds": Case(
        document(
            ascend("910b", "cluster-ascend-910b-1", "cluster-ascend-910b-2"),
            ascend("910c", "cluster-ascend-910c-1"),
            minAvailable=2,
        ),
        ascends("910b", **{"910b_1": 63, "910b_2": 64}) | ascends("910c", **{"910c_1": 63}),
        "ExceedsTotalCapacity",
        "llm-trainer-910c-0",
        ascends("910c", **{"910c_1": 64}),
        ["cluster-ascend-910b-2", "cluster-ascend-910c-1"],
    ),
    "auto-of-256": Case(
        auto(256, maxDomains=3),
        gpus(a=128, b=64, c=48),
        "ExceedsEveryCluster",
        "nvidia.com/gpu of 256 free",
        gpus(d=100),
        ["a", "d", "c"],
    ),
    "auto-in-too-many-parts": Case(
        auto(256, maxDomains=2),
        gpus(a=128, b=64, c=48, d=100),
        "ExceedsEveryCluster",
        "not in parts that fit on at most 2 clusters",
        gpus(d=128),
        ["a", "d"],
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_no_part_is_dispatched_until_all_parts_fit(environment: Environment, name: str):
    case = CASES[name]
    for cluster, capacity in case.clusters.items():
        await environment.cluster(cluster, **capacity)
    await environment.queue(case.queue)
    manifest = case.manifest
    await submit(environment, manifest, case.resource, runtime="2s")
    status = await waiting(environment, manifest["metadata"]["name"], case)
    assert case.message in status["message"]
    assert [condition["type"] for condition in status["conditions"] if condition["status"] == "True"] == ["Pending"]
    assert await works(environment) == []
    assert not any(moment.clusters for moment in environment.observer.moments)
    for cluster, capacity in case.room.items():
        await (grow if cluster in case.clusters else arena_cluster)(environment, cluster, **capacity)
    status = await until(environment, manifest["metadata"]["name"], "Completed", resource=case.resource)
    assert [part["runningOn"] for part in status["split"]["parts"]] == list(case.places)
    assert len(plans(environment)) == len(case.places)
    assert len({*plans(environment).values()}) == 1, "all parts in one plan"


async def arena_cluster(environment: Environment, name: str, **capacity: str) -> None:
    await environment.cluster(name, **capacity)


async def waiting(environment: Environment, name: str, case: Case) -> dict[str, Any]:
    """Wait for the pending reason and verify that it stays."""
    status: dict[str, Any] = {}
    for _ in range(300):
        status = await until(environment, name, "Pending", resource=case.resource)
        if status["conditions"][0]["reason"] == case.reason and case.message in status["message"]:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    again = await until(environment, name, "Pending", resource=case.resource)
    assert (status["conditions"][0]["reason"], again["message"]) == (case.reason, status["message"])
    return again


def plans(environment: Environment) -> dict[str, str]:
    """Return the plan that first admitted each part."""
    found: dict[str, str] = {}
    for moment in environment.observer.moments:
        if moment.is_admitted and moment.record:
            found.setdefault(moment.job, moment.record["planID"])
    return found


async def test_minimum_parts_start_together_and_the_rest_follows(environment: Environment):
    for name in ("a", "b"):
        await environment.cluster(name, cpu="1000", gpu="8")
    await environment.queue("ml")
    await submit(environment, document(replicated("t", task(replicas=8), replicas=3), minAvailable=2), runtime="2s")
    await environment.observer.until(lambda seen: len(seen.admitted()) == 2, "two of three")
    assert environment.observer.admitted() == ["llm-t-0", "llm-t-1"]
    assert len({*plans(environment).values()}) == 1
    status = await until(environment, "llm", "Completed")
    assert status["replicatedJobsStatus"][0]["succeeded"] == 24
    assert await names(environment, JOBS) == ["llm-t-0", "llm-t-1", "llm-t-2"]
