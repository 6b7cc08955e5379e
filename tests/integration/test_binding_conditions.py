"""Reports and repairs of unexpected binding conditions."""

import json
from pathlib import Path
from typing import Any

from controller.api.keys import ADMISSION_ANNOTATION
from tests.integration import gated_kinds
from tests.integration.events import events_of, wait_for_event
from tests.rig.harness import Harness, open_harness

ONE_CLUSTER = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]


def configured(tmp_path: Path, **more: Any) -> tuple[str | Path, ...]:
    file = tmp_path / "admission.yaml"
    file.write_text(gated_kinds.configuration(**more))
    return "--admission-configuration", file


async def create_ungated(harness: Harness, name: str) -> None:
    """Create a binding that the webhook has not suspended."""
    harness.ungated.add(name)
    await harness.karmada.bind(name, await harness.karmada.template(name, "q"), suspension=None)


async def test_tc1_unsuspended_binding_is_reported_and_not_changed(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        await create_ungated(harness, "ungated")
        for kind, name in (("Job", "ungated"), ("ResourceBinding", "ungated-job")):
            event = await wait_for_event(harness, "NotSuspended", kind, name)
            assert (event["type"], "it bypassed the webhook" in event["note"]) == ("Warning", True)
        await harness.controller.wait_for_log('"condition":"NotSuspended"')
        count = await harness.controller.metric('volcano_global_bindings_by_condition{condition="NotSuspended"}')
        assert count == 1
        await harness.expect_no_writes(seconds=0.3)
        assert not harness.bindings()["ungated"].suspended


async def test_f18_repair_suspends_ungated_binding_before_placement(plane, tmp_path):
    """With failure policy Ignore and an unavailable webhook, bindings are stored unsuspended."""
    async with open_harness(
        plane, tmp_path, *configured(tmp_path, repair={"ungatedBindings": True}), plays=False
    ) as harness:
        await harness.start(cpu="8", capability={"cpu": "1"})
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await create_ungated(harness, "ungated")
        await harness.until(lambda seen: "ungated" in seen and seen["ungated"].suspended, "suspended")
        await wait_for_event(harness, "QueueLimitReached", "Job", "ungated")
        harness.ungated.add("fast")
        uid = await harness.karmada.template("fast", "q")
        await harness.karmada.bind("fast", uid, suspension={"dispatching": False}, clusters=[{"name": "m1"}])
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)
        assert not harness.bindings()["fast"].suspended, "it is already placed and may run"
        await harness.karmada.phase("runs", "Completed")
        await harness.karmada.phase("fast", "Completed")
        await harness.admitted("ungated")


async def test_binding_placed_while_pending_is_cleared_and_reported(plane, tmp_path):
    """Karmada's scheduler may place a suspended binding that was already in its queue."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "1"})
        await harness.karmada.job("big", "q", cpu=5)
        await harness.expect_pending_reasons()
        await harness.karmada.merge(harness.karmada.path("big"), {"spec": {"clusters": [{"name": "m1"}]}})
        await harness.until(lambda seen: not seen["big"].clusters, "cleared")
        event = await wait_for_event(harness, "PlacedWithoutAdmission", "Job", "big")
        assert event["note"] == "another client placed it without admission; its clusters are removed"


async def test_policy_that_duplicates_job_to_all_clusters_is_reported(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        await harness.karmada.cluster("m2", cpu="8")
        await harness.karmada.bind("everywhere", await harness.karmada.template("everywhere", "q", cpu=2), placement={})
        await harness.karmada.job("once", "q")
        await harness.admitted("everywhere", "once")
        event = await wait_for_event(harness, "PlacedOnAllClusters", "Job", "everywhere")
        assert "spreadConstraints [{spreadByField: cluster, minGroups: 1, maxGroups: 1}]" in event["note"]
        stored = harness.history.now["resourcebindings"][harness.karmada.namespace, "everywhere-job"]
        assert json.loads(stored["metadata"]["annotations"][ADMISSION_ANNOTATION])["charge"]["cpu"] == "4"
        assert "PlacedOnAllClusters" not in [item["reason"] for item in await events_of(harness, "Job", "once")]


async def test_policy_that_preserves_resources_is_reported(plane, tmp_path):
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        uid = await harness.karmada.template("stays", "q")
        await harness.karmada.bind("stays", uid, preserveResourcesOnDeletion=True)
        await harness.admitted("stays")
        event = await wait_for_event(harness, "ResourcesPreserved", "Job", "stays")
        assert "preserveResourcesOnDeletion" in event["note"]


async def test_tb3b_volcano_job_with_taken_binding_name_is_reported(plane, tmp_path):
    """Karmada gives both bindings the same name; only the first object gets a binding."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        harness.ungated.add("same")
        batch = await harness.karmada.create(gated_kinds.folder(harness, "batch/v1", "Job"), batch_job("same"))
        await gated_kinds.bind(harness, "batch/v1", "Job", "same", uid=batch["metadata"]["uid"], suspended=False)
        await harness.karmada.template("same", "q")
        event = await wait_for_event(harness, "NameTaken", "Job", "same")
        assert event["regarding"]["apiVersion"] == "batch.volcano.sh/v1alpha1"
        assert "belongs to Job same of batch/v1" in event["note"]
        await harness.expect_no_writes(seconds=0.3)


