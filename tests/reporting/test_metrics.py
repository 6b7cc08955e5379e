import asyncio
import re
from importlib.metadata import version
from types import SimpleNamespace

from controller.__main__ import Controller
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.policy import AdvanceReservation, Policy
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    SchedulingRequirements,
    Workload,
    WorkloadState,
)
from controller.kube.config_file import ConfigurationFile
from controller.kube.timing import wall_clock
from controller.reporting.metrics import ControllerMetrics
from controller.reporting.state_collector import MAX_CLUSTERS, MAX_QUEUES, Caches, StateCollector
from controller.settings import ControllerSettings
from tests.engine import objects


class Cache:
    lists = 2
    decode_failures = 1
    unreadable = 1
    is_synced = True
    seconds_since_response = 0.5
    synced = asyncio.Event()


def workload(number: int, queue: str, *, on: str | None = None, **fields: object) -> Workload:
    """Return a workload with a CPU and a half; a pending one is suspended unless *fields* say otherwise."""
    hold = None if on else Refusal(Reason.SUSPENDED)
    return objects.workload(f"j{number}", {"cpu": 1500}, queue=queue, on=on, **{"hold": hold, **fields})


def page(engine: Engine, metrics: ControllerMetrics | None = None) -> list[str]:
    metrics = metrics or ControllerMetrics()
    metrics.register_state(lambda: engine, Store(), Caches({"jobs": Cache()}, {"managed-kinds": Cache()}))
    return metrics.exposition().decode().splitlines()


def series(lines: list[str], name: str) -> list[str]:
    return [line for line in lines if line.startswith(f"volcano_global_{name}{{")]


def test_state_is_collected_at_scrape():
    metrics, engine, now = ControllerMetrics(), Engine(), wall_clock()
    assert page(engine), "before the first plan"
    metrics.hyperjobs = lambda: {"Running": 2}
    metrics.register_file("admission", lambda: True)
    engine.queue_changed(Queue(QueueName("a")))
    for number, age in enumerate((5000, 90_000, 100)):
        engine.workload_changed(workload(number, "a", created_at=now - age), now)
    engine.workload_changed(workload(3, "a", state=WorkloadState.FINISHED, hold=None), now)
    engine.plan(now)
    lines = page(engine, metrics)
    assert {
        'volcano_global_pending_workloads{queue="a",status="inadmissible"} 3.0',
        'volcano_global_pending_workloads_by_reason{reason="Suspended"} 3.0',
        'volcano_global_workloads{state="Finished"} 1.0',
        'volcano_global_cache_lists_total{resource="jobs"} 2.0',
        'volcano_global_cache_synced{resource="jobs"} 1.0',
        'volcano_global_cache_synced{resource="managed-kinds"} 0.0',
        'volcano_global_cache_undecodable_objects_total{resource="jobs"} 1.0',
        'volcano_global_cache_unreadable_objects{resource="jobs"} 1.0',
        'volcano_global_hyperjobs{phase="Running"} 2.0',
        'volcano_global_configuration_rejected{file="admission"} 1.0',
    } <= set(lines)
    (age,) = series(lines, "oldest_pending_age_seconds")
    assert 90 <= float(age.split()[-1]) < 600
    assert f'version="{version("volcano-global")}"' in series(lines, "build_info")[0]


def test_leadership_is_counted_when_it_changes():
    metrics = ControllerMetrics()
    # A leader that may not write yet, because writes of the previous one may be in flight, and then may write.
    for leads in (True, True, False, False):
        metrics.set_leading(leading=leads)
    lines = metrics.exposition().decode().splitlines()
    assert "volcano_global_leadership_changes_total 2.0" in lines
    assert "volcano_global_leader 0.0" in lines


def test_number_of_series_is_bounded_by_queue_limit():
    metrics, engine = ControllerMetrics(), Engine()
    for number in range(1000):
        engine.queue_changed(Queue(QueueName(f"q{number}")))
        engine.workload_changed(workload(number, f"q{number}"), 0)
        engine.cluster_changed(Cluster(ClusterName(f"m{number}"), allocatable={"cpu": 1000}), 0)
        metrics.count_admission("a", priority_class=f"class-{number}", wait_seconds=1)
        metrics.count_admission(f"q{number}", wait_seconds=1)
        metrics.count_eviction(f"q{number}", "Reclaimed")
    engine.plan(0)
    lines = page(engine, metrics)
    assert len(series(lines, "pending_workloads")) == MAX_QUEUES + 1
    assert 'volcano_global_pending_workloads{queue="",status="inadmissible"} 800.0' in lines
    assert len(series(lines, "queue_usage_ratio")) == MAX_QUEUES
    assert len(series(lines, "cluster_usable")) == MAX_CLUSTERS
    assert len(series(lines, "admitted_workloads_total")) == MAX_QUEUES + 1
    assert len(series(lines, "evicted_workloads_total")) <= MAX_QUEUES + 1
    waits = series(lines, "admission_wait_time_seconds_count")
    assert 'volcano_global_admission_wait_time_seconds_count{priority_class="class-0",queue="a"} 1.0' in waits
    assert len(waits) <= 4 * MAX_QUEUES


