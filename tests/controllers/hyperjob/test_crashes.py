"""F28: the process ends after each single write of a HyperJob's life, and a new one completes it.

Every scenario runs once for each of its writes, with a crash there. It must reach the same end, and at no change may a
part have a second Job, or a new Job after the end (I5). A crash before a write is one after the write before it.
"""

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controller.api.keys import HYPERJOBS, JOBS, PART_ANNOTATION, PROPAGATION_POLICIES
from controller.kube.errors import Unreachable
from tests.controllers.hyperjob.harness import NOW, Harness
from tests.controllers.hyperjob.objects import document, gpus, replicated, task, template, two_copies
from tests.rig.history import Change
from tests.rig.hyperjob_invariant import HyperJobChecker

AUTO = replicated("t", task(replicas=64), splitPolicy={"mode": "auto"})


def changed(**change: Any) -> Callable[[Harness, str], Awaitable[None]]:
    """Return the scenario of a change of the replicated job."""

    async def scenario(harness: Harness, name: str) -> None:
        await harness.start(two_copies(name=name))
        job = {**replicated("t", task(replicas=4), replicas=2), **change}
        harness.merge(HYPERJOBS, name, {"spec": {"replicatedJobs": [job]}})

    return scenario


async def create(harness: Harness, name: str) -> None:
    harness.submit(two_copies(name=name))


async def suspend(harness: Harness, name: str) -> None:
    await harness.start(two_copies(name=name))
    harness.merge(HYPERJOBS, name, {"spec": {"suspend": True}})


async def resume(harness: Harness, name: str) -> None:
    await harness.start(two_copies(name=name, suspend=True))
    harness.merge(HYPERJOBS, name, {"spec": {"suspend": False}})


def failed(**policy: int) -> Callable[[Harness, str], Awaitable[None]]:
    """Return the scenario of a part that fails while the other one runs."""

    async def scenario(harness: Harness, name: str) -> None:
        await harness.start(two_copies(name=name, failurePolicy=policy))
        harness.report(f"{name}-t-0", "Failed")
        harness.report(f"{name}-t-1", "Running")

    return scenario


async def finish(harness: Harness, name: str, **more: Any) -> None:
    await harness.start(two_copies(name=name, **more))
    for part in range(2):
        harness.report(f"{name}-t-{part}", "Completed", succeeded=4)


async def clean_up(harness: Harness, name: str) -> None:
    await finish(harness, name, cleanupPolicy="All")


async def vanish(harness: Harness, name: str) -> None:
    """Both parts are over, and the Job of one is deleted by its TTL."""
    await finish(harness, name)
    await harness.run(name)
    harness.remove(JOBS, f"{name}-t-0")


async def expire(harness: Harness, name: str) -> None:
    await finish(harness, name, ttlSecondsAfterFinished=60)
    await harness.reconcile(name)
    assert await harness.run(name) == NOW + 60_000
    harness.now = NOW + 60_000


async def move(harness: Harness, name: str) -> None:
    """A split that waits moves to where there is room now."""
    harness.capacity = gpus(a=40, b=40)
    await harness.start(document(AUTO, name=name))
    harness.capacity = gpus(c=64)


async def foreign(harness: Harness, name: str) -> None:
    """Somebody else has a Job of the second part's name."""
    harness.foreign(f"{name}-t-1")
    harness.submit(two_copies(name=name))


BOTH = ["t-0", "t-1"]


@pytest.mark.parametrize(
    ("scenario", "phase", "jobs"),
    [
        pytest.param(create, "Pending", BOTH, id="create"),
        pytest.param(changed(replicas=3), "Pending", [*BOTH, "t-2"], id="grow"),
        pytest.param(changed(replicas=1), "Pending", ["t-0"], id="shrink"),
        pytest.param(changed(replicas=0), "Pending", [], id="nothing-left"),
        pytest.param(changed(name="u"), "Pending", ["u-0", "u-1"], id="rename"),
        pytest.param(changed(templateSpec=template(task(replicas=6))), "Pending", BOTH, id="resize"),
        pytest.param(suspend, "Suspended", [], id="suspend"),
        pytest.param(resume, "Pending", BOTH, id="resume"),
        pytest.param(failed(maxRetries=1), "Pending", BOTH, id="retry"),
        pytest.param(failed(), "Failed", ["t-0"], id="give-up"),
        pytest.param(failed(maxRestarts=1), "Pending", BOTH, id="roll-back"),
        pytest.param(finish, "Completed", BOTH, id="finish"),
        pytest.param(clean_up, "Completed", [], id="clean-up"),
        pytest.param(vanish, "Completed", ["t-1"], id="vanish"),
        pytest.param(expire, "gone", [], id="expire"),
        pytest.param(move, "Pending", ["t-0"], id="move"),
        pytest.param(foreign, "Pending", [], id="foreign"),
    ],
)
async def test_f28_crash_at_any_write_is_repaired(harness: Harness, scenario, phase: str, jobs: list[str]):
    expected = None
    with judged(harness, is_whole=scenario is not foreign):
        for point in itertools.count(-1):
            name = f"try{point + 1}"
            harness.now = NOW
            await scenario(harness, name)
            crashed = await crash(harness, name, point)
            await harness.reconcile(name)
            harness.collect_garbage()
            final = picture(harness, name)
            assert final == (expected or final), point
            expected = final
            if point >= 0 and not crashed:
                break
    (status, _), objects = expected
    found_jobs, policies = ([name for of, name, _ in objects if of == kind] for kind in ("Job", "PropagationPolicy"))
    assert (status, found_jobs) == (phase, [f"it-{suffix}" for suffix in jobs])
    assert policies == found_jobs or scenario is vanish