async def test_tb3b_later_batch_job_does_not_affect_volcano_job(plane, tmp_path):
    """The binding of the Volcano Job exists already and remains unchanged."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "1"})
        await harness.karmada.job("same", "q")
        await harness.admitted("same")
        await harness.karmada.create(gated_kinds.folder(harness, "batch/v1", "Job"), batch_job("same"))
        await harness.karmada.job("next", "q")
        await harness.expect_no_writes(seconds=0.3)
        assert harness.bindings()["same"].admitted
        assert harness.bindings()["next"].suspended


def batch_job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def test_tb4_policy_change_keeps_suspension_and_updates_charge(plane, tmp_path):
    """Karmada's detector copies the fields of the policy, but changes neither suspension nor clusters."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "2"})
        await harness.karmada.cluster("m2", cpu="8")
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await harness.karmada.job("waits", "q", cpu=2)
        changed = {
            "placement": {"clusterAffinity": {"clusterNames": ["m2"]}, "spreadConstraints": ONE_CLUSTER},
            "schedulerName": "my-own",
            "suspension": {"dispatching": True},
        }
        await harness.karmada.merge(harness.karmada.path("waits"), {"spec": changed})
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)
        assert harness.bindings()["waits"].suspended
        # Karmada applies the new placement to the running workload: it is charged in each of its clusters.
        copied = {"placement": {"spreadConstraints": None}, "clusters": [{"name": "m1"}, {"name": "m2"}]}
        await harness.karmada.merge(harness.karmada.path("runs"), {"spec": copied})
        await wait_for_event(harness, "Resized", "Job", "runs")
        await harness.karmada.job("small", "q")
        await wait_for_event(harness, "QueueLimitReached", "Job", "small")
        assert harness.bindings()["small"].suspended


async def test_tb5_job_scaled_up_after_admission_is_fully_charged(plane, tmp_path):
    async with open_harness(
        plane, tmp_path, *configured(tmp_path, resize={"action": "Report"}), plays=False
    ) as harness:
        await harness.start(cpu="20", capability={"cpu": "4"})
        await harness.karmada.job("grows", "q")
        await harness.admitted("grows")
        path = f"{harness.karmada.folder('jobs')}/grows"
        task = harness.history.now["jobs"][harness.karmada.namespace, "grows"]["spec"]["tasks"][0]
        await harness.karmada.merge(path, {"spec": {"tasks": [{**task, "replicas": 10}]}})
        await wait_for_event(harness, "Resized", "Job", "grows")
        await harness.karmada.job("late", "q")
        event = await wait_for_event(harness, "QueueLimitReached", "Job", "late")
        assert "has 0 left below its limit" in event["note"]
