"""Reads decisions from the files of a decision log, page by page; each page costs a bounded number of bytes."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from controller.api.visibility import Decisions, LoggedDecision

T = TypeVar("T")

#: Bytes of one page, about a tenth of a second.
_PAGE_BYTES = 16 << 20
_MAX_HEADER_BYTES = 1 << 20
#: The encoder writes the type first, so that other lines are skipped without decoding.
_PLAN, _DECISION = b'{"type":"plan"', b'{"type":"decision"'
_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})")


class HistoryError(Exception):
    """The decision log cannot answer a request; the message says why."""


class _Header(msgspec.Struct, frozen=True):
    at: int
    version: str = ""
    identity: str = ""


class _PlanLine(msgspec.Struct, frozen=True):
    number: int
    now: int


_headers = msgspec.json.Decoder(_Header)
_plan_lines = msgspec.json.Decoder(_PlanLine)
_decisions = msgspec.json.Decoder(LoggedDecision)


class Position(NamedTuple):
    """A place in the log: the start of its file, the offset in it, and the time of the plan before it."""

    began: int
    offset: int
    planned: int

    def __str__(self) -> str:
        return f"{self.began}-{self.offset}-{self.planned}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Return the position in *text*; raise ``ValueError``."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError("after must be a position of an earlier answer")
        return cls(*map(int, match.groups()))


@dataclass(frozen=True, slots=True)
class LogFile:
    """One open file of a log; rotation does not close it."""

    began: int
    identity: str
    version: str
    lines: BinaryIO


@contextmanager
def open_files(path: Path) -> Iterator[list[LogFile]]:
    """Open the files of the log *path*, the oldest first by their numbers: the clock may have been set back."""
    with ExitStack() as stack:
        files: dict[int, LogFile] = {}
        number = 0
        # From the newest to the oldest: a file that is renamed meanwhile is opened twice, but none is missed.
        # Between two renames of a rotation one number is missing.
        while number == 0 or any(_numbered(path, either).exists() for either in (number, number + 1)):
            try:
                lines = stack.enter_context(_numbered(path, number).open("rb"))
            except FileNotFoundError:
                number += 1
                continue
            header = lines.readline(_MAX_HEADER_BYTES)
            number += 1
            if not header.endswith(b"\n"):
                continue
            try:
                begun = _headers.decode(header)
            except msgspec.MsgspecError as error:
                raise HistoryError(f"{path.name}: the first line is not that of a decision log") from error
            files[begun.at] = LogFile(begun.at, begun.identity, begun.version, lines)
        yield [*reversed(files.values())]


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}") if number else path


@dataclass(frozen=True, slots=True)
class Filters:
    """Which decisions are read; empty fields select all."""

    queue: str = ""
    namespace: str = ""
    kind: str = ""
    name: str = ""
    action: str = ""
    since: int = 0
    until: int = 2**62

    def matches(self, decision: LoggedDecision) -> bool:
        """Return whether *decision* matches, except in its time."""
        return (
            self.queue in {"", decision.queue}
            and self.namespace in {"", decision.namespace}
            and self.kind in {"", decision.kind}
            and self.name in {"", decision.name}
            and self.action in {"", decision.action}
        )


def read_page(path: Path, filters: Filters, after: Position | None, limit: int) -> Decisions:
    """Return at most *limit* decisions after a position, from the beginning of the log without one.

    Raises `HistoryError` without a log, and ``ValueError`` for an invalid position.
    """
    with open_files(path) as files:
        if not files:
            raise HistoryError("there is no decision log yet")
        known = [number for number, file in enumerate(files) if after is not None and file.began == after.began]
        is_gap = after is not None and not known
        # Without the file of the position, the oldest one begins after it, or the log is another one.
        remaining = files[known[0] :] if known else files
        if after is None:
            newer = [file.began for file in remaining[1:]]
            # A file whose successor began before the requested time has nothing of it.
            remaining = remaining[sum(began <= filters.since for began in newer) :]
        reader = _PageReader(filters, limit)
        for file in remaining:
            start = after if after is not None and file.began == after.began else None
            if not reader.read(file, start):
                break
        last = remaining[-1]
        position = reader.position or Position(last.began, 0, 0)
        return Decisions(
            identity=last.identity,
            since=files[0].began,
            items=tuple(reader.decisions),
            position=str(position),
            is_complete=reader.is_complete,
            is_gap=is_gap,
        )


class _PageReader:
    """Reads lines of successive files until the page is full."""

    def __init__(self, filters: Filters, limit: int) -> None:
        self.decisions: list[LoggedDecision] = []
        self.position: Position | None = None
        self.is_complete = True
        self._filters = filters
        self._limit = limit
        self._bytes = 0

    def read(self, file: LogFile, start: Position | None) -> bool:
        """Read *file* from *start* or its beginning; return whether to go on with the next file."""
        offset, planned = (start.offset, start.planned) if start is not None else (0, file.began)
        filters = self._filters
        file.lines.seek(max(offset - 1, 0))
        if offset and file.lines.read(1) != b"\n":
            raise ValueError("after must be a position of an earlier answer")
        for line in file.lines:
            self.position = Position(file.began, offset, planned)
            if not line.endswith(b"\n"):
                # The writer has not finished this line.
                return True
            if self._bytes >= _PAGE_BYTES:
                self.is_complete = False
                return False
            if line.startswith(_PLAN):
                planned = _decoded(_plan_lines.decode, line).now
                if planned > filters.until:
                    return False
            elif line.startswith(_DECISION) and planned >= filters.since:
                if len(self.decisions) >= self._limit:
                    self.is_complete = False
                    return False
                decision = _decoded(_decisions.decode, line)
                if filters.matches(decision):
                    self.decisions.append(structs.replace(decision, at=planned))
            offset += len(line)
            self._bytes += len(line)
        self.position = Position(file.began, offset, planned)
        return True


def _decoded(decode: Callable[[bytes], T], line: bytes) -> T:
    try:
        return decode(line)
    except msgspec.MsgspecError as error:
        raise HistoryError("a line of the decision log cannot be read; it was written by another version") from error


def last_plan(file: LogFile, at: int) -> int | None:
    """Return the number of the last plan in *file* at or before *at*, ``None`` without one."""
    number = None
    file.lines.seek(0)
    for line in file.lines:
        if line.startswith(_PLAN) and line.endswith(b"\n"):
            planned = _decoded(_plan_lines.decode, line)
            if planned.now > at:
                break
            number = planned.number
    file.lines.seek(0)
    return number
