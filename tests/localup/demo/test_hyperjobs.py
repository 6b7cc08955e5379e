from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.progress import HyperJobTracker, evaluate
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
def admit(hyperjobs, admitted):
    def admit(*plans):
        for name, plan in zip(NAMES, plans, strict=True):
            hyperjobs.on_binding(DemoJob({}, hyperjob="ml/llm"), admitted(job=name, plan=plan))

    return admit


def entries(hyperjobs, *statuses):
    return [
        (line.stage, line.text)
        for at, status in enumerate(statuses)
        for line in hyperjobs.on_hyperjob(status, float(at))
    ]


def test_each_hyperjob_stage_gets_an_entry(hyperjobs):
    steps = entries(
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
    entries(hyperjobs, hyperjob(reason="ExceedsEveryCluster", parts=0), hyperjob("Running"), hyperjob("Completed"))


def test_hyperjob_is_settled_after_one_plan_and_completion(hyperjobs, admit):
    finish(hyperjobs)
    assert not hyperjobs.all["ml/llm"].is_settled
    admit("uid@1", "uid@1")
    assert hyperjobs.all["ml/llm"].is_settled
    assert evaluate([], hyperjobs.all.values()).problems == []


def test_parts_admitted_in_different_plans_are_a_problem(hyperjobs, admit):
    finish(hyperjobs)
    admit("uid@1", "uid@2")
    (problem,) = evaluate([], hyperjobs.all.values()).problems
    assert problem.text == "the parts of ml/llm were admitted in 2 plans instead of one"


def test_hyperjob_without_expected_reason_is_a_problem(hyperjobs, admit):
    entries(hyperjobs, hyperjob("Running"), hyperjob("Completed"))
    admit("uid@1", "uid@1")
    assert [problem.text for problem in evaluate([], hyperjobs.all.values()).problems] == [
        "ml/llm was not pending as ExceedsEveryCluster; observed reasons: none"
    ]


def test_hyperjob_that_stays_pending_is_a_problem(hyperjobs):
    entries(hyperjobs, hyperjob(reason="ExceedsEveryCluster", message="too large", parts=0))
    assert [problem.text for problem in evaluate([], hyperjobs.all.values()).problems] == [
        "ml/llm is pending with 0 parts, 0 of them admitted: too large"
    ]


def test_user_submitted_hyperjob_is_always_settled(hyperjobs, admit):
    other = {**hyperjob(), "metadata": {"name": "other", "namespace": "ml"}}
    hyperjobs.on_hyperjob(other, 0.0)
    assert hyperjobs.all["ml/other"].is_settled
    assert evaluate([], [replace(hyperjobs.all["ml/other"])]).problems == []