def test_queues_that_do_not_exist_have_no_series():
    engine = Engine()
    engine.queue_changed(Queue(QueueName("a")))
    for number in range(10_000):
        engine.workload_changed(workload(number, f"q{number}"), 0)
    engine.workload_changed(workload(10_000, "a", created_at=1), 0)
    engine.workload_changed(workload(10_001, "deleted", on="m1"), 0)
    engine.plan(0)
    lines = page(engine)
    assert 'volcano_global_pending_workloads{queue="",status="inadmissible"} 10000.0' in lines
    assert 'volcano_global_admitted_active_workloads{queue=""} 1.0' in lines
    assert {re.search(r'queue="(.*?)"', line)[1] for line in lines if "{queue=" in line} == {"", "a", "root"}


def test_resources_that_only_workloads_name_have_no_series():
    engine = Engine()
    engine.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000, "memory": 1, "pods": 9}), 0)
    engine.queue_changed(Queue(QueueName("a"), deserved={"b.example/d": 1000}))
    for number in range(20):
        requests = {f"a.example/{number}": 1000, "cpu": 1}
        requirements = SchedulingRequirements(requests=requests, gang_requests=requests)
        engine.workload_changed(workload(number, "a", hold=None, requirements=requirements), 0)
    engine.plan(0)
    text = "\n".join(page(engine))
    assert set(re.findall(r'resource="(.*?)"', text)) == {"jobs", "managed-kinds", "cpu", "memory", "b.example/d"}


def test_every_cache_that_decisions_wait_for_has_a_series(tmp_path):
    path = tmp_path / "admission.yaml"
    path.write_text("")
    controller = Controller(ControllerSettings(identity="a"), ConfigurationFile(path), None, for_hyperjobs=None)
    for cache in (controller.kinds, controller.data_sources, controller.hyperjobs, *controller.informers.values()):
        cache.synced.set()
    assert controller.loop.problem is None
    # Of these the informers begin later, and are not in sync, such as after a change of the leader.
    for name, caches in (("hyperjobs.g", controller.hyperjobs.caches), ("sources", controller.data_sources.informers)):
        caches[name] = SimpleNamespace(synced=asyncio.Event())
        assert controller.loop.problem == f"{name} not known yet"
        lines = controller.metrics.exposition().decode().splitlines()
        assert f'volcano_global_cache_synced{{resource="{name}"}} 0.0' in lines
        caches[name].synced.set()


def test_only_the_leader_exports_state():
    metrics, engine, leads = ControllerMetrics(), Engine(), [False]
    engine.plan(0)
    metrics.register_state(lambda: engine, Store(), Caches({"jobs": Cache()}), leads=lambda: leads[0])
    metrics.set_webhook_registered("MutatingWebhookConfiguration", right=False)
    shown = re.compile(r"^# TYPE (\S+)", re.MULTILINE)
    standby = set(shown.findall(metrics.exposition().decode()))
    leads[0] = True
    only_leader = set(shown.findall(metrics.exposition().decode())) - standby
    assert "volcano_global_cache_synced" in standby
    assert {"volcano_global_pending_workloads", "volcano_global_webhook_registered"} <= only_leader
    assert all(
        re.search("pending|queue|cluster|workloads|bindings|registered|hyperjobs|claims|reserved", name)
        for name in only_leader
    )


def test_queues_and_clusters_export_usage_and_limits():
    engine = Engine()
    engine.queue_changed(Queue(QueueName("a"), capability={"cpu": 3000}))
    engine.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000}), 0)
    engine.cluster_changed(Cluster(ClusterName("m2"), allocatable={"cpu": 1000}, ready=False), 0)
    engine.workload_changed(workload(0, "a", on="m1"), 0)
    engine.plan(0)
    assert {
        'volcano_global_admitted_active_workloads{queue="a"} 1.0',
        'volcano_global_queue_resource_limit{queue="a",resource="cpu"} 3.0',
        'volcano_global_queue_resource_usage{queue="a",resource="cpu"} 1.5',
        'volcano_global_queue_resource_fair_share{queue="a",resource="cpu"} 1.5',
        'volcano_global_queue_usage_ratio{queue="a"} 1.0',
        'volcano_global_cluster_resource_allocatable{cluster="m1",resource="cpu"} 8.0',
        'volcano_global_cluster_resource_usage{cluster="m1",resource="cpu"} 1.5',
        'volcano_global_cluster_resource_external_usage{cluster="m1",resource="cpu"} 0.0',
        'volcano_global_cluster_usable{cluster="m1"} 1.0',
        'volcano_global_cluster_usable{cluster="m2"} 0.0',
    } <= set(page(engine))


