"""The whole system from one seed: one history per seed, no violation, and a judge that sees planted mistakes."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from controller.api.configuration import load_configuration
from controller.cache import workload_builder
from controller.cache.objects import CachedBinding
from controller.cache.translate import queues
from controller.engine.lifecycle import startup
from controller.engine.pending_reasons import PendingReasonUpdater
from controller.engine.placement import filter as placement_filter
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.cluster_usage import ClusterUsage
from controller.engine.state.clusters import Cluster
from controller.engine.state.workloads import WorkloadUid
from controller.scheduling import patches
from tests.deterministic import __main__ as command
from tests.deterministic import faults, operations, other_clients
from tests.deterministic.clock import simulate
from tests.deterministic.operations import Operation
from tests.deterministic.shrinking import Shrinker, kinds_of
from tests.deterministic.simulation import Result, run, script
from tests.deterministic.system import System

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet():
    """Log nothing: a simulated hour has thousands of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**before)


def digests(*options: str, jobs: str, hash_seed: str) -> list[str]:
    """Return the digests of two runs, in so many processes."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    flags = (*options, "--runs", "2", "--jobs", jobs)
    command = [sys.executable, "-m", "tests.deterministic", *flags]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return sorted(re.findall("digest (.*)", done.stdout))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--seed", "4", "--activity", "4"), id="minutes", marks=pytest.mark.process),
        pytest.param(("--seed", "95022", "--hours", "4"), id="hours", marks=pytest.mark.long),
    ],
)
def test_one_seed_gives_one_history_in_all_processes(options):
    first, second = digests(*options, jobs="1", hash_seed="1"), digests(*options, jobs="2", hash_seed="2")
    assert len({*first}) == 2
    assert first == second


def test_hour_without_faults_satisfies_the_strict_judge():
    result = run(4, 1, active=420)
    assert result.violations == []
    assert result.occurrences["submit-job"] > 3


def test_scripts_of_seeds_differ_and_have_every_operation():
    scripts = [script(seed, 4) for seed in range(1, 4)]
    assert scripts[0] != scripts[1]
    names = {operation.name for planned in scripts for operation in planned}
    expected = {*operations.TENANTS, *operations.OPERATORS, *faults.REQUEST_FAULTS, *faults.WATCH_FAULTS}
    assert names >= expected | {*faults.SYSTEM_FAULTS, *other_clients.ACTIONS}


def test_changed_configurations_are_valid_and_have_each_option(tmp_path):
    used = set()

    async def change_often() -> None:
        system = System(1, tmp_path)
        for seed in range(40):
            await operations.change_configuration(system, random.Random(seed))
            used.update(load_configuration(system.configuration_file.read_text()).model_fields_set)

    simulate(change_often, 1)
    assert used >= {"advance_reservations", "ageing", "backfill", "node_shapes", "patches", "resize"}


def test_run_ends_when_every_event_of_a_watch_is_faulty(monkeypatch):
    monkeypatch.setattr(faults, "DURATIONS", ((15, 1.0),))
    names = enumerate(faults.WATCH_FAULTS, start=1)
    chosen = [Operation(20 * index, name, index) for index, name in names]
    chosen += [Operation(4 * index, "submit-job", index) for index in range(45)]
    result = run(1, 1, chosen=chosen, active=180)
    assert result.violations == []
    assert all(result.occurrences[name] for name in faults.WATCH_FAULTS)


def violations_with(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, replacement: object, *, seed: int = 4
) -> Result:
    monkeypatch.setattr(target, name, replacement)
    return run(seed, 1, active=900)


def test_judge_sees_jobs_that_keep_their_charge_after_the_end(monkeypatch):
    result = violations_with(monkeypatch, workload_builder, "is_finished", lambda _: False)
    assert kinds_of(result.violations) & {"I4", "I6"}


def test_judge_sees_admissions_without_a_record(monkeypatch):
    result = violations_with(monkeypatch, patches, "_set_record", lambda *_: [])
    assert "I3" in kinds_of(result.violations)
    shrinker = Shrinker(result, attempts=2)
    shrinker.shrink()
    assert len(shrinker.operations) < len(result.operations)


def test_judge_sees_a_job_that_is_never_admitted(monkeypatch):
    first = set[str]()

    def refuse_others(binding: CachedBinding, *_: object) -> Refusal | None:
        if not first:
            first.add(binding.uid)
        return None if binding.uid in first else Refusal(Reason.SUSPENDED)

    monkeypatch.setattr(workload_builder, "pending_reason", refuse_others)
    chosen = [Operation(at, "submit-job", at) for at in (1, 5)]
    result = run(4, 1, chosen=chosen, active=10)
    assert kinds_of(result.violations) == {"I4"}
    assert [violation.count(" on no cluster ") for violation in result.violations] == [1]


def test_judge_sees_a_pending_job_without_a_reason(monkeypatch):
    last_reasons = PendingReasonUpdater.last_reasons

    def all_but_one(updater: PendingReasonUpdater) -> dict[WorkloadUid, Reason]:
        return dict(sorted(last_reasons(updater).items())[1:])

    monkeypatch.setattr(PendingReasonUpdater, "last_reasons", all_but_one)
    chosen = [Operation(at, "submit-impossible-job", at) for at in (1, 5)]
    result = run(4, 1, chosen=chosen, active=10)
    assert [violation.split()[2] for violation in result.violations] == ["I8"]


def test_judge_sees_unknown_external_usage(monkeypatch):
    update = ClusterUsage.update

    def update_without_usage(usage: ClusterUsage, cluster: Cluster, *more: int) -> None:
        update(usage, replace(cluster, used={}), *more)

    monkeypatch.setattr(ClusterUsage, "update", update_without_usage)
    chosen = [Operation(at, "fill-cluster", at) for at in range(1, 9)]
    chosen += [Operation(60 + at / 10, "submit-job", at) for at in range(60)]
    assert "I1" in kinds_of(run(4, 1, chosen=chosen, active=200).violations)


def test_judge_sees_plans_without_end(monkeypatch):
    result = violations_with(monkeypatch, ClusterState, "refresh_external_usage", lambda *_: None, seed=8)
    assert "I7" in kinds_of(result.violations)


def test_judge_sees_the_wrong_order_of_queues(monkeypatch):
    translate = queues._queue
    result = violations_with(
        monkeypatch, queues, "_queue", lambda queue: replace(translate(queue), priority=0), seed=32
    )
    assert "I6" in kinds_of(result.violations)


def test_judge_sees_exceptions_that_a_process_logs(monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    result = violations_with(monkeypatch, patches, "_set_record", fail)
    assert any("ZeroDivisionError" in violation for violation in result.violations)


def test_failed_simulation_is_a_violation_and_others_continue(monkeypatch, capsys):
    def run_or_fail(seed: int, hours: int, **_: object) -> Result:
        if seed == 1:
            raise ZeroDivisionError
        return Result(seed, "digest", [], Counter(), (), 3600, hours, 5)

    monkeypatch.setattr(command, "run", run_or_fail)
    monkeypatch.setattr(command, "_configure_log", lambda _: None)
    assert command.main(["--runs", "2", "--jobs", "1", "--keep-going"]) == 1
    output = capsys.readouterr()
    assert "seed 1: 1 violations" in output.out
    assert "the simulation failed: ZeroDivisionError()" in output.out
    assert "seed 2: no violation" in output.out
    assert "Traceback" in output.err


def test_judge_sees_admissions_to_tainted_clusters(monkeypatch):
    monkeypatch.setattr(placement_filter, "untolerated_taints", lambda *_: ())
    chosen = [Operation(at, "taint-cluster", at) for at in range(1, 9)]
    chosen += [Operation(10 + at / 10, "submit-job", at) for at in range(60)]
    result = run(4, 1, chosen=chosen, active=60)
    assert "C1" in kinds_of(result.violations)


def test_judge_sees_moved_jobs_that_stay_where_they_do_not_fit(monkeypatch):
    monkeypatch.setattr(startup, "_fits_cluster", lambda *_: True)
    chosen = [Operation(10 + at / 10, "submit-job", at) for at in range(60)]
    chosen += [Operation(40, "taint-cluster", at) for at in range(1, 9)]
    result = run(4, 1, chosen=chosen, active=400)
    assert kinds_of(result.violations) == {"R1"}
