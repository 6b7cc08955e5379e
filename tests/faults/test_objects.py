"""F10 to F16, F22 and F27: changes of bindings, templates, queues, classes and clusters by others."""

import asyncio
from collections.abc import Mapping

import pytest

from controller.api.keys import JOBS, PRIORITY_CLASSES, QUEUES
from tests.rig import fake_karmada
from tests.rig.binding_state import RECORD, BindingState
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll

QUEUE = QUEUES.path + "/{}"


async def test_recreated_binding_is_admitted_independently(plane, tmp_path):
    """F10: recreated while pending, decided, written or running; another uid is another binding."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(capability={"cpu": "2"})
        template = await harness.karmada.template("comes", "q", cpu=2)
        await harness.karmada.bind("comes", template)
        for number in range(20):
            await harness.karmada.delete(harness.karmada.path("comes"))
            await harness.karmada.bind("comes", template)
            if number % 3 == 0:
                await harness.admitted("comes")
        await harness.admitted("comes")
        await harness.karmada.job("other", "q", cpu=1)
        await harness.expect_pending_reasons()
        assert harness.bindings()["other"].suspended


async def test_terminating_binding_is_not_admitted_but_charged(plane, tmp_path):
    """F11."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(capability={"cpu": "2"})
        await harness.karmada.job("runs", "q", cpu=2)
        await harness.admitted("runs")
        await harness.karmada.job("waits", "q", cpu=2)
        held = {"metadata": {"finalizers": ["karmada.io/binding-controller"]}}
        for name in ("runs", "waits"):
            await harness.karmada.merge(harness.karmada.path(name), held)
            await harness.karmada.delete(harness.karmada.path(name))
        await harness.karmada.job("next", "q", cpu=2)
        await harness.expect_no_writes(seconds=1)
        assert harness.bindings()["next"].suspended
        await harness.karmada.merge(harness.karmada.path("runs"), {"metadata": {"finalizers": None}})
        await harness.admitted("next")
        await harness.karmada.phase("next", "Completed")
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["waits"].suspended
        await harness.karmada.merge(harness.karmada.path("waits"), {"metadata": {"finalizers": None}})


async def test_binding_without_template_stays_charged_or_pending(plane, tmp_path):
    """F12."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.queue("default")
        await harness.start(capability={"cpu": "2"})
        await harness.karmada.job("runs", "q", cpu=2)
        await harness.admitted("runs")
        await harness.karmada.job("waits", "q", cpu=2)
        await harness.controller.wait_for_log(f"Job {harness.karmada.namespace}/waits")
        for name in ("runs", "waits"):
            await harness.karmada.delete(JOBS.item_path(harness.karmada.namespace, name))
        await harness.controller.wait_for_log('"reason":"RequestsUnknown"')
        await harness.karmada.job("next", "q", cpu=1)
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["next"].suspended
        await harness.karmada.phase("runs", "Completed")
        await harness.admitted("next")
        assert harness.bindings()["waits"].suspended


async def test_unusable_queues_keep_admitted_jobs_and_admit_none(plane, tmp_path):
    """F13."""
    names = ("gone", "closed", "cut", "orphan", "loop-a", "loop-b")
    async with open_harness(plane, tmp_path, plays=False) as harness:
        for name in (*names, "well", "top"):
            await harness.karmada.queue(name, **({"parent": "top"} if name == "orphan" else {}))
        await harness.karmada.cluster("m1", cpu="20")
        await harness.controller.start()
        for name in names:
            await harness.karmada.job(f"{name}-runs", name)
        await harness.admitted(*(f"{name}-runs" for name in names))
        await harness.karmada.delete(QUEUE.format("gone"))
        await harness.karmada.merge(QUEUE.format("closed") + "/status", {"status": {"state": "Closed"}})
        await harness.karmada.merge(QUEUE.format("cut"), {"spec": {"capability": {"cpu": "500m"}}})
        await harness.karmada.delete(QUEUE.format("top"))
        await harness.karmada.merge(QUEUE.format("loop-a"), {"spec": {"parent": "loop-b"}})
        await harness.karmada.merge(QUEUE.format("loop-b"), {"spec": {"parent": "loop-a"}})
        for name in names:
            await harness.karmada.job(f"{name}-waits", name)
        await harness.karmada.job("well-runs", "well", cpu=14)
        await harness.admitted("well-runs")
        await harness.karmada.job("well-waits", "well")
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        seen = harness.bindings()
        assert all(seen[f"{name}-runs"].admitted and seen[f"{name}-waits"].suspended for name in names)
        assert seen["well-waits"].suspended, "what the broken queues hold is counted at the root"
        for reason in ("QueueNotFound", "QueueClosed", "QueueHierarchyInvalid", "ExceedsQueueLimit"):
            await harness.controller.wait_for_log(f'"reason":"{reason}"')


@pytest.mark.long
async def test_deleted_priority_class_keeps_admitted_jobs_charged(plane, tmp_path):
    """F14."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.priority_class("rig-high", 1000)
        await harness.start(capability={"cpu": "2"})
        await harness.karmada.job("runs", "q", cpu=2, priority="rig-high")
        await harness.admitted("runs")
        await harness.karmada.job("a-low", "q", cpu=2)
        await harness.karmada.job("z-high", "q", cpu=2, priority="rig-high")
        await harness.expect_pending_reasons()
        await harness.karmada.delete(f"{PRIORITY_CLASSES.path}/rig-high")
        await harness.expect_no_writes(seconds=0.5)
        await harness.karmada.phase("runs", "Completed")
        await harness.admitted("a-low")
        await harness.expect_no_writes(seconds=0.5)
        assert harness.bindings()["z-high"].suspended


