"""TC7: replays the decision log of a controller on a real API server and compares it with the written records."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from controller.reporting.decision_log.replay import RecordedDecision, ReplayResult, replay
from tests.faults.test_preemption import borrowed, evicted
from tests.rig.binding_state import parse_binding
from tests.rig.faults import Kill
from tests.rig.harness import Harness, open_harness
from tests.rig.scenarios import SCENARIOS, Scenario
from tests.waiting import LIMIT_SECONDS

NAMES = ("decisions.jsonl.2", "decisions.jsonl.1", "decisions.jsonl")


def judged_again(folder: Path) -> tuple[list[ReplayResult], list[RecordedDecision]]:
    """Return the replay results of all decision logs, oldest first."""
    found, passages = [], []
    for path in (folder / name for name in NAMES if (folder / name).exists()):
        with path.open("rb") as lines:
            findings, decided = replay(lines)
        assert findings.is_identical, f"{path.name}: {findings.differences[:2]}"
        found.append(findings)
        passages += decided
    return found, passages


def of(passages: list[RecordedDecision], action: str) -> list[dict[str, Any]]:
    return [passage.fields for passage in passages if passage.fields["action"] == action]


def written(harness: Harness) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield uid, time and record of every admission that was stored on a binding."""
    for change in harness.history.of("resourcebindings"):
        if change.after is None or change.key[0] != harness.karmada.namespace:
            continue
        seen = parse_binding(change.after)
        if seen.record.get("charge") and not seen.suspended:
            at = datetime.fromisoformat(seen.record["admittedAt"])
            yield seen.uid, round(at.timestamp() * 1000), seen.record


def agree(harness: Harness, passages: list[RecordedDecision]) -> int:
    """Compare every record on a binding with the decision log; return their number."""
    told = {(item["uid"], item["admittedAt"]): item for item in of(passages, "Admit")}
    found = {(uid, at): record for uid, at, record in written(harness)}
    for key, record in found.items():
        decided = told[key]
        assert record["queue"] == decided["queue"]
        assert record["charge"] == decided["request"]
        assert record["clusters"] == [cluster["name"] for cluster in decided["clusters"]]
    return len(found)


def text(path: Path) -> str:
    return path.read_text()


async def taken_down(harness: Harness, path: Path) -> None:
    """Wait until the decision log has all stored admissions, because a kill loses unflushed entries."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            told = text(path)
            if all(f'"admittedAt":{at}' in told for _, at, _ in written(harness)):
                return
            await asyncio.sleep(0.02)


def decision_log_flags(folder: Path) -> tuple[str | Path, ...]:
    return "--decision-log", folder / NAMES[-1]


async def test_replay_across_a_kill_equals_the_written_records(plane, tmp_path):
    path = tmp_path / NAMES[-1]
    async with open_harness(plane, tmp_path, *decision_log_flags(tmp_path)) as harness:
        await harness.karmada.queue("q", capability={"cpu": "2"})
        await harness.karmada.cluster("m1", cpu="9")
        names = [f"j{number}" for number in range(8)]
        for name in names[:4]:
            await harness.karmada.job(name, "q")
        await harness.controller.start()
        await harness.done(*names[:4])
        await taken_down(harness, path)
        harness.controller.kill()
        for name in names[4:]:
            await harness.karmada.job(name, "q")
        await harness.controller.start()
        await harness.done(*names)
        assert await harness.controller.metric("volcano_global_decision_log_losses_total") == 0
        await harness.controller.stop()
        await harness.check_invariants()
        found, passages = judged_again(tmp_path)
        assert agree(harness, passages) == len(names)
    assert len(found) == 2
    assert all(item.plans for item in found)
    waits = of(passages, "Wait")
    assert {wait["reason"] for wait in waits} >= {"QueueLimitReached"}
    refused = next(wait for wait in waits if wait["reason"] == "QueueLimitReached")
    assert (refused["rule"], refused["of"]) == ("Q2", "queue q")
    assert (refused["request"]["cpu"], refused["used"]["cpu"], refused["limit"]["cpu"]) == ("1", "2", "2")


async def test_log_and_decision_log_agree(plane, tmp_path):
    async with open_harness(plane, tmp_path, *decision_log_flags(tmp_path)) as harness:
        await harness.karmada.queue("q", capability={"cpu": "2"})
        await harness.karmada.cluster("m1", cpu="9")
        names = [f"j{number}" for number in range(5)]
        for name in names:
            await harness.karmada.job(name, "q")
        await harness.controller.start()
        await harness.done(*names)
        await harness.controller.stop()
        _, passages = judged_again(tmp_path)
        lines = [json.loads(line) for line in harness.controller.part.output.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["event"] in {"decision made", "workload pending"}]
    assert len(told) == len(passages) > len(names)
    for passage, line in zip(passages, told, strict=True):
        assert passage.fields.items() <= line.items()


async def test_preemption_is_replayed(plane, tmp_path):
    async with borrowed(plane, tmp_path, *decision_log_flags(tmp_path)) as harness:
        await harness.karmada.job("entitled", "lender", cpu=2)
        victim = await evicted(harness)
        await harness.karmada.delete_works(victim)
        await harness.admitted("entitled")
        await harness.controller.stop()
        _, passages = judged_again(tmp_path)
        assert agree(harness, passages) == 3
    [left] = of(passages, "Evict")
    assert (left["name"], left["reason"], left["rule"], left["of"]) == (
        victim,
        "Reclaimed",
        "P1",
        "entitlement of queue borrower",
    )
    entitled = [item for item in of(passages, "Admit") if item["name"] == "entitled"]
    assert [(item["rule"], item["uid"]) for item in entitled] == [("P5", left["forWhom"])]


async def killed_and_judged(plane, tmp_path, scenario: Scenario, n: int) -> None:
    async with open_harness(plane, tmp_path, *decision_log_flags(tmp_path)) as harness:
        await scenario.before(harness)
        kill = Kill(n, "after-unacknowledged", harness.controller.kill)
        harness.proxy.add(kill)
        await asyncio.to_thread(harness.controller.part.begin)
        playing = asyncio.create_task(scenario.then(harness))
        async with asyncio.timeout(LIMIT_SECONDS):
            await kill.struck.wait()
        await harness.controller.start()
        await playing
        await scenario.finish(harness)
        await harness.controller.stop()
        found, passages = judged_again(tmp_path)
    assert len(found) == 2
    assert found[1].plans
    assert of(passages, "Admit")


@pytest.mark.parametrize("n", [2])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(item, id=item.name, marks=() if item.name in {"gangs", "again"} else pytest.mark.long)
        for item in SCENARIOS
    ],
)
async def test_decision_logs_of_a_killed_controller_are_replayed(plane, tmp_path, scenario, n):
    await killed_and_judged(plane, tmp_path, scenario, n)


async def test_unwritable_decision_log_blocks_nothing(plane, tmp_path):
    async with open_harness(plane, tmp_path, "--decision-log", tmp_path / "missing" / "decisions.jsonl") as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="9")
        await harness.karmada.job("one", "q")
        await harness.controller.start()
        await harness.done("one")
        await harness.controller.wait_for_log("decision log interrupted")
        assert await harness.controller.metric("volcano_global_decision_log_losses_total") == 1
