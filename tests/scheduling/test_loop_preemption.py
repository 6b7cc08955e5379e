"""What the loop submits during preemption, after rejections and after restarts (P5, R2)."""

import asyncio
from typing import Any

from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.cache.objects import CachedHyperJob
from controller.cache.translate.units import format_time
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import WorkloadUid
from controller.scheduling.writes import Write
from tests.benchmarks.seed import CLUSTER
from tests.scheduling.test_loop import UID, LoopHarness, begin_plan, in_turn, looping, wall_clock
from tests.virtual_time import virtual_time

RECLAIM = VolcanoGlobalConfiguration.model_validate(
    {
        "apiVersion": "config.volcano-global.io/v1alpha1",
        "kind": "VolcanoGlobalConfiguration",
        "reclaim": {"enabled": True, "minRuntime": "0s", "gracePeriod": "0s"},
        "clusterStatusSettlePeriod": "1s",
    }
)
PLACED: dict[str, Any] = {"suspension": {"scheduling": False}, "clusters": [{"name": CLUSTER}]}
RUNS = {"aggregatedStatus": [{"clusterName": CLUSTER, "status": {"state": {"phase": "Running"}}}]}
HELD = {
    "nominatedCluster": CLUSTER,
    "nominatedAt": "2020-01-01T00:00:00Z",
    "nominationRank": 0,
    "nominatedRequests": {},
}


def run(harness: LoopHarness, name: str, **job: Any) -> None:
    """Make a job of the borrowing queue run with an admission record."""
    charge = {"cpu": "1", "memory": "1Gi", "pods": "1"}
    record = {"uid": UID.format(name), "queue": "borrower", "charge": charge, "clusters": [CLUSTER]}
    harness.submit(name, "borrower", record=record, status=RUNS, **PLACED, **job)


def full(harness: LoopHarness) -> None:
    """Make one queue borrow a CPU of another queue's fair share."""
    harness.store.configure(RECLAIM)
    for name in ("lender", "borrower"):
        harness.update(
            harness.store.queues, {"metadata": {"name": name}, "spec": {"weight": 1, "deserved": {"cpu": "1"}}}
        )
    for name in ("a", "b"):
        run(harness, name)


def leave(harness: LoopHarness, write: Write, *, gone: bool = False) -> None:
    """Observe an eviction; the cluster reports the workload until it is *gone*."""
    record = {"uid": write.uid, "queue": "borrower", "evictions": 1}
    paused = {"suspension": {"scheduling": True}, "clusters": None}
    name = write.workload.rpartition("/")[2]
    harness.bind(name, record=record, status={} if gone else RUNS, **paused)
    harness.store.confirm(write.uid, harness.version)


@virtual_time
async def test_preemptor_is_admitted_after_victim_has_terminated():
    async with looping(cpus=2) as harness:
        full(harness)
        harness.submit("preemptor", "lender")
        nominated, evicted = await harness.actuator.next(), await harness.actuator.next()
        assert (nominated.effect, nominated.workload, nominated.recorded) == ("hold", "Job ns/preemptor", CLUSTER)
        assert (evicted.effect, evicted.reason, evicted.preemptor) == ("evict", "Reclaimed", "Job ns/preemptor")
        # Events of the victims while they are still running change nothing.
        for name in ("a", "b"):
            run(harness, name)
        await asyncio.sleep(0.1)
        leave(harness, evicted)
        await asyncio.sleep(0.1)
        assert harness.actuator.writes.empty()
        leave(harness, evicted, gone=True)
        assert (await harness.actuator.next()).workload == "Job ns/preemptor"


def test_victim_that_changes_during_the_plan_keeps_the_others(monkeypatch):
    monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", 1)
    harness = LoopHarness(2, {})
    harness.store.configure(RECLAIM)
    for name in ("lender", "borrower"):
        harness.update(
            harness.store.queues, {"metadata": {"name": name}, "spec": {"weight": 1, "deserved": {"cpu": "2"}}}
        )
    harness.update(harness.store.queues, {"metadata": {"name": "borrower"}, "spec": {"weight": 1}})
    for name in ("a", "b"):
        run(harness, name)
    harness.submit("preemptor", "lender", pods=2)
    begin_plan(harness)
    run(harness, "a")
    in_turn(harness)
    assert harness.actuator.writes.empty()
    in_turn(harness)
    assert [(write.effect, write.workload) for write in harness.actuator.written()] == [
        ("hold", "Job ns/preemptor"),
        ("evict", "Job ns/a"),
        ("evict", "Job ns/b"),
    ]


