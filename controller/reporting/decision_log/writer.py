"""Writes the decision log in a thread, so that the event loop never waits for a disk.

Items are immutable. After an error the writer drops items until a new file is requested.
"""

import fcntl
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from controller.engine.checkpoint import Checkpoint
from controller.reporting.decision_log.codec import (
    CheckpointEntry,
    DecisionEntry,
    Entry,
    EntryEncoder,
    Header,
    PlanEntry,
    QueueChanged,
    StateChange,
    WorkloadChanged,
)
from controller.reporting.decision_log.records import DecisionRecord, record_fields

#: Entries written at once.
_BATCH = 256


class RotatedFiles:
    """FILE and the older FILE.1, FILE.2 and so on, *keep* in all; one process writes them."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self.size = 0
        """Bytes written to the present file."""
        self._keep = keep
        self._open: int | None = None

    def start_file(self) -> None:
        """Start a new file; the present one is renamed to the next number. Raises ``OSError``."""
        self.close()
        if self.path.exists():
            self._rotate()
        opened = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._open, self.size = opened, 0

    def _rotate(self) -> None:
        """Rename every file to the next number, up to one that is free; the last one is overwritten."""
        with self.path.open("rb") as former:
            # The lock fails if another process writes this file.
            fcntl.flock(former, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A kill in the middle of a rotation leaves a number free.
        free = next((number for number in range(1, self._keep) if not self._numbered(number).exists()), self._keep - 1)
        for number in range(free, 0, -1):
            self._numbered(number - 1).replace(self._numbered(number))
        self.path.unlink(missing_ok=True)
        # Files of a process that kept more.
        end = next(number for number in itertools.count(self._keep) if not self._numbered(number).exists())
        for number in range(end - 1, self._keep - 1, -1):
            self._numbered(number).unlink()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def write(self, text: bytes) -> None:
        """Write all of *text*. Raises ``OSError``."""
        if self._open is None:
            raise OSError("the decision log is not open")
        rest = memoryview(text)
        while rest:
            written = os.write(self._open, rest)
            self.size += written
            rest = rest[written:]

    def discard(self) -> None:
        """Delete the present file, so that the next one does not displace an older one for it. Raises ``OSError``."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the present file, if it is open."""
        if self._open is not None:
            opened, self._open = self._open, None
            os.close(opened)


@dataclass(frozen=True, slots=True)
class NewFile:
    """Request to start a file; *snapshot* is the content of its state."""

    header: Header
    snapshot: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan with its decisions."""

    entry: PlanEntry
    records: tuple[DecisionRecord, ...]


Item = NewFile | PlanRecord | StateChange


class DecisionLogWriter:
    """Queues items and writes them in order; call ``start`` and ``stop`` once."""

    def __init__(self, files: RotatedFiles, *, limit: int, on_file_change: Callable[[OSError | None], None]) -> None:
        self._files = files
        self._limit = limit
        self._on_file_change = on_file_change
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="decision-log", daemon=True)
        self._encoder = EntryEncoder()
        self._initial_size = 0
        self._is_open = False
        self._files_requested = self._files_started = 0
        """How many new files were requested, and how many of them were started or failed."""

    @property
    def backlog(self) -> int:
        """Return the approximate number of items that are not written yet."""
        return self._items.qsize()

    @property
    def is_full(self) -> bool:
        """Return whether the file has reached its size limit and no new one was requested."""
        return self._files_requested == self._files_started and self._files.size - self._initial_size > self._limit

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: Item) -> None:
        """Queue *item*."""
        self._files_requested += isinstance(item, NewFile)
        self._items.put(item)

    def stop(self, timeout: float) -> None:
        """Write the remaining items for at most *timeout* seconds, and close the file."""
        self._items.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        is_going_on = True
        while is_going_on:
            batch = list(self._next_batch())
            is_going_on = batch[-1] is not None
            try:
                self._write(item for item in batch if item is not None)
            except Exception as error:  # noqa: BLE001 -- any error must be reported and must not end the thread
                self._fail(error)
        self._files.close()

    def _next_batch(self) -> Iterator[Item | None]:
        """Yield the queued items after waiting for the first one."""
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
                self._start_file(item)
            elif self._is_open:
                for entry in item_entries(item):
                    lines.extend(self._encoder.encode(entry))
        self._flush(lines)

    def _flush(self, lines: list[bytes]) -> None:
        """Write *lines* and a digest, with which changes are detected also where no plan follows, as in a standby."""
        if lines and self._is_open:
            lines.extend(self._encoder.digest_line())
            self._files.write(b"".join(lines))
        lines.clear()

    def _start_file(self, item: NewFile) -> None:
        """Start a new file with its header and snapshot."""
        self._is_open = False
        self._files.start_file()
        try:
            self._write_snapshot(item)
        except Exception:
            # On a full disk, each attempt would otherwise delete the oldest file for one without decisions.
            self._files.discard()
            raise
        self._on_file_change(None)

    def _write_snapshot(self, item: NewFile) -> None:
        self._is_open, self._encoder = True, EntryEncoder()
        lines: list[bytes] = []
        for number, entry in enumerate(header_entries(item)):
            lines.extend(self._encoder.encode(entry))
            if number % _BATCH == 0:
                self._flush(lines)
        self._flush(lines)
        # The snapshot does not count, or a large state would leave no capacity after it.
        self._initial_size, self._files_started = self._files.size, self._files_started + 1

    def _fail(self, error: Exception) -> None:
        self._is_open, self._files_started = False, self._files_requested
        self._files.close()
        self._on_file_change(error if isinstance(error, OSError) else OSError(f"{type(error).__name__}: {error}"))


def header_entries(item: NewFile) -> Iterator[Entry]:
    """Yield the entries at the start of a file."""
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
    """Yield the entries of *item*."""
    if isinstance(item, NewFile):
        yield from header_entries(item)
    elif isinstance(item, PlanRecord):
        yield item.entry
        for record in item.records:
            yield DecisionEntry(record_fields(record, item.entry.number, item.entry.revision))
    else:
        yield item
