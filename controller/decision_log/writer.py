"""The thread that writes the journal, so that nobody else ever waits for a disk.

What it is given never changes any more. Where it cannot write it says so,
lets all go that it is given, and begins again when it is given a beginning.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from controller.decision_log.codec import EntryEncoder
from controller.decision_log.entries import (
    CheckpointEntry,
    DecisionEntry,
    Entry,
    Header,
    PlanEntry,
    QueueChanged,
    StateChange,
    WorkloadChanged,
)
from controller.decision_log.files import RotatedFiles
from controller.decision_log.records import DecisionRecord, record_fields
from controller.engine.checkpoint import Checkpoint

#: So many entries are written at once.
_BATCH = 256


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file begins; *whole* is what its World knows already."""

    header: Header
    snapshot: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan with its verdicts."""

    entry: PlanEntry
    records: tuple[DecisionRecord, ...]


Item = NewFile | PlanRecord | StateChange


class DecisionLogWriter:
    """Takes items at once and writes them in their order; ``start`` and ``stop`` once."""

    def __init__(self, files: RotatedFiles, *, limit: int, on_file_change: Callable[[OSError | None], None]) -> None:
        self._files = files
        self._limit = limit
        self._on_file_change = on_file_change
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="journal", daemon=True)
        self._encoder = EntryEncoder()
        self._initial_size = 0
        self._is_open = False
        self._files_requested = self._files_started = 0
        """How many beginnings were given, and taken up."""

    @property
    def backlog(self) -> int:
        """Return about how many items are not written yet."""
        return self._items.qsize()

    @property
    def is_full(self) -> bool:
        """Say whether the file is so large that another should begin, and none is on its way."""
        return self._files_requested == self._files_started and self._files.size - self._initial_size > self._limit

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Have *item* written after all before it."""
        self._files_requested += isinstance(item, NewFile)
        self._items.put(item)

    def stop(self, timeout: float) -> None:
        """Write what is left, as far as *timeout* seconds allow, and close the file."""
        self._items.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        is_going_on = True
        while is_going_on:
            batch = list(self._next_batch())
            is_going_on = batch[-1] is not None
            try:
                self._write(item for item in batch if item is not None)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it must not end the process, nor pass unheard
                self._fail(error)
        self._files.close()

    def _next_batch(self) -> Iterator[Item | None]:
        """Yield what there is, after a wait for the first of it."""
        item = self._items.get()
        yield item
        for _ in range(_BATCH):
            if item is None:
                return
            try:
                item = self._items.get_nowait()
            except Empty:
                return
            yield item

    def _write(self, items: Iterable[Item]) -> None:
        lines: list[bytes] = []
        for item in items:
            if isinstance(item, NewFile):
                self._flush(lines)
                self._begin(item)
            elif self._is_open:
                for entry in item_entries(item):
                    lines.extend(self._encoder.encode(entry))
        self._flush(lines)

    def _flush(self, lines: list[bytes]) -> None:
        if lines and self._is_open:
            self._files.write(b"".join(lines))
        lines.clear()

    def _begin(self, item: NewFile) -> None:
        """Begin a new file, piece by piece where much is known."""
        self._is_open = False
        self._files.start_file()
        self._is_open, self._encoder = True, EntryEncoder()
        lines: list[bytes] = []
        for number, entry in enumerate(header_entries(item)):
            lines.extend(self._encoder.encode(entry))
            if number % _BATCH == 0:
                self._flush(lines)
        self._flush(lines)
        # What it begins with does not count, or a large world would have no room after it.
        self._initial_size, self._files_started = self._files.size, self._files_started + 1
        self._on_file_change(None)

    def _fail(self, error: Exception) -> None:
        self._is_open, self._files_started = False, self._files_requested
        self._files.close()
        self._on_file_change(error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}"))


def header_entries(item: NewFile) -> Iterator[Entry]:
    """Yield the entries that a file begins with."""
    yield item.header
    if item.snapshot is None:
        return
    now = item.header.at
    for queue in item.snapshot.queues:
        yield QueueChanged(queue)
    for workload in item.snapshot.workloads:
        yield WorkloadChanged(workload, now)
    yield CheckpointEntry(item.snapshot.history, now)


def item_entries(item: Item) -> Iterator[Entry]:
    """Yield what *item* is written as."""
    if isinstance(item, NewFile):
        yield from header_entries(item)
    elif isinstance(item, PlanRecord):
        yield item.entry
        for verdict in item.records:
            yield DecisionEntry(record_fields(verdict, item.entry.number, item.entry.revision))
    else:
        yield item
