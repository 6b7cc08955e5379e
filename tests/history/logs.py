"""Decision logs in files for the history endpoint."""

from controller.engine.checkpoint import take_checkpoint
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.policy import Policy
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.history.moment import find_plan, read_moment
from controller.reporting.decision_log.codec import Header, PlanEntry
from controller.reporting.decision_log.log import RecordingHandler
from controller.reporting.decision_log.records import RecordBuilder
from controller.reporting.decision_log.writer import Item, NewFile, PlanRecord
from tests.engine import objects, worlds
from tests.reporting.decision_log.recording import REVISION, encode
from tests.reporting.decision_log.test_replay import run

START = worlds.NOW
DEFAULT = Policy()


def write_random_run(path, seed: int = 3, **options) -> int:
    """Write the files of a random run as a controller rotates them; return the number of its plans."""
    random_run = run(seed, **options)
    for number, items in enumerate(reversed(random_run.files)):
        name = f"{path.name}.{number}" if number else path.name
        path.with_name(name).write_bytes(b"".join(encode(items)))
    return random_run.plans


def cluster(name: str, cpu: int) -> Cluster:
    return objects.cluster(name, cpu=cpu * 1000)


def job(name: str, queue: str = "a", *, cpu: int = 2, **fields) -> Workload:
    made = {"uid": WorkloadUid(f"uid-{name}"), "namespace": "one", "created_at": START, **fields}
    return objects.workload(name, {"pods": 1000, "cpu": cpu * 1000}, queue=queue, **made)


class Log:
    """A log that is written step by step: one file, one plan for each step."""

    def __init__(self, path=None, *, now: int = START, identity: str = "pod-1", policy: Policy = DEFAULT) -> None:
        self.path = path
        self.now = now
        self.engine = Engine(policy)
        self.items: list[Item] = [NewFile(Header(policy, now, "1.0", identity))]
        self.handler = RecordingHandler(self.engine, self.take)
        self.plans = 0

    def take(self, item: Item) -> None:
        self.items.append(item)

    def world(self, queues, clusters) -> None:
        for queue in queues:
            self.handler.queue_changed(queue)
        for cluster in clusters:
            self.handler.cluster_changed(cluster, self.now)

    def submit(self, *workloads) -> None:
        for workload in workloads:
            self.handler.workload_changed(workload, self.now)

    def remove(self, uid: str) -> None:
        self.handler.workload_removed(WorkloadUid(uid), self.now)

    def start_file(self) -> None:
        """Begin another file with a snapshot."""
        self.items = [NewFile(Header(self.engine.policy, self.now, is_whole=False), take_checkpoint(self.engine))]

    def plan(self, *, after: int = 1_000, most: int | None = None) -> Plan:
        self.now += after
        plan, builder = self.engine.plan(self.now, most=most), RecordBuilder(self.engine)
        self.plans += 1
        records = (*builder.plan_records(plan), *builder.pending_records(plan.waits))
        self.items.append(PlanRecord(PlanEntry(self.plans, self.now, most, REVISION, len(records)), records))
        return plan

    def write(self) -> None:
        self.path.write_bytes(b"".join(encode(self.items)))


def two_queues(path) -> Log:
    """Return a log in which queue `a` fills the cluster first, then `b` starts before what waits in `a`."""
    log = Log(path)
    log.world([Queue(name=QueueName("a")), Queue(name=QueueName("b"), priority=5)], [cluster("m1", 6)])
    log.submit(job("first"), job("second", created_at=START + 1), job("third", created_at=START + 2))
    log.plan()
    log.submit(job("fourth", created_at=START + 3))
    log.plan()
    log.submit(job("other", "b", namespace="two", created_at=START + 4))
    log.remove("uid-first")
    log.plan()
    log.write()
    return log


def moment_at(path, at, focus=(), *, seconds=30):
    return read_moment(path, find_plan(path, at), focus, seconds=seconds)
