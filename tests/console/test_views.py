"""What the pages show: reasons, positions, forecasts, counterfactuals and what-if plans."""

import asyncio
import itertools
from urllib.parse import urlencode

import msgspec
import pytest

from console.pages import render
from console.views.listing import BadQueryError, Query
from console.views.what_if import requested_changes
from controller.controllers.data_sources.claims import observe_claim, observe_source
from tests.cli.manifests import binding, running
from tests.console.consoles import NOW, OPERATOR, console_of, model_of, tenant_of
from tests.console.objects import cluster, pending_job, queue

USERS = {"op": OPERATOR, "one": tenant_of("one")}


async def settled(console, path: str, token: str = "op") -> dict:
    """Return the JSON of a page when its analysis has ended."""
    async with asyncio.timeout(90):
        while True:
            answer = await console.get(path, token)
            assert answer.status == 200, await answer.text()
            found = await answer.json()
            if found.get("analysis") != "Running":
                return found
            await asyncio.sleep(0.1)


async def test_workload_page_says_what_would_admit_it(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1", cpu=4), *pending_job("one", "train", "a", cpu=6))
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/workloads/one/Job/train")
        assert found["reason"] in {"ExceedsTotalCapacity", "ExceedsEveryCluster"}
        assert (found["position"], found["of"]) == (1, 1)
        changes = [change["change"] for change in found["changes"]]
        assert any(change.startswith("cluster/m1.") for change in changes), found
        text = await console.text("/workloads/one/Job/train", "op")
        assert "What would admit it now" in text


async def test_tenant_sees_no_change_of_objects_it_may_not_name(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1", cpu=4), *pending_job("one", "train", "a", cpu=6))
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/workloads/one/Job/train", "one")
        assert not [change for change in found.get("changes", ()) if change["change"].startswith("cluster/")]
        assert found["hiddenChanges"] >= 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("cluster/m1.status.resourceSummary.allocatable.cpu=64", id="line"),
        pytest.param(
            "kind: Cluster\nmetadata: {name: m1}\nstatus: {resourceSummary: {allocatable: {cpu: 64}}}", id="yaml"
        ),
    ],
)
async def test_what_if_shows_the_decisions_that_change(tmp_path, monkeypatch, change):
    objects = [queue("a"), cluster("m1", cpu=4), *pending_job("one", "train", "a", cpu=6)]
    model = model_of(tmp_path, *objects)

    async def read(path: str) -> bytes:
        assert path.endswith("/clusters/m1")
        return msgspec.json.encode({**objects[1], "metadata": {"name": "m1", "uid": "u", "resourceVersion": "2"}})

    monkeypatch.setattr(model, "read", read)
    query = urlencode({"change": change})
    async with console_of(model, USERS) as console:
        found = await settled(console, f"/api/v1/what-if?{query}")
        assert found.get("problem", "") == ""
        assert [(row["action"], row["name"]) for row in found["added"]] == [("Admit", "train")]
        assert (await console.get(f"/api/v1/what-if?{query}", "one")).status == 403
        assert (await console.get("/api/v1/what-if?change=nonsense", "op")).status == 400
        assert change in await console.text(f"/what-if?{query}", "op")
    # The console's own state is as it was.
    assert model.snapshot.state.refusal(next(iter(model.snapshot.state.workloads))) is not None


async def test_position_and_order_of_a_queue(tmp_path):
    jobs = [item for number in range(60) for item in pending_job("one", f"train-{number:02}", "a", cpu=3)]
    model = model_of(tmp_path, queue("a"), cluster("m1"), *jobs)
    async with console_of(model, USERS) as console:
        first = await (await console.get("/api/v1/queues/a", "op")).json()
        second = await (await console.get("/api/v1/queues/a?page=2", "op")).json()
        assert [row["position"] for row in first["order"] + second["order"]] == list(range(1, 60))
        assert first["paging"]["total"] == 59
        assert first["nextCandidate"]["position"] == 1


async def test_tree_links_every_queue(tmp_path):
    queues = [queue("parent"), *(queue(f"child-{number}", parent="parent") for number in range(5))]
    model = model_of(tmp_path, *queues, cluster("m1"), *pending_job("one", "train", "child-1"))
    async with console_of(model, USERS) as console:
        text = await console.text("/queues", "op")
        assert all(f'href="/queues/child-{number}"' in text for number in range(5))
        tenant = await console.text("/queues", "one")
        assert 'href="/queues/child-1"' in tenant
        assert "child-2" not in tenant


