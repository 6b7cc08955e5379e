"""The pages about past decisions: filters, moments, timelines, and who may see what."""

import asyncio

import msgspec
import pytest

from console.history import History, MomentAnswer
from console.reader import Reader
from console.views.decisions import decisions_about
from controller.api.visibility import DecidedCluster, LoggedDecision
from tests.console.consoles import NOW, OPERATOR, add_history, console_of, model_of, tenant_of
from tests.console.objects import cluster, pending_job, queue
from tests.console.test_views import settled
from tests.history.logs import START, two_queues

USERS = {"op": OPERATOR, "one": tenant_of("one"), "two": tenant_of("two"), "nothing": frozenset()}


def decision(number: float, action: str = "Admit", **fields) -> LoggedDecision:
    values = {"uid": f"uid-{number}", "kind": "Job", "namespace": "one", "name": f"job-{number}", "queue": "a"}
    return LoggedDecision(action=action, at=NOW + int(number * 1000), **{**values, **fields})


@pytest.fixture
def model(tmp_path):
    jobs = [*pending_job("one", "train", "a"), *pending_job("two", "other", "b")]
    return model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)


async def rows(console, path: str, token: str = "op") -> list[dict]:
    answer = await console.get(path, token)
    assert answer.status == 200, await answer.text()
    return (await answer.json())["decisions"]


async def test_list_is_filtered_and_paged(model):
    model.history.add(decision(number, queue="ab"[number % 2]) for number in range(120))
    model.history.add([decision(200, "Wait", reason="QueueLimitReached", message="it requests 2 cpu")])
    async with console_of(model, USERS) as console:
        first = await rows(console, "/api/v1/decisions")
        assert [row["name"] for row in first] == [f"job-{number}" for number in range(119, 69, -1)]
        last = await rows(console, "/api/v1/decisions?page=3")
        assert last[-1]["name"] == "job-0"
        assert len(await rows(console, "/api/v1/decisions?queue=b&page=2")) == 10
        assert [row["action"] for row in await rows(console, "/api/v1/decisions?action=Wait")] == ["Wait"]
        oldest = await rows(console, "/api/v1/decisions?sort=oldest&q=job-11")
        assert [row["name"] for row in oldest] == ["job-11", *(f"job-{number}" for number in range(110, 120))]
        text = await console.text("/decisions", "op")
        assert "job-119" in text
        assert "/moment?at=" in text


async def test_time_range_in_minutes_has_its_last_minute(model):
    # 2026-09-21T14:13:20Z
    model.history.add([decision(0), decision(39), decision(40), decision(130)])
    async with console_of(model, USERS) as console:
        found = await rows(console, "/api/v1/decisions?since=2026-09-21T14:13&until=2026-09-21T14:13")
        assert [row["name"] for row in found] == ["job-39", "job-0"]
        for bad in ("since=yesterday", "until=2026-13-01", "since=9999-12-31T23:59:59", "action=Delete", "page=0"):
            assert (await console.get(f"/api/v1/decisions?{bad}", "op")).status == 400


async def test_tenant_sees_others_as_counts(model):
    model.history.add(decision(number, namespace="two", name=f"secret-{number}", queue="b") for number in range(5))
    model.history.add([decision(9)])
    async with console_of(model, USERS) as console:
        found = await rows(console, "/api/v1/decisions", "one")
        assert [(row.get("name", ""), row.get("count", 1)) for row in found] == [("job-9", 1), ("", 5)]
        text = await console.text("/decisions", "one")
        assert "secret-" not in text
        assert "5 jobs of another queue" in text
        assert not await rows(console, "/api/v1/decisions?namespace=two", "one")
        assert not await rows(console, "/api/v1/decisions?q=secret-1", "one")
        assert not await rows(console, "/api/v1/decisions?queue=b", "one")
        overview = await (await console.get("/api/v1/overview", "one")).json()
        assert [row.get("count", 1) for row in overview["recent"]] == [1, 5]


