"""The decision log on a disk: file rotation and failing disks."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from controller.reporting.decision_log import log as log_module
from controller.reporting.decision_log.log import (
    CycleContext,
    DecisionLog,
    DecisionLogOptions,
    DecisionRecorder,
    RecordingHandler,
)
from controller.reporting.decision_log.replay import replay
from controller.reporting.decision_log.writer import Item, RotatedFiles
from tests.engine.test_incremental import RandomRun
from tests.reporting.decision_log.recording import RecordedEngine
from tests.scenario import Scenario


class RunOnDisk:
    """A random run with a decision log on disk."""

    def __init__(self, path: Path, *, limit: int = 1 << 30, keep: int = 4, seed: int = 3) -> None:
        self.path = path
        self.losses = 0
        self.random_run = RandomRun(seed, exchanges=True)
        self.decision_log = DecisionLog(DecisionLogOptions(path, limit, keep), "tested", on_lost=self.lose)
        self.decision_recorder = DecisionRecorder(self.decision_log)
        self.decision_log.start()
        self.decision_recorder.start_file(self.random_run.engine, self.random_run.now)
        previous = self.random_run.engine
        self.own = type(previous)(previous.policy)
        self.random_run.engine = RecordedEngine(self.own, self.decision_recorder.recording_handler(self.own))
        # The objects of the run so far are recorded first.
        for queue in previous.queues.values():
            self.random_run.engine.queue_changed(queue)
        for cluster in previous.cluster_usage.clusters:
            self.random_run.engine.cluster_changed(cluster, self.random_run.now)
        for workload in previous.workloads.values():
            self.random_run.engine.workload_changed(workload, self.random_run.now)

    def lose(self) -> None:
        self.losses += 1

    def advance(self, events: int = 30) -> None:
        for _ in range(events):
            self.random_run.apply_event()
            self.decision_recorder.rotate_if_due(self.own, self.random_run.now)
            plan = self.own.plan(self.random_run.now)
            self.decision_recorder.record_plan(self.own, plan, CycleContext(self.random_run.now, None, "r1"))
            self.random_run.now += 10
            self.until(lambda: not self.decision_log._writer.backlog)

    def until(self, question) -> None:
        ends = time.monotonic() + 20
        while not question():
            assert time.monotonic() < ends, "the writer takes too long"
            time.sleep(0.002)

    def files(self) -> list[Path]:
        return sorted(self.path.parent.iterdir())


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def read(path: Path):
    with path.open("rb") as lines:
        return replay(lines)[0]


def test_file_on_disk_is_replayed_to_same_decisions(folder):
    run = RunOnDisk(folder / "decisions.jsonl")
    run.advance()
    run.decision_log.stop(10)
    result = read(run.path)
    assert (result.plans, result.is_identical, result.notes) == (30, True, [])
    assert result.decisions > 30
    assert result.begun is not None
    assert result.begun.identity == "tested"
    assert run.losses == 0
    assert run.path.stat().st_mode & 0o777 == 0o600


def test_observed_admission_is_recorded_with_its_end():
    """What an admission frees depends on whether it was carried out (C2)."""
    scenario = Scenario(
        {
            "clusters": [{"name": "m", "has": {"cpu": 4}}],
            "queues": [{"name": "q"}],
            "jobs": [{"name": "j", "queue": "q", "asks": {"cpu": 3}}],
        }
    )
    pending, items = scenario.by_name("j"), list[Item]()
    handler = RecordingHandler(scenario.engine, items.append)
    scenario.play({})
    admission = scenario.by_name("j").admission
    observed = replace(scenario.by_name("j"), admission=replace(admission, assumed=False))
    handler.workload_changed(observed, scenario.now)
    assert (admission.assumed, items) == (True, [])
    handler.workload_changed(pending, scenario.now)
    assert [item.workload for item in items] == [observed, pending]
    assert not items[0].workload.admission.assumed


def test_full_file_is_rotated_and_each_is_replayable(folder):
    run = RunOnDisk(folder / "decisions.jsonl", limit=20_000, keep=3)
    run.advance(150)
    run.decision_log.stop(10)
    files = run.files()
    assert [file.name for file in files] == ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]
    results = [read(file) for file in files]
    assert all(result.is_identical and result.plans for result in results[1:])
    assert results[0].is_identical
    assert not results[0].begun.is_whole
    assert results[2].until <= results[1].begun.at <= results[1].until <= results[0].begun.at
    for file in files:
        snapshot, separator, rest = file.read_bytes().rpartition(b'{"type":"memory"')
        assert len(rest) <= 20_000 + 60_000, "at most one batch may exceed the limit"
        assert snapshot or not separator


def test_new_process_keeps_files_of_previous_one(folder):
    path = folder / "decisions.jsonl"
    first = RunOnDisk(path)
    first.advance(10)
    first.decision_log.stop(10)
    before = path.read_bytes()
    second = RunOnDisk(path, seed=4)
    second.advance(10)
    second.decision_log.stop(10)
    assert (folder / "decisions.jsonl.1").read_bytes() == before
    assert read(path).is_identical


def test_two_processes_do_not_write_one_file(folder):
    path = folder / "decisions.jsonl"
    first = RunOnDisk(path)
    first.advance(5)
    second = RunOnDisk(path, seed=4)
    second.advance(5)
    second.decision_log.stop(10)
    first.advance(5)
    first.decision_log.stop(10)
    assert (first.losses, second.losses) == (0, 1)
    assert [file.name for file in folder.iterdir()] == ["decisions.jsonl"]
    assert (read(path).plans, read(path).is_identical) == (10, True)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_failing_disk_is_reported_and_retried(folder, monkeypatch, fault):
    run = RunOnDisk(folder / "decisions.jsonl")
    run.advance(10)
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(fault, os.strerror(fault))))
        run.advance(10)
        run.until(lambda: run.losses)
    assert os.write is write
    run.advance(10)
    assert run.losses == 1
    monkeypatch.setattr(log_module, "_RETRY_SECONDS", 0)
    run.advance(10)
    run.until(lambda: len(run.files()) == 2)
    run.advance(10)
    run.decision_log.stop(10)
    assert run.losses == 1
    assert [read(file).is_identical for file in run.files()] == [True, True]
    assert read(run.path).plans >= 10


def test_full_disk_does_not_displace_the_files_with_decisions(folder, monkeypatch):
    run = RunOnDisk(folder / "decisions.jsonl", keep=3)
    run.advance(10)
    monkeypatch.setattr(log_module, "_RETRY_SECONDS", 0)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        run.advance(20)
        run.until(lambda: run.losses > 3)
    run.advance(10)
    run.decision_log.stop(10)
    plans = [read(file).plans for file in run.files()]
    assert len(plans) == 2
    assert min(plans) >= 9


def test_missing_folder_does_not_stop_controller(folder):
    run = RunOnDisk(folder / "missing" / "decisions.jsonl")
    run.advance(10)
    run.decision_log.stop(10)
    assert run.losses == 1
    assert not list(folder.iterdir())


def test_slow_disk_interrupts_decision_log(folder, monkeypatch):
    monkeypatch.setattr(log_module, "_MAX_BACKLOG", -1)
    run = RunOnDisk(folder / "decisions.jsonl")
    run.advance(5)
    run.decision_log.stop(10)
    assert run.losses
    assert read(run.path).is_identical


def test_partial_write_is_completed(tmp_path, monkeypatch):
    files = RotatedFiles(tmp_path / "f", keep=2)
    files.start_file()
    write = os.write
    monkeypatch.setattr(os, "write", lambda opened, text: write(opened, text[:3]))
    files.write(b"0123456789")
    files.close()
    assert (tmp_path / "f").read_bytes() == b"0123456789"
    assert files.size == 10


def rotated(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def rotate(folder: Path, *, keep: int, text: str) -> None:
    files = RotatedFiles(folder / "f", keep=keep)
    files.start_file()
    files.write(text.encode())
    files.close()


@pytest.mark.parametrize("renames", range(3))
def test_kill_in_a_rotation_loses_the_oldest_file_at_most(tmp_path, monkeypatch, renames):
    for number in range(5):
        rotate(tmp_path, keep=4, text=str(number))
    left, rename = iter(range(renames)), Path.replace

    def replace(self, target):
        next(left)
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(StopIteration):
            rotate(tmp_path, keep=4, text="5")
    rotate(tmp_path, keep=4, text="6")
    assert rotated(tmp_path) == {"f": "6", "f.1": "4", "f.2": "3", "f.3": "2"}


def test_files_beyond_a_smaller_number_are_deleted(tmp_path):
    for number in range(5):
        rotate(tmp_path, keep=4, text=str(number))
    (tmp_path / "f.20261123").write_text("a copy")
    rotate(tmp_path, keep=2, text="5")
    assert rotated(tmp_path) == {"f": "5", "f.1": "4", "f.20261123": "a copy"}
    rotate(tmp_path, keep=1, text="6")
    assert rotated(tmp_path) == {"f": "6", "f.20261123": "a copy"}


def test_altered_line_of_a_standby_is_detected(folder):
    run = RunOnDisk(folder / "decisions.jsonl")
    for _ in range(30):
        run.random_run.apply_event()  # a standby records events and makes no plan
    run.decision_log.stop(10)
    assert (read(run.path).plans, read(run.path).is_identical) == (0, True)
    lines = run.path.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b'"type":"queue"' in line)
    lines[place] = lines[place].replace(b'"weight":', b'"weight":1', 1)
    run.path.write_bytes(b"".join(lines))
    assert read(run.path).first_tampered_line is not None
