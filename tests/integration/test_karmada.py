"""Behaviour of Karmada that the controller handles: ordered affinities, stale status, quotas."""

from typing import Any

from controller.api.keys import JOBS
from tests.integration.events import wait_for_event
from tests.rig.faults import ErrorReply, writes
from tests.rig.harness import Harness, open_harness

ONE_CLUSTER = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
SCHEDULED = {
    "type": "Scheduled",
    "status": "True",
    "reason": "Success",
    "message": "Binding has been scheduled successfully.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def binding(harness: Harness, name: str) -> dict[str, Any]:
    return harness.karmada.stored_bindings()[f"{name}-job"]


def ordered(*groups: tuple[str, ...]) -> dict[str, Any]:
    """Return a placement that tries one group of clusters after the other."""
    terms = [{"affinityName": f"term-{number}", "clusterNames": list(names)} for number, names in enumerate(groups)]
    return {"clusterAffinities": terms, "spreadConstraints": ONE_CLUSTER}


async def test_c1_later_affinity_term_is_observed_before_placement(plane, tmp_path):
    """Otherwise Karmada's scheduler starts with the first term, finds no cluster and removes our placement."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8")
        await harness.karmada.cluster("m2", cpu="8")
        await harness.karmada.set_summary("m1", ready="False", cpu="8")
        await harness.karmada.merge(
            "/apis/cluster.karmada.io/v1alpha1/clusters/m1",
            {"spec": {"taints": [{"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}]}},
        )
        for name, groups in (("later", (("m1",), ("m2",))), ("first", (("m2",), ("m1",)))):
            uid = await harness.karmada.template(name, "q")
            await harness.karmada.bind(name, uid, placement=ordered(*groups))
        await harness.admitted("later", "first")
        assert binding(harness, "later")["status"]["schedulerObservingAffinityName"] == "term-1"
        assert "status" not in binding(harness, "first"), "the first term needs no status"
        states = [
            change for change in harness.history.changes if change.key == (harness.karmada.namespace, "later-job")
        ]
        observed = next(state for state in states if (state.after or {}).get("status"))
        assert observed.after is not None
        assert observed.after["spec"]["suspension"]["scheduling"] is True, "observed while it was suspended"
        assert [cluster["name"] for cluster in binding(harness, "later")["spec"]["clusters"]] == ["m2"]


async def test_stale_status_after_eviction_is_repaired(plane, tmp_path):
    """Karmada leaves Running and Scheduled in the status of job and binding; a new leader corrects both."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="8", capability={"cpu": "2"})
        await harness.karmada.job("evicted", "q", cpu=2)
        await harness.admitted("evicted")
        path = JOBS.item_path(harness.karmada.namespace, "evicted")
        await harness.karmada.merge(f"{path}/status", {"status": {"state": {"phase": "Running"}, "running": 1}})
        await harness.karmada.merge(
            f"{harness.karmada.path('evicted')}/status", {"status": {"conditions": [SCHEDULED]}}
        )
        await harness.karmada.phase("evicted", "Aborted")
        await harness.history.until(lambda _: harness.bindings()["evicted"].suspended, "evicted")
        assert (
            harness.history.now["jobs"][harness.karmada.namespace, "evicted"]["status"]["state"]["phase"] == "Running"
        )
        await harness.controller.stop()
        await harness.karmada.delete_works("evicted")
        await harness.controller.start()

        def is_right() -> bool:
            state = harness.history.now["jobs"][harness.karmada.namespace, "evicted"]["status"]["state"]
            condition = binding(harness, "evicted")["status"]["conditions"][0]
            return (state["phase"], condition["status"]) == ("Pending", "False")

        await harness.history.until(lambda _: is_right(), "status repaired")
        assert harness.history.now["jobs"][harness.karmada.namespace, "evicted"]["status"]["running"] == 0
        assert binding(harness, "evicted")["status"]["conditions"][0]["reason"] == "Evicted"
        await harness.expect_no_writes(seconds=0.5)


async def test_rejection_by_karmada_quota_is_reported_and_retried(plane, tmp_path):
    """Karmada's webhook rejects our placement; the workload backs off, and others are admitted."""
    message = (
        'admission webhook "resourcebinding.karmada.io" denied the request: FederatedResourceQuota(team/most) exceeded '
        "for resource cpu: requested sum 5, limit 4."
    )
    async with open_harness(plane, tmp_path, plays=False) as harness:
        harness.proxy.add(
            ErrorReply(lambda call: writes(call) and "over-job" in call.path, 1, status=403, message=message)
        )
        await harness.start(cpu="8")
        await harness.karmada.job("over", "q")
        event = await wait_for_event(harness, "StartupBackoff", "Job", "over")
        assert "Karmada rejected it: FederatedResourceQuota(team/most) exceeded" in event["note"]
        counted = 'volcano_global_patch_duration_seconds_count{effect="admit",outcome="quota_exceeded"}'
        assert await harness.controller.metric(counted) == 1
        await harness.karmada.job("other", "q")
        await harness.admitted("other", "over")
        assert "patch rejected" not in harness.controller.part.output
