"""What the pages show: reasons, positions, forecasts, counterfactuals and what-if plans."""

import itertools
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec
import pytest

from console.pages import clock, exact, render
from console.reader import Reader
from console.views import what_if
from console.views.forecasts import Forecasts, Start
from console.views.listing import BadQueryError, Query
from console.views.what_if import requested_changes
from console.views.workloads import Analysis, Insights, workload_view, workloads_view
from controller.api.hyperjobs import HYPERJOB_RESOURCES
from controller.controllers.data_sources.claims import observe_claim, observe_source
from controller.controllers.hyperjob.observed import decode_hyperjob
from controller.forecast.run_times import JobProfile, Run, RunTimes
from controller.kube.errors import NotFound
from tests.cli import manifests
from tests.cli.manifests import admitted, binding, claim, cluster_scoped, configuration, queue, running, source, units
from tests.console.consoles import NOW, OPERATOR, cluster, console_of, model_of, pending_job, tenant_of
from tests.controllers.hyperjob.objects import two_copies

TRAIN = "/workloads/one/Job/train"


async def test_workload_page_says_what_would_admit_it(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a", cpu=6))
    async with console_of(model) as console:
        data = await console.data(TRAIN)
        assert data["reason"] in {"ExceedsTotalCapacity", "ExceedsEveryCluster"}
        assert (data["position"], data["of"]) == (1, 1)
        assert any(change["change"].startswith("cluster/m1.") for change in data["changes"]), data
        page = await console.text(TRAIN)
        assert "What would admit it now" in page
        assert "<th></th>" not in page
        # A tenant sees no change of objects that it may not name.
        own = await console.data(TRAIN, "one")
        assert not [change for change in own.get("changes", ()) if change["change"].startswith("cluster/")]
        assert own["hiddenChanges"] >= 1


@pytest.mark.parametrize(("reason", "shown"), [("ExceedsTotalCapacity", "add 4 cpu"), ("QueueClosed", "")])
def test_remedy_of_another_reason_is_not_shown(tmp_path, reason, shown):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a"))
    workload = next(iter(model.snapshot.observed.values()))
    insights = Insights(Forecasts(), Analysis(None, (), "add 4 cpu", reason))
    view = workload_view(model, workload, Reader("op", all_workloads=True), insights)
    assert (view.reason, view.remedy) == ("ExceedsTotalCapacity", shown)


@pytest.mark.parametrize(
    ("start", "status", "on_page", "in_list"),
    [
        pytest.param(Start(NOW, NOW, None), "", '<p class="lead">≈ ', ">≈ ", id="median"),
        pytest.param(Start(NOW, None, None), "", "Probably later than in 24 hours", ">&gt; 24 h<", id="earliest-only"),
        pytest.param(Start(NOW, None, None, complete=False), "", "Later than could be simulated", ">later<", id="cut"),
        pytest.param(None, "", "No start was found in the simulated time", ">\N{EN DASH}<", id="later"),
        pytest.param(None, "Failed", "Unknown: the forecast took too long.", ">\N{EN DASH}<", id="failed"),
        pytest.param(None, "Running", "It is being computed.", ">\N{EN DASH}<", id="running"),
    ],
)
def test_pages_say_what_is_known_of_a_start(tmp_path, start, status, on_page, in_list):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a"))
    reader = Reader("op", all_workloads=True)
    workload = next(iter(model.snapshot.observed.values()))
    analysis = Analysis(start, (), "", "") if not status else None
    view = workload_view(model, workload, reader, Insights(Forecasts(), analysis, status))
    view = msgspec.structs.replace(view, has_run_times=True)
    assert on_page in render("workload.html", view, Query(), path="", title="")
    forecasts = Forecasts({workload.uid: start} if start is not None else {})
    rows = workloads_view(model, Query(), reader, forecasts)
    assert in_list in render("workloads.html", rows, Query(), path="", title="")


def test_time_of_another_year_has_its_year():
    # An advance reservation may begin years from now, and stored decisions may be years old.
    assert (clock("2031-01-31T08:00:00Z"), exact("1999-01-31T08:00:02.250Z")) == (
        "31 Jan 2031 08:00 UTC",
        "31 Jan 1999 08:00:02.250 UTC",
    )
    now = datetime.now(UTC)
    other = now.replace(month=1 if now.month > 6 else 12, day=9)
    assert clock(other.isoformat()) == f"{other:%d %b %H:%M} UTC"


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
    member = cluster("m1")
    model = model_of(tmp_path, queue("a"), member, pending_job("one", "train", "a", cpu=6))

    async def read(path: str) -> bytes:
        assert path.endswith("/clusters/m1")
        return msgspec.json.encode({**member, "metadata": {"name": "m1", "uid": "u", "resourceVersion": "2"}})

    monkeypatch.setattr(model, "read", read)
    query = urlencode({"change": change})
    async with console_of(model) as console:
        data = await console.data(f"/what-if?{query}")
        assert data.get("problem", "") == ""
        assert [(row["action"], row["name"]) for row in data["added"]] == [("Admit", "train")]
        assert [(row["name"], row["before"], row["isNext"]) for row in data["starts"]] == [("train", None, True)]
        assert await console.status(f"/api/v1/what-if?{query}", "one") == 403
        assert await console.status("/api/v1/what-if?change=nonsense") == 400
        text = await console.text(f"/what-if?{query}")
        assert change in text
        assert ">in the next cycle<" in text
        misspelt = f"/what-if?{urlencode({'change': 'cluster/m1.spec.taint=1'})}"
        [note] = (await console.data(misspelt))["notes"]
        assert note == "'cluster/m1.spec.taint=1': no decision depends on spec.taint; did you mean taints?"
        assert "Without effect: &#39;cluster/m1.spec.taint=1&#39;" in await console.text(misspelt)
    # The console's own state is as it was.
    assert model.snapshot.engine.refusal(next(iter(model.snapshot.engine.workloads))) is not None


async def test_what_if_counts_the_decisions_that_it_does_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr(what_if, "_MAX_DECISIONS", 1)
    spec = queue("a", capability={"cpu": "1"})
    jobs = [pending_job(namespace, "train", "a", cpu=2) for namespace in ("one", "two")]
    model = model_of(tmp_path, spec, cluster("m1"), *jobs)

    async def read(_: str) -> bytes:
        return msgspec.json.encode({**spec, "metadata": {"name": "a", "uid": "u", "resourceVersion": "2"}})

    monkeypatch.setattr(model, "read", read)
    path = f"/what-if?{urlencode({'change': 'queue/a.spec.capability=null'})}"
    async with console_of(model) as console:
        data = await console.data(path)
        shown = [[(row["action"], row["name"]) for row in data[key]] for key in ("removed", "added")]
        assert (shown, data["omitted"]) == ([[("Wait", "train")], [("Admit", "train")]], 2)
        assert "2 more decisions." in await console.text(path)


async def test_position_and_order_of_a_queue(tmp_path):
    jobs = [pending_job("one", f"train-{number:02}", "a", cpu=3) for number in range(60)]
    model = model_of(tmp_path, queue("a"), cluster("m1"), *jobs)
    async with console_of(model) as console:
        first, second = [await console.data(f"/queues/a?page={page}") for page in (1, 2)]
        assert [row["position"] for row in first["order"] + second["order"]] == list(range(1, 60))
        assert first["paging"]["total"] == 59
        assert first["nextCandidate"]["position"] == 1


async def test_reasons_of_a_fifo_queue_are_counted_behind_its_head(tmp_path):
    # Equal workloads are one class.
    jobs = [pending_job("one", f"train-{number}", "a", cpu=3) for number in range(4)]
    model = model_of(tmp_path, queue("a", dequeueStrategy="fifo"), cluster("m1"), *jobs)
    async with console_of(model) as console:
        data = await console.data("/queues/a")
    assert data["reasons"] == [["BlockedByQueueHead", 2], ["InsufficientCapacity", 1]]
    assert Counter(row["reason"] for row in data["order"]) == dict(data["reasons"])


async def test_queues_are_sorted_by_usage_ratio(tmp_path):
    queues = (queue(name) for name in ("idle", "infinite", "within"))
    jobs = *running("gpu", {"gpu": 1}, on="m1", queue="infinite"), *running("cpu", {"cpu": 1}, on="m1", queue="within")
    model = model_of(tmp_path, *queues, cluster("m1"), *jobs)
    async with console_of(model) as console:
        rows = (await console.data("/overview?sort=share"))["queues"]
    shares = [(row["name"], row.get("share")) for row in rows if row["name"] != "root"]
    assert shares == [("infinite", None), ("within", 1.0), ("idle", None)]


async def test_one_object_is_counted_in_the_singular(tmp_path):
    jobs = pending_job("one", "train", "a"), pending_job("two", "other", "b")
    async with console_of(model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)) as console:
        text = await console.text("/", "one")
    assert "<b>1</b><span>cluster</span>" in text
    assert "1 other queue:" in text


