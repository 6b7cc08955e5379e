import json
from contextlib import contextmanager

import pytest
import yaml

from controller.forecast.codec import encode_run_times
from controller.forecast.run_times import JobProfile, Run, RunTimes
from tests.cache import objects

NOW = "2026-01-02T09:20:00Z"


def record(name: str, admitted: str) -> str:
    return json.dumps(
        {"uid": f"rb-{name}", "queue": "a", "charge": {"cpu": "8"}, "clusters": ["m1"], "admittedAt": admitted}
    )


def placed(name: str, hour: int, phase: str, minute: int = 0) -> list[bytes]:
    """Return a job of the whole cluster that was admitted at *hour*, and its binding."""
    return [
        objects.job(name, requests={"cpu": "8"}),
        objects.binding(
            name,
            paused=False,
            clusters=["m1"],
            phases={"m1": phase},
            since=f"2026-01-02T{hour:02}:{minute:02}:00Z",
            record=record(name, f"2026-01-02T{hour:02}:00:00Z"),
        ),
    ]


def typed(raw: bytes, api_version: str, kind: str) -> dict:
    return {"apiVersion": api_version, "kind": kind, **json.loads(raw)}


def state(*raws: bytes) -> list[dict]:
    queue = typed(objects.queue("a"), "scheduling.volcano.sh/v1beta1", "Queue")
    cluster = typed(objects.cluster("m1"), "cluster.karmada.io/v1alpha1", "Cluster")
    return [queue, cluster, *map(json.loads, raws)]


PAST = [raw for hour in range(3, 9) for raw in placed(f"old-{hour}", hour, "Completed", 50)]
RUNNING = placed("running", 9, "Running")
NEW = objects.job("new", requests={"cpu": "8"})


@pytest.fixture
def written(tmp_path):
    def write(documents: list[dict]) -> str:
        path = tmp_path / "state.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    return write


def test_explain_shows_when_a_job_starts(run, written):
    file = written(state(*PAST, *RUNNING, NEW))
    ended = run("explain", "job", "new", "-n", "ml", "-f", file, "--now", NOW, "-o", "json")
    start = json.loads(ended.out)["start"]
    assert "2026-01-02T09:40:00Z" <= start["p10"] <= start["p50"] <= start["p90"]
    assert start["p50"] < "2026-01-02T10:10:00Z"
    assert start["after"] == ["Job ml/running on m1"]
    text = run("explain", "job", "new", "-n", "ml", "-f", file, "--now", NOW).out
    assert "When it starts:\n  Probably by 2026-01-02 09:" in text
    assert "It waits for Job ml/running on m1." in text


def test_pending_shows_a_column_of_starts(run, written):
    file = written(state(*PAST, *RUNNING, NEW))
    table = run("pending", "-f", file, "--now", NOW).out
    assert "START (UTC)" in table
    assert " 2026-01-02 " in table
    [pending] = json.loads(run("pending", "-f", file, "--now", NOW, "-o", "json").out)["pending"]
    assert pending["start"]["after"] == ["Job ml/running on m1"]


def test_same_files_give_the_same_forecast(run, written):
    file = written(state(*PAST, *RUNNING, NEW))
    first, second = (run("pending", "-f", file, "--now", NOW, "-o", "json").out for _ in range(2))
    assert first == second


def test_nothing_is_forecast_without_a_known_run_time(run, written):
    file = written(state(*RUNNING, NEW))
    assert (
        json.loads(run("explain", "job", "new", "-n", "ml", "-f", file, "--now", NOW, "-o", "json").out)["start"]
        is None
    )
    assert "START" not in run("pending", "-f", file, "--now", NOW).out


def config_map(text: str) -> dict:
    metadata = {"name": "volcano-global-run-times", "namespace": "karmada-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"run-times.json": text}}


def test_stored_run_times_are_read_from_a_file(run, written):
    run_times = RunTimes()
    for _ in range(24):
        run_times.record(JobProfile("a", "ml"), Run(2 * 3600))
    document = config_map(encode_run_times(run_times, 0).decode())
    ended = run("pending", "-f", written([*state(*RUNNING, NEW), document]), "--now", NOW, "-o", "json")
    [pending] = json.loads(ended.out)["pending"]
    assert "2026-01-02T10:30:00Z" < pending["start"]["p50"] < "2026-01-02T11:30:00Z"


def test_unreadable_run_times_are_named(run, written):
    ended = run("pending", "-f", written([*state(NEW), config_map("{}")]))
    assert ended.code == 2
    assert "data[run-times.json]" in ended.err


@pytest.mark.parametrize("estimate", ["0s", "87600h", "soon", "-1s"])
def test_impossible_estimate_is_named(run, written, estimate):
    job = objects.job("new", spec={"runningEstimate": estimate})
    ended = run("pending", "-f", written(state(job)))
    assert ended.code == 2
    assert f"spec.runningEstimate: '{estimate}' is " in ended.err


def test_first_answer_is_shown_while_it_is_refined(run, written, monkeypatch):
    shown = []

    @contextmanager
    def progress_bar(_):
        yield lambda *values: shown.append(values)

    monkeypatch.setattr("controller.cli.reports.forecast.progress_bar", progress_bar)
    file = written(state(*PAST, *RUNNING, NEW))
    run("explain", "job", "new", "-n", "ml", "-f", file, "--now", NOW)
    assert [done for done, _, _ in shown] == list(range(1, shown[0][1] + 1))
    assert all(text.startswith("Job ml/new starts by 2026-01-02 ") and text.endswith(" UTC") for _, _, text in shown)
