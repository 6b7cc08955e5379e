"""Random events: each pending workload is excluded from the clusters that a short model of R1 names."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from controller.cache.assumed_writes import AssumedEviction
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import WorkloadUid
from tests.cache.fake_event_handler import remove, upsert
from tests.cache.objects import admission_record, binding, cluster, job, queue

CLUSTERS = [ClusterName(name) for name in ("m1", "m2", "m3")]


@dataclass
class Job:
    """A job, and in which clusters it did not start."""

    name: str
    cpu: str
    on: ClusterName | None = None
    phase: str = ""
    failed_on: set[ClusterName] = field(default_factory=set)
    """While these have not changed since."""
    ended_on: set[ClusterName] = field(default_factory=set)
    """Those of them in which a workload has ended since."""
    recorded: dict[ClusterName, str] = field(default_factory=dict)

    @property
    def uid(self) -> WorkloadUid:
        return WorkloadUid(f"rb-{self.name}")

    @property
    def has_run(self) -> bool:
        return self.phase in {"Running", "Completed"}


class RandomStarts:
    """Jobs of two sizes that are admitted, start or do not, and end, and clusters that change."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.store, self.engine = Store(), Engine()
        self.jobs: list[Job] = []
        self.created = 0
        self.pods = dict.fromkeys(CLUSTERS, 110)
        upsert(self.store, ("queues", queue("a")))
        for name in CLUSTERS:
            self.write_cluster(name)
        for _ in range(5):
            self.create()

    def write_cluster(self, name: ClusterName) -> None:
        upsert(self.store, ("clusters", cluster(name, cpu="8", pods=str(self.pods[name]))))

    def write(self, written: Job) -> None:
        admission = {"charge": {"cpu": written.cpu, "pods": "1"}, "clusters": (written.on,)} if written.on else {}
        record = admission_record(uid=written.uid, queue="a", excluded_clusters=written.recorded, **admission)
        placed = {"paused": False, "clusters": [written.on], "phases": {written.on: written.phase}}
        upsert(self.store, ("bindings", binding(written.name, record=record, **(placed if written.on else {}))))

    def act(self) -> None:
        actions = [self.admit] * 5 + [self.run] * 4 + [self.finish] * 3 + [self.fail_start] * 5
        self.dice.choice([*actions, self.preempt, self.delete, self.change_cluster, self.create, self.create])()

    def some(self, is_chosen: Callable[[Job], bool]) -> list[Job]:
        """Return one of the jobs, or none."""
        chosen = [item for item in self.jobs if is_chosen(item)]
        return [self.dice.choice(chosen)] if chosen else []

    def create(self) -> None:
        self.created += 1
        self.jobs.append(made := Job(f"j{self.created}", self.dice.choice("23")))
        upsert(self.store, ("jobs", job(made.name, requests={"cpu": made.cpu})))
        self.write(made)

    def admit(self) -> None:
        for item in self.some(lambda item: item.on is None):
            item.on, item.phase = self.dice.choice(CLUSTERS), "Pending"
            item.recorded = {name: mark for name, mark in item.recorded.items() if name in item.failed_on}
            self.write(item)

    def run(self) -> None:
        for item in self.some(lambda item: item.phase == "Pending"):
            item.phase = "Running"
            self.write(item)

    def finish(self) -> None:
        """Finish a job, perhaps one that was not reported as running."""
        for item in self.some(lambda item: item.phase in {"Pending", "Running"}):
            item.phase = "Completed"
            self.end_on(item.on)
            self.write(item)

    def end_on(self, name: ClusterName | None) -> None:
        for item in self.jobs:
            item.ended_on |= item.failed_on & {name}

    def fail_start(self) -> None:
        for item in self.some(lambda item: item.phase == "Pending"):
            failed = {item.on}
            item.ended_on -= failed
            item.failed_on |= failed
            self.evict(item, tuple(failed))

    def preempt(self) -> None:
        for item in self.some(lambda item: item.phase in {"Pending", "Running"}):
            if item.phase == "Running":
                self.end_on(item.on)
                item.failed_on, item.ended_on = set(), set()
            self.evict(item, ())

    def evict(self, item: Job, failed: tuple[ClusterName, ...]) -> None:
        """Evict a job; the write is perhaps observed after other events, and before its response."""
        item.recorded = self.store.start_failures.fingerprints(item.failed_on)
        outcome = AssumedEviction(None, item.has_run, item.recorded, failed_clusters=failed)
        self.store.assume(item.uid, outcome)
        item.on, item.phase = None, ""
        if self.dice.random() < 0.3:
            self.dice.choice([self.finish, self.create])()
        self.write(item)
        if self.dice.random() < 0.5:
            self.check()
        self.store.roll_back(item.uid, None)

    def delete(self) -> None:
        for item in self.some(lambda _: True):
            self.jobs.remove(item)
            if item.phase == "Running":
                self.end_on(item.on)
            remove(self.store, "bindings", binding(item.name))
            remove(self.store, "jobs", job(item.name))

    def change_cluster(self) -> None:
        """Change a cluster, perhaps back again at once."""
        name, before = self.dice.choice(CLUSTERS), self.pods.copy()
        self.pods[name] += 110
        self.write_cluster(name)
        self.store.sync_to(self.engine, 0)
        if self.dice.random() < 0.5:
            self.pods = before
            self.write_cluster(name)
        for item in self.jobs:
            item.failed_on.discard(name)
            item.ended_on.discard(name)

    def expected(self, item: Job) -> tuple[set[ClusterName], set[ClusterName]]:
        """Return where *item* is not tried, and where it is if no other cluster can ever hold it (R1)."""
        by_others = {
            name
            for other in self.jobs
            if other.cpu == item.cpu
            for name in other.failed_on - other.ended_on
            if not (other.on == name and other.has_run)
        }
        return item.failed_on | by_others, item.ended_on - by_others

    def check(self) -> None:
        self.store.sync_to(self.engine, 0)
        for item in self.jobs:
            if item.on is None:
                requirements = self.engine.workloads[item.uid].requirements
                found = requirements.excluded_clusters, requirements.retryable_clusters
                assert found == self.expected(item), item


@pytest.mark.parametrize("seed", range(6))
def test_exclusions_equal_those_of_the_model(seed):
    starts = RandomStarts(seed)
    for _ in range(100):
        starts.act()
        if starts.dice.random() < 0.8:
            starts.check()
