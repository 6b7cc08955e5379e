"""When the loop runs a cycle, what it submits, and how it recovers from failures."""

import asyncio
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from controller.api.configuration import Tenant, VolcanoGlobalConfiguration
from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.assumed_writes import AssumedRecordUpdate
from controller.cache.objects import VOLCANO_JOB, TemplateKey
from controller.cache.start_failures import cluster_fingerprint
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.engine.steps import Steps
from controller.kube.timing import wall_clock
from controller.reporting.metrics import ControllerMetrics
from controller.scheduling.loop import AdmissionLoop
from controller.scheduling.writes import Write
from tests.benchmarks.seed import CLUSTER, binding, cluster_manifest, job
from tests.virtual_time import virtual_time
from tests.waiting import LIMIT_SECONDS

UID = "u-{}"
SUSPENDED_BY_USER = {"scheduling": True, "dispatching": True}


class RecordingActuator:
    """Receives decisions like an actuator, and writes nothing."""

    def __init__(self) -> None:
        self.writes: asyncio.Queue[Write] = asyncio.Queue()
        self.refused: dict[str, int] = {}
        self.busy: set[str] = set()
        self.is_slow = False
        """Whether a submitted write stays in progress until its binding is removed from `busy`."""
        self.may_write = True
        self.backlog = 0
        self.max_backlog = 256

    def submit(self, write: Write) -> None:
        self.writes.put_nowait(write)
        if self.is_slow:
            self.busy.add(write.uid)

    def next_write_at(self, uid: WorkloadUid) -> int | None:
        return None if uid in self.busy else self.refused.get(uid, 0)

    async def next(self) -> Write:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.writes.get()

    def written(self) -> list[Write]:
        """Return the writes that were submitted since the last call."""
        return [self.writes.get_nowait() for _ in range(self.writes.qsize())]


class Cache:
    def __init__(self, *, synced: bool = True) -> None:
        self.synced = asyncio.Event()
        if synced:
            self.synced.set()