def test_part_that_changes_during_the_plan_keeps_the_others(monkeypatch):
    """No part of a HyperJob is evicted without those that cannot run without it (G1)."""
    monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", 1)
    harness = LoopHarness(2, {})
    harness.store.configure(load_configuration("resize: {gracePeriod: 0s}"))
    harness.update(harness.store.queues, {"metadata": {"name": "borrower"}, "spec": {"weight": 1}})
    harness.store.expect_hyperjobs()
    parts = frozenset({"a", "b"})
    harness.store.hyperjob_changed("hyper", CachedHyperJob("ns", created_at=0, split="s1", parts=parts, minimum=2))
    owner = {"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "name": "h", "uid": "hyper"}
    group = {"volcano-global.io/group": '{"uid": "hyper", "split": "s1"}'}
    of_hyperjob = {"ownerReferences": [{**owner, "controller": True}], "annotations": group}
    run(harness, "a", pods=3, meta=of_hyperjob)
    run(harness, "b", meta=of_hyperjob)
    harness.submit("waits", "borrower")
    begin_plan(harness)
    run(harness, "b", meta=of_hyperjob)
    in_turn(harness)
    assert harness.actuator.writes.empty()
    in_turn(harness)
    assert [(write.effect, write.workload) for write in harness.actuator.written()] == [
        ("evict", "Job ns/a"),
        ("evict", "Job ns/b"),
    ]


@virtual_time
async def test_rejected_eviction_selects_another_victim():
    async with looping(cpus=2) as harness:
        full(harness)
        harness.submit("preemptor", "lender")
        await harness.actuator.next()
        evicted = await harness.actuator.next()
        until = wall_clock() + 60_000
        harness.store.roll_back(evicted.uid, Refusal(Reason.STARTUP_BACKOFF, subject="not today", until=until))
        given_up, held, other = [await harness.actuator.next() for _ in range(3)]
        assert (given_up.effect, given_up.recorded, held.effect, held.recorded) == ("hold", "", "hold", CLUSTER)
        assert (other.effect, other.uid != evicted.uid) == ("evict", True)


@virtual_time
async def test_rejected_admission_of_a_nominated_workload_is_retried():
    async with looping(cpus=2) as harness:
        harness.update(harness.store.queues, {"metadata": {"name": "lender"}, "spec": {"weight": 1}})
        harness.submit("other", "lender", suspension={"scheduling": True, "dispatching": True})
        uid = WorkloadUid(UID.format("held"))
        record = {
            "uid": uid,
            "queue": "lender",
            **HELD,
            "nominatedRequests": {"cpu": "1", "memory": "1Gi", "pods": "1"},
        }
        record["nominatedAt"] = format_time(wall_clock())
        harness.submit("held", "lender", record=record)
        assert (await harness.actuator.next()).workload == "Job ns/held"
        began = wall_clock()
        harness.actuator.refused[uid] = began + 100
        harness.store.roll_back(uid, Refusal(Reason.STARTUP_BACKOFF, until=began + 100))
        write = await harness.actuator.next()
        assert (write.workload, write.effect) == ("Job ns/held", "admit")
        assert 100 <= wall_clock() - began < 1000


@virtual_time
async def test_victim_that_was_not_placed_stays_charged_for_a_while():
    async with looping(cpus=1) as harness:
        harness.update(harness.store.queues, {"metadata": {"name": "borrower"}, "spec": {"weight": 1}})
        record = {"uid": UID.format("a"), "queue": "borrower", "clusters": [CLUSTER], "evictions": 1}
        harness.submit("a", "borrower", record=record)
        harness.submit("b", "borrower")
        await asyncio.sleep(320)
        assert harness.actuator.writes.empty()
        assert harness.loop.engine.workloads[WorkloadUid(UID.format("a"))].is_being_evicted
        await asyncio.sleep(11)
        assert (await harness.actuator.next()).workload == "Job ns/a"