async def test_tree_links_every_queue(tmp_path):
    queues = [queue("parent"), *(queue(f"child-{number}", parent="parent") for number in range(5))]
    model = model_of(tmp_path, *queues, cluster("m1"), pending_job("one", "train", "child-1"))
    async with console_of(model) as console:
        text, tenant = await console.text("/queues"), await console.text("/queues", "one")
        assert all(f'href="/queues/child-{number}"' in text for number in range(5))
        assert 'href="/queues/child-1"' in tenant
        assert "child-2" not in tenant


def test_decisions_of_the_plan_are_not_carried_into_the_next(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1", cpu=64), pending_job("one", "train", "a"))
    for _ in range(3):
        assert len(model.snapshot.plan.decisions) == 1
        assert model.snapshot.current.pending["a"] == 1
        model.refresh(model.snapshot.now + 1000)


def test_what_if_takes_the_fields_of_manifests():
    text = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: a}
spec: {weight: 4, capability: {cpu: null}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train, namespace: ml}
spec: {tasks: [{name: main, replicas: 2}]}
status: {state: {phase: Completed}}
"""
    changes = requested_changes(Query(values={"change": text}))
    assert [(change.target, change.path, change.value) for change in changes] == [
        ("queue/a", ("spec", "weight"), 4),
        ("queue/a", ("spec", "capability", "cpu"), None),
        ("job/ml/train", ("spec", "tasks"), [{"name": "main", "replicas": 2}]),
        ("job/ml/train", ("status", "state", "phase"), "Completed"),
    ]
    assert changes[3].completes_job
    lines = requested_changes(Query(values={"change": "queue/a.spec.weight=4\nqueue/a.spec.capability.cpu=null"}))
    assert [(change.path, change.value) for change in lines] == [(change.path, change.value) for change in changes[:2]]


NAMED = "kind: Queue\nmetadata: {name: a}"
TEXT = f"{NAMED}\nspec:\n  a: &a {'x' * 500}\n  b: &b [{'*a, ' * 100}]\n  c: [{'*b, ' * 100}]"
MANY = f"{NAMED}\nspec:\n  a: &a {'x' * 500}\n  b: &b [{'*a, ' * 7}]\n" + "".join(f"  c{n}: *b\n" for n in range(90))
ALIASES = "".join(f"  {c}: &{c} {{p: *{b}, q: *{b}, r: *{b}}}\n" for b, c in itertools.pairwise("abcdefghijkl"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("kind: Secret\nmetadata: {name: a}\nspec: {a: 1}", "of these kinds", id="kind"),
        pytest.param("kind: Queue\nspec: {weight: 1}", "metadata.name", id="no-name"),
        pytest.param("kind: Queue\nmetadata: {name: a/../b}\nspec: {weight: 1}", "metadata.name", id="path-in-name"),
        pytest.param("kind: Queue\nmetadata: {name: [a]}\nspec: {weight: 1}", "metadata.name", id="name-no-text"),
        pytest.param(NAMED, "no field", id="no-field"),
        pytest.param("kind: [", "not valid YAML", id="no-yaml"),
        pytest.param(f"{NAMED}\nspec: {{a: 1}}\n--- 3", "of these kinds", id="scalar"),
        pytest.param(f"apiVersion: v2\n{NAMED}\nspec: {{a: 1}}", "of these kinds", id="version"),
        pytest.param(
            f"{NAMED}\nspec: {{{','.join(f'a{n}: 1' for n in range(101))}}}", "more than 100 fields", id="many-fields"
        ),
        pytest.param(f"{NAMED}\nspec:\n  a: &a {{x: 1, y: 2}}\n{ALIASES}", "more than 100 fields", id="aliases"),
        pytest.param(TEXT, "spec.b is too large", id="aliases-in-lists"),
        pytest.param(MANY, "the objects are too large", id="aliases-of-many-fields"),
        pytest.param("job/one/...spec.minAvailable=1", "not the name", id="parent-folder"),
        pytest.param("queue/a?b.spec.weight=1", "not the name", id="query-in-name"),
        pytest.param("job/a/..%2Fb.spec.minAvailable=1", "not the name", id="path-in-name-of-line"),
        pytest.param("job/one/a.metadata.namespace=two", "names an object", id="namespace"),
        pytest.param("job/one/a.metadata.name=b", "names an object", id="name"),
        pytest.param("resourcebinding/one/a-job.spec.resource.name=b", "names an object", id="template"),
        pytest.param(
            "kind: ResourceBinding\nmetadata: {name: a-job, namespace: one}\nspec: {resource: {namespace: two}}",
            "names an object",
            id="template-in-manifest",
        ),
    ],
)
def test_invalid_change_is_refused_with_its_reason(text, says):
    with pytest.raises(BadQueryError, match=says):
        requested_changes(Query(values={"change": text}))


@pytest.mark.parametrize("target", ["queue/nowhere", "job/one/nothing"])
async def test_what_if_names_objects_that_do_not_exist(tmp_path, monkeypatch, target):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a"))

    async def read(path: str) -> bytes:
        raise NotFound(f"GET {path}", 404, "not found")

    monkeypatch.setattr(model, "read", read)
    async with console_of(model) as console:
        data = await console.data(f"/what-if?{urlencode({'change': f'{target}.spec.x=1'})}")
        assert (data["problem"], data.get("isPlanned")) == (f"{target} does not exist", None)


def stored(body: dict) -> bytes:
    return msgspec.json.encode({**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}})


async def test_workload_page_names_the_data_of_its_claims(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), cluster("m2"), pending_job("one", "train", "a", cpu=600))
    bound = claim("c", "images", namespace="one")
    claimed = observe_claim(stored({**bound, "status": {"phase": "Bound", "boundDataSource": "images"}}))
    async with console_of(model) as console:
        model.claim_changed(None, claimed)
        model.refresh(NOW)
        waiting = await console.data(TRAIN)
        assert (waiting["reason"], waiting["data"][0]["source"]) == ("DataNotReady", None)
        model.source_changed(None, observe_source(stored(source("images", "m2"))))
        model.refresh(NOW)
        page = await console.data(TRAIN)
        assert page["reason"] != "DataNotReady"
        (data,) = page["data"]
        assert (data["claim"], data["source"], data["clusters"]) == ("c", "images", ["m2"])
        assert {row["name"]: row["exclusion"] for row in page["clusters"]}["m1"] == "DataMissing"
        assert "held by m2" in await console.text(TRAIN)
        (own,) = (await console.data(TRAIN, "one"))["data"]
        assert (own["claim"], own["source"], own["clusters"]) == ("c", None, [])
        model.claim_changed(claimed, None)
        model.refresh(NOW)
        assert "data" not in await console.data(TRAIN)


@pytest.mark.parametrize(
    ("reservation", "expected", "shown"),
    [
        pytest.param({}, {"purpose": "Maintenance"}, {"op": "maintenance", "both": "maintenance"}, id="maintenance"),
        pytest.param(
            {"queue": "b"},
            {"purpose": "Queue", "queue": "b"},
            {"op": "/queues/b", "both": "another queue"},
            id="queue",
        ),
        pytest.param(
            {"workload": "two/train", "amounts": {"cpu": 2}},
            {"purpose": "Workload", "workload": "two/train", "amounts": "2 cpu"},
            {"op": "two/train", "both": "a workload"},
            id="workload",
        ),
    ],
)
async def test_cluster_pages_show_advance_reservations(tmp_path, reservation, expected, shown):
    times = {"from": "2026-09-20T00:00:00Z", "until": "2026-12-20T00:00:00Z"}
    reserved = configuration(advanceReservations=[{"name": "launch", "clusters": ["m1"], **times, **reservation}])
    job = pending_job("one", "train", "a", cpu=3)
    model = model_of(tmp_path, reserved, queue("a"), queue("b"), cluster("m1"), job)
    users = {"op": OPERATOR, "both": tenant_of("one") | {("", "clusters")}}
    async with console_of(model, users) as console:
        shown_cluster = (await console.data("/clusters/m1"))["cluster"]
        assert shown_cluster["reservations"] == [{**times, "inForce": True, "name": "launch", **expected}]
        cpu = next(bar for bar in shown_cluster["bars"] if bar["resource"] == "cpu")
        assert cpu["reservedPart"] == (0.5 if "amounts" in reservation else 1)
        [row] = (await console.data("/clusters", "both"))["clusters"][0]["reservations"]
        assert not {"name", "queue", "workload"} & row.keys()
        for user, text in shown.items():
            assert text in (await console.text("/clusters/m1", user)).partition('id="reservations"')[2]
        assert "reserved" in await console.text("/clusters")


@pytest.mark.parametrize("estimates", [True, False])
def test_expected_run_times_decide_as_in_the_controller(tmp_path, estimates):
    times = {"from": "2026-09-22T00:00:00Z", "until": "2026-09-23T00:00:00Z"}
    reserved = configuration(advanceReservations=[{"name": "upgrade", "clusters": ["m1"], **times}])
    job = pending_job("one", "train", "a", cpu=1)
    if estimates:
        job["spec"]["runningEstimate"] = "10m"
    # The reservation begins in ten hours: only a job that is expected to end before is admitted.
    model = model_of(tmp_path, reserved, queue("a"), cluster("m1"), job)
    assert [decision.workload.name for decision in model.snapshot.plan.decisions] == ["train"] * estimates


def test_first_known_run_times_are_expected_of_all_workloads(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a"))
    [train] = model.snapshot.engine.workloads.values()
    run_times = RunTimes()
    for _ in range(4):
        run_times.record(JobProfile("a", "one"), Run(600))
    model.use_run_times(run_times)
    model.refresh(NOW)
    assert (train.run_time_ms, model.snapshot.engine.workloads[train.uid].run_time_ms is None) == (None, False)


async def test_raised_priority_is_shown_in_the_order(tmp_path):
    ageing = configuration(ageing={"after": "1h", "step": 5, "max": 5})
    jobs = pending_job("one", "train", "a", cpu=3), pending_job("one", "wide", "a", cpu=4)
    async with console_of(model_of(tmp_path, ageing, queue("a"), cluster("m1"), *jobs)) as console:
        data = await console.data("/queues/a")
        assert [(row["priority"], row["raisedPriority"]) for row in data["order"]] == [(0, 5)]
        assert '0 <span class="quiet" title="raised by waiting">+5</span>' in await console.text("/queues/a")


async def test_promised_start_is_shown_on_the_workload_page(tmp_path):
    record = {
        "uid": "u",
        "queue": "a",
        "reservedSince": "2026-09-21T10:00:00Z",
        "reservedClusters": {"m1": {"cpu": "4", "memory": "1Gi", "pods": "1"}},
        "nominatedRequests": {"cpu": "4", "memory": "1Gi", "pods": "1"},
        "promisedStart": "2026-09-21T16:40:00Z",
    }
    documents = queue("a"), cluster("m1"), *running("old", {"cpu": 1}, on="m1", queue="a")
    bound = binding("train", suspended=True, record=record, uid="u", namespace="one")
    model = model_of(tmp_path, *documents, pending_job("one", "train", "a", cpu=4), bound, now=1_789_985_100_000)
    async with console_of(model) as console:
        assert (await console.data(TRAIN))["reservation"]["promisedStart"] == "2026-09-21T16:40:00Z"
        assert "When it was reserved, the start was expected by <b>" in await console.text(TRAIN, "one")


async def test_admissions_of_the_next_cycle_are_shown_as_pending(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a", cpu=2))
    async with console_of(model) as console:
        [row] = (await console.data("/workloads"))["workloads"]
        assert (row["state"], row.get("clusters"), row["nextCycle"]) == ("Pending", None, "admits it to m1")
        data = await console.data(TRAIN)
        assert (data["state"], data.get("placed"), data["nextCycle"]) == ("Pending", None, "admits it to m1")
        assert "Admitted" not in [step["title"] for step in data["timeline"]]
        assert (await console.data("/clusters/m1"))["workloads"] == []
        shown = await console.data("/queues/a")
        assert (shown["queue"]["pending"], shown["order"], shown["nextCycle"]) == (1, [], "admit 1")
        assert shown["queue"]["oldest"] == "2026-09-01T00:00:00Z"
        assert "The next scheduling cycle admits it to m1." in await console.text(TRAIN)


async def test_evictions_of_the_next_cycle_are_shown_as_admitted(tmp_path):
    model = model_of(
        tmp_path,
        configuration(reclaim={"enabled": True}),
        *(queue(name, deserved=units(1)) for name in "ab"),
        manifests.cluster("m1", units(2)),
        *admitted("train", units(1), on="m1", queue="a", namespace="one"),
        *admitted("train-2", units(1), on="m1", queue="a", namespace="one"),
        pending_job("two", "claim", "b", cpu=1),
    )
    async with console_of(model) as console:
        data = await console.data(TRAIN)
        assert (data["state"], data.get("reason"), data["nextCycle"]) == ("Admitted", None, "evicts it (Reclaimed)")
        assert [name for name, _ in data["placed"]] == ["m1"]
        rows = (await console.data("/workloads?state=Admitted"))["workloads"]
        assert [(row["name"], row.get("nextCycle"), row.get("reason")) for row in rows] == [
            ("train", "evicts it (Reclaimed)", None),
            ("train-2", None, None),
        ]
        assert len((await console.data("/clusters/m1"))["workloads"]) == 2


async def test_resized_workload_shows_the_charge_of_its_admission(tmp_path):
    grown, placed = admitted("train", {"cpu": "1", "memory": "1Gi"}, on="m1", queue="a", namespace="one")
    grown["spec"]["tasks"][0]["replicas"] = 3
    async with console_of(model_of(tmp_path, queue("a"), cluster("m1"), grown, placed)) as console:
        data = await console.data(TRAIN)
        assert (data["placed"], data["resizedFrom"]) == ([["m1", "3 cpu, 3Gi memory"]], "1 cpu, 1Gi memory")
        assert "It was admitted with 1 cpu, 1Gi memory and resized since" in await console.text(TRAIN)


async def test_adopted_workload_has_no_admission_in_its_timeline(tmp_path):
    placed = binding("train", clusters=["m1"], phase="Running", namespace="one")
    documents = queue("a"), cluster("m1"), pending_job("one", "train", "a", cpu=1), placed
    async with console_of(model_of(tmp_path, *documents)) as console:
        data = await console.data(TRAIN)
        assert (data["state"], data["adopted"]) == ("Admitted", True)
        assert [step["title"] for step in data["timeline"]] == ["Created", "Adopted", "Placed", "Running"]
        assert "It was not admitted: it ran before the installation" in await console.text(TRAIN)


async def test_evicted_workload_that_still_terminates_is_no_candidate(tmp_path):
    record = {"uid": "train", "queue": "a", "evictions": 1}
    leaving = binding(
        "train", clusters=["m1"], suspended=True, phase="Running", record=record, namespace="one", uid="train"
    )
    documents = queue("a"), cluster("m1"), pending_job("one", "train", "a", cpu=3), leaving
    later = pending_job("one", "wait", "a", cpu=2)
    async with console_of(model_of(tmp_path, *documents, later)) as console:
        data = await console.data("/queues/a")
        assert [row["name"] for row in data["order"]] == ["train", "wait"]
        assert data["nextCandidate"]["name"] == "wait"
        page = await console.text(TRAIN)
        assert "Where it is terminating" in page
        assert "Where it runs" not in page
        [row] = (await console.data("/clusters/m1"))["workloads"]
        assert (row["name"], row["charge"], row["isTerminating"]) == ("train", "3 cpu, 1Gi memory", True)


async def test_finished_workload_is_listed_where_it_still_terminates(tmp_path):
    job, placed = admitted("train", {"cpu": "1", "memory": "1Gi"}, on="m2", queue="a", namespace="one")
    placed["spec"]["gracefulEvictionTasks"] = [{"fromCluster": "m1", "reason": "TaintUntolerated", "producer": "p"}]
    reported = [{"clusterName": "m2", "status": {"state": {"phase": "Completed"}}}]
    placed["status"]["aggregatedStatus"] = [*reported, {"clusterName": "m1", "status": {"running": 1}}]
    async with console_of(model_of(tmp_path, queue("a"), cluster("m1"), cluster("m2"), job, placed)) as console:
        data = await console.data("/clusters/m1")
        assert [bar["used"] for bar in data["cluster"]["bars"]] == ["1", "1Gi"]
        assert [(row["name"], row.get("isTerminating")) for row in data["workloads"]] == [("train", True)]


@pytest.mark.parametrize(("asked", "minimum"), [(None, 2), (0, 1), (1, 1), (5, 2)])
async def test_hyperjob_page_names_the_parts_that_start_together(tmp_path, asked, minimum):
    parts = [
        {"name": f"llm-t-{number}", "replicatedJob": "t", "index": number, "pods": [4], "phase": "Pending"}
        for number in range(2)
    ]
    observed = {**two_copies(minAvailable=asked), "status": {"phase": "Pending", "split": {"parts": parts}}}
    observed["metadata"]["resourceVersion"] = "1"
    model = model_of(tmp_path, queue("a"), cluster("m1"))
    model.hyperjobs[HYPERJOB_RESOURCES[0]].upsert(decode_hyperjob(msgspec.json.encode(observed), HYPERJOB_RESOURCES[0]))
    async with console_of(model) as console:
        assert (await console.data("/hyperjobs/ml/llm"))["minAvailable"] == minimum
        assert f"2 parts, at least {minimum} together" in await console.text("/hyperjobs/ml/llm")


async def test_hyperjob_page_has_at_most_fifty_parts(tmp_path):
    """A tenant may have 1,000 of them, and open the page as often as it likes."""
    parts = [
        {"name": f"llm-t-{number}", "replicatedJob": "t", "index": number, "pods": [4], "phase": "Pending"}
        for number in range(120)
    ]
    observed = {**two_copies(minAvailable=70), "status": {"phase": "Pending", "split": {"parts": parts}}}
    observed["metadata"]["resourceVersion"] = "1"
    model = model_of(tmp_path, queue("a"), cluster("m1"))
    model.hyperjobs[HYPERJOB_RESOURCES[0]].upsert(decode_hyperjob(msgspec.json.encode(observed), HYPERJOB_RESOURCES[0]))
    async with console_of(model) as console:
        for number, shown in ((1, range(50)), (3, range(100, 120)), (4, ())):
            data = await console.data(f"/hyperjobs/ml/llm?page={number}")
            assert [part["name"] for part in data["parts"]] == [f"llm-t-{index}" for index in shown]
            assert (data["paging"]["pages"], data["paging"]["total"], data["minAvailable"]) == (3, 120, 70)
        assert "120 parts, at least 70 together" in await console.text("/hyperjobs/ml/llm?page=2")
        assert "Page 2 of 3" in await console.text("/hyperjobs/ml/llm?page=2")
        assert "Last page" in await console.text("/hyperjobs/ml/llm?page=4")


async def test_queue_name_of_a_job_leads_to_no_other_page(tmp_path):
    job = pending_job("one", "train", "../what-if?change=a#b")
    async with console_of(model_of(tmp_path, queue("a"), cluster("m1"), job)) as console:
        assert 'href="/queues/..%2Fwhat-if%3Fchange%3Da%23b"' in await console.text("/workloads")
        assert await console.status("/queues/..%2Fwhat-if%3Fchange%3Da%23b") == 404


async def test_page_after_the_last_one_links_to_that(tmp_path):
    async with console_of(model_of(tmp_path, queue("a"), cluster("m1"), pending_job("one", "train", "a"))) as console:
        page = await console.text("/workloads?page=3&queue=a")
        assert 'The list has 1 page now. <a href="/workloads?page=1&amp;queue=a">' in page
        assert "No workload matches" not in page
        assert (await console.data("/workloads?page=3"))["workloads"] == []
        assert "No workload matches" in await console.text("/workloads?queue=b")


async def test_commands_name_the_binding_without_namespace(tmp_path):
    async with console_of(model_of(tmp_path, *cluster_scoped("big:one"))) as console:
        assert (await console.data("/workloads/-/Trainer/big:one"))["commands"] == [
            "volcano-global explain job big:one",
            "kubectl get trainer.example.com big:one -o yaml",
            "kubectl get clusterresourcebinding big.one-trainer -o yaml",
        ]