class LoopHarness:
    """A store with manually added objects, and a loop."""

    def __init__(self, cpus: int, caches: dict[str, Cache]) -> None:
        self.store, self.actuator, self.metrics = Store(), RecordingActuator(), ControllerMetrics()
        self.loop = AdmissionLoop(self.store, self.actuator, caches, metrics=self.metrics)
        self.version = 1
        self.update(self.store.queues, {"metadata": {"name": "default"}, "spec": {"weight": 1}})
        self.update(
            self.store.clusters, cluster_manifest(CLUSTER, {"cpu": str(cpus), "memory": "100Gi", "pods": "100"})
        )
        for collection in (self.store.bindings, self.store.cluster_bindings, self.store.jobs):
            collection.replace([])
        self.store.priority_classes.replace([])

    def update(self, collection: Any, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"] |= {"resourceVersion": str(self.version)}
        collection.upsert(collection.decode(msgspec.json.encode(obj)))

    def submit(
        self,
        name: str,
        queue: str = "default",
        *,
        pods: int = 1,
        pod_priority: str = "",
        meta: dict[str, Any] | None = None,
        **bound: Any,
    ) -> None:
        made = job(name, queue) | {"metadata": {"name": name, "namespace": "ns", "uid": "t", **(meta or {})}}
        (task,) = made["spec"]["tasks"]
        task["replicas"] = pods
        task["template"]["spec"]["priorityClassName"] = pod_priority
        self.update(self.store.jobs, made)
        self.bind(name, **bound)

    def bind(
        self, name: str, *, status: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **spec: Any
    ) -> None:
        bound = binding("ns", name, "t")
        bound["metadata"] |= {"namespace": "ns", "uid": UID.format(name)}
        if record is not None:
            bound["metadata"]["annotations"][ADMISSION_ANNOTATION] = msgspec.json.encode(record).decode()
        bound["spec"] |= spec
        self.update(self.store.bindings, bound | {"status": status or {}})

    def finish(self, name: str) -> None:
        self.report_phase(name, "Completed")

    def abort(self, name: str) -> None:
        """Make it admitted by its record and aborted in its cluster."""
        uid = UID.format(name)
        self.report_phase(name, "Aborted", record={"uid": uid, "charge": {"cpu": "1"}, "clusters": [CLUSTER]})
        self.store.confirm(WorkloadUid(uid), self.version)

    def report_phase(self, name: str, phase: str, record: dict[str, Any] | None = None) -> None:
        report = {"clusterName": CLUSTER, "status": {"state": {"phase": phase}}}
        placed = {"suspension": {"scheduling": False}, "clusters": [{"name": CLUSTER}]}
        self.bind(name, status={"aggregatedStatus": [report]}, record=record, **placed)


@asynccontextmanager
async def looping(*, cpus: int = 1, caches: dict[str, Cache] | None = None) -> AsyncIterator[LoopHarness]:
    harness = LoopHarness(cpus, caches or {})
    async with asyncio.TaskGroup() as group:
        running = group.create_task(harness.loop.run())
        yield harness
        running.cancel()


@virtual_time
async def test_nothing_is_decided_while_too_many_writes_wait():
    async with looping(cpus=1) as harness:
        harness.actuator.max_backlog, harness.actuator.backlog = 50, 26
        harness.submit("a")
        await asyncio.sleep(1)
        assert harness.actuator.writes.empty()
        harness.actuator.backlog = 25
        assert (await harness.actuator.next()).workload == "Job ns/a"


@virtual_time
async def test_finished_workload_frees_capacity_at_once():
    async with looping(cpus=1) as harness:
        harness.submit("a")
        harness.submit("b")
        write = await harness.actuator.next()
        assert (write.effect, write.workload, write.clusters) == ("admit", "Job ns/a", (CLUSTER,))
        assert harness.actuator.writes.empty()
        harness.finish("a")
        harness.store.confirm(WorkloadUid(UID.format("a")), harness.version)
        async with asyncio.timeout(0.2):
            assert (await harness.actuator.writes.get()).workload == "Job ns/b"


@virtual_time
async def test_no_decision_before_all_caches_are_synced():
    caches = {"early": Cache(), "late": Cache(synced=False), "gone": Cache(synced=False)}
    async with looping(caches=caches) as harness:
        harness.submit("a")
        await asyncio.sleep(0.02)
        assert harness.loop.problem == "late not known yet"
        caches["late"].synced.set()
        await asyncio.sleep(0.02)
        assert harness.actuator.writes.empty()
        # A removed cache was never in sync and never will be.
        assert harness.loop.problem == "gone not known yet"
        del caches["gone"]
        assert (await harness.actuator.next()).workload == "Job ns/a"


@virtual_time
async def test_c1_affinity_term_is_written_after_pending_write():
    """Its record still has a nomination, whose removal is being written."""
    terms = [{"affinityName": "first", "clusterNames": ["m9"]}, {"affinityName": "then", "clusterNames": [CLUSTER]}]
    held = {
        "nominatedCluster": CLUSTER,
        "nominatedAt": "2026-01-01T00:00:00Z",
        "nominationRank": 0,
        "nominatedRequests": {"cpu": "1"},
    }
    uid = WorkloadUid(UID.format("a"))
    record, placement = {"uid": uid, "queue": "default"}, {"clusterAffinities": terms}
    async with looping() as harness:
        harness.actuator.busy.add(uid)
        harness.store.assume(uid, AssumedRecordUpdate(None))
        harness.submit("a", placement=placement, record=record | held)
        await asyncio.sleep(0.05)
        workload = harness.loop.engine.workloads[uid]
        assert workload.hold is not None
        assert workload.nomination is None
        assert harness.actuator.writes.empty()
        harness.actuator.busy.clear()
        harness.bind("a", placement=placement, record=record)
        harness.store.confirm(uid, harness.version)
        assert (await harness.actuator.next()).effect == "observe"


@virtual_time
async def test_failed_cycle_is_followed_by_one_with_new_state():
    class Broken(Engine):
        def plan_in_steps(self, now: int, *, most: int | None = None) -> Steps[Plan]:
            raise ZeroDivisionError(now, most)

    async with looping() as harness:
        harness.loop._backoff.initial = 0.01
        harness.loop.engine = Broken()
        harness.submit("a")
        await asyncio.sleep(0.001)
        assert harness.loop.problem == "the last cycle failed: ZeroDivisionError"
        assert (await harness.actuator.next()).workload == "Job ns/a"
        await asyncio.sleep(0.001)
        assert harness.loop.problem is None
        assert b"volcano_global_failed_cycles_total 1.0" in harness.metrics.exposition()


@virtual_time
async def test_rejected_repair_is_retried_after_backoff():
    async with looping(cpus=0) as harness:
        began = wall_clock()
        harness.actuator.refused[UID.format("a")] = began + 100
        harness.submit("a", clusters=[{"name": CLUSTER}])
        assert (await harness.actuator.next()).effect == "clear"
        assert 100 <= wall_clock() - began < 1000


@virtual_time
async def test_repairs_use_half_of_the_writes_that_may_wait():
    async with looping(cpus=0) as harness:
        harness.actuator.max_backlog, harness.actuator.is_slow = 8, True
        for number in range(6):
            harness.submit(f"a{number}", clusters=[{"name": CLUSTER}])
        await asyncio.sleep(1)
        assert [(await harness.actuator.next()).effect for _ in range(4)] == ["clear"] * 4
        assert harness.actuator.writes.empty()
        uid = WorkloadUid(harness.actuator.busy.pop())
        harness.bind(uid.removeprefix("u-"))
        harness.store.confirm(uid, harness.version)
        assert (await harness.actuator.next()).effect == "clear"
        await asyncio.sleep(1)
        assert harness.actuator.writes.empty()


@virtual_time
async def test_rejected_end_of_a_reservation_is_retried_after_backoff():
    async with looping() as harness:
        uid, began = WorkloadUid(UID.format("a")), wall_clock()
        harness.submit("a", record={"uid": uid, "reservedSince": "2020-01-01T00:00:00Z"}, suspension=SUSPENDED_BY_USER)
        assert (await harness.actuator.next()).effect == "hold"
        harness.actuator.refused[uid] = began + 100
        harness.store.roll_back(uid, Refusal(Reason.STARTUP_BACKOFF, until=began + 100))
        assert (await harness.actuator.next()).effect == "hold"
        assert 100 <= wall_clock() - began < 1000


@pytest.mark.parametrize("needed", [True, False])
@virtual_time
async def test_rejected_eviction_is_retried_while_needed(needed):
    async with looping() as harness:
        harness.submit("a")
        await harness.actuator.next()
        began = wall_clock()
        harness.actuator.refused[UID.format("a")] = began + 100
        harness.abort("a")
        if not needed:
            await asyncio.sleep(0.02)
            harness.finish("a")
            await asyncio.sleep(0.2)
            assert harness.actuator.writes.empty()
        else:
            assert (await harness.actuator.next()).effect == "evict"
            assert 100 <= wall_clock() - began < 1000


@virtual_time
async def test_abort_request_evicts_or_is_recorded():
    async with looping() as harness:
        uid = UID.format("runs")
        record = {"uid": uid, "charge": {"cpu": "1", "memory": "1Gi", "pods": "1"}, "clusters": [CLUSTER]}
        harness.submit("runs", record=record, suspension={"scheduling": False}, clusters=[{"name": CLUSTER}])
        harness.submit("waits")
        await asyncio.sleep(0.1)
        for name, effect in (("runs", "evict"), ("waits", "abort")):
            assert harness.store.abort(TemplateKey(VOLCANO_JOB, "ns", name))
            write = await harness.actuator.next()
            assert (write.workload, write.effect) == (f"Job ns/{name}", effect)
            assert b'\\"aborted\\":true' in write.patch


@virtual_time
async def test_many_pending_workloads_are_logged_as_counts(capsys):
    async with looping(cpus=0) as harness:
        for number in range(60):
            harness.submit(f"j{number}")
        await asyncio.sleep(0.05)
    printed = capsys.readouterr().out
    assert "workloads pending" in printed
    assert printed.count("workload pending") <= 50


@pytest.mark.parametrize(
    ("function", "is_first", "step"),
    [
        pytest.param("controller.cache.store:build_workload", lambda item: item.name == "a-job", "build", id="build"),
        pytest.param(
            "controller.engine.placement.feasibility_cache:candidate_clusters",
            lambda requirements: requirements.requests["cpu"] == 7000,
            "decide",
            id="evaluation",
        ),
        # The decision must not be assumed, or its charge would never end.
        pytest.param(
            "controller.scheduling.loop:decision_write", lambda item: item.workload.name == "a", "write", id="write"
        ),
    ],
)
@virtual_time
async def test_workload_that_fails_in_a_step_is_quarantined(monkeypatch, function, is_first, step):
    original = pkgutil.resolve_name(function)

    def failing(first, *rest, **options):
        if is_first(first):
            raise OverflowError("date value out of range")
        return original(first, *rest, **options)

    monkeypatch.setattr(function.replace(":", "."), failing)
    async with looping(cpus=7) as harness:
        harness.submit("a", pods=7)
        harness.submit("b")
        assert (await harness.actuator.next()).workload == "Job ns/b"
        await asyncio.sleep(0.02)
        assert harness.loop.engine.refusal(WorkloadUid(UID.format("a"))).reason is Reason.INTERNAL_ERROR
        assert harness.loop.problem is None
        metrics = harness.metrics.exposition().decode()
        assert f'volcano_global_internal_errors_total{{step="{step}"}} 1.0' in metrics
        assert "volcano_global_failed_cycles_total 0.0" in metrics


@virtual_time
async def test_workload_that_fails_a_cycle_is_quarantined():
    class Fragile(Engine):
        def workload_changed(self, workload: Workload, now: int) -> None:
            if workload.name == "a" and workload.hold is None:
                raise ZeroDivisionError
            super().workload_changed(workload, now)

    async with looping(cpus=1) as harness:
        harness.loop._backoff.initial = 0.01
        harness.loop.engine = Fragile()
        harness.submit("a")
        harness.submit("b")
        assert (await harness.actuator.next()).workload == "Job ns/b"
        assert harness.loop._backoff.failures == 0


@virtual_time
async def test_failed_cycle_drops_unsent_assumed_decisions():
    """Such assumptions would fill a queue in which nothing runs."""
    failures = [RuntimeError()]

    def fail_once(_: object) -> None:
        if failures:
            raise failures.pop()

    async with looping(cpus=1) as harness:
        harness.loop._backoff.initial = 0.01
        harness.submit("a")
        await harness.actuator.next()
        harness.loop.on_waits.append(fail_once)
        harness.submit("b")
        assert (await harness.actuator.next()).workload == "Job ns/a"


@virtual_time
async def test_reasons_are_published_again_after_lost_leadership():
    async with looping(cpus=1) as harness:
        published: list[str] = []
        harness.loop.on_waits.append(lambda waits: published.extend(wait.workload.name for wait in waits))
        harness.submit("a")
        harness.submit("b")
        await asyncio.sleep(1)
        assert published == ["b"]
        harness.actuator.may_write = False
        harness.loop.on_leadership_lost()
        await asyncio.sleep(1)
        harness.actuator.may_write = True
        harness.loop.wake()
        await asyncio.sleep(1)
        assert published == ["b", "b"]


@virtual_time
async def test_job_with_forbidden_pod_priority_class_is_pending():
    async with looping(cpus=2) as harness:
        tenant = Tenant(namespaces=("ns",), priority_classes=("normal",))
        harness.store.configure(VolcanoGlobalConfiguration(tenants=(tenant,)))
        harness.submit("a", pod_priority="high")
        harness.submit("b")
        assert (await harness.actuator.next()).workload == "Job ns/b"
        refusal = harness.loop.engine.refusal(WorkloadUid(UID.format("a")))
        assert (refusal.reason, refusal.subject) == (Reason.PRIORITY_CLASS_NOT_ALLOWED, "high")


@virtual_time
async def test_many_requirements_are_evaluated_in_slices(monkeypatch):
    slices = []
    prepare = Engine.prepare

    def counted(state, steps):
        slices.append(prepare(state, steps))
        return slices[-1]

    monkeypatch.setattr(Engine, "prepare", counted)
    monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", 1)
    async with looping(cpus=1) as harness:
        for number in range(4):
            harness.submit(f"j{number}", pods=number + 1)
        assert (await harness.actuator.next()).workload == "Job ns/j0"
        assert slices.index(True) >= 3


@virtual_time
async def test_plan_is_made_after_limited_preparation(monkeypatch):
    monkeypatch.setattr(Engine, "prepare", lambda *_: False)
    monkeypatch.setattr("controller.scheduling.loop._MAX_PREPARATION_SLICES", 2)
    async with looping(cpus=1) as harness:
        harness.submit("a")
        assert (await harness.actuator.next()).workload == "Job ns/a"


def in_turn(harness: LoopHarness) -> int:
    """Run the loop of *harness* until its plan is made; return the number of slices."""
    slices = 1
    harness.loop._preparation_slices = 10_000
    harness.loop._cycle()
    while harness.loop._plan_in_progress is not None:
        harness.loop._cycle()
        slices += 1
    return slices


def begin_plan(harness: LoopHarness) -> None:
    """Run the first slice of a plan."""
    harness.loop._preparation_slices = 10_000
    harness.loop._cycle()
    assert harness.loop._plan_in_progress is not None


def test_plan_in_slices_admits_what_one_pass_admits(monkeypatch):
    names = []
    for steps in (1, 2000):
        monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", steps)
        harness = LoopHarness(3, {})
        for name in "abcde":
            harness.submit(name)
        slices = in_turn(harness)
        assert (slices > 3) == (steps == 1)
        names.append([write.workload for write in harness.actuator.written()])
    assert names[0] == names[1] == ["Job ns/a", "Job ns/b", "Job ns/c"]


def test_no_plan_before_all_workloads_are_sent_in_slices(monkeypatch):
    monkeypatch.setattr("controller.scheduling.loop._MAX_SYNCED_WORKLOADS", 2)
    harness = LoopHarness(3, {})
    for name in "edcba":
        harness.submit(name)
    for sent in (2, 4):
        harness.loop._cycle()
        assert len(harness.loop.engine.workloads) == sent
        assert harness.actuator.writes.empty()
    in_turn(harness)
    assert [write.workload for write in harness.actuator.written()] == ["Job ns/a", "Job ns/b", "Job ns/c"]


def test_job_deleted_during_plan_is_not_admitted(monkeypatch):
    monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", 1)
    harness = LoopHarness(1, {})
    harness.submit("a")
    harness.submit("b")
    begin_plan(harness)
    harness.store.bindings.remove(harness.store.binding(WorkloadUid(UID.format("a"))))
    in_turn(harness)
    assert harness.actuator.writes.empty()
    in_turn(harness)
    assert harness.actuator.writes.get_nowait().workload == "Job ns/b"


@virtual_time
async def test_plan_that_waited_for_a_cache_is_made_again(monkeypatch):
    monkeypatch.setattr("controller.scheduling.loop._STEPS_PER_SLICE", 1)
    harness = LoopHarness(1, {"bindings": (cache := Cache())})
    harness.submit("a")
    harness.submit("b")
    begin_plan(harness)
    cache.synced.clear()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(harness.loop.run())
        await asyncio.sleep(0.1)
        # Another leader admits the second one meanwhile.
        record = {"uid": UID.format("b"), "charge": {"cpu": "1", "memory": "1Gi", "pods": "1"}, "clusters": [CLUSTER]}
        harness.bind("b", record=record, suspension={"scheduling": False}, clusters=[{"name": CLUSTER}])
        cache.synced.set()
        await asyncio.sleep(5)
        running.cancel()
    assert harness.actuator.writes.empty()


def test_admission_records_own_failed_clusters_only():
    harness = LoopHarness(2, {})
    harness.update(harness.store.clusters, cluster_manifest("other", {"cpu": "2", "memory": "100Gi", "pods": "100"}))
    failed_on = {CLUSTER: cluster_fingerprint(harness.store.clusters.get(CLUSTER).cluster)}
    record = {"uid": UID.format("failed"), "queue": "default", "attempts": 1, "excludedClusters": failed_on}
    on_one_cluster = {"spreadConstraints": [{"maxGroups": 1, "minGroups": 1, "spreadByField": "cluster"}]}
    harness.submit("failed", record=record, placement=on_one_cluster)
    harness.submit("equal", placement=on_one_cluster)
    in_turn(harness)
    written = harness.actuator.written()
    assert {write.workload: write_record(write).get("excludedClusters") for write in written} == {
        "Job ns/failed": failed_on,
        "Job ns/equal": None,
    }
    assert all(harness.loop.engine.workloads[write.uid].admission.clusters == {"other"} for write in written)


def write_record(write: Write) -> dict[str, Any]:
    """Return the admission record that *write* contains."""
    key = ADMISSION_ANNOTATION.rpartition("/")[2]
    (text,) = (step["value"] for step in msgspec.json.decode(write.patch) if key in step["path"])
    return msgspec.json.decode(text)


def test_observed_admission_changes_nothing_in_the_engine():
    harness, uid = LoopHarness(1, {}), WorkloadUid(UID.format("a"))
    harness.submit("a")
    in_turn(harness)
    assumed = harness.loop.engine.workloads[uid]
    record = write_record(harness.actuator.writes.get_nowait())
    placed = {"suspension": {"scheduling": False}, "clusters": [{"name": CLUSTER}]}
    harness.bind("a", record=record, **placed)
    harness.store.confirm(uid, harness.version)
    harness.loop._cycle()
    assert harness.store.binding(uid).record.admits
    observed = harness.loop.engine.workloads[uid]
    assert observed == assumed
    assert (assumed.admission.assumed, observed.admission.assumed) == (True, False)
