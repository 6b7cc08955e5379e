"""F10 to F14, F16, F17, F22 and F27: what others do to bindings, templates, queues, classes and clusters."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from controller.api.keys import JOBS, PRIORITY_CLASSES, QUEUES
from tests.rig import fake_karmada
from tests.rig.binding_state import RECORD, BindingState
from tests.rig.harness import Harness, open_harness
from tests.waiting import LIMIT_SECONDS

QUEUE = QUEUES.path + "/{}"


async def begun(stage: Harness, *, cpu: str = "4", **queue) -> None:
    await stage.karmada.queue("q", **queue)
    await stage.karmada.cluster("m1", cpu=cpu)
    await stage.controller.start()


async def bound_again(stage: Harness, name: str, template: str) -> None:
    """Delete a binding and make another of its name, at once."""
    await stage.karmada.delete(stage.karmada.path(name))
    await stage.karmada.bind(name, template)


@pytest.mark.parametrize("times", [20, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_binding_that_comes_again_under_its_name_is_judged_anew(plane, tmp_path, times):
    """F10: while it waits, is decided upon, is written, runs: another uid is another binding."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        template = await stage.karmada.template("comes", "q", cpu=2)
        await stage.karmada.bind("comes", template)
        for number in range(times):
            await bound_again(stage, "comes", template)
            if number % 3 == 0:
                await stage.admitted("comes")
        await stage.admitted("comes")
        await stage.karmada.job("other", "q", cpu=1)
        await stage.expect_pending_reasons()
        assert stage.bindings()["other"].suspended


async def test_what_is_being_deleted_is_not_admitted_and_stays_charged_while_it_may_run(plane, tmp_path):
    """F11."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        await stage.karmada.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.karmada.job("waits", "q", cpu=2)
        held = {"metadata": {"finalizers": ["karmada.io/binding-controller"]}}
        for name in ("runs", "waits"):
            await stage.karmada.merge(stage.karmada.path(name), held)
            await stage.karmada.delete(stage.karmada.path(name))
        await stage.karmada.job("next", "q", cpu=2)
        await stage.expect_no_writes(seconds=1)
        assert stage.bindings()["next"].suspended
        await stage.karmada.merge(stage.karmada.path("runs"), {"metadata": {"finalizers": None}})
        await stage.admitted("next")
        await stage.karmada.phase("next", "Completed")
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["waits"].suspended
        await stage.karmada.merge(stage.karmada.path("waits"), {"metadata": {"finalizers": None}})


async def test_a_binding_whose_template_is_gone_stays_counted_and_one_that_waits_says_so(plane, tmp_path):
    """F12."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.queue("default")
        await begun(stage, capability={"cpu": "2"})
        await stage.karmada.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.karmada.job("waits", "q", cpu=2)
        await stage.controller.wait_for_log(f"Job {stage.karmada.namespace}/waits")
        for name in ("runs", "waits"):
            await stage.karmada.delete(JOBS.item_path(stage.karmada.namespace, name))
        await stage.controller.wait_for_log('"reason":"RequestsUnknown"')
        await stage.karmada.job("next", "q", cpu=1)
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["next"].suspended
        await stage.karmada.phase("runs", "Completed")
        await stage.admitted("next")
        assert stage.bindings()["waits"].suspended


async def test_queues_that_go_close_break_or_shrink_keep_what_they_admitted_and_admit_no_more(plane, tmp_path):
    """F13."""
    names = ("gone", "closed", "cut", "orphan", "loop-a", "loop-b")
    async with open_harness(plane, tmp_path, plays=False) as stage:
        for name in (*names, "well", "top"):
            await stage.karmada.queue(name, **({"parent": "top"} if name == "orphan" else {}))
        await stage.karmada.cluster("m1", cpu="20")
        await stage.controller.start()
        for name in names:
            await stage.karmada.job(f"{name}-runs", name)
        await stage.admitted(*(f"{name}-runs" for name in names))
        await stage.karmada.delete(QUEUE.format("gone"))
        await stage.karmada.merge(QUEUE.format("closed") + "/status", {"status": {"state": "Closed"}})
        await stage.karmada.merge(QUEUE.format("cut"), {"spec": {"capability": {"cpu": "500m"}}})
        await stage.karmada.delete(QUEUE.format("top"))
        await stage.karmada.merge(QUEUE.format("loop-a"), {"spec": {"parent": "loop-b"}})
        await stage.karmada.merge(QUEUE.format("loop-b"), {"spec": {"parent": "loop-a"}})
        for name in names:
            await stage.karmada.job(f"{name}-waits", name)
        await stage.karmada.job("well-runs", "well", cpu=14)
        await stage.admitted("well-runs")
        await stage.karmada.job("well-waits", "well")
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        seen = stage.bindings()
        assert all(seen[f"{name}-runs"].admitted and seen[f"{name}-waits"].suspended for name in names)
        assert seen["well-waits"].suspended, "what the broken queues hold is counted at the root"
        for reason in ("QueueNotFound", "QueueClosed", "QueueHierarchyInvalid", "ExceedsQueueLimit"):
            await stage.controller.wait_for_log(f'"reason":"{reason}"')


