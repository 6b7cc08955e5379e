"""What the pages show: reasons, positions, forecasts, counterfactuals and what-if plans."""

import asyncio

import msgspec

from console.pages import render
from console.views.listing import Query
from tests.console.consoles import OPERATOR, console_of, model_of, tenant_of
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


async def test_what_if_shows_the_decisions_that_change(tmp_path, monkeypatch):
    objects = [queue("a"), cluster("m1", cpu=4), *pending_job("one", "train", "a", cpu=6)]
    model = model_of(tmp_path, *objects)

    async def read(path: str) -> bytes:
        assert path.endswith("/clusters/m1")
        return msgspec.json.encode({**objects[1], "metadata": {"name": "m1", "uid": "u", "resourceVersion": "2"}})

    monkeypatch.setattr(model, "read", read)
    change = "cluster/m1.status.resourceSummary.allocatable.cpu=64"
    async with console_of(model, USERS) as console:
        found = await settled(console, f"/api/v1/what-if?change={change}")
        assert found.get("problem", "") == ""
        assert [(row["action"], row["name"]) for row in found["added"]] == [("Admit", "train")]
        assert (await console.get(f"/api/v1/what-if?change={change}", "one")).status == 403
        assert (await console.get("/api/v1/what-if?change=nonsense", "op")).status == 400
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
