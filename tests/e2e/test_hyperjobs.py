"""HyperJobs in the whole system: webhook, HyperJob controller, admission, clusters and status."""

import asyncio
import json
from typing import Any

import pytest

from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, JOBS, PROPAGATION_POLICIES, Resource
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment
from tests.files import EXAMPLES, read_object
from tests.rig.objects import RUNTIME, new_object
from tests.waiting import poll

WORKS = "/apis/work.karmada.io/v1alpha1/works"


async def submit(environment: Environment, manifest: Any, resource: Resource = HYPERJOBS, *, runtime: str) -> None:
    head = {"name": manifest["metadata"]["name"], "annotations": {RUNTIME: runtime}}
    await environment.create(environment.folder(resource), {**manifest, "metadata": head})


async def until(
    environment: Environment, phase: str, *, path: str = "", reason: str = "", message: str = ""
) -> dict[str, Any]:
    """Wait until the HyperJob is in *phase* for this reason, and return its status."""

    async def status() -> dict[str, Any]:
        stored = await environment.read(path or HYPERJOBS.item_path(environment.namespace, "llm"))
        return stored.get("status", {})

    def is_reached(status: dict[str, Any]) -> bool:
        reasons = {"", *(condition["reason"] for condition in status.get("conditions", ()))}
        return status.get("phase") == phase and reason in reasons and message in status.get("message", "")

    return await poll(status, f"HyperJob {phase}", until=is_reached)


async def gone(environment: Environment, resource: Resource) -> None:
    path = environment.folder(resource)
    await poll(lambda: environment.read(path), f"no {resource.plural} left", until=lambda listed: not listed["items"])


async def works(environment: Environment) -> list[str]:
    """Return the works of this environment except those of its namespace."""
    items = (await environment.read(WORKS))["items"]
    names = ((item["metadata"]["name"], str(item["metadata"].get("annotations"))) for item in items)
    return [name for name, annotations in names if environment.namespace in annotations]


def plans(environment: Environment) -> dict[str, str]:
    """Return the plan that first admitted each part."""
    plan_ids: dict[str, str] = {}
    for seen in environment.binding_states():
        if seen.admitted:
            plan_ids.setdefault(seen.job[1], seen.record["planID"])
    return plan_ids


def auto(replicas: int, **more: Any) -> dict[str, Any]:
    return document(replicated("t", task(replicas=replicas), splitPolicy={"mode": "auto"}), **more)


@pytest.mark.smoke
async def test_documented_hyperjob_completes_on_two_clusters(environment: Environment):
    await environment.member("cluster-a", cpu="1000", memory="4Ti", gpu="32")
    await environment.member("cluster-b", cpu="1000", memory="4Ti", gpu="40")
    await environment.queue("global-ai")
    manifest = read_object(EXAMPLES / "hyperjob-conceptual.yaml")
    await submit(environment, manifest, BATCH_HYPERJOBS, runtime="4s")
    path = BATCH_HYPERJOBS.item_path(environment.namespace, "llm-train-hyperjob")
    running = await until(environment, "Running", path=path)
    assert (running["partsRunning"], running["clusters"]) == ("2/2", "cluster-a,cluster-b")
    status = await until(environment, "Completed", path=path)
    assert status["replicatedJobsStatus"][0]["succeeded"] == 64
    assert [part["runningOn"] for part in status["split"]["parts"]] == ["cluster-a", "cluster-b"]


async def test_policy_of_high_priority_does_not_place_parts(environment: Environment):
    await environment.queue("ai")
    for name in ("near", "far"):
        await environment.member(name, cpu="4")
    spec = {
        "priority": 100,
        "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind}],
        "placement": {"clusterAffinity": {"clusterNames": ["near", "far"]}},
    }
    await environment.create(
        environment.folder(PROPAGATION_POLICIES), new_object(PROPAGATION_POLICIES, "copies", spec=spec)
    )
    manifest = document(replicated("t", task(gpu=0), spec={"queue": "ai"}), clusterAffinity={"clusterNames": ["near"]})
    await submit(environment, manifest, runtime="1h")
    await until(environment, "Running")
    assert {seen.clusters for seen in environment.bindings().values()} == {("near",)}


