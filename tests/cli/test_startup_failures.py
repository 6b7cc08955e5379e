"""Reports on jobs that failed to start, from the record on the binding (R1, W1)."""

import msgspec
import pytest

from controller.api.clusters import decode_cluster
from controller.cache.start_failures import cluster_fingerprint
from controller.cache.translate.clusters import translate_cluster
from tests.cli.manifests import binding, cluster, job, queue, write

M = cluster("m", {"cpu": 4})
MARK = cluster_fingerprint(translate_cluster(decode_cluster(msgspec.json.encode(M))).cluster)
RECORD = {
    "uid": "u",
    "queue": "a",
    "attempts": 1,
    "startupFailedAt": "2026-01-01T00:00:00Z",
    "excludedClusters": {"m": MARK},
}
PAUSED = {**RECORD, "backOffUntil": "2026-01-01T00:15:00Z"}


@pytest.fixture
def explained(run, tmp_path):
    def explained(record, *, now, m=M, command=("explain", "job", "j", "-n", "ml")):
        documents = m, queue("a"), job("j", {"cpu": 1}, queue="a"), binding("j", suspended=True, record=record, uid="u")
        return run(*command, "-f", write(tmp_path, *documents), "--now", now)

    return explained


def test_startup_failure_backoff_and_exclusion_are_explained(explained):
    said = " ".join(explained(PAUSED, now="2026-01-01T00:01:00Z").out.split())
    assert "the last attempt to start it failed: it did not start on m in time" in said
    assert "it is retried automatically after 2026-01-01T00:15:00Z" in said
    assert "the workload or an equal one did not start on it, and it has not changed since" in said


@pytest.mark.parametrize(
    ("record", "m", "action"),
    [
        pytest.param(PAUSED, M, "Wait", id="the-cluster-is-as-it-was"),
        pytest.param(PAUSED, cluster("m", {"cpu": 5}), "Admit", id="the-cluster-has-grown"),
        pytest.param(PAUSED, cluster("m", {"cpu": 4}, used={"cpu": 2}), "Wait", id="others-run-there"),
        pytest.param({"uid": "u", "queue": "a", "attempts": 1}, M, "Admit", id="a-record-of-before"),
    ],
)
def test_after_backoff_only_changed_clusters_are_candidates(explained, record, m, action):
    ended = explained(record, now="2026-01-01T00:15:00Z", m=m, command=("plan", "-o", "json"))
    assert [each["action"] for each in ended.answer["decisions"]] == [action]


def test_no_admission_during_startup_backoff(explained):
    grown = cluster("m", {"cpu": 5})
    ended = explained(PAUSED, now="2026-01-01T00:14:59Z", m=grown, command=("plan", "-o", "json"))
    assert [each["reason"] for each in ended.answer["decisions"]] == ["StartupBackoff"]
