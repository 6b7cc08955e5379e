"""Workloads with claims of data in the cache and the engine: why they wait, where they go, when they are evicted."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.cache.data_requirements import DataRequirement
from controller.cache.objects import VOLCANO_JOB, CachedHyperJob, GroupKind, TemplateKey
from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.plan import Admit, Evict
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state.clusters import ClusterName
from tests.cache.fake_event_handler import upsert
from tests.cache.objects import ONE_CLUSTER, admission_record, binding, cluster, job, queue
from tests.work import work_of

ADMITTED_AT = datetime(1970, 1, 1, tzinfo=UTC)
JOB = TemplateKey(VOLCANO_JOB, "ml", "train")


def names(*clusters: str) -> frozenset[ClusterName]:
    return frozenset(map(ClusterName, clusters))


def store_with(*, on: str = "", placement: Any = ONE_CLUSTER) -> Store:
    """Return a store with one job on three clusters; *on* admits it there."""
    store, record = Store(), None
    upsert(store, ("queues", queue("q")), *(("clusters", cluster(name)) for name in ("m1", "m2", "m3")))
    if on:
        record = admission_record("rb-train", queue="q", charge={"cpu": "1"}, clusters=(on,), admitted_at=ADMITTED_AT)
    bound = binding("train", paused=not on, clusters=[on] if on else None, record=record, spec={"placement": placement})
    upsert(store, ("jobs", job("train", queue="q")), ("bindings", bound))
    return store


def decisions(store: Store) -> list[Any]:
    engine = Engine()
    store.mark_all_changed()
    store.sync_to(engine, 10_000)
    plan = engine.plan(10_000)
    return [*plan.decisions, *plan.waits]


def test_job_waits_until_its_claim_is_bound_or_deleted():
    store = store_with()
    store.data_changed(JOB, DataRequirement("DataSourceClaim c: Amoro cannot be reached"))
    (wait,) = decisions(store)
    subject = "DataSourceClaim c: Amoro cannot be reached"
    assert (wait.refusal.reason, wait.refusal.subject) == (Reason.DATA_NOT_READY, subject)
    assert not wait.refusal.is_about_capacity
    store.data_changed(JOB, None)
    assert isinstance(decisions(store)[0], Admit)


@pytest.mark.parametrize(
    ("required", "evicted"),
    [
        pytest.param(DataRequirement(clusters=names("m2")), False, id="keep"),
        pytest.param(DataRequirement(clusters=names("m2"), requeue=True), True, id="requeue"),
        pytest.param(DataRequirement(clusters=names("m1", "m2"), requeue=True), False, id="still-there"),
        pytest.param(DataRequirement("c: not located", clusters=names("m2"), requeue=True), False, id="unknown"),
    ],
)
def test_admitted_job_follows_its_data_only_on_request(required, evicted):
    store = store_with(on="m1")
    store.data_changed(JOB, required)
    evictions = [decision.reason for decision in decisions(store) if isinstance(decision, Evict)]
    assert evictions == ([EvictionReason.DATA_MOVED] if evicted else [])


def test_job_that_karmada_copies_waits_for_its_affinity():
    required = DataRequirement(clusters=names("m1"))
    store = store_with(placement={})
    store.data_changed(JOB, required)
    (wait,) = decisions(store)
    assert "affinity" in wait.refusal.subject
    store = store_with(placement={"clusterAffinity": {"exclude": ["m2", "m3"]}})
    store.data_changed(JOB, required)
    assert isinstance(decisions(store)[0], Admit)


def test_parts_follow_the_claim_of_their_hyperjob():
    store = store_with()
    hyperjob = TemplateKey(GroupKind("HyperJob.training.volcano.sh"), "ml", "llm")
    owner = {"apiVersion": "training.volcano.sh/v1alpha1", "kind": "HyperJob", "name": "llm", "uid": "h"}
    group = {"volcano-global.io/group": json.dumps({"uid": "h", "split": "s"})}
    part = job("train", queue="q", meta={"annotations": group, "ownerReferences": [{**owner, "controller": True}]})
    upsert(store, ("jobs", part))
    store.expect_hyperjobs()
    store.hyperjob_changed("h", CachedHyperJob("ml", 0, "s", frozenset({"train"}), 1, hyperjob))
    store.data_changed(hyperjob, DataRequirement(clusters=names("m1", "m2")))
    store.data_changed(JOB, DataRequirement(clusters=names("m2", "m3")))
    required = store.data_requirement(next(iter(store.bindings)))
    assert (required.clusters, required.lacking) == (names("m2"), names("m1", "m3"))
    assert isinstance(decisions(store)[0], Admit)


def test_new_cluster_costs_linear_work_in_claimed_hyperjobs():
    def work(count: int) -> int:
        store = store_with()
        store.expect_hyperjobs()
        for number in range(count):
            key = TemplateKey(GroupKind("HyperJob.training.volcano.sh"), "ml", f"llm-{number}")
            store.hyperjob_changed(str(number), CachedHyperJob("ml", 0, "s", frozenset({"train"}), 1, key))
            store.data_changed(key, DataRequirement(clusters=names("m1")))
        return work_of(lambda: upsert(store, ("clusters", cluster("m9"))))

    assert work(400) < 3 * work(200)