async def test_suspended_and_deleted_hyperjob_leaves_nothing(environment: Environment):
    await environment.member("a", cpu="1000", gpu="4")
    await environment.member("b", cpu="1000", gpu="4")
    await environment.queue("ml")
    await submit(environment, auto(8), runtime="600s")
    await until(environment, "Running")
    path = HYPERJOBS.item_path(environment.namespace, "llm")
    await environment.api.patch(path, b'{"spec":{"suspend":true}}', kind="merge")
    await until(environment, "Suspended")
    await gone(environment, JOBS)
    await environment.until(lambda seen: not seen, "bindings gone")
    await environment.api.patch(path, b'{"spec":{"suspend":false}}', kind="merge")
    await until(environment, "Running")
    await environment.api.delete(path)
    for resource in (JOBS, PROPAGATION_POLICIES):
        await gone(environment, resource)
    await environment.until(lambda seen: not seen, "bindings gone")
    await poll(lambda: works(environment), "no works left", until=lambda names: not names)


@pytest.mark.parametrize(
    ("manifest", "free", "added", "reason", "message", "places"),
    [
        pytest.param(
            document(replicated("trainer", task(replicas=128), replicas=2), minAvailable=2, maxDomains=2),
            {"one": 128, "two": 127},
            128,
            "HyperJobDoesNotFit",
            "llm-trainer-1",
            ["one", "three"],
            id="two-copies",
        ),
        pytest.param(
            auto(256, maxDomains=3),
            {"one": 128, "two": 64, "four": 48},
            100,
            "ExceedsEveryCluster",
            "nvidia.com/gpu of 256 free",
            ["one", "three", "four"],
            id="automatic-split",
        ),
    ],
)
async def test_no_part_is_dispatched_until_all_parts_fit(
    environment: Environment, *, manifest, free, added, reason, message, places
):
    """G1: while one part does not fit, no cluster gets any."""
    for cluster, gpus in free.items():
        await environment.member(cluster, cpu="1000", gpu=str(gpus))
    await environment.queue("ml")
    await submit(environment, manifest, runtime="2s")
    before = await until(environment, "Pending", reason=reason, message=message)
    assert [condition["type"] for condition in before["conditions"] if condition["status"] == "True"] == ["Pending"]
    await asyncio.sleep(1)
    assert (await until(environment, "Pending", reason=reason))["message"] == before["message"]
    assert await works(environment) == []
    assert not any(seen.clusters for seen in environment.binding_states())
    await environment.member("three", cpu="1000", gpu=str(added))
    status = await until(environment, "Completed")
    assert [part["runningOn"] for part in status["split"]["parts"]] == places
    assert len(plans(environment)) == len(places)
    assert len({*plans(environment).values()}) == 1, "all parts in one plan"


async def test_minimum_parts_start_together_and_the_rest_follows(environment: Environment):
    for name in ("a", "b"):
        await environment.member(name, cpu="1000", gpu="8")
    await environment.queue("ml")
    await submit(environment, document(replicated("t", task(replicas=8), replicas=3), minAvailable=2), runtime="2s")
    await environment.until(lambda _: len(environment.admitted()) == 2, "two of three")
    assert environment.admitted() == ["llm-t-0", "llm-t-1"]
    assert len({*plans(environment).values()}) == 1
    assert (await until(environment, "Completed"))["replicatedJobsStatus"][0]["succeeded"] == 24
    assert plans(environment).keys() == {"llm-t-0", "llm-t-1", "llm-t-2"}


async def test_running_part_is_scaled_down_without_a_minimum(environment: Environment):
    """The webhook's defaults of the Job, its minimum and the DNS policy of its pods, do not prevent the change."""
    await environment.member("a", cpu="1000", gpu="8")
    await environment.queue("ml")
    pods = task(replicas=4)
    pods["template"]["spec"]["hostNetwork"] = True
    await submit(environment, document(replicated("t", pods)), runtime="600s")
    await until(environment, "Running")
    job = JOBS.item_path(environment.namespace, "llm-t-0")
    before = await environment.read(job)
    spec = {"replicatedJobs": [replicated("t", {**pods, "replicas": 2})]}
    path = HYPERJOBS.item_path(environment.namespace, "llm")
    await environment.api.patch(path, json.dumps({"spec": spec}).encode(), kind="merge")
    after = await poll(lambda: environment.read(job), "2 pods", until=lambda seen: seen["spec"]["minAvailable"] == 2)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (scaled,) = after["spec"]["tasks"]
    assert (scaled["replicas"], scaled["template"]["spec"]["dnsPolicy"]) == (2, "ClusterFirstWithHostNet")