@pytest.mark.long
async def test_a_priority_class_that_is_deleted_hides_nobody_who_was_admitted(plane, tmp_path):
    """F14."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.priority_class("rig-high", 1000)
        await begun(stage, capability={"cpu": "2"})
        await stage.karmada.job("runs", "q", cpu=2, priority="rig-high")
        await stage.admitted("runs")
        await stage.karmada.job("a-low", "q", cpu=2)
        await stage.karmada.job("z-high", "q", cpu=2, priority="rig-high")
        await stage.expect_pending_reasons()
        await stage.karmada.delete(f"{PRIORITY_CLASSES.path}/rig-high")
        await stage.expect_no_writes(seconds=0.5)
        await stage.karmada.phase("runs", "Completed")
        await stage.admitted("a-low")
        await stage.expect_no_writes(seconds=0.5)
        assert stage.bindings()["z-high"].suspended


async def test_room_that_shrinks_under_what_runs_evicts_nobody_and_admits_nobody(plane, tmp_path):
    """F16 and F15."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage)
        await stage.karmada.job("runs", "q", cpu=4)
        await stage.admitted("runs")
        for how in ({"cpu": "1"}, {"ready": "False", "cpu": "9"}, {"ready": "Unknown"}, {"cpu": "-5"}, {"cpu": "4"}):
            await stage.karmada.set_summary("m1", **how)
            await stage.karmada.job(f"late-{len(stage.bindings())}", "q", cpu=2)
            await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        assert [name for name, each in stage.bindings().items() if each.admitted] == ["runs"]


async def test_the_room_of_what_has_finished_is_free_once_and_taken_again_by_what_runs_on(plane, tmp_path):
    """F17."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        for name in ("first", "second", "third"):
            await stage.karmada.job(name, "q", cpu=2)
        await stage.admitted("first")
        for phase in ("Completed", "Completed"):
            await stage.karmada.phase("first", phase)
        await stage.admitted("second")
        await stage.expect_no_writes(seconds=0.5)
        await stage.karmada.phase("first", "Running")
        await stage.history.until(lambda _: not stage.bindings()["first"].is_finished, "it runs again")
        await stage.expect_no_writes(seconds=0.5)
        await stage.karmada.phase("second", "Failed")
        await stage.expect_no_writes(seconds=1)
        assert stage.bindings()["third"].suspended, "the first holds its room again"
        await stage.karmada.phase("first", "Terminated")
        await stage.admitted("third")


async def test_what_comes_free_goes_to_who_is_first_in_the_order(plane, tmp_path):
    """I6: by the queue's priority, the job's priority, and age; only the judge looks at it."""
    names = ("a-young", "b-old", "c-high", "d-elsewhere")
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.karmada.priority_class("rig-high", 1000)
        await stage.karmada.queue("important", priority=5)
        await begun(stage, cpu="2")
        await stage.karmada.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.karmada.job("b-old", "q", cpu=2)
        await asyncio.sleep(1.1)
        await stage.karmada.job("a-young", "q", cpu=2)
        await stage.karmada.job("c-high", "q", cpu=2, priority="rig-high")
        await stage.karmada.job("d-elsewhere", "important", cpu=2)
        await asyncio.sleep(1.5)
        await stage.karmada.phase("runs", "Completed")
        for number in range(1, len(names) + 1):
            await stage.until(lambda seen, so_far=number: taken(seen) == so_far, f"{number} of them admitted")
            now = next(name for name, each in stage.bindings().items() if each.admitted and not each.is_finished)
            await asyncio.sleep(1.5)
            await stage.karmada.phase(now, "Completed")


def taken(seen: Mapping[str, BindingState]) -> int:
    return sum(each.admitted for name, each in seen.items() if name != "runs")


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


UNSTAMPED = b'{"metadata": {"labels": {"stamped": null}, "annotations": {"seen": "yes"}}}'


async def stamping(stage: Harness, name: str, *, wanted: bool) -> None:
    """Wait until the policy is in force, or is no more: the server takes its time."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            answer = await stage.karmada.api.patch(stage.karmada.path(name), UNSTAMPED, kind="merge")
            if ("stamped" in json.loads(answer)["metadata"]["labels"]) is wanted:
                return
            await asyncio.sleep(0.1)