async def test_reduced_capacity_evicts_and_admits_nothing(plane, tmp_path):
    """F16 and F15."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start()
        await harness.karmada.job("runs", "q", cpu=4)
        await harness.admitted("runs")
        for how in ({"cpu": "1"}, {"ready": "False", "cpu": "9"}, {"ready": "Unknown"}, {"cpu": "-5"}, {"cpu": "4"}):
            await harness.karmada.set_summary("m1", **how)
            await harness.karmada.job(f"late-{len(harness.bindings())}", "q", cpu=2)
            await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert [name for name, binding in harness.bindings().items() if binding.admitted] == ["runs"]


async def test_freed_capacity_goes_to_the_first_in_order(plane, tmp_path):
    """I6: ordered by queue priority, job priority and age; only the invariant check verifies it."""
    names = ("a-young", "b-old", "c-high", "d-elsewhere")
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.karmada.priority_class("rig-high", 1000)
        await harness.karmada.queue("important", priority=5)
        await harness.start(cpu="2")
        await harness.karmada.job("runs", "q", cpu=2)
        await harness.admitted("runs")
        await harness.karmada.job("b-old", "q", cpu=2)
        await asyncio.sleep(1.1)
        await harness.karmada.job("a-young", "q", cpu=2)
        await harness.karmada.job("c-high", "q", cpu=2, priority="rig-high")
        await harness.karmada.job("d-elsewhere", "important", cpu=2)
        await asyncio.sleep(1.5)
        await harness.karmada.phase("runs", "Completed")
        for number in range(1, len(names) + 1):
            await harness.until(lambda seen, so_far=number: taken(seen) == so_far, f"{number} of them admitted")
            now = next(
                name for name, binding in harness.bindings().items() if binding.admitted and not binding.is_finished
            )
            await asyncio.sleep(1.5)
            await harness.karmada.phase(now, "Completed")


def taken(seen: Mapping[str, BindingState]) -> int:
    return sum(binding.admitted for name, binding in seen.items() if name != "runs")


POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "stamps"},
    "spec": {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["work.karmada.io"],
                    "apiVersions": ["*"],
                    "operations": ["UPDATE"],
                    "resources": ["resourcebindings"],
                }
            ]
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": 'Object{metadata: Object.metadata{labels: {"stamped": "yes"}}}'},
            }
        ],
    },
}


UNSTAMPED = {"metadata": {"labels": {"stamped": None}, "annotations": {"seen": "yes"}}}


async def stamping(harness: Harness, name: str, *, wanted: bool) -> None:
    """Wait until the policy is or is no longer in effect."""
    await poll(
        lambda: harness.karmada.merge(harness.karmada.path(name), UNSTAMPED),
        f"stamps: {wanted}",
        until=lambda changed: ("stamped" in changed["metadata"]["labels"]) is wanted,
    )


@pytest.mark.long
async def test_mutating_policy_of_others_causes_no_extra_writes(plane, tmp_path):
    """F22: another policy changes every write; ``dispatching`` stays, and no write is repeated."""
    base = "/apis/admissionregistration.k8s.io/v1"
    async with open_harness(plane, tmp_path, plays=False) as harness:
        harness.stamps.add(("metadata", "labels", "stamped"))
        uid = await harness.karmada.template("stamped", "q", cpu=3)
        await harness.karmada.bind("stamped", uid, suspension={"scheduling": True, "dispatching": False})
        await harness.karmada.create(f"{base}/mutatingadmissionpolicies", POLICY)
        binding = {**POLICY, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "stamps"}}
        await harness.karmada.create(f"{base}/mutatingadmissionpolicybindings", binding)
        try:
            await stamping(harness, "stamped", wanted=True)
            await harness.start()
            await harness.admitted("stamped")
            await harness.karmada.job("next", "q", cpu=3)
            await harness.expect_pending_reasons()
            await harness.expect_no_writes(seconds=0.5)
            stored = harness.karmada.stored_bindings()["stamped-job"]
            assert stored["spec"]["suspension"] == {"scheduling": False, "dispatching": False}
            assert stored["metadata"]["labels"]["stamped"] == "yes"
        finally:
            await harness.karmada.delete(f"{base}/mutatingadmissionpolicybindings/stamps")
            await harness.karmada.delete(f"{base}/mutatingadmissionpolicies/stamps")
        await harness.karmada.job("clean", "q")
        await stamping(harness, "clean", wanted=False)


async def test_unusual_names_and_quantities_lose_no_job(plane, tmp_path):
    """F27: each job is admitted or pending with a reason."""
    long = "x" * 63
    async with open_harness(plane, tmp_path, plays=False) as harness:
        for name in ("null", long, f"{long}.{long}.{long}.{'y' * 61}"):
            await harness.karmada.queue(name)
        await harness.karmada.queue("default")
        await harness.karmada.cluster("m1", **{"cpu": "90", "example.com/dpu": "2"})
        await harness.controller.start()
        for number, queue in enumerate(("null", long, f"{long}.{long}.{long}.{'y' * 61}", "")):
            await harness.karmada.job(f"j{number}", queue)
        await harness.karmada.job("z" * 249, "null")
        slashed = fake_karmada.job("slashed", "null")
        requests = slashed["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests["example.com/dpu"] = "2"
        for name, manifest in (("slashed", slashed), ("слово", fake_karmada.job("tasked", "null"))):
            manifest["spec"]["tasks"][0]["name"] = name
            manifest["metadata"]["annotations"] = {"word": "слово 文字 \u202e"}
            await harness.karmada.submit(manifest)
        for name, queue in (("nowhere", "no-such-queue"), ("root", "root"), ("elsewhere", "слово")):
            await harness.karmada.job(name, queue)
        await harness.admitted("j0", "j1", "j2", "j3", "z" * 249, "slashed", "tasked")
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert [name for name, binding in harness.bindings().items() if binding.suspended] == [
            "nowhere",
            "root",
            "elsewhere",
        ]


async def test_forged_record_admits_nothing(plane, tmp_path):
    """Neither a copy of another binding's record nor invalid text."""
    async with open_harness(plane, tmp_path, plays=False) as harness:
        await harness.start(cpu="3", capability={"cpu": "2"})
        await harness.karmada.job("runs", "q", cpu=2)
        await harness.admitted("runs")
        record = harness.karmada.stored_bindings()["runs-job"]["metadata"]["annotations"][RECORD]
        for name, text in (("copy", record), ("rubbish", "{" * 1000)):
            await harness.karmada.job(name, "q", cpu=1)
            await harness.karmada.merge(harness.karmada.path(name), {"metadata": {"annotations": {RECORD: text}}})
        placed = [{"name": "m1"}]
        await harness.karmada.merge(
            harness.karmada.path("copy"),
            {"spec": {"clusters": placed}, "metadata": {"annotations": {RECORD: record}}},
        )
        await harness.until(lambda seen: not seen["copy"].clusters, "the copy's clusters are taken away")
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert [name for name, binding in harness.bindings().items() if binding.admitted] == ["runs"]