@contextmanager
def judged(harness: Harness, *, is_whole: bool) -> Iterator[None]:
    """Check that I5 holds at each change."""
    checker, violations = HyperJobChecker(), []

    def observe(change) -> None:
        entered = Change(change.version, change.kind.plural, change.key, change.previous, change.obj, 0)
        violations.extend(checker.apply(entered))

    harness.server.observers.append(observe)
    yield
    assert violations == []
    assert not is_whole or list(checker.unlike_their_split()) == []


async def crash(harness: Harness, name: str, point: int) -> bool:
    """Make one pass that ends at the write with this number; return whether there was one."""
    harness.traffic.writes = []
    harness.traffic.fail_after = point
    try:
        await harness.run(name)
    except Unreachable:
        return True
    finally:
        harness.traffic.fail_after = None
    return False


def picture(harness: Harness, name: str) -> tuple[Any, list[tuple[str, str, str]]]:
    """Return the state of a HyperJob and its objects, whatever its own name is."""
    objects = [
        (kind.kind, item["metadata"]["name"].replace(name, "it"), json.dumps(item["spec"]).replace(name, "it"))
        for kind in (JOBS, PROPAGATION_POLICIES)
        for item in harness.items(kind)
        if item["metadata"].get("labels", {}).get("volcano.sh/hyperjob-name") == name
    ]
    if name not in harness.names(HYPERJOBS):
        return ("gone", []), objects
    status = harness.status(name)
    parts = [(part["name"].replace(name, "it"), part["phase"]) for part in status.get("split", {}).get("parts", ())]
    return (status["phase"], parts), objects


def hyperjob(phase: str, *parts: str) -> Change:
    split = {"parts": [{"name": name, "phase": "Pending"} for name in parts]}
    after = {"metadata": {"uid": "u", "name": "llm"}, "status": {"phase": phase, "split": split}}
    return Change(1, "hyperjobs", ("ml", "llm"), None, after, 0)


def job(name: str, index: int) -> Change:
    metadata = {
        "ownerReferences": [{"kind": "HyperJob", "uid": "u", "controller": True}],
        "labels": {"volcano.sh/replicatedjob-name": "t"},
        "annotations": {PART_ANNOTATION: json.dumps({"index": index})},
    }
    return Change(1, "jobs", ("ml", name), None, {"metadata": metadata}, 0)


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        pytest.param(
            (hyperjob("Pending", "a", "b"), job("a", 0), job("b", 0)),
            "1: Job ml/b is a second one for ('u', 't', 0)",
            id="second-job-of-a-part",
        ),
        pytest.param(
            (hyperjob("Completed", "a"), job("a", 0)),
            "1: Job ml/a was made although its HyperJob is Completed",
            id="job-created-after-the-end",
        ),
        pytest.param(
            (hyperjob("Pending", "a", "b"), job("a", 0)),
            "HyperJob llm has ['a'] instead of ['a', 'b']",
            id="jobs-unlike-the-split",
        ),
    ],
)
def test_i5_checker_reports_violations(changes, violation):
    checker = HyperJobChecker()
    violations = [reported for change in changes for reported in checker.apply(change)]
    assert [*violations, *checker.unlike_their_split()] == [violation]


async def test_f28_deletion_follows_its_propagation_policy(harness: Harness):
    await harness.start(two_copies(name="gone"))
    harness.remove(HYPERJOBS, "gone")
    assert (harness.names(), harness.names(PROPAGATION_POLICIES)) == ([], [])
    await harness.start(two_copies())
    orphans = harness.uids()
    harness.orphan("llm")
    assert (harness.uids(), len(orphans)) == (orphans, 2)
    await harness.start(two_copies())
    assert harness.status()["conditions"][0]["reason"] == "NameTaken"
    assert harness.uids() == orphans
