"""Claims and sources of data in the commands: where a job may run, why it waits, and the list of data."""

import pytest

from tests.cli.manifests import claim, cluster, job, queue, source, write
from tests.controllers.hyperjob.objects import document, replicated, task

CPU = {"cpu": 1}


PREFERRED = {"volcano-global.io/placement": "Preferred"}
UNKNOWN = {"volcano-global.io/placement": "soft"}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([claim("a", "a"), source("a", "m2"), claim("b", "b")], "DataNotReady", id="unbound-claim"),
        pytest.param([claim("a", "a", **PREFERRED), source("a", "m3")], ["m3"], id="preferred"),
        pytest.param(
            [claim("a", "a", **PREFERRED), source("a", "gone"), claim("b", "b"), source("b", "m2")],
            ["m2"],
            id="preferred-and-required",
        ),
        pytest.param([claim("a", "a", workload="other")], ["m1"], id="claim-for-another-job"),
        pytest.param([claim("a", "a", **UNKNOWN), source("a", "m2")], "DataNotReady", id="unknown-placement"),
    ],
)
def test_job_runs_where_its_data_are(plan, objects, expected):
    clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2", "m3")]
    ended = plan(*clusters, queue("q"), job("train", CPU, queue="q"), *objects)
    assert (ended.clusters() or ended.reasons()) == {"train": expected}


def test_explain_names_the_data_and_the_clusters_without_them(explain):
    objects = [claim("a", "images"), source("images", "m2"), claim("b", "text"), source("text", "m1")]
    clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2")]
    documents = *clusters, queue("q"), job("train", CPU, queue="q"), *objects
    answer = explain(*documents, name="ml/train", output="json").answer
    assert answer["waiting"]["reason"] == "NoMatchingCluster"
    assert [(data["claim"], data["data"], data["clusters"]) for data in answer["data"]] == [
        ("a", "lake dir images", ["m2"]),
        ("b", "lake dir text", ["m1"]),
    ]
    assert {excluded["exclusion"] for excluded in answer["waiting"]["clusters"]} == {"DataMissing"}
    assert "lake dir images, held by m2 (claim a)" in explain(*documents, name="ml/train").out


def test_data_lists_sources_and_claims_that_wait(run, tmp_path):
    path = write(tmp_path, claim("a", "images"), source("images", "m2"), claim("b", "text"))
    bound, waiting = run("data", "-f", path, "-o", "json").answer["data"]
    assert (bound["name"], bound["clusters"], bound["claims"][0]["phase"]) == ("images", ["m2"], "Bound")
    assert (waiting["name"], [waiting_claim["name"] for waiting_claim in waiting["claims"]]) == ("", ["b"])
    assert "images" in run("data", "-f", path).out


def test_data_of_files_without_any_names_no_permission(run, tmp_path):
    path = write(tmp_path, cluster("m1", {"cpu": 4}), queue("q"))
    assert run("data", "-f", path).out == "There is no DataSource and no DataSourceClaim.\n"


def test_automatic_split_of_a_hyperjob_follows_its_data(plan):
    split = replicated("trainer", task(replicas=2, gpu=0), splitPolicy={"mode": "auto"}, spec={"queue": "q"})
    clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2")]
    claimed = claim("a", "images", workload="llm", kind="HyperJob")
    ended = plan(*clusters, queue("q"), document(split, name="llm"), claimed, source("images", "m2"))
    assert list(ended.clusters().values()) == [["m2"]]