@pytest.mark.long
async def test_somebody_who_stamps_every_write_does_not_disturb_it(plane, tmp_path):
    """F22: another policy changes what we write; ``dispatching`` stays, and nothing is written again for it."""
    base = "/apis/admissionregistration.k8s.io/v1"
    async with open_harness(plane, tmp_path, plays=False) as stage:
        stage.stamps.add(("metadata", "labels", "stamped"))
        uid = await stage.karmada.template("stamped", "q", cpu=3)
        await stage.karmada.bind("stamped", uid, suspension={"scheduling": True, "dispatching": True})
        await stage.karmada.create(f"{base}/mutatingadmissionpolicies", POLICY)
        binding = {**POLICY, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "stamps"}}
        await stage.karmada.create(f"{base}/mutatingadmissionpolicybindings", binding)
        await stamping(stage, "stamped", wanted=True)
        await begun(stage)
        await stage.admitted("stamped")
        await stage.karmada.job("next", "q", cpu=3)
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        stored = stage.history.now["resourcebindings"][stage.karmada.namespace, "stamped-job"]
        assert stored["spec"]["suspension"] == {"scheduling": False, "dispatching": True}
        assert stored["metadata"]["labels"]["stamped"] == "yes"
        await stage.karmada.delete(f"{base}/mutatingadmissionpolicybindings/stamps")
        await stage.karmada.delete(f"{base}/mutatingadmissionpolicies/stamps")
        await stage.karmada.job("clean", "q")
        await stamping(stage, "clean", wanted=False)


async def test_names_and_amounts_that_nobody_thinks_of_lose_nothing(plane, tmp_path):
    """F27: each is admitted, or waits and has a reason."""
    long = "x" * 63
    async with open_harness(plane, tmp_path, plays=False) as stage:
        for name in ("null", long, f"{long}.{long}.{long}.{'y' * 61}"):
            await stage.karmada.queue(name)
        await stage.karmada.queue("default")
        await stage.karmada.cluster("m1", **{"cpu": "90", "example.com/dpu": "2"})
        await stage.controller.start()
        for number, queue in enumerate(("null", long, f"{long}.{long}.{long}.{'y' * 61}", "")):
            await stage.karmada.job(f"j{number}", queue)
        await stage.karmada.job("z" * 249, "null")
        slashed = fake_karmada.job("slashed", "null")
        requests = slashed["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests["example.com/dpu"] = "2"
        for name, manifest in (("slashed", slashed), ("слово", fake_karmada.job("tasked", "null"))):
            manifest["spec"]["tasks"][0]["name"] = name
            manifest["metadata"]["annotations"] = {"word": "слово 文字 \u202e"}
            await stage.karmada.submit(manifest)
        for name, queue in (("nowhere", "no-such-queue"), ("root", "root"), ("elsewhere", "слово")):
            await stage.karmada.job(name, queue)
        await stage.admitted("j0", "j1", "j2", "j3", "z" * 249, "slashed", "tasked")
        await stage.expect_pending_reasons()
        await stage.expect_no_writes(seconds=0.5)
        assert [name for name, each in stage.bindings().items() if each.suspended] == ["nowhere", "root", "elsewhere"]


async def test_a_record_that_somebody_tampered_with_is_not_believed(plane, tmp_path):
    """A copy of another binding's record, and rubbish, admit nobody."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, cpu="3", capability={"cpu": "2"})
        await stage.karmada.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        record = stage.history.now["resourcebindings"][stage.karmada.namespace, "runs-job"]["metadata"]["annotations"]
        for name, text in (("copy", record[RECORD]), ("rubbish", "{" * 1000)):
            await stage.karmada.job(name, "q", cpu=1)
            await stage.karmada.merge(stage.karmada.path(name), {"metadata": {"annotations": {RECORD: text}}})
        placed = [{"name": "m1"}]
        await stage.karmada.merge(
            stage.karmada.path("copy"),
            {"spec": {"clusters": placed}, "metadata": {"annotations": {RECORD: record[RECORD]}}},
        )
        await stage.until(lambda seen: not seen["copy"].clusters, "the copy's clusters are taken away")
        await stage.expect_pending_reasons()
        await asyncio.gather(stage.expect_no_writes(seconds=0.5))
        assert [name for name, each in stage.bindings().items() if each.admitted] == ["runs"]


async def test_a_job_that_was_aborted_is_taken_back_and_its_room_goes_to_the_next(plane, tmp_path):
    """D8."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        for name in ("first", "second"):
            await stage.karmada.job(name, "q", cpu=2)
        await stage.admitted("first")
        await stage.karmada.phase("first", "Aborted")
        await stage.history.until(lambda _: stage.bindings()["first"].suspended, "the aborted one is paused")
        await stage.controller.wait_for_log('"reason":"Aborted"')
