"""The journal on a disk: files that follow one another, and disks that fail."""

import errno
import os
import time
from pathlib import Path

import pytest

from controller.decision_log import log as journals
from controller.decision_log.files import RotatedFiles
from controller.decision_log.log import DecisionLog, DecisionLogOptions
from controller.decision_log.recorder import CycleContext, DecisionRecorder
from controller.decision_log.replay import replay
from tests.engine.test_incremental import Life


class Kept:
    """A life of which a real journal is kept."""

    def __init__(self, path: Path, *, limit: int = 1 << 30, keep: int = 4, seed: int = 3) -> None:
        self.path = path
        self.losses = 0
        self.life = Life(seed, exchanges=True)
        self.journal = DecisionLog(DecisionLogOptions(path, limit, keep), "tested", on_lost=self.lose)
        self.decision_recorder = DecisionRecorder(self.journal)
        self.journal.start()
        self.decision_recorder.start_file(self.life.state, self.life.now)
        self.own = self.life.state
        # What it has lived through so far is told again.
        self.own, told = type(self.own)(self.own.policy), self.own
        witness = self.decision_recorder.recording_handler(self.own)
        for queue in told.queues.values():
            witness.queue_changed(queue)
        for cluster in told.cluster_usage.clusters:
            witness.cluster_changed(cluster, self.life.now)
        for workload in told.workloads.values():
            witness.workload_changed(workload, self.life.now)
        self.life.state = Told(self.own, witness)

    def lose(self) -> None:
        self.losses += 1

    def lives_on(self, events: int = 30) -> None:
        for _ in range(events):
            self.life.happen()
            self.decision_recorder.rotate_if_due(self.own, self.life.now)
            plan = self.own.plan(self.life.now)
            self.decision_recorder.record_plan(self.own, plan, CycleContext(self.life.now, None, "r1"))
            self.life.now += 10
            self.follows()

    def follows(self) -> None:
        """Let the thread write all that there is."""
        self.until(lambda: not self.journal._writer.backlog)

    def until(self, question) -> None:
        ends = time.monotonic() + 20
        while not question():
            assert time.monotonic() < ends, "it takes too long"
            time.sleep(0.002)

    def files(self) -> list[Path]:
        return sorted(
            self.path.parent.iterdir(), key=lambda each: int(each.suffix[1:] or 0) if each != self.path else 0
        )


class Told:
    """A World that is told by way of a witness."""

    def __init__(self, state, witness) -> None:
        self._world, self._witness = state, witness

    def __getattr__(self, name):
        return getattr(self._witness if name.endswith(("_changed", "_removed")) else self._world, name)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "journal").mkdir()
    return tmp_path / "journal"


def read(path: Path):
    with path.open("rb") as lines:
        return replay(lines)[0]


def test_file_on_disk_is_replayed_to_same_decisions(folder):
    kept = Kept(folder / "decisions.jsonl")
    kept.lives_on()
    kept.journal.stop(10)
    result = read(kept.path)
    assert (result.plans, result.is_identical, result.notes) == (30, True, [])
    assert result.decisions > 30
    assert result.begun is not None
    assert result.begun.identity == "tested"
    assert kept.losses == 0


def test_file_is_readable_by_owner_only(folder):
    kept = Kept(folder / "decisions.jsonl")
    kept.journal.stop(10)
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_full_file_is_rotated_and_each_is_replayable(folder):
    kept = Kept(folder / "decisions.jsonl", limit=20_000, keep=3)
    kept.lives_on(150)
    kept.journal.stop(10)
    files = kept.files()
    assert [each.name for each in files] == ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]
    found = [read(each) for each in files]
    assert all(each.is_identical and each.plans for each in found[1:])
    assert found[0].is_identical
    assert not found[0].begun.is_whole
    assert found[2].until <= found[1].begun.at <= found[1].until <= found[0].begun.at


def test_disk_use_is_bounded(folder):
    kept = Kept(folder / "decisions.jsonl", limit=20_000, keep=3)
    kept.lives_on(200)
    kept.journal.stop(10)
    for file in kept.files():
        begins = sum(map(len, known(file)))
        assert file.stat().st_size <= begins + 20_000 + 60_000, "one round may go beyond the limit, no more"


def known(file: Path) -> list[bytes]:
    """The lines that a file begins with."""
    lines = file.read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if line.startswith(b'{"type":"memory"')]
    return lines[: ends[0] + 1] if ends else []


def test_new_process_keeps_files_of_previous_one(folder):
    path = folder / "decisions.jsonl"
    first = Kept(path)
    first.lives_on(10)
    first.journal.stop(10)
    before = path.read_bytes()
    second = Kept(path, seed=4)
    second.lives_on(10)
    second.journal.stop(10)
    assert (folder / "decisions.jsonl.1").read_bytes() == before
    assert read(path).is_identical


def test_two_processes_do_not_write_one_file(folder):
    path = folder / "decisions.jsonl"
    first = Kept(path)
    first.lives_on(5)
    second = Kept(path, seed=4)
    second.lives_on(5)
    second.journal.stop(10)
    first.lives_on(5)
    first.journal.stop(10)
    assert (first.losses, second.losses) == (0, 1)
    assert [each.name for each in folder.iterdir()] == ["decisions.jsonl"]
    assert (read(path).plans, read(path).is_identical) == (10, True)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_failing_disk_is_reported_and_retried(folder, monkeypatch, fault):
    kept = Kept(folder / "decisions.jsonl")
    kept.lives_on(10)
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(fault, os.strerror(fault))))
        kept.lives_on(10)
        kept.until(lambda: kept.losses)
    assert os.write is write
    kept.lives_on(10)
    assert kept.losses == 1
    monkeypatch.setattr(journals, "_RETRY_SECONDS", 0)
    kept.lives_on(10)
    kept.until(lambda: len(kept.files()) == 2)
    kept.lives_on(10)
    kept.journal.stop(10)
    assert kept.losses == 1
    assert [read(each).is_identical for each in kept.files()] == [True, True]
    assert read(kept.path).plans >= 10


def test_missing_folder_does_not_stop_controller(folder):
    kept = Kept(folder / "missing" / "decisions.jsonl")
    kept.lives_on(10)
    kept.journal.stop(10)
    assert kept.losses == 1
    assert not list(folder.iterdir())


def test_slow_disk_interrupts_decision_log(folder, monkeypatch):
    monkeypatch.setattr(journals, "_MAX_BACKLOG", -1)
    kept = Kept(folder / "decisions.jsonl")
    kept.lives_on(5)
    kept.journal.stop(10)
    assert kept.losses
    assert read(kept.path).is_identical


def test_partial_write_is_completed(tmp_path, monkeypatch):
    files = RotatedFiles(tmp_path / "f", keep=2)
    files.start_file()
    write = os.write
    monkeypatch.setattr(os, "write", lambda opened, text: write(opened, text[:3]))
    files.write(b"0123456789")
    files.close()
    assert (tmp_path / "f").read_bytes() == b"0123456789"
    assert files.size == 10