def test_decisions_of_the_plan_are_not_carried_into_the_next(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1", cpu=64), *pending_job("one", "train", "a"))
    for _ in range(3):
        assert len(model.snapshot.plan.decisions) == 1
        assert model.snapshot.current.pending["a"] == 1
        model.refresh(model.snapshot.now + 1000)


def test_rendering_fails_for_an_unknown_field():
    text = render("message.html", None, Query(), path="/", title="T", message="<b>")
    assert "&lt;b&gt;" in text


def yaml_of(kind: str, name: str, fields: str) -> str:
    version = "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1"
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: ml}}\n{fields}\n"


def test_what_if_takes_the_fields_of_manifests():
    text = yaml_of("Queue", "a", "spec: {weight: 4, capability: {cpu: null}}") + "---\n"
    text += yaml_of("Job", "train", "spec: {tasks: [{name: main, replicas: 2}]}\nstatus: {state: {phase: Completed}}")
    changes = requested_changes(Query(values={"change": text}))
    assert [(each.target, each.path, each.value) for each in changes] == [
        ("queue/a", ("spec", "weight"), 4),
        ("queue/a", ("spec", "capability", "cpu"), None),
        ("job/ml/train", ("spec", "tasks"), [{"name": "main", "replicas": 2}]),
        ("job/ml/train", ("status", "state", "phase"), "Completed"),
    ]
    assert changes[3].completes_job
    lines = requested_changes(Query(values={"change": "queue/a.spec.weight=4\nqueue/a.spec.capability.cpu=null"}))
    assert [(each.text, each.path, each.value) for each in lines] == [
        (each.text, each.path, each.value) for each in changes[:2]
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("kind: Secret\nmetadata: {name: a}\nspec: {a: 1}", "of these kinds", id="kind"),
        pytest.param("kind: Queue\nspec: {weight: 1}", "metadata.name", id="no-name"),
        pytest.param("kind: Queue\nmetadata: {name: a/../b}\nspec: {weight: 1}", "metadata.name", id="path-in-name"),
        pytest.param("kind: Queue\nmetadata: {name: [a]}\nspec: {weight: 1}", "metadata.name", id="name-no-text"),
        pytest.param("kind: Queue\nmetadata: {name: a}", "no field", id="no-field"),
        pytest.param("kind: [", "not valid YAML", id="no-yaml"),
        pytest.param("kind: Queue\nmetadata: {name: a}\nspec: {a: 1}\n--- 3", "of these kinds", id="scalar"),
        pytest.param("apiVersion: v2\nkind: Queue\nmetadata: {name: a}\nspec: {a: 1}", "of these kinds", id="version"),
        pytest.param(
            "kind: Queue\nmetadata: {name: a}\nspec: {" + ",".join(f"a{n}: 1" for n in range(101)) + "}",
            "more than 100 fields",
            id="many-fields",
        ),
        pytest.param(
            "kind: Queue\nmetadata: {name: a}\nspec:\n  a: &a {x: 1, y: 2}\n"
            + "".join(f"  {c}: &{c} {{p: *{b}, q: *{b}, r: *{b}}}\n" for b, c in itertools.pairwise("abcdefghijkl")),
            "more than 100 fields",
            id="aliases",
        ),
    ],
)
def test_invalid_manifest_is_refused_with_its_reason(text, says):
    with pytest.raises(BadQueryError, match=says):
        requested_changes(Query(values={"change": text}))


def claimed_data(name, *, workload="train", source="images"):
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": workload}
    return {
        "apiVersion": "datadependency.volcano.sh/v1alpha1",
        "kind": "DataSourceClaim",
        "metadata": {"name": name, "namespace": "one", "uid": name, "resourceVersion": "1"},
        "spec": {"system": "lake", "dataSourceType": "dir", "dataSourceName": "images", "workload": reference},
        "status": {"phase": "Bound", "boundDataSource": source},
    }


def located_data(*clusters):
    spec = {"system": "lake", "type": "dir", "name": "images", "locality": {"clusterNames": list(clusters)}}
    return {
        "apiVersion": "datadependency.volcano.sh/v1alpha1",
        "kind": "DataSource",
        "metadata": {"name": "images", "uid": "images", "resourceVersion": "1"},
        "spec": spec,
    }


