"""Every branch of the life of claims and sources: creation, changes, migration, deletion, a missing plugin."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.api.configuration import DataSources, StaticLocation
from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES, LOCATED_AT_ANNOTATION
from controller.cache.objects import ObjectKey
from controller.controllers.data_sources.claims import ObservedClaim
from controller.controllers.data_sources.plugins import LocateError
from tests.controllers.data_sources.harness import (
    CLAIMS,
    FINALIZER,
    SETTINGS,
    SOURCE_FINALIZER,
    SOURCES,
    Harness,
    ScriptedPlugin,
    run,
    simulated,
)
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.network import Call, Network
from tests.retained import retained

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-app", "namespace": "ml"}
NOT_FOUND = LocateError("Amoro has no table of this name", reason="NotFound", is_final=True)
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/ml/resourcebindings"
DOWN = LocateError("Amoro cannot be reached", reason="Unreachable")


class CountedReads(dict[ObjectKey, ObservedClaim]):
    """Claims, of which each read of one is counted."""

    def __init__(self, claims: Mapping[ObjectKey, ObservedClaim], reads: list[ObjectKey]) -> None:
        super().__init__(claims)
        self.reads = reads

    def __getitem__(self, key: ObjectKey) -> ObservedClaim:
        self.reads.append(key)
        return super().__getitem__(key)


async def settled(harness: Harness, seconds: float = 5) -> None:
    await asyncio.sleep(seconds)


def excluded(harness: Harness, name: str = "test-app") -> Any:
    return harness.bound_binding(name)["spec"]["placement"]["clusterAffinity"].get("exclude")


@simulated()
async def test_claim_is_bound_to_a_created_source(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    (source,) = harness.sources.values()
    assert harness.status("c")["phase"] == "Bound"
    assert harness.status("c")["boundDataSource"] == source["metadata"]["name"]
    assert source["spec"]["locality"] == {"clusterNames": ["m1"]}
    assert source["status"]["boundClaims"] == 1
    assert source["status"]["claimRefs"][0]["name"] == "c"
    assert "finalizers" not in source["metadata"]
    assert harness.requirement("train").clusters == {"m1"}


@simulated()
async def test_source_without_plugin_binds_until_it_is_deleted(harness: Harness) -> None:
    harness.source("by-hand", "x", "m1", system="hive", metadata={"finalizers": [SOURCE_FINALIZER]})
    harness.claim("c", "x", workload=DEPLOYMENT, system="hive")
    harness.binding("test-app")
    await settled(harness)
    assert (harness.status("c")["boundDataSource"], excluded(harness)) == ("by-hand", ["m2", "m3"])
    harness.merge(DATA_SOURCES, "by-hand", {"spec": {"locality": {"clusterNames": ["m2"]}}})
    await settled(harness)
    assert sorted(excluded(harness)) == ["m1", "m3"]
    harness.remove(DATA_SOURCES, "by-hand")
    await settled(harness)
    assert (harness.sources, harness.status("c")["phase"]) == ({}, "Pending")
    assert (harness.reason("c"), harness.plugin.asked) == ("PluginMissing", [])


@simulated()
async def test_attributes_identify_the_data_set(harness: Harness) -> None:
    harness.source("snapshot", "x", "m2", system="hive", attributes={"snapshot": "7"})
    harness.claim("other", "x", system="hive", attributes={"snapshot": "8"})
    harness.claim("same", "x", system="hive", attributes={"snapshot": "7", "volcano-global.io/placement": "Preferred"})
    await settled(harness)
    assert (harness.status("same")["phase"], harness.status("other")["phase"]) == ("Bound", "Pending")
    assert harness.reason("other") == "PluginMissing"


@pytest.mark.parametrize(("claims", "data_sets"), [(1_000, 10), pytest.param(10_000, 100, marks=pytest.mark.long)])
def test_each_data_set_is_requested_once(claims, data_sets):
    async def scenario(harness: Harness) -> None:
        for number in range(claims):
            workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": f"j{number}"}
            harness.claim(f"c{number}", f"prod.db.t{number % data_sets}", workload=workload)
        await settled(harness, 60)
        assert len(harness.plugin.asked) == len(set(harness.plugin.asked)) == data_sets
        assert harness.controller.phases() == {"Pending": 0, "Bound": claims}
        assert {source["status"]["boundClaims"] for source in harness.sources.values()} == {claims // data_sets}
        statuses = [write for write in harness.api.writes if "/datasourceclaims/" in write]
        assert len(statuses) <= 2 * claims
        assert len(harness.api.writes) - len(statuses) <= 12 * data_sets

    run(scenario)


@simulated()
async def test_many_claims_of_one_workload_are_not_read_for_each_claim(harness: Harness) -> None:
    """Otherwise a list of 40,000 takes minutes, after each start of the controller."""
    for number in range(300):
        harness.claim(f"c{number}")
    await settled(harness, 20)
    reads: list[ObjectKey] = []
    harness.controller.index._claims = CountedReads(harness.controller.index.claims, reads)
    (workload,) = harness.controller.index.workloads
    required = harness.controller.index.requirement(workload, "Keep")
    assert (required.pending, reads) == ("it has 300 DataSourceClaims; use at most 64", [])
    assert harness.requirement("train") == required


@simulated()
async def test_failed_data_set_with_many_claims_is_asked_with_backoff(harness: Harness) -> None:
    harness.plugin.answers["prod.db.user"] = DOWN
    for number in range(50):
        harness.claim(f"c{number}")
    await settled(harness, 60)
    assert len(harness.plugin.asked) <= 8
    assert harness.reason("c7") == "Unreachable"
    assert harness.requirement("train").pending.endswith("Amoro cannot be reached")
    harness.plugin.answers.clear()
    await settled(harness, 120)
    assert harness.status("c7")["phase"] == "Bound"


@simulated(options=DataSources(time_to_live="20s"))
async def test_source_is_located_again_after_its_time_to_live(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness, 15)
    assert len(harness.plugin.asked) == 1
    harness.plugin.answers["prod.db.user"] = ("m2", "m3")
    await settled(harness, 30)
    assert harness.located() == {"prod.db.user": ["m2", "m3"]}
    assert harness.requirement("train").clusters == {"m2", "m3"}


@simulated(options=DataSources(time_to_live="24h"))
async def test_shorter_time_to_live_counts_at_once(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness, 60)
    harness.plugin.answers["prod.db.user"] = ("m2",)
    harness.options = DataSources(time_to_live="20s")
    harness.controller.configure()
    await settled(harness)
    assert harness.requirement("train").clusters == {"m2"}


@simulated(options=DataSources(time_to_live="20s"))
async def test_unused_source_is_not_located_again(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    harness.remove(DATA_SOURCE_CLAIMS, "c")
    await settled(harness, 300)
    assert len(harness.plugin.asked) == 1
    (source,) = harness.sources.values()
    assert source["status"]["boundClaims"] == 0


@simulated(options=DataSources(time_to_live="20s"))
async def test_failed_refresh_keeps_claims_bound_and_is_reported(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    harness.plugin.answers["prod.db.user"] = DOWN
    await settled(harness, 60)
    (source,) = harness.sources.values()
    (condition,) = source["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unreachable")
    assert harness.status("c")["phase"] == "Bound"
    harness.claim("late")
    await settled(harness)
    assert harness.reason("late") == "Unreachable"
    harness.plugin.answers.clear()
    await settled(harness, 90)
    (condition,) = next(iter(harness.sources.values()))["status"]["conditions"]
    assert (condition["status"], harness.status("late")["phase"]) == ("True", "Bound")


@simulated(options=DataSources(time_to_live="20s"))
async def test_source_of_vanished_data_is_deleted_and_claims_wait(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    harness.plugin.answers["prod.db.user"] = NOT_FOUND
    await settled(harness, 40)
    assert harness.sources == {}
    assert (harness.status("c")["phase"], harness.reason("c")) == ("Pending", "NotFound")
    assert "boundDataSource" not in harness.status("c")
    assert "no table of this name" in harness.requirement("train").pending


@simulated()
async def test_changed_claim_moves_its_requirement_and_affinity(harness: Harness) -> None:
    harness.plugin.answers["prod.db.other"] = ("m3",)
    harness.claim("c", workload=DEPLOYMENT)
    harness.binding("test-app")
    harness.binding("next-app")
    await settled(harness)
    harness.merge(DATA_SOURCE_CLAIMS, "c", {"spec": {"dataSourceName": "prod.db.other"}})
    await settled(harness)
    counts = {source["spec"]["name"]: source["status"]["boundClaims"] for source in harness.sources.values()}
    assert counts == {"prod.db.user": 0, "prod.db.other": 1}
    assert harness.requirement("test-app", "Deployment.apps").clusters == {"m3"}
    assert sorted(excluded(harness)) == ["m1", "m2"]
    harness.merge(DATA_SOURCE_CLAIMS, "c", {"spec": {"workload": {"name": "next-app"}}})
    await settled(harness)
    assert harness.requirement("test-app", "Deployment.apps") is None
    assert harness.requirement("next-app", "Deployment.apps").clusters == {"m3"}
    assert (excluded(harness), excluded(harness, "next-app")) == (None, ["m1", "m2"])


@simulated()
async def test_deleted_source_is_located_again(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    harness.remove(DATA_SOURCES, next(iter(harness.sources)))
    await settled(harness)
    assert harness.status("c")["phase"] == "Bound"
    assert len(harness.plugin.asked) == 2


@simulated()
async def test_finalizers_of_upstream_do_not_block_deletion(harness: Harness) -> None:
    harness.source("old", "prod.db.user", "m2", metadata={"finalizers": [SOURCE_FINALIZER, "other.io/keep"]})
    harness.claim("c", metadata={"finalizers": [FINALIZER]})
    await settled(harness)
    harness.remove(DATA_SOURCE_CLAIMS, "c")
    harness.remove(DATA_SOURCES, "old")
    await settled(harness)
    assert harness.controller.index.claims == {}
    assert harness.sources["old"]["metadata"]["finalizers"] == ["other.io/keep"]
    assert harness.requirement("train") is None


@simulated(options=DataSources(reclaim_policy="Delete"))
async def test_last_claim_deletes_a_source_with_policy_delete(harness: Harness) -> None:
    harness.source("never-claimed", "x", "m2", system="hive", reclaimPolicy="Delete")
    harness.claim("one")
    harness.claim("two")
    await settled(harness)
    harness.remove(DATA_SOURCE_CLAIMS, "one")
    await settled(harness)
    assert len(harness.sources) == 2
    harness.remove(DATA_SOURCE_CLAIMS, "two")
    await settled(harness, 30)
    assert list(harness.sources) == ["never-claimed"]


@simulated(options=DataSources(reclaim_policy="Delete"), start=False)
async def test_located_source_without_status_and_claim_is_deleted(harness: Harness) -> None:
    located = {"annotations": {LOCATED_AT_ANNOTATION: "1970-01-01T00:00:00Z"}}
    harness.source("located", "x", "m2", reclaimPolicy="Delete", metadata=located)
    harness.source("never-claimed", "y", "m2", reclaimPolicy="Delete")
    await harness.start()
    await settled(harness, 30)
    assert list(harness.sources) == ["never-claimed"]


@simulated(start=False)
async def test_claim_follows_the_settings_of_its_plugin(harness: Harness) -> None:
    harness.configure(None)
    await harness.start()
    harness.claim("c")
    await settled(harness)
    assert harness.reason("c") == "PluginMissing"
    assert harness.requirement("train").pending.startswith("DataSourceClaim c: no plugin serves system 'amoro'; ")
    harness.configure('{"endpoint": {"url": "ftp://secret"}}')
    await settled(harness, 40)
    message = harness.status("c")["conditions"][0]["message"]
    assert (harness.reason("c"), "secret" in message) == ("PluginInvalid", False)
    harness.configure(SETTINGS)
    await settled(harness, 40)
    assert (harness.status("c")["phase"], harness.located()) == ("Bound", {"prod.db.user": ["m1"]})
    harness.plugin.answers["prod.db.user"] = ("m2",)
    harness.configure(SETTINGS.replace("http://amoro", "http://other"))
    await settled(harness, 40)
    assert harness.located() == {"prod.db.user": ["m2"]}


@pytest.mark.parametrize(
    ("answer", "known"),
    [pytest.param(("m1",), {}, id="located"), pytest.param(NOT_FOUND, {"prod.db.user": ["m3"]}, id="not-found")],
)
def test_answer_by_earlier_settings_does_not_count(answer, known):
    async def scenario(harness: Harness) -> None:
        for data, clusters in known.items():
            harness.source("known", data, *clusters)
        harness.plugin.answers["prod.db.user"], harness.plugin.seconds = answer, 60
        harness.claim("c")
        await settled(harness)
        harness.plugin.answers["prod.db.user"] = ("m2",)
        harness.configure(SETTINGS.replace("http://amoro", "http://other"))
        await settled(harness, 65)
        assert harness.located() == known
        await settled(harness, 60)
        assert harness.located() == {"prod.db.user": ["m2"]}

    run(scenario)


@simulated()
async def test_nothing_is_retained_of_deleted_claims_and_sources(harness: Harness) -> None:
    counts = list[Counter[str]]()
    for number in range(8):
        harness.source(f"source-{number}", f"kept.{number}", "m1")
        harness.claim(f"claim-{number}", f"located.{number}")
        harness.plugin.answers[f"lost.{number}"] = NOT_FOUND
        harness.claim(f"lost-{number}", f"lost.{number}")
        await settled(harness)
        harness.configure(SETTINGS.replace("http://amoro", f"http://amoro-{number}"))
        await settled(harness, 40)
        for kind in (CLAIMS, SOURCES):
            for _, name in sorted(harness.server.objects(kind)):
                harness.remove(DATA_SOURCE_CLAIMS if kind is CLAIMS else DATA_SOURCES, name)
        await settled(harness, 700)
        counts.append(retained([harness.controller], stop=(Network, type(harness.api), ScriptedPlugin, ApiServer)))
    bounded = {"Collection._deleted_uids"}
    growing = {name for name, count in counts[-1].items() if count > counts[3][name]}
    assert growing <= bounded, growing


@simulated(options=DataSources(static=(StaticLocation(system="files", name="lake/*", clusters=("m2",)),)))
async def test_static_locations_need_no_request(harness: Harness) -> None:
    harness.claim("c", "lake/a", system="files")
    await settled(harness)
    assert harness.requirement("train").clusters == {"m2"}
    harness.options = DataSources(static=(StaticLocation(system="files", name="lake/*", clusters=("m3",)),))
    harness.controller.configure()
    await settled(harness)
    assert harness.requirement("train").clusters == {"m3"}
    assert harness.plugin.asked == []


@simulated()
async def test_claim_for_another_namespace_is_not_used(harness: Harness) -> None:
    workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "namespace": "other"}
    harness.claim("c", workload=workload)
    await settled(harness)
    assert (harness.status("c")["phase"], harness.reason("c")) == ("Pending", "Invalid")
    assert harness.plugin.asked == []


@simulated()
async def test_standby_knows_requirements_and_writes_nothing(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    await harness.stop()
    harness.leads = False
    await harness.start()
    await settled(harness)
    assert (harness.requirement("train").clusters, harness.api.writes) == ({"m1"}, [])
    harness.claim("new")
    await settled(harness)
    assert harness.api.writes == []
    harness.leads = True
    harness.controller.on_leading()
    await settled(harness)
    assert harness.status("new")["phase"] == "Bound"


@simulated()
async def test_new_leader_knows_the_claims_before_decisions(harness: Harness) -> None:
    await settled(harness, 30)
    informers = harness.controller.informers.values()
    harness.controller.on_leading()
    assert [informer.is_synced for informer in informers] == [False, False]
    await settled(harness)
    assert [informer.is_synced for informer in informers] == [True, True]


@simulated(options=DataSources(time_to_live="60s"))
async def test_restart_locates_only_stale_sources_again(harness: Harness) -> None:
    harness.claim("c")
    await settled(harness)
    harness.plugin.answers["prod.db.user"] = ("m2",)
    await harness.stop()
    await harness.start()
    await settled(harness, 30)
    assert (harness.plugin.asked, harness.api.writes) == (["prod.db.user"], [])
    await harness.stop()
    await settled(harness, 60)
    await harness.start()
    await settled(harness)
    assert harness.located() == {"prod.db.user": ["m2"]}


@simulated(start=False)
async def test_missing_definitions_do_not_block_decisions(harness: Harness) -> None:
    removed = [key for key in harness.server._kinds if key[0] == "datadependency.volcano.sh"]
    kinds = {key: harness.server._kinds.pop(key) for key in removed}
    await harness.start()
    assert harness.controller.synced.is_set()
    harness.server._kinds.update(kinds)
    harness.claim("c")
    await settled(harness, 60)
    assert harness.status("c")["phase"] == "Bound"


@simulated()
async def test_affinity_that_karmada_overwrites_is_applied_again(harness: Harness) -> None:
    policy = {"spec": {"placement": {"clusterAffinity": {"exclude": ["m3"]}}}}
    harness.claim("c", workload=DEPLOYMENT)
    harness.binding("test-app", **policy["spec"])
    await settled(harness)
    assert excluded(harness) == ["m3", "m2"]
    assert harness.bound_binding("test-app")["metadata"]["annotations"] == {
        "datadependency.volcano.sh/placement-injected": "true",
        "datadependency.volcano.sh/excluded-clusters": "m2",
    }
    writes = len(harness.api.writes)
    await settled(harness, 60)
    assert len(harness.api.writes) == writes
    harness.send("PATCH", f"{BINDINGS}/test-app-deployment", policy)
    await settled(harness)
    assert excluded(harness) == ["m3", "m2"]
    harness.remove(DATA_SOURCE_CLAIMS, "c")
    await settled(harness)
    assert excluded(harness) == ["m3"]
    assert not harness.bound_binding("test-app")["metadata"].get("annotations")


@simulated()
async def test_cluster_that_the_policy_excludes_later_stays_excluded(harness: Harness) -> None:
    harness.claim("c", workload=DEPLOYMENT)
    harness.binding("test-app")
    await settled(harness)
    assert excluded(harness) == ["m2", "m3"]
    policy = {"spec": {"placement": {"clusterAffinity": {"exclude": ["m2"]}}}}
    harness.send("PATCH", f"{BINDINGS}/test-app-deployment", policy)
    await settled(harness)
    assert excluded(harness) == ["m2", "m3"]
    harness.remove(DATA_SOURCE_CLAIMS, "c")
    await settled(harness)
    assert excluded(harness) == ["m2"]


@simulated(options=DataSources(time_to_live="20s"))
async def test_running_deployment_keeps_its_affinity_when_data_move(harness: Harness) -> None:
    harness.claim("c", workload=DEPLOYMENT)
    harness.binding("test-app")
    await settled(harness)
    harness.send("PATCH", f"{BINDINGS}/test-app-deployment", {"spec": {"clusters": [{"name": "m1"}]}})
    harness.plugin.answers["prod.db.user"] = ("m2",)
    await settled(harness, 60)
    assert (harness.located(), excluded(harness)) == ({"prod.db.user": ["m2"]}, ["m2", "m3"])
    attributes = {"volcano-global.io/on-move": "Requeue"}
    harness.merge(DATA_SOURCE_CLAIMS, "c", {"spec": {"attributes": attributes}})
    await settled(harness)
    assert sorted(excluded(harness)) == ["m1", "m3"]


@simulated()
async def test_new_cluster_without_the_data_is_excluded(harness: Harness) -> None:
    harness.claim("c", workload=DEPLOYMENT)
    harness.binding("test-app")
    await settled(harness)
    clusters = harness.store.clusters
    clusters.remove(clusters.get("m3"))
    await settled(harness)
    assert excluded(harness) == ["m2"]


@simulated()
async def test_workload_without_claim_causes_no_request(harness: Harness) -> None:
    harness.claim("c")
    harness.claim("d", workload=DEPLOYMENT)
    await settled(harness, 35)
    harness.api.requests.clear()
    harness.binding("plain", "Job")
    harness.binding("other-app")
    await settled(harness)
    path = f"{BINDINGS}/other-app-deployment"
    harness.send("PATCH", path, {"spec": {"clusters": [{"name": "m1", "replicas": 1}]}})
    harness.send("DELETE", path)
    await settled(harness)
    # The audits of the two caches count their objects.
    asked = [request for request in harness.api.requests if not request.endswith(("/datasources", "/datasourceclaims"))]
    assert (asked, harness.plugin.asked) == ([], ["prod.db.user"])
    # A workload with a claim does cause requests.
    harness.binding("test-app")
    await settled(harness)
    assert len(harness.api.requests) > 1


@simulated()
async def test_changes_during_a_conflict_cause_no_retry_at_once(harness: Harness) -> None:
    """Karmada changes the binding while its affinity is written, and again after the conflict."""
    path, times = f"{BINDINGS}/test-app-deployment", []
    refused = [(409, "the object has been modified")] * 2

    def change(cluster: str) -> None:
        harness.send("PATCH", path, {"spec": {"clusters": [{"name": cluster, "replicas": 1}]}})
        harness.send("PATCH", path, {"spec": {"clusters": None}})

    def refuse(call: Call) -> tuple[int, str] | None:
        if not call.is_write or call.request.path != path:
            return None
        times.append(asyncio.get_running_loop().time())
        if not refused:
            return None
        change("m1")
        asyncio.get_running_loop().call_later(0.1, change, "m2")
        return refused.pop()

    harness.claim("c", workload=DEPLOYMENT)
    await settled(harness)
    harness.api.error = refuse
    harness.binding("test-app")
    await settled(harness)
    assert [round(later - before) for before, later in pairwise(times)] == [1, 1]
    assert excluded(harness) == ["m2", "m3"]


@simulated()
async def test_denied_status_is_retried_with_a_growing_delay(harness: Harness) -> None:
    """An admission policy denies it with 422, which a failed precondition of a JSON Patch has, too."""
    denied_at = list[float]()

    def deny(call: Call) -> tuple[int, str] | None:
        if not call.is_write or "datasourceclaims" not in call.request.path:
            return None
        denied_at.append(asyncio.get_running_loop().time())
        return 422, "denied by a policy"

    harness.api.error = deny
    harness.claim("c")
    with capture_logs() as logs:
        await settled(harness, 600)
    assert {entry["item"] for entry in logs if entry["event"] == "data dependency not written"} == {"claim ml/c"}
    assert 10 < len(denied_at) < 50
    assert min(later - before for before, later in pairwise(denied_at)) >= 1
