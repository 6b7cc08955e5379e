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
    await stage.cast.queue("q", **queue)
    await stage.cast.cluster("m1", cpu=cpu)
    await stage.controller.start()


async def bound_again(stage: Harness, name: str, template: str) -> None:
    """Delete a binding and make another of its name, at once."""
    await stage.cast.delete(stage.cast.path(name))
    await stage.cast.bind(name, template)


@pytest.mark.parametrize("times", [20, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_binding_that_comes_again_under_its_name_is_judged_anew(plane, tmp_path, times):
    """F10: while it waits, is decided upon, is written, runs: another uid is another binding."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        template = await stage.cast.template("comes", "q", cpu=2)
        await stage.cast.bind("comes", template)
        for number in range(times):
            await bound_again(stage, "comes", template)
            if number % 3 == 0:
                await stage.admitted("comes")
        await stage.admitted("comes")
        await stage.cast.job("other", "q", cpu=1)
        await stage.visible()
        assert stage.sights()["other"].paused


async def test_what_is_being_deleted_is_not_admitted_and_stays_charged_while_it_may_run(plane, tmp_path):
    """F11."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        await stage.cast.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.cast.job("waits", "q", cpu=2)
        held = {"metadata": {"finalizers": ["karmada.io/binding-controller"]}}
        for name in ("runs", "waits"):
            await stage.cast.merge(stage.cast.path(name), held)
            await stage.cast.delete(stage.cast.path(name))
        await stage.cast.job("next", "q", cpu=2)
        await stage.quiet(seconds=1)
        assert stage.sights()["next"].paused
        await stage.cast.merge(stage.cast.path("runs"), {"metadata": {"finalizers": None}})
        await stage.admitted("next")
        await stage.cast.phase("next", "Completed")
        await stage.quiet(seconds=0.5)
        assert stage.sights()["waits"].paused
        await stage.cast.merge(stage.cast.path("waits"), {"metadata": {"finalizers": None}})


async def test_a_binding_whose_template_is_gone_stays_counted_and_one_that_waits_says_so(plane, tmp_path):
    """F12."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.cast.queue("default")
        await begun(stage, capability={"cpu": "2"})
        await stage.cast.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.cast.job("waits", "q", cpu=2)
        await stage.controller.says(f"Job {stage.cast.namespace}/waits")
        for name in ("runs", "waits"):
            await stage.cast.delete(JOBS.item_path(stage.cast.namespace, name))
        await stage.controller.says('"reason":"RequestsUnknown"')
        await stage.cast.job("next", "q", cpu=1)
        await stage.visible()
        await stage.quiet(seconds=0.5)
        assert stage.sights()["next"].paused
        await stage.cast.phase("runs", "Completed")
        await stage.admitted("next")
        assert stage.sights()["waits"].paused


async def test_queues_that_go_close_break_or_shrink_keep_what_they_admitted_and_admit_no_more(plane, tmp_path):
    """F13."""
    names = ("gone", "closed", "cut", "orphan", "loop-a", "loop-b")
    async with open_harness(plane, tmp_path, plays=False) as stage:
        for name in (*names, "well", "top"):
            await stage.cast.queue(name, **({"parent": "top"} if name == "orphan" else {}))
        await stage.cast.cluster("m1", cpu="20")
        await stage.controller.start()
        for name in names:
            await stage.cast.job(f"{name}-runs", name)
        await stage.admitted(*(f"{name}-runs" for name in names))
        await stage.cast.delete(QUEUE.format("gone"))
        await stage.cast.merge(QUEUE.format("closed") + "/status", {"status": {"state": "Closed"}})
        await stage.cast.merge(QUEUE.format("cut"), {"spec": {"capability": {"cpu": "500m"}}})
        await stage.cast.delete(QUEUE.format("top"))
        await stage.cast.merge(QUEUE.format("loop-a"), {"spec": {"parent": "loop-b"}})
        await stage.cast.merge(QUEUE.format("loop-b"), {"spec": {"parent": "loop-a"}})
        for name in names:
            await stage.cast.job(f"{name}-waits", name)
        await stage.cast.job("well-runs", "well", cpu=14)
        await stage.admitted("well-runs")
        await stage.cast.job("well-waits", "well")
        await stage.visible()
        await stage.quiet(seconds=0.5)
        seen = stage.sights()
        assert all(seen[f"{name}-runs"].admitted and seen[f"{name}-waits"].paused for name in names)
        assert seen["well-waits"].paused, "what the broken queues hold is counted at the root"
        for reason in ("QueueNotFound", "QueueClosed", "QueueHierarchyInvalid", "ExceedsQueueLimit"):
            await stage.controller.says(f'"reason":"{reason}"')


@pytest.mark.long
async def test_a_priority_class_that_is_deleted_hides_nobody_who_was_admitted(plane, tmp_path):
    """F14."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.cast.priority_class("rig-high", 1000)
        await begun(stage, capability={"cpu": "2"})
        await stage.cast.job("runs", "q", cpu=2, priority="rig-high")
        await stage.admitted("runs")
        await stage.cast.job("a-low", "q", cpu=2)
        await stage.cast.job("z-high", "q", cpu=2, priority="rig-high")
        await stage.visible()
        await stage.cast.delete(f"{PRIORITY_CLASSES.path}/rig-high")
        await stage.quiet(seconds=0.5)
        await stage.cast.phase("runs", "Completed")
        await stage.admitted("a-low")
        await stage.quiet(seconds=0.5)
        assert stage.sights()["z-high"].paused


async def test_room_that_shrinks_under_what_runs_evicts_nobody_and_admits_nobody(plane, tmp_path):
    """F16 and F15."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage)
        await stage.cast.job("runs", "q", cpu=4)
        await stage.admitted("runs")
        for how in ({"cpu": "1"}, {"ready": "False", "cpu": "9"}, {"ready": "Unknown"}, {"cpu": "-5"}, {"cpu": "4"}):
            await stage.cast.summarize("m1", **how)
            await stage.cast.job(f"late-{len(stage.sights())}", "q", cpu=2)
            await stage.visible()
        await stage.quiet(seconds=0.5)
        assert [name for name, each in stage.sights().items() if each.admitted] == ["runs"]


async def test_the_room_of_what_has_finished_is_free_once_and_taken_again_by_what_runs_on(plane, tmp_path):
    """F17."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        for name in ("first", "second", "third"):
            await stage.cast.job(name, "q", cpu=2)
        await stage.admitted("first")
        for phase in ("Completed", "Completed"):
            await stage.cast.phase("first", phase)
        await stage.admitted("second")
        await stage.quiet(seconds=0.5)
        await stage.cast.phase("first", "Running")
        await stage.history.until(lambda _: not stage.sights()["first"].over, "it runs again")
        await stage.quiet(seconds=0.5)
        await stage.cast.phase("second", "Failed")
        await stage.quiet(seconds=1)
        assert stage.sights()["third"].paused, "the first holds its room again"
        await stage.cast.phase("first", "Terminated")
        await stage.admitted("third")


async def test_what_comes_free_goes_to_who_is_first_in_the_order(plane, tmp_path):
    """I6: by the queue's priority, the job's priority, and age; only the judge looks at it."""
    names = ("a-young", "b-old", "c-high", "d-elsewhere")
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await stage.cast.priority_class("rig-high", 1000)
        await stage.cast.queue("important", priority=5)
        await begun(stage, cpu="2")
        await stage.cast.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        await stage.cast.job("b-old", "q", cpu=2)
        await asyncio.sleep(1.1)
        await stage.cast.job("a-young", "q", cpu=2)
        await stage.cast.job("c-high", "q", cpu=2, priority="rig-high")
        await stage.cast.job("d-elsewhere", "important", cpu=2)
        await asyncio.sleep(1.5)
        await stage.cast.phase("runs", "Completed")
        for number in range(1, len(names) + 1):
            await stage.until(lambda seen, so_far=number: taken(seen) == so_far, f"{number} of them admitted")
            now = next(name for name, each in stage.sights().items() if each.admitted and not each.over)
            await asyncio.sleep(1.5)
            await stage.cast.phase(now, "Completed")


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
            answer = await stage.cast.api.patch(stage.cast.path(name), UNSTAMPED, kind="merge")
            if ("stamped" in json.loads(answer)["metadata"]["labels"]) is wanted:
                return
            await asyncio.sleep(0.1)


@pytest.mark.long
async def test_somebody_who_stamps_every_write_does_not_disturb_it(plane, tmp_path):
    """F22: another policy changes what we write; ``dispatching`` stays, and nothing is written again for it."""
    base = "/apis/admissionregistration.k8s.io/v1"
    async with open_harness(plane, tmp_path, plays=False) as stage:
        stage.stamps.add(("metadata", "labels", "stamped"))
        uid = await stage.cast.template("stamped", "q", cpu=3)
        await stage.cast.bind("stamped", uid, suspension={"scheduling": True, "dispatching": True})
        await stage.cast.create(f"{base}/mutatingadmissionpolicies", POLICY)
        binding = {**POLICY, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "stamps"}}
        await stage.cast.create(f"{base}/mutatingadmissionpolicybindings", binding)
        await stamping(stage, "stamped", wanted=True)
        await begun(stage)
        await stage.admitted("stamped")
        await stage.cast.job("next", "q", cpu=3)
        await stage.visible()
        await stage.quiet(seconds=0.5)
        stored = stage.history.now["resourcebindings"][stage.cast.namespace, "stamped-job"]
        assert stored["spec"]["suspension"] == {"scheduling": False, "dispatching": True}
        assert stored["metadata"]["labels"]["stamped"] == "yes"
        await stage.cast.delete(f"{base}/mutatingadmissionpolicybindings/stamps")
        await stage.cast.delete(f"{base}/mutatingadmissionpolicies/stamps")
        await stage.cast.job("clean", "q")
        await stamping(stage, "clean", wanted=False)


async def test_names_and_amounts_that_nobody_thinks_of_lose_nothing(plane, tmp_path):
    """F27: each is admitted, or waits and has a reason."""
    long = "x" * 63
    async with open_harness(plane, tmp_path, plays=False) as stage:
        for name in ("null", long, f"{long}.{long}.{long}.{'y' * 61}"):
            await stage.cast.queue(name)
        await stage.cast.queue("default")
        await stage.cast.cluster("m1", **{"cpu": "90", "example.com/dpu": "2"})
        await stage.controller.start()
        for number, queue in enumerate(("null", long, f"{long}.{long}.{long}.{'y' * 61}", "")):
            await stage.cast.job(f"j{number}", queue)
        await stage.cast.job("z" * 249, "null")
        slashed = fake_karmada.job("slashed", "null")
        requests = slashed["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
        requests["example.com/dpu"] = "2"
        for name, manifest in (("slashed", slashed), ("слово", fake_karmada.job("tasked", "null"))):
            manifest["spec"]["tasks"][0]["name"] = name
            manifest["metadata"]["annotations"] = {"word": "слово 文字 \u202e"}
            await stage.cast.submit(manifest)
        for name, queue in (("nowhere", "no-such-queue"), ("root", "root"), ("elsewhere", "слово")):
            await stage.cast.job(name, queue)
        await stage.admitted("j0", "j1", "j2", "j3", "z" * 249, "slashed", "tasked")
        await stage.visible()
        await stage.quiet(seconds=0.5)
        assert [name for name, each in stage.sights().items() if each.paused] == ["nowhere", "root", "elsewhere"]


async def test_a_record_that_somebody_tampered_with_is_not_believed(plane, tmp_path):
    """A copy of another binding's record, and rubbish, admit nobody."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, cpu="3", capability={"cpu": "2"})
        await stage.cast.job("runs", "q", cpu=2)
        await stage.admitted("runs")
        record = stage.history.now["resourcebindings"][stage.cast.namespace, "runs-job"]["metadata"]["annotations"]
        for name, text in (("copy", record[RECORD]), ("rubbish", "{" * 1000)):
            await stage.cast.job(name, "q", cpu=1)
            await stage.cast.merge(stage.cast.path(name), {"metadata": {"annotations": {RECORD: text}}})
        placed = [{"name": "m1"}]
        await stage.cast.merge(
            stage.cast.path("copy"),
            {"spec": {"clusters": placed}, "metadata": {"annotations": {RECORD: record[RECORD]}}},
        )
        await stage.until(lambda seen: not seen["copy"].clusters, "the copy's clusters are taken away")
        await stage.visible()
        await asyncio.gather(stage.quiet(seconds=0.5))
        assert [name for name, each in stage.sights().items() if each.admitted] == ["runs"]


async def test_a_job_that_was_aborted_is_taken_back_and_its_room_goes_to_the_next(plane, tmp_path):
    """D8."""
    async with open_harness(plane, tmp_path, plays=False) as stage:
        await begun(stage, capability={"cpu": "2"})
        for name in ("first", "second"):
            await stage.cast.job(name, "q", cpu=2)
        await stage.admitted("first")
        await stage.cast.phase("first", "Aborted")
        await stage.history.until(lambda _: stage.sights()["first"].paused, "the aborted one is paused")
        await stage.controller.says('"reason":"Aborted"')