async def test_workload_page_names_the_data_of_its_claims(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), cluster("m2"), *pending_job("one", "train", "a", cpu=600))
    claim = observe_claim(msgspec.json.encode(claimed_data("c")))
    source = observe_source(msgspec.json.encode(located_data("m2")))
    async with console_of(model, USERS) as console:
        model.claim_changed(None, claim)
        model.refresh(NOW)
        waiting = await settled(console, "/api/v1/workloads/one/Job/train")
        assert (waiting["reason"], waiting["data"][0]["source"]) == ("DataNotReady", None)
        model.source_changed(None, source)
        model.refresh(NOW)
        found = await settled(console, "/api/v1/workloads/one/Job/train")
        assert found["reason"] != "DataNotReady"
        (data,) = found["data"]
        assert (data["claim"], data["source"], data["clusters"]) == ("c", "images", ["m2"])
        assert {row["name"]: row["exclusion"] for row in found["clusters"]}["m1"] == "DataMissing"
        assert "held by m2" in await console.text("/workloads/one/Job/train", "op")
        (own,) = (await settled(console, "/api/v1/workloads/one/Job/train", "one"))["data"]
        assert (own["claim"], own["source"], own["clusters"]) == ("c", None, [])
        model.claim_changed(claim, None)
        model.refresh(NOW)
        assert "data" not in await settled(console, "/api/v1/workloads/one/Job/train")


def reserved_objects(**reservation) -> list[dict]:
    times = {"from": "2026-09-20T00:00:00Z", "until": "2026-12-20T00:00:00Z"}
    configuration = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    kept = {"name": "launch", "clusters": ["m1"], **times, **reservation}
    return [configuration | {"advanceReservations": [kept]}, queue("a"), queue("b"), cluster("m1")]


@pytest.mark.parametrize(
    ("reservation", "expected", "shown"),
    [
        pytest.param({}, {"purpose": "Maintenance"}, {"op": "maintenance", "both": "maintenance"}, id="maintenance"),
        pytest.param({"queue": "b"}, {"purpose": "Queue", "queue": "b"}, {"op": "/queues/b", "both": "another queue"}),
        pytest.param(
            {"workload": "two/train", "amounts": {"cpu": 2}},
            {"purpose": "Workload", "workload": "two/train", "amounts": "2 cpu"},
            {"op": "two/train", "both": "a workload"},
        ),
    ],
)
async def test_cluster_pages_show_advance_reservations(tmp_path, reservation, expected, shown):
    model = model_of(tmp_path, *reserved_objects(**reservation), *pending_job("one", "train", "a", cpu=3))
    users = {"op": OPERATOR, "both": tenant_of("one") | {("", "clusters")}}
    async with console_of(model, users) as console:
        found = await (await console.get("/api/v1/clusters/m1", "op")).json()
        times = {"from": "2026-09-20T00:00:00Z", "until": "2026-12-20T00:00:00Z"}
        assert found["cluster"]["reservations"] == [{**times, "inForce": True, "name": "launch", **expected}]
        cpu = next(bar for bar in found["cluster"]["bars"] if bar["resource"] == "cpu")
        assert cpu["reservedPart"] == (0.5 if "amounts" in reservation else 1)
        other = await (await console.get("/api/v1/clusters", "both")).json()
        [row] = other["clusters"][0]["reservations"]
        assert not {"name", "queue", "workload"} & row.keys()
        for user, text in shown.items():
            assert text in (await console.text("/clusters/m1", user)).partition('id="reservations"')[2]
        assert "reserved" in await console.text("/clusters", "op")


async def test_raised_priority_is_shown_in_the_order(tmp_path):
    configuration = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    ageing = configuration | {"ageing": {"after": "1h", "step": 5, "max": 5}}
    jobs = [*pending_job("one", "train", "a", cpu=3), *pending_job("one", "wide", "a", cpu=4)]
    model = model_of(tmp_path, ageing, queue("a"), cluster("m1"), *jobs)
    async with console_of(model, USERS) as console:
        found = await (await console.get("/api/v1/queues/a", "op")).json()
        assert [(row["priority"], row["raisedPriority"]) for row in found["order"]] == [(0, 5)]
        assert '0 <span class="quiet" title="raised by waiting">+5</span>' in await console.text("/queues/a", "op")


async def test_promised_start_is_shown_on_the_workload_page(tmp_path):
    record = {
        "uid": "u",
        "queue": "a",
        "reservedSince": "2026-09-21T10:00:00Z",
        "reservedClusters": {"m1": {"cpu": "4", "memory": "1Gi", "pods": "1"}},
        "nominatedRequests": {"cpu": "4", "memory": "1Gi", "pods": "1"},
        "promisedStart": "2026-09-21T16:40:00Z",
    }
    [job] = pending_job("one", "wide", "a", cpu=4)
    others = running("old", {"cpu": 1}, on="m1", queue="a")
    objects = [
        queue("a"),
        cluster("m1"),
        *others,
        job,
        binding("wide", suspended=True, record=record, uid="u", namespace="one"),
    ]
    model = model_of(tmp_path, *objects, now=1_789_985_100_000)
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/workloads/one/Job/wide")
        assert found["reservation"]["promisedStart"] == "2026-09-21T16:40:00Z"
        assert "Promised start: not later than" in await console.text("/workloads/one/Job/wide", "one")
