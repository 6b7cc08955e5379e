"""Lives of Worlds whose journal is kept in memory."""

from collections.abc import Iterator

from controller.decision_log.codec import EntryEncoder
from controller.decision_log.entries import Header, PlanEntry
from controller.decision_log.log import RecordingHandler
from controller.decision_log.records import RecordBuilder
from controller.decision_log.writer import Item, NewFile, PlanRecord, item_entries
from controller.engine.checkpoint import take_checkpoint
from controller.engine.state import State
from controller.engine.workloads import HyperJobGang, WorkloadUid
from tests.engine.test_incremental import Life

REVISION = "0123456789ab"


class Front:
    """A World whose events are taken down."""

    def __init__(self, state: State, put) -> None:
        self._world = state
        self._witness = RecordingHandler(state, put)

    def __getattr__(self, name):
        own = name.endswith(("_changed", "_removed"))
        return getattr(self._witness if own else self._world, name)


class JournalledLife(Life):
    """A life of which a journal is kept, in several files where another one is begun now and then."""

    def __init__(self, seed: int, *, exchanges: bool = False) -> None:
        self.files: list[list[Item]] = []
        self.plans = 0
        super().__init__(seed, exchanges=exchanges)

    @property
    def state(self):
        return self._front

    @state.setter
    def state(self, state):
        self._own = state
        self._front = Front(state, self.take)
        self.files.append([NewFile(Header(state.policy, self.now))])

    def arrive(self) -> None:
        """Let one arrive; with exchanges, some are parts of groups."""
        super().arrive()
        if self.exchanges and self.dice.random() < 0.2:
            group = HyperJobGang(f"hyperjob-{self.number // 20}/split", 3, self.dice.choice([1, 2, 3]))
            self.tell(self.state.workloads[WorkloadUid(f"uid-{self.number}")], group=group)

    def take(self, item: Item) -> None:
        self.files[-1].append(item)

    def plan(self, most: int | None = None) -> None:
        plan, bench = self._own.plan(self.now, most=most), RecordBuilder(self._own)
        self.plans += 1
        verdicts = (*bench.plan_records(plan), *bench.pending_records(plan.waits))
        planned = PlanEntry(self.plans, self.now, most, REVISION, len(verdicts))
        self.files[-1].append(PlanRecord(planned, verdicts))

    def begin_anew(self) -> None:
        begun = Header(self._own.policy, self.now, is_whole=False)
        self.files.append([NewFile(begun, take_checkpoint(self._own))])


def written(items: list[Item]) -> Iterator[bytes]:
    pen = EntryEncoder()
    for item in items:
        for entry in item_entries(item):
            yield from pen.encode(entry)
