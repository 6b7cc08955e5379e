"""Claims and sources of data in the commands: where a job may run, why it waits, and the list of data."""

import pytest

from tests.cli.manifests import cluster, job, queue, write
from tests.controllers.hyperjob.objects import document, replicated, task

CPU = {"cpu": 1}


def claim(name, data, workload="train", kind="Job", **attributes):
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": kind, "name": workload}
    spec = {"system": "lake", "dataSourceType": "dir", "dataSourceName": data, "workload": reference}
    return {
        "apiVersion": "datadependency.volcano.sh/v1alpha1",
        "kind": "DataSourceClaim",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": spec | ({"attributes": attributes} if attributes else {}),
    }


def source(data, *clusters):
    spec = {"system": "lake", "type": "dir", "name": data, "locality": {"clusterNames": list(clusters)}}
    return {
        "apiVersion": "datadependency.volcano.sh/v1alpha1",
        "kind": "DataSource",
        "metadata": {"name": data},
        "spec": spec,
    }


@pytest.fixture
def decide(run, tmp_path):
    """Return a function that plans one job on three clusters, and returns its decision."""

    def plan(*objects):
        clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2", "m3")]
        path = write(tmp_path, *clusters, queue("q"), job("train", CPU, queue="q"), *objects)
        (decision,) = run("plan", "-f", path, "-o", "json").answer["decisions"]
        return decision["reason"] or [each["name"] for each in decision["clusters"]]

    return plan


def test_job_runs_where_all_its_data_are(decide):
    objects = [claim("a", "a"), source("a", "m2", "m3"), claim("b", "b"), source("b", "m1", "m3")]
    assert decide(*objects) == ["m3"]


def test_job_waits_for_an_unbound_claim(decide):
    assert decide(claim("a", "a"), source("a", "m2"), claim("b", "b")) == "DataNotReady"


def test_data_in_no_common_cluster_match_no_cluster(decide):
    objects = [claim("a", "a"), source("a", "m2"), claim("b", "b"), source("b", "m1")]
    assert decide(*objects) == "NoMatchingCluster"


def test_preferred_data_do_not_exclude_clusters(decide):
    preferred = {"volcano-global.io/placement": "Preferred"}
    assert decide(claim("a", "a", **preferred), source("a", "m3")) == ["m3"]
    objects = [claim("a", "a", **preferred), source("a", "gone"), claim("b", "b"), source("b", "m2")]
    assert decide(*objects) == ["m2"]


def test_claim_for_another_job_does_not_count(decide):
    assert decide(claim("a", "a", workload="other")) == ["m1"]


def test_unknown_placement_makes_the_job_wait(decide):
    assert decide(claim("a", "a", **{"volcano-global.io/placement": "soft"}), source("a", "m2")) == "DataNotReady"


def test_explain_names_the_data_and_the_clusters_without_them(run, tmp_path):
    objects = [claim("a", "images"), source("images", "m2"), claim("b", "text"), source("text", "m1")]
    clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2")]
    path = write(tmp_path, *clusters, queue("q"), job("train", CPU, queue="q"), *objects)
    answer = run("explain", "job", "ml/train", "-f", path, "-o", "json").answer
    assert [(each["claim"], each["data"], each["clusters"]) for each in answer["data"]] == [
        ("a", "lake dir images", ["m2"]),
        ("b", "lake dir text", ["m1"]),
    ]
    assert {each["exclusion"] for each in answer["waiting"]["clusters"]} == {"DataMissing"}
    assert "lake dir images, held by m2 (claim a)" in run("explain", "job", "ml/train", "-f", path).out


def test_data_lists_sources_and_claims_that_wait(run, tmp_path):
    path = write(tmp_path, claim("a", "images"), source("images", "m2"), claim("b", "text"))
    bound, waiting = run("data", "-f", path, "-o", "json").answer["data"]
    assert (bound["name"], bound["clusters"], bound["claims"][0]["phase"]) == ("images", ["m2"], "Bound")
    assert (waiting["name"], [each["name"] for each in waiting["claims"]]) == ("", ["b"])
    assert "images" in run("data", "-f", path).out


def test_automatic_split_of_a_hyperjob_follows_its_data(run, tmp_path):
    hyperjob = document(
        replicated("trainer", task(replicas=2, gpu=0), splitPolicy={"mode": "auto"}, spec={"queue": "q"}), name="llm"
    )
    claimed = claim("a", "images", workload="llm", kind="HyperJob")
    claimed["spec"]["workload"]["apiVersion"] = "training.volcano.sh/v1alpha1"
    clusters = [cluster(name, {"cpu": 4}) for name in ("m1", "m2")]
    path = write(tmp_path, *clusters, queue("q"), hyperjob, claimed, source("images", "m2"))
    (decision,) = run("plan", "-f", path, "-o", "json").answer["decisions"]
    assert [each["name"] for each in decision["clusters"]] == ["m2"]