async def test_names_of_others_in_messages_are_removed(model):
    message = "queue 'a' is strict FIFO, and Job two/secret is ahead of it"
    facts = {"subject": "Job two/secret", "queue": "a"}
    model.history.add([decision(1, "Wait", reason="BlockedByQueueHead", message=message, facts=facts)])
    other = next(each for each in model.snapshot.state.workloads.values() if each.namespace == "two")
    model.history.add([decision(2, "Evict", reason="Reclaimed", message="its queue had borrowed", preemptor=other.uid)])
    async with console_of(model, USERS) as console:
        for token, sees in (("op", True), ("one", False)):
            blocked, evicted = await rows(console, "/api/v1/decisions?action=Any&sort=oldest", token)
            assert ("secret" in blocked["message"]) is sees
            assert (evicted["preemptor"] == other.path) is sees
            assert "ahead of it" in blocked["message"]


async def test_right_that_ends_hides_decisions(model):
    model.history.add([decision(1)])
    async with console_of(model, USERS) as console:
        assert (await rows(console, "/api/v1/decisions", "one"))[0]["name"] == "job-1"
        console.access.users["one"] = frozenset()
        assert "name" not in (await rows(console, "/api/v1/decisions", "one"))[0]


async def test_timeline_has_the_logged_steps(model):
    workload = next(each for each in model.snapshot.state.workloads.values() if each.namespace == "one")
    known = {"uid": workload.uid, "name": "train", "queue": "a"}
    at = workload.created_at - NOW
    steps = [
        decision(0, "Wait", reason="InsufficientCapacity", message="no cluster", **known),
        # With other facts, as a new leader logs it.
        decision(0.5, "Wait", reason="InsufficientCapacity", message="no cluster", facts={"cluster": "m1"}, **known),
        decision(1, "Admit", clusters=(DecidedCluster("m1"),), **known),
        decision(2, "Evict", reason="Preempted", message="preempted", preemptor="uid-unknown", **known),
    ]
    model.history.add(msgspec.structs.replace(each, at=each.at + at) for each in steps)
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/workloads/one/Job/train", "one")
        titles = [step["title"] for step in found["timeline"]]
        assert titles.count("Pending") == 2
        assert titles[:1] + titles[-4:] == ["Created", "Pending", "Admitted", "Evicted", "Pending"]
        evicted = found["timeline"][-2]
        assert evicted["detail"] == "Preempted: preempted, for another workload"
        assert evicted["moment"].endswith("Z")


async def test_nomination_names_its_cluster(model):
    model.history.add([decision(1, "Keep", nominated_cluster="m1"), decision(2, "Keep")])
    async with console_of(model, USERS) as console:
        assert [row.get("nominatedCluster") for row in await rows(console, "/api/v1/decisions")] == [None, "m1"]
        assert "nominated for m1" in await console.text("/decisions", "one")


def test_decisions_about_parts_have_no_other_workload(model):
    model.history.add(decision(number, namespace="two" if number == 3 else "one") for number in range(6))
    reader = Reader("op", all_workloads=True, all_queues=True, all_clusters=True)
    found = decisions_about(model, {"uid-1", "uid-3"}, reader)
    assert [row.name for row in found] == ["job-3", "job-1"]
    tenant = Reader("one", namespaces={"one": True, "two": False})
    assert [row.name for row in decisions_about(model, {"uid-1", "uid-3"}, tenant)] == ["", "job-1"]


async def test_workload_page_leads_to_what_started_before_it(model):
    model.history.add([decision(1, namespace="two", name="secret", queue="b"), decision(2)])
    waiting = next(each for each in model.snapshot.state.workloads.values() if each.namespace == "one")
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/workloads/one/Job/train", "one")
        assert [row.get("name", "") for row in found["before"]] == ["job-2", ""]
        text = await console.text("/workloads/one/Job/train", "one")
        assert f"&amp;first=uid-2&amp;second={waiting.uid}" in text
        assert "uid-1" not in text
        assert "secret" not in text