def test_usage_of_queues_includes_evictions_in_progress():
    engine = Engine()
    engine.queue_changed(Queue(QueueName("a")))
    engine.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000}), 0)
    engine.workload_changed(workload(0, "a", on="m1", state=WorkloadState.PENDING), 0)
    engine.workload_changed(workload(1, "a", on="m1"), 0)
    engine.plan(0)
    assert {
        'volcano_global_queue_resource_usage{queue="a",resource="cpu"} 3.0',
        'volcano_global_queue_resource_usage{queue="root",resource="cpu"} 3.0',
        'volcano_global_cluster_resource_usage{cluster="m1",resource="cpu"} 3.0',
    } <= set(page(engine))


def test_pending_metric_separates_active_from_inadmissible():
    engine = Engine()
    engine.queue_changed(Queue(QueueName("a")))
    usable = frozenset({VOLCANO_JOB})
    engine.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000}, enablements=usable), 0)
    engine.workload_changed(workload(0, "a"), 0)
    for number, cpu in enumerate((6000, 6000, 9000), start=1):
        requirements = SchedulingRequirements(requests={"cpu": cpu}, gang_requests={"cpu": cpu})
        engine.workload_changed(workload(number, "a", hold=None, requirements=requirements), 0)
    engine.plan(0)
    assert series(page(engine), "pending_workloads") == [
        'volcano_global_pending_workloads{queue="a",status="active"} 1.0',
        'volcano_global_pending_workloads{queue="a",status="inadmissible"} 2.0',
    ]


def reserved(engine: Engine, amounts: dict[str, int]) -> None:
    kept = AdvanceReservation("launch", (ClusterName("m1"),), since=10_000, until=30_000, amounts=amounts)
    engine.policy_changed(Policy(advance_reservations=(kept,)))


def test_idle_capacity_of_advance_reservations_is_integrated():
    engine, metrics = Engine(), ControllerMetrics()
    engine.cluster_changed(Cluster(ClusterName("m1"), allocatable={"nvidia.com/gpu": 8000, "pods": 9}), 0)
    metrics.register_state(lambda: engine, Store(), Caches({"jobs": Cache()}))
    collector = next(
        candidate for candidate in metrics.registry._collector_to_names if isinstance(candidate, StateCollector)
    )
    gpus = 'volcano_global_reserved_idle_resource_seconds_total{kind="advance",resource="nvidia.com/gpu"}'
    seconds = []
    reserved(engine, {"nvidia.com/gpu": 3000})
    for now in (0, 10_000, 20_000, 30_000, 40_000):
        collector.clock = lambda: now  # noqa: B023 - called in this iteration
        if now != 20_000:
            engine.plan(now)
            metrics.reserved_idle.read(engine.idle_for_reservations(now), now)
        lines = dict(line.rsplit(" ", 1) for line in metrics.exposition().decode().splitlines())
        seconds.append(float(lines[gpus]))
    # Three GPUs from the tenth to the thirtieth second; also at a scrape without a cycle.
    assert seconds == [0, 0, 30, 60, 60]
    reserved(engine, {})
    engine.plan(15_000)
    assert engine.idle_for_reservations(15_000) == {"advance": {"nvidia.com/gpu": 8000}, "head": {}}


def test_idle_capacity_of_head_reservations_is_what_is_free():
    engine, requests = Engine(), {"cpu": 4000}
    engine.queue_changed(Queue(QueueName("a")))
    cluster = Cluster(ClusterName("m1"), enablements=frozenset({VOLCANO_JOB}), allocatable={"cpu": 4000, "pods": 9})
    engine.cluster_changed(cluster, 0)
    for number in (1, 2, 3):
        part = {"cpu": 1000}
        runs = Admission(part, (ClusterCharge(ClusterName("m1"), part),), admitted_at=1)
        admitted = workload(number, "a", on="m1", admission=runs)
        engine.workload_changed(admitted, 0)
    wide = SchedulingRequirements(requests=requests, gang_requests=requests)
    engine.workload_changed(workload(4, "a", hold=None, requirements=wide), 0)
    engine.plan(1)
    assert engine.idle_for_reservations(1) == {"advance": {}, "head": {}}
    engine.plan(600_001)
    assert engine.with_reservation
    assert engine.idle_for_reservations(600_001) == {"advance": {}, "head": {"cpu": 1000}}
