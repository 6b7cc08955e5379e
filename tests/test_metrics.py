from collections import Counter
from dataclasses import replace

from controller.cache.store import Store
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.reasons import Reason, Refusal
from controller.engine.workloads import Admission, Booking, Shape, State, Workload, WorkloadUid
from controller.engine.world import World
from controller.metrics import Metrics
from controller.present import MAX_QUEUES


class Cache:
    lists = 2
    undecodable = 1
    unread = 1
    is_synced = True
    silent_for = 0.5


def workload(number: int, queue: str, *, state: State = State.PENDING) -> Workload:
    held = Refusal(Reason.SUSPENDED)
    return Workload(
        WorkloadUid(f"u{number}"), "ns", f"j{number}", "Job", QueueName(queue), Shape(), state=state, hold=held
    )


def page(world: World) -> list[str]:
    metrics = Metrics()
    metrics.watch(lambda: world, Store(), {"jobs": Cache()})
    return metrics.page().decode().splitlines()


def test_what_is_there_is_counted_when_somebody_asks():
    world = World()
    world.queue_changed(Queue(QueueName("a")))
    for number in range(3):
        world.workload_changed(workload(number, "a"), 0)
    world.workload_changed(workload(3, "a", state=State.FINISHED), 0)
    world.plan(0)
    lines = page(world)
    assert 'volcano_global_pending_workloads{queue="a"} 3.0' in lines
    assert 'volcano_global_waiting_reasons{reason="Suspended"} 3.0' in lines
    assert 'volcano_global_workloads{state="Finished"} 1.0' in lines
    assert 'volcano_global_cache_lists_total{resource="jobs"} 2.0' in lines
    assert 'volcano_global_cache_undecodable_objects_total{resource="jobs"} 1.0' in lines
    assert 'volcano_global_cache_unreadable_objects{resource="jobs"} 1.0' in lines


def test_ten_thousand_queues_do_not_make_ten_thousand_series():
    world = World()
    for number in range(10_000):
        world.workload_changed(workload(number, f"q{number}"), 0)
    lines = [line for line in page(world) if line.startswith("volcano_global_pending_workloads{")]
    assert len(lines) == MAX_QUEUES + 1
    assert 'volcano_global_pending_workloads{queue=""} 9800.0' in lines


def test_the_names_follow_the_conventions():
    names = Counter(line.split()[2] for line in page(World()) if line.startswith("# TYPE volcano"))
    assert all(count == 1 for count in names.values())
    assert all(name == name.lower() for name in names)


def test_a_queue_shows_what_it_is_due_holds_and_may_hold():
    world = World()
    world.policy_changed(Policy())
    world.queue_changed(Queue(QueueName("a"), capability={"cpu": 3000}))
    world.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000}), 0)
    runs = Admission({"cpu": 1500}, (Booking(ClusterName("m1"), {"cpu": 1500}),))
    world.workload_changed(replace(workload(0, "a", state=State.ADMITTED), hold=None, admission=runs), 0)
    world.plan(0)
    lines = page(world)
    assert 'volcano_global_queue_ceiling{queue="a",resource="cpu"} 3.0' in lines
    assert 'volcano_global_queue_allocated{queue="a",resource="cpu"} 1.5' in lines
    assert 'volcano_global_queue_entitlement{queue="a",resource="cpu"} 1.5' in lines
    assert 'volcano_global_queue_share{queue="a"} 1.0' in lines


def test_many_queues_do_not_make_many_shares_either():
    world = World()
    for number in range(1000):
        world.queue_changed(Queue(QueueName(f"q{number}")))
    world.cluster_changed(Cluster(ClusterName("m1"), allocatable={"cpu": 8000}), 0)
    world.plan(0)
    assert len([line for line in page(world) if line.startswith("volcano_global_queue_share{")]) == MAX_QUEUES
