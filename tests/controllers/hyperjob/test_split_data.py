"""The automatic split of a HyperJob with DataSourceClaims (C6)."""

from dataclasses import replace

from controller.cache.data_requirements import DataRequirement
from controller.cache.objects import GroupKind, TemplateKey
from controller.controllers.hyperjob.observed import ObservedParts
from controller.controllers.hyperjob.preview import preview
from controller.controllers.hyperjob.state import compute_state
from tests.controllers.hyperjob.objects import auto, gpus, hyperjob, replicated, task

LLM = TemplateKey(GroupKind("HyperJob.training.volcano.sh"), "ml", "llm")


def clusters(required, **free):
    known = {LLM: required}
    return replace(gpus(**free), data_of=lambda key: known.get(key, DataRequirement()))


def places(layout):
    return {part.cluster: part.pods[0] for part in layout.parts}


def test_parts_go_only_where_the_data_are():
    required = DataRequirement(clusters=frozenset({"b", "c"}))
    assert places(preview(auto(task(replicas=6)), clusters(required, a=8, b=4, c=4))) == {"b": 4, "c": 2}


def test_split_waits_for_an_unbound_claim():
    previewed = preview(auto(), clusters(DataRequirement(pending="claim 'x' is not bound"), a=8))
    assert previewed.parts == ()
    assert (previewed.pending_reason.reason, "claim 'x'" in previewed.pending_reason.message) == ("DataNotReady", True)


def test_clusters_with_preferred_data_come_first():
    required = DataRequirement(preferred=("b",))
    assert places(preview(auto(task(replicas=4)), clusters(required, a=8, b=4))) == {"b": 4}


def test_preference_of_the_policy_comes_before_that_of_data():
    job = auto(task(replicas=4), policy={"clusters": [{"name": "c"}]})
    assert places(preview(job, clusters(DataRequirement(preferred=("b",)), a=8, b=4, c=4))) == {"c": 4}


def test_data_in_no_usable_cluster_match_no_cluster():
    previewed = preview(auto(), clusters(DataRequirement(clusters=frozenset({"gone"})), a=8))
    assert previewed.pending_reason.reason == "NoMatchingCluster"


def test_clusters_named_by_the_policy_stay():
    named = [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 2}]
    job = hyperjob(replicated("t", task(replicas=4), splitPolicy={"strategy": "ByCluster", "clusters": named}))
    required = DataRequirement(pending="claim 'x' is not bound")
    assert places(preview(job, clusters(required, a=4, b=4))) == {"a": 2, "b": 2}


def test_pending_split_follows_its_data():
    job, observed = auto(task(replicas=4)), ObservedParts({}, {})
    at = [
        compute_state(job, observed, clusters(DataRequirement(clusters=frozenset({name})), a=4, b=4))
        for name in ("a", "b")
    ]
    assert [places(computed) for computed in at] == [{"a": 4}, {"b": 4}]
    split_once = job.model_copy(update={"status": job.status.model_copy(update={"split": at[0].split})})
    moved = compute_state(split_once, observed, clusters(DataRequirement(clusters=frozenset({"b"})), a=4, b=4))
    assert places(moved) == {"b": 4}