@pytest.fixture
def moment_model(tmp_path):
    """Return a model whose history answers with the replay of a log, and the time of its last plan."""
    log = two_queues(tmp_path / "log")
    jobs = [*pending_job("one", "fourth", "a"), *pending_job("two", "other", "b")]
    model = model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)
    add_history(model, log.path)
    return model


def text_of(at: int) -> str:
    return f"1970-01-12T13:46:{40 + (at - START) // 1000}.000Z"


async def test_moment_says_why_one_job_started_first(moment_model):
    path = f"/api/v1/moment?at={text_of(START + 3000)}&first=uid-other&second=uid-fourth"
    async with console_of(moment_model, USERS) as console:
        found = await settled(console, path)
        assert found["plannedAt"] == text_of(START + 3000)
        assert [row["row"]["name"] for row in found["compared"]] == ["other", "fourth"]
        assert found["explanation"][0] == (
            "The priority of queue b, 5, is higher than that of the other's queue, 0 (O1)."
        )
        assert found["explanation"][1].startswith("Job one/fourth could not start after that: it requests 2 cpu")
        assert [(row["name"], row["action"]) for row in found["decisions"]] == [("other", "Admit")]
        text = await console.text(path.removeprefix("/api/v1"), "op")
        assert "Why one started before the other" in text


async def test_moment_of_one_queue_compares_ages(moment_model):
    path = f"/api/v1/moment?at={text_of(START + 1000)}&first=uid-first&second=uid-second"
    async with console_of(moment_model, USERS) as console:
        found = await settled(console, path)
        assert found["explanation"] == [
            "This plan admitted both, Job one/first before Job one/second.",
            "It was ahead in the queue: it is older (O2).",
        ]


async def test_moment_for_a_tenant_has_no_foreign_name(moment_model):
    path = f"/api/v1/moment?at={text_of(START + 3000)}&second=uid-fourth"
    async with console_of(moment_model, USERS) as console:
        found = await settled(console, path, "one")
        assert "other" not in {row.get("name") for row in (*found["order"], *found["decisions"])}
        assert [queue["name"] for queue in found["queues"]] == ["root", "a"]
        assert found.get("clusters", []) == []
        text = await console.text(path.removeprefix("/api/v1"), "one")
        assert "Job two/" not in text
        assert "uid-other" not in text


async def test_moment_before_the_log_says_so(model, monkeypatch):
    async def moment(self, at, focus):
        return msgspec.json.encode(MomentAnswer(None, "the log of this replica has no plan at or before that time"))

    monkeypatch.setattr(History, "moment", moment)
    model.history.add([decision(1)])
    async with console_of(model, USERS) as console:
        found = await settled(console, "/api/v1/moment?at=2020-01-01T00:00")
        assert "no plan" in found["problem"]
        for bad in ("at=now", "at=2026-01-01&first=%3Cscript%3E", "at=2026-01-01&second=" + "a" * 65):
            assert (await console.get(f"/api/v1/moment?{bad}", "op")).status == 400
        assert (await console.get("/moment", "op")).status == 200


async def test_without_a_log_the_pages_say_so(model):
    async with console_of(model, USERS) as console:
        assert "No decision log is served" in await console.text("/decisions", "op")
        overview = await (await console.get("/api/v1/overview", "op")).json()
        assert overview.get("recent", []) == []


def test_history_is_bounded(monkeypatch):
    monkeypatch.setattr("console.history._MAX_WAITS", 10)
    monkeypatch.setattr("console.history._MAX_DECIDED", 5)
    history = History()
    history.add(decision(number, "Wait") for number in range(50))
    history.add(decision(number) for number in reversed(range(50)))
    assert [each.at for each in history.newest_first("Decided")] == [
        NOW + 1000 * number for number in range(49, 44, -1)
    ]
    assert len(list(history.newest_first("Any"))) == 15


async def test_page_of_a_stream_shows_new_decisions(model):
    async with console_of(model, USERS) as console:
        model.history.add([decision(1)])
        for handler in model.history.on_update:
            handler()
        await asyncio.sleep(0)
        assert "job-1" in await console.text("/decisions", "op")
