"""Reports and repairs of unexpected binding conditions."""

from typing import Any

from controller.api.keys import JOBS
from tests.integration.events import events_of, wait_for_event
from tests.integration.test_integrations import BATCH_JOBS
from tests.rig.harness import Harness, open_harness
from tests.rig.objects import new_object

ONE_CLUSTER = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]


async def create_ungated(harness: Harness, name: str) -> None:
    """Create a binding that the webhook has not suspended."""
    harness.ungated.add(name)
    await harness.karmada.bind(name, await harness.karmada.template(name, "q"), suspension=None)


async def create_batch_job(harness: Harness, name: str) -> str:
    """Create a Job of Kubernetes, whose binding has the name of that of a Volcano Job; return its uid."""
    container = {"name": "main", "image": "busybox"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    folder = harness.karmada.folder(BATCH_JOBS)
    made = await harness.karmada.create(folder, new_object(BATCH_JOBS, name, spec=spec))
    return str(made["metadata"]["uid"])


async def test_unexpected_bindings_are_reported_and_not_changed(plane, tmp_path):
    """TC1, TB3b: not suspended, placed on all clusters, preserved, or of another kind with the same name."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        await harness.karmada.cluster("m2", cpu="8")
        await create_ungated(harness, "ungated")
        await harness.karmada.bind("everywhere", await harness.karmada.template("everywhere", "q", cpu=2), placement={})
        preserved = await harness.karmada.template("stays", "q")
        await harness.karmada.bind("stays", preserved, preserveResourcesOnDeletion=True)
        harness.ungated.add("taken")
        uid = await create_batch_job(harness, "taken")
        await harness.karmada.bind("taken", uid, of=BATCH_JOBS, suspension=None)
        await harness.karmada.template("taken", "q")
        await harness.karmada.job("first", "q")
        await harness.admitted("everywhere", "stays", "first")
        await create_batch_job(harness, "first")
        for reason, name, text in (
            ("NotSuspended", "ungated", "it bypassed the webhook"),
            ("PlacedOnAllClusters", "everywhere", "spreadConstraints [{spreadByField: cluster, minGroups: 1, maxG"),
            ("ResourcesPreserved", "stays", "preserveResourcesOnDeletion"),
            ("NameTaken", "taken", "belongs to Job taken of batch/v1"),
        ):
            event = await wait_for_event(harness, reason, "Job", name)
            assert text in event["note"]
            assert event["type"] == "Warning" or reason != "NotSuspended"
            assert event["regarding"]["apiVersion"] == "batch.volcano.sh/v1alpha1"
        await wait_for_event(harness, "NotSuspended", "ResourceBinding", "ungated-job")
        metric = 'volcano_global_bindings_by_condition{condition="NotSuspended"}'
        assert await harness.controller.metric(metric) == 1
        assert harness.record("everywhere")["charge"]["cpu"] == "4"
        assert "PlacedOnAllClusters" not in [item["reason"] for item in await events_of(harness, "Job", "first")]
        await harness.expect_no_writes(seconds=0.3)
        assert not harness.bindings()["ungated"].suspended
        assert harness.bindings()["first"].admitted


async def test_f18_repair_suspends_ungated_binding_before_placement(plane, tmp_path):
    """With failure policy Ignore and an unavailable webhook, bindings are stored unsuspended."""
    repair = {"repair": {"ungatedBindings": True}}
    async with open_harness(plane, tmp_path, configuration=repair, plays=False) as harness:
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


async def test_tb4_policy_change_keeps_suspension_and_updates_charge(plane, tmp_path):
    """Karmada's detector copies the fields of the policy, but changes neither suspension nor clusters."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "2"})
        await harness.karmada.cluster("m2", cpu="8")
        await harness.karmada.job("runs", "q")
        await harness.admitted("runs")
        await harness.karmada.job("waits", "q", cpu=2)
        changed: dict[str, Any] = {
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
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="20", capability={"cpu": "4"})
        await harness.karmada.job("grows", "q")
        await harness.admitted("grows")
        path = f"{harness.karmada.folder(JOBS)}/grows"
        task = harness.history.now["jobs"][harness.karmada.namespace, "grows"]["spec"]["tasks"][0]
        await harness.karmada.merge(path, {"spec": {"tasks": [{**task, "replicas": 4}]}})
        await harness.until(lambda seen: seen["grows"].record["charge"]["cpu"] == "4", "recorded")
        await wait_for_event(harness, "Resized", "Job", "grows")
        await harness.karmada.job("late", "q")
        event = await wait_for_event(harness, "QueueLimitReached", "Job", "late")
        assert "has 0 left below its limit" in event["note"]
