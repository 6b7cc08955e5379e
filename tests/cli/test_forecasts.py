"""Forecast starts in `explain` and `pending`, from the run times of finished jobs or those that the files store."""

import json
from contextlib import contextmanager

import pytest

from controller.cli.input.offline import read_offline_state
from controller.cli.input.snapshot import ActiveConfiguration, ConfigurationSource, take_snapshot
from controller.cli.render.explain import _start_lines
from controller.cli.render.plan import StartReport, format_start
from controller.cli.reports.forecast import _profile_of
from controller.forecast.codec import encode_run_times
from controller.forecast.profiles import profile_of
from controller.forecast.run_times import JobProfile, Run, RunTimes
from controller.forecast.sampling import RepeatedArrivals
from tests.cache import objects
from tests.cli.manifests import cluster, job, queue, write

NOW = ("--now", "2026-01-02T09:20:00Z")
NOW_MS = 1_767_345_600_000
EIGHT = {"cpu": "8"}


def placed(name: str, hour: int, phase: str, minute: int = 0) -> list[dict]:
    """Return a job of the whole cluster that was admitted at *hour*, and its binding."""
    admitted = {"queue": "a", "charge": EIGHT, "clusters": ["m1"], "admittedAt": f"2026-01-02T{hour:02}:00:00Z"}
    binding = objects.binding(
        name,
        paused=False,
        clusters=["m1"],
        phases={"m1": phase},
        since=f"2026-01-02T{hour:02}:{minute:02}:00Z",
        record=json.dumps({"uid": f"rb-{name}", **admitted}),
    )
    return [job(name, EIGHT, queue="a", uid=name), json.loads(binding)]


STATE = [cluster("m1", EIGHT), queue("a"), *placed("running", 9, "Running"), job("new", EIGHT, queue="a")]
PAST = [manifest for hour in range(3, 9) for manifest in placed(f"old-{hour}", hour, "Completed", 50)]


def test_start_is_forecast_from_finished_jobs(run, tmp_path):
    file = write(tmp_path, *STATE, *PAST)
    explain, pending = ("explain", "job", "ml/new", "-f", file, *NOW), ("pending", "-f", file, *NOW)
    start = run(*explain, "-o", "json").answer["start"]
    assert "2026-01-02T09:40:00Z" <= start["p10"] <= start["p50"] <= start["p90"]
    assert start["p50"] < "2026-01-02T10:10:00Z"
    assert start["after"] == ["Job ml/running on m1"]
    text = run(*explain).out
    assert "When it starts:\n  Probably by 2026-01-02 09:" in text
    assert "It waits for Job ml/running on m1." in text
    table = run(*pending).out
    assert "START (UTC)" in table
    assert " 2026-01-02 " in table
    # The same files give the same forecast.
    assert run(*pending, "-o", "json").answer["pending"][0]["start"] == start


def test_nothing_is_forecast_without_a_known_run_time(run, tmp_path):
    file = write(tmp_path, *STATE)
    assert run("explain", "job", "ml/new", "-f", file, *NOW, "-o", "json").answer["start"] is None
    assert "START" not in run("pending", "-f", file, *NOW).out


@pytest.mark.parametrize(
    ("complete", "cell", "text"),
    [(True, "> 24 h", "a time after 24 hours"), (False, "later", "a time later than could be simulated")],
)
def test_unknown_start_is_after_24_hours_or_after_a_cut(complete, cell, text):
    start = StartReport("2026-01-02T10:00:00Z", None, None, (), complete)
    assert format_start(start) == cell
    [line] = _start_lines(start)
    assert line == f"Probably by {text}, with 80 % probability between 2026-01-02 10:00 UTC and {text}."


def stored_run_times(text: str) -> dict:
    metadata = {"name": "volcano-global-run-times", "namespace": "karmada-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"run-times.json": text}}


def test_stored_run_times_are_read_from_a_file(run, tmp_path):
    run_times = RunTimes()
    for _ in range(24):
        run_times.record(JobProfile("a", "ml"), Run(2 * 3600))
    file = write(tmp_path, *STATE, stored_run_times(encode_run_times(run_times, 0).decode()))
    [pending] = run("pending", "-f", file, *NOW, "-o", "json").answer["pending"]
    assert "2026-01-02T10:30:00Z" < pending["start"]["p50"] < "2026-01-02T11:30:00Z"


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_file_with_stored_run_times_is_read(run, tmp_path, options):
    folders = tmp_path / "state", tmp_path / "run-times"
    for folder in folders:
        folder.mkdir()
    stored = stored_run_times(encode_run_times(RunTimes(), 0).decode())
    state, run_times = write(folders[0], *STATE), write(folders[1], stored)
    ended = run("pending", "-f", state, "-f", run_times, *NOW, *options)
    assert (ended.code, ended.err) == (0, "")


def test_unreadable_run_times_are_named(run, tmp_path):
    ended = run("pending", "-f", write(tmp_path, *STATE, stored_run_times("{}")))
    assert ended.code == 2
    assert "data[run-times.json]" in ended.err


def test_arrivals_run_as_long_as_jobs_of_their_template(tmp_path):
    submitted = job("new", EIGHT, queue="a", created="2026-01-02T09:00:00Z")
    offline = read_offline_state([write(tmp_path, *STATE[:-1], submitted, *PAST)], NOW_MS)
    configuration = ActiveConfiguration(offline.objects.configuration, ConfigurationSource.FILE)
    snapshot = take_snapshot(offline.store, NOW_MS, configuration)
    [new] = [workload for workload in snapshot.engine.workloads.values() if workload.name == "new"]
    arrivals = [workload for number in range(9) for _, workload in RepeatedArrivals([new], NOW_MS)(number)]
    [profile] = {_profile_of(snapshot, workload) for workload in arrivals}
    assert profile == profile_of(offline.store, new)
    assert profile.template


@pytest.fixture
def shown(monkeypatch):
    """Return what the progress bar shows of each future."""
    steps = []

    @contextmanager
    def progress_bar(_):
        yield lambda *values: steps.append(values)

    monkeypatch.setattr("controller.cli.reports.forecast.progress_bar", progress_bar)
    return steps


def test_first_answer_is_shown_while_it_is_refined(run, tmp_path, shown):
    run("explain", "job", "ml/new", "-f", write(tmp_path, *STATE, *PAST), *NOW)
    assert [done for done, _, _ in shown] == list(range(1, shown[0][1] + 1))
    texts = [text for _, _, text in shown]
    assert all(text.startswith("Job ml/new probably starts by ") and text.endswith(" UTC") for text in texts)
    assert ", with 90 % probability by 2026-01-02 " in texts[-1]


@pytest.mark.parametrize(("queues", "is_forecast"), [("a", True), ("b", False), ("ab", True)])
def test_only_workloads_that_may_start_are_forecast(run, tmp_path, shown, queues, is_forecast):
    """The queue b does not exist."""
    pending = [job(f"new-{name}", EIGHT, queue=name) for name in queues]
    run("pending", "-f", write(tmp_path, *STATE[:-1], *pending, *PAST), *NOW)
    assert bool(shown) == is_forecast


def test_nothing_is_forecast_where_only_names_are_printed(run, tmp_path, shown):
    assert run("pending", "-f", write(tmp_path, *STATE, *PAST), *NOW, "-o", "name").code == 0
    assert not shown
