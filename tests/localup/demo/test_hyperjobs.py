from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.hyperjobs import HyperJobTracker
from localup.demo.result import evaluate
from localup.demo.scenario import DemoHyperJob, DemoJob

MANIFEST = {
    "apiVersion": "training.volcano.sh/v1alpha1",
    "kind": "HyperJob",
    "metadata": {"name": "llm", "namespace": "ml"},
}
NAMES = ("ml/llm-t-0", "ml/llm-t-1")


def hyperjob(phase="Pending", *, reason="Pending", message="", parts=2):
    split = {"parts": [{"name": f"llm-t-{number}", "cluster": f"c{number}", "pods": [1, 7]} for number in range(parts)]}
    conditions = [{"type": "Pending", "status": "True" if phase == "Pending" else "False", "reason": reason}]
    status = {"phase": phase, "message": message, "conditions": conditions, "split": split, "clusters": "c0,c1"}
    return {**MANIFEST, "status": status}


@pytest.fixture
def hyperjobs():
    return HyperJobTracker({"ml/llm": DemoHyperJob(MANIFEST, Reason.EXCEEDS_EVERY_CLUSTER)})


@pytest.fixture
def see(hyperjobs, admitted):
    def see(*plans):
        for name, plan in zip(NAMES, plans, strict=True):
            hyperjobs.on_binding(DemoJob({}, hyperjob="ml/llm"), admitted(job=name, plan=plan))

    return see


def told(hyperjobs, *statuses):
    return [
        (line.stage, line.text) for at, each in enumerate(statuses) for line in hyperjobs.on_hyperjob(each, float(at))
    ]


def test_a_hyperjob_is_told_step_by_step(hyperjobs):
    steps = told(
        hyperjobs,
        MANIFEST,
        hyperjob(reason="ExceedsEveryCluster", message="too large", parts=0),
        hyperjob(),
        hyperjob("Admitted"),
        hyperjob("Running", message="2 of 2 parts run"),
        hyperjob("Running", message="2 of 2 parts run"),
        hyperjob("Completed", message="2 of 2 parts completed"),
    )
    assert steps == [
        ("pending", "ExceedsEveryCluster: too large"),
        ("split", "in 2 parts: c0 8, c1 8"),
        ("admitted", "all 2 parts after 3.0 s"),
        ("running", "2 of 2 parts run, on c0,c1"),
        ("finished", "Completed: 2 of 2 parts completed"),
    ]


def finish(hyperjobs):
    told(hyperjobs, hyperjob(reason="ExceedsEveryCluster", parts=0), hyperjob("Running"), hyperjob("Completed"))


def test_it_is_settled_when_its_parts_were_admitted_in_one_plan_and_have_run(hyperjobs, see):
    finish(hyperjobs)
    assert not hyperjobs.all["ml/llm"].is_settled
    see("uid@1", "uid@1")
    assert hyperjobs.all["ml/llm"].is_settled
    assert evaluate([], hyperjobs.all.values(), hyperjobs.violations).problems == []


def test_parts_of_different_plans_are_noted(hyperjobs, see):
    finish(hyperjobs)
    see("uid@1", "uid@2")
    assert hyperjobs.violations == ["the parts of ml/llm were admitted in 2 plans instead of one"]


def test_who_was_not_seen_to_wait_is_trouble(hyperjobs, see):
    told(hyperjobs, hyperjob("Running"), hyperjob("Completed"))
    see("uid@1", "uid@1")
    assert [problem.text for problem in evaluate([], hyperjobs.all.values(), ()).problems] == [
        "ml/llm was to wait as ExceedsEveryCluster at first; it waited as nothing"
    ]


def test_who_is_stuck_is_trouble(hyperjobs):
    told(hyperjobs, hyperjob(reason="ExceedsEveryCluster", message="too large", parts=0))
    assert [problem.text for problem in evaluate([], hyperjobs.all.values(), ()).problems] == [
        "ml/llm is pending with 0 parts, 0 of them admitted: too large"
    ]


def test_of_what_somebody_at_the_keyboard_submits_nothing_is_expected(hyperjobs, see):
    other = {**hyperjob(), "metadata": {"name": "other", "namespace": "ml"}}
    hyperjobs.on_hyperjob(other, 0.0)
    assert hyperjobs.all["ml/other"].is_settled
    assert evaluate([], [replace(hyperjobs.all["ml/other"])], ()).problems == []
