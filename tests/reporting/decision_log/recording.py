"""Random runs of the engine whose decision log is stored in memory."""

from collections.abc import Iterator

from controller.engine.checkpoint import take_checkpoint
from controller.engine.engine import Engine
from controller.engine.state.workloads import HyperJobGang, WorkloadUid
from controller.reporting.decision_log.codec import EntryEncoder, Header, PlanEntry
from controller.reporting.decision_log.log import RecordingHandler
from controller.reporting.decision_log.records import RecordBuilder
from controller.reporting.decision_log.writer import Item, NewFile, PlanRecord, item_entries
from tests.engine.test_incremental import RandomRun

REVISION = "0123456789ab"


class RecordedEngine:
    """An engine whose events go through a recording handler."""

    def __init__(self, engine: Engine, handler: RecordingHandler) -> None:
        self._engine, self._handler = engine, handler

    def __getattr__(self, name):
        is_event = name.endswith(("_changed", "_removed"))
        return getattr(self._handler if is_event else self._engine, name)


class RecordedRun(RandomRun):
    """A random run with a decision log of one or several files."""

    def __init__(self, seed: int, *, exchanges: bool = False) -> None:
        self.files: list[list[Item]] = []
        self.plans = 0
        super().__init__(seed, exchanges=exchanges)

    @property
    def engine(self):
        return self._recorded

    @engine.setter
    def engine(self, engine):
        self._own = engine
        self._recorded = RecordedEngine(engine, RecordingHandler(engine, self.take))
        self.files.append([NewFile(Header(engine.policy, self.now))])

    def arrive(self) -> None:
        """Submit a workload; with preemption, some are parts of HyperJobs."""
        super().arrive()
        if self.exchanges and self.dice.random() < 0.2:
            gang = HyperJobGang(f"hyperjob-{self.number // 20}/split", 3, self.dice.choice([1, 2, 3]))
            self.update(self.engine.workloads[WorkloadUid(f"job-{self.number}")], gang=gang)

    def take(self, item: Item) -> None:
        self.files[-1].append(item)

    def plan(self, most: int | None = None) -> None:
        plan, builder = self._own.plan(self.now, most=most), RecordBuilder(self._own)
        self.plans += 1
        records = (*builder.plan_records(plan), *builder.pending_records(plan.waits))
        entry = PlanEntry(self.plans, self.now, most, REVISION, len(records))
        self.files[-1].append(PlanRecord(entry, records))

    def start_file(self) -> None:
        header = Header(self._own.policy, self.now, is_whole=False)
        self.files.append([NewFile(header, take_checkpoint(self._own))])


def encode(items: list[Item]) -> Iterator[bytes]:
    encoder = EntryEncoder()
    for item in items:
        for entry in item_entries(item):
            yield from encoder.encode(entry)
