"""The pages about past decisions: filters, moments, timelines, and who may see what."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from console.history import History, MomentAnswer, Replica
from console.reader import Reader
from console.views.decisions import decisions_about, exact_time, parse_time
from console.views.timeline import timeline
from controller.api.visibility import DecidedCluster, LoggedDecision
from controller.engine.policy import Ageing, EvictionPolicy, Policy
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import Nomination
from tests.cli.manifests import admitted, queue
from tests.console.consoles import NOW, LoggedHistory, add_history, cluster, console_of, model_of, pending_job
from tests.history.logs import START, Log, job, moment_at, two_queues
from tests.history.logs import cluster as logged_cluster

TRAIN = "/workloads/one/Job/train"


def decision(number: float, action: str = "Admit", **fields) -> LoggedDecision:
    values = {"uid": f"uid-{number}", "kind": "Job", "namespace": "one", "name": f"job-{number}", "queue": "a"}
    return LoggedDecision(action=action, at=NOW + int(number * 1000), **{**values, **fields})


@pytest.fixture
def model(tmp_path):
    jobs = pending_job("one", "train", "a"), pending_job("two", "other", "b")
    return model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)


def pending_in(model, namespace):
    return next(workload for workload in model.snapshot.engine.workloads.values() if workload.namespace == namespace)


async def rows(console, query: str = "", token: str = "op") -> list[dict]:
    return (await console.data(f"/decisions{query}", token))["decisions"]


async def test_list_is_filtered_and_paged(console, model):
    model.history.add(decision(number, queue="ab"[number % 2]) for number in range(120))
    model.history.add([decision(200, "Wait", reason="QueueLimitReached", message="it requests 2 cpu")])
    assert [row["name"] for row in await rows(console)] == [f"job-{number}" for number in range(119, 69, -1)]
    assert (await rows(console, "?page=3"))[-1]["name"] == "job-0"
    assert len(await rows(console, "?queue=b&page=2")) == 10
    assert [row["action"] for row in await rows(console, "?action=Wait")] == ["Wait"]
    oldest = await rows(console, "?sort=oldest&q=job-11")
    assert [row["name"] for row in oldest] == ["job-11", *(f"job-{number}" for number in range(110, 120))]
    text = await console.text("/decisions")
    assert "job-119" in text
    assert "/moment?at=" in text


async def test_time_range_in_minutes_has_its_last_minute(console, model):
    # 2026-09-21T14:13:20Z
    model.history.add([decision(0), decision(39), decision(40), decision(130)])
    listed = await rows(console, "?since=2026-09-21T14:13&until=2026-09-21T14:13")
    assert [row["name"] for row in listed] == ["job-39", "job-0"]
    for bad in ("since=yesterday", "until=2026-13-01", "since=9999-12-31T23:59:59", "action=Delete", "page=0"):
        assert await console.status(f"/api/v1/decisions?{bad}") == 400


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-11-23", "2026-11-23T23:59:59.999Z"),
        ("20261123", "2026-11-23T23:59:59.999Z"),
        ("2026-11-23T14Z", "2026-11-23T14:59:59.999Z"),
        ("2026-11-23T14:02", "2026-11-23T14:02:59.999Z"),
        ("2026-11-23 14:02Z", "2026-11-23T14:02:59.999Z"),
        ("2026-11-23T14:02+00:00", "2026-11-23T14:02:59.999Z"),
        ("2026-11-23T14:02-01:30", "2026-11-23T15:32:59.999Z"),
        ("2026-11-23T14:02:11Z", "2026-11-23T14:02:11.999Z"),
        ("2026-11-23T14:02:11.250Z", "2026-11-23T14:02:11.250Z"),
    ],
)
def test_end_of_a_time_range_includes_what_is_not_written(text, last):
    assert exact_time(parse_time(text, is_end=True)) == last
    assert parse_time(text) <= parse_time(text, is_end=True)


async def test_tenant_sees_others_as_counts(console, model):
    model.history.add(decision(number, namespace="two", name=f"secret-{number}", queue="b") for number in range(5))
    model.history.add([decision(9)])
    listed = await rows(console, token="one")
    assert [(row.get("name", ""), row.get("count", 1)) for row in listed] == [("job-9", 1), ("", 5)]
    text = await console.text("/decisions", "one")
    assert "secret-" not in text
    assert "5 jobs of another queue" in text
    for foreign in ("namespace=two", "q=secret-1", "queue=b"):
        assert not await rows(console, f"?{foreign}", "one")
    overview = await console.data("/overview", "one")
    assert [row.get("count", 1) for row in overview["recent"]] == [1, 5]
    # A right that ends hides the own ones, too.
    console.access.users["one"] = frozenset()
    assert "name" not in (await rows(console, token="one"))[0]


async def test_names_of_others_in_messages_are_removed(console, model):
    message = "queue 'a' is strict FIFO, and Job two/secret is ahead of it"
    facts = {"subject": "Job two/secret", "queue": "a"}
    other = pending_in(model, "two")
    model.history.add([decision(1, "Wait", reason="BlockedByQueueHead", message=message, facts=facts)])
    model.history.add([decision(2, "Evict", reason="Reclaimed", message="its queue had borrowed", preemptor=other.uid)])
    for token, sees in (("op", True), ("one", False)):
        blocked, evicted = await rows(console, "?action=Any&sort=oldest", token)
        assert ("secret" in blocked["message"]) is sees
        assert (evicted["preemptor"] == other.path) is sees
        assert "ahead of it" in blocked["message"]


async def test_timeline_has_the_logged_steps(console, model):
    workload = pending_in(model, "one")
    known = {"uid": workload.uid, "name": "train", "queue": "a"}
    waits = {"reason": "InsufficientCapacity", "message": "no cluster", **known}
    steps = [
        decision(0, "Wait", **waits),
        # With other facts, as a new leader logs it.
        decision(0.5, "Wait", facts={"cluster": "m1"}, **waits),
        decision(1, "Admit", clusters=(DecidedCluster("m1"),), **known),
        decision(2, "Evict", reason="Preempted", message="preempted", preemptor="uid-unknown", **known),
    ]
    model.history.add(msgspec.structs.replace(step, at=step.at + workload.created_at - NOW) for step in steps)
    timeline = (await console.data(TRAIN, "one"))["timeline"]
    titles = [step["title"] for step in timeline]
    assert titles.count("Pending") == 2
    assert titles[:1] + titles[-4:] == ["Created", "Pending", "Admitted", "Evicted", "Pending"]
    assert timeline[-2]["detail"] == "Preempted: preempted, for another workload"
    assert timeline[-2]["moment"].endswith("Z")


def test_timeline_has_one_step_for_a_nomination(model):
    workload = pending_in(model, "one")
    nomination = Nomination(ClusterName("m1"), workload.created_at, 0, {})
    nominated = decision(0, "Keep", uid=workload.uid, nominated_cluster="m1", rule="P5")
    waits = decision(0, "Wait", uid=workload.uid, reason="PreemptionInProgress", message="its victims stop")
    model.history.add([waits, nominated])
    reader = Reader("op", all_workloads=True, all_queues=True, all_clusters=True)
    details = replace(workload.details, nomination=nomination)
    steps = timeline(model, replace(workload, details=details), "PreemptionInProgress", reader)
    assert [step.title for step in steps][-2:] == ["Nominated to m1", "Pending"]


def test_timeline_has_the_ends_of_nominations_and_reservations(model):
    workload = pending_in(model, "one")
    updates = [
        {"rule": "P5", "nominated_cluster": "m1"},
        {"rule": "P5"},
        {"rule": "O6", "reserved_since": NOW, "reserved_cluster": "m1, m2"},
        {"rule": "O6"},
    ]
    model.history.add(decision(number, "Keep", uid=workload.uid, **update) for number, update in enumerate(updates))
    reader = Reader("op", all_workloads=True, all_queues=True, all_clusters=True)
    texts = ["nominated to m1", "nomination ended", "reserved on m1, m2", "reservation ended"]
    titles = [step.title.lower() for step in timeline(model, workload, "", reader)]
    assert [title for title in titles if title in texts] == texts
    assert [row.update for row in decisions_about(model, {workload.uid}, reader)] == texts[::-1]


def test_timeline_has_one_admission_when_karmada_schedules_again(tmp_path):
    model = model_of(tmp_path, queue("a"), cluster("m1"), *admitted("train", {"cpu": "1"}, on="m1", queue="a"))
    [workload] = model.snapshot.engine.workloads.values()
    model.history.add([decision(0, "Admit", uid=workload.uid), decision(1, "Requeue", uid=workload.uid)])
    reader = Reader("op", all_workloads=True, all_queues=True, all_clusters=True)
    titles = [step.title for step in timeline(model, workload, "", reader)]
    assert titles.index("Admitted") < titles.index("Scheduled again")
    assert titles.count("Admitted") == 1


async def test_nomination_names_its_cluster(console, model):
    model.history.add([decision(1, "Keep", nominated_cluster="m1"), decision(2, "Keep")])
    assert [row.get("nominatedCluster") for row in await rows(console)] == [None, "m1"]
    text = await console.text("/decisions", "one")
    assert "nominated to m1" in text
    assert "reservation ended" in text


def test_decisions_about_parts_have_no_other_workload(model):
    model.history.add(decision(number, namespace="two" if number == 3 else "one") for number in range(6))
    reader = Reader("op", all_workloads=True, all_queues=True, all_clusters=True)
    assert [row.name for row in decisions_about(model, {"uid-1", "uid-3"}, reader)] == ["job-3", "job-1"]
    tenant = Reader("one", namespaces={"one": True, "two": False})
    assert [row.name for row in decisions_about(model, {"uid-1", "uid-3"}, tenant)] == ["", "job-1"]


async def test_workload_page_leads_to_what_started_before_it(console, model):
    model.history.add([decision(1, namespace="two", name="secret", queue="b"), decision(2)])
    data = await console.data(TRAIN, "one")
    assert [row.get("name", "") for row in data["before"]] == ["job-2", ""]
    text = await console.text(TRAIN, "one")
    assert f"&amp;first=uid-2&amp;second={pending_in(model, 'one').uid}" in text
    assert "uid-1" not in text
    assert "secret" not in text


@pytest.fixture
async def replayed(tmp_path):
    """Return a console whose history answers with the replay of a log of two queues."""
    jobs = pending_job("one", "fourth", "a"), pending_job("two", "other", "b")
    model = model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)
    add_history(model, two_queues(tmp_path / "log").path)
    async with console_of(model) as console:
        yield console


def text_of(at: int) -> str:
    return f"1970-01-12T13:46:{40 + (at - START) // 1000}.000Z"


async def test_moment_says_why_one_job_started_first(replayed):
    path = f"/moment?at={text_of(START + 3000)}&first=uid-other&second=uid-fourth"
    data = await replayed.data(path)
    assert data["plannedAt"] == text_of(START + 3000)
    assert [row["row"]["name"] for row in data["compared"]] == ["other", "fourth"]
    assert data["explanation"][0] == "The priority of queue b, 5, is higher than that of the other's queue, 0 (O1)."
    assert data["explanation"][1].startswith("Job one/fourth could not start after that: it requests 2 cpu")
    assert [(row["name"], row["action"]) for row in data["decisions"]] == [("other", "Admit")]
    assert "Why one started before the other" in await replayed.text(path)
    of_one_queue = await replayed.data(f"/moment?at={text_of(START + 1000)}&first=uid-first&second=uid-second")
    assert of_one_queue["explanation"] == [
        "This plan admitted both, Job one/first before Job one/second.",
        "It was ahead in the queue: it is older (O2).",
    ]


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        ("first", "second", "It was ahead in the queue by its name (O2)."),
        ("urgent", "first", "It was ahead in the queue: its priority 1 is higher than 0 (O2)."),
        ("first", "big", "Job one/big was ahead of it in the queue, but this plan could not admit it."),
        ("first", "other", "Before this plan the usage ratio of queue a was 0.00, that of queue b"),
    ],
    ids=["name", "priority", "too-large", "usage-ratio"],
)
async def test_moment_names_the_rule_of_the_order(tmp_path, model, first, second, rule):
    log = Log(tmp_path / "log")
    log.world([Queue(name=QueueName(name)) for name in "ab"], [logged_cluster("m1", 8)])
    log.submit(job("big", cpu=100, priority=2), job("urgent", priority=1), job("first"), job("second"))
    log.submit(job("other", "b", namespace="two"))
    log.plan()
    log.write()
    add_history(model, log.path)
    async with console_of(model) as console:
        data = await console.data(f"/moment?at={text_of(START + 1000)}&first=uid-{first}&second=uid-{second}")
        assert any(sentence.startswith(rule) for sentence in data["explanation"]), data["explanation"]


async def test_moment_counts_the_decisions_that_it_does_not_show(replayed, monkeypatch):
    log = replayed.renders.model.history.log
    moment = moment_at(log, START + 3000)
    many = msgspec.structs.replace(moment, decisions=moment.decisions * 52, omitted=3)

    async def answer(self, at, focus):
        return msgspec.json.encode(MomentAnswer(many))

    monkeypatch.setattr(LoggedHistory, "moment", answer)
    path = f"/moment?at={text_of(START + 3000)}"
    data = await replayed.data(path)
    assert (len(data["decisions"]), data["hiddenDecisions"], data["omitted"]) == (50, 2, 3)
    text = await replayed.text(path)
    assert "2 more decisions." in text
    assert "3 more queues, clusters" in text


@pytest.mark.parametrize(
    ("policy", "other", "rule"),
    [
        pytest.param(
            Policy(tenant_fairness="NamespaceFirst"), {"namespace": "two"}, "the share of its namespace", id="namespace"
        ),
        pytest.param(Policy(ageing=Ageing(100, 5, 10)), {}, "waiting had raised", id="ageing"),
    ],
)
async def test_moment_names_what_comes_before_priority(tmp_path, model, policy, other, rule):
    log = Log(tmp_path / "log", policy=policy)
    log.world([Queue(name=QueueName("a"))], [logged_cluster("m1", 8)])
    log.submit(job("running"), job("filler", cpu=6))
    log.plan()
    log.submit(job("urgent", created_at=log.now), job("first", **{"priority": -1, **other}))
    log.plan()
    log.remove("uid-filler")
    log.plan()
    log.write()
    add_history(model, log.path)
    async with console_of(model) as console:
        data = await console.data(f"/moment?at={text_of(log.now)}&first=uid-first&second=uid-urgent")
        assert data["explanation"][1].startswith(f"It was ahead in the queue: {rule}"), data["explanation"]
        reverse = await console.data(f"/moment?at={text_of(log.now)}&first=uid-urgent&second=uid-first")
        assert reverse["explanation"][1].endswith("/first was ahead of it in the queue.")


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(Policy(queue_order="FairShareFirst"), id="order"),
        pytest.param(Policy(reclaim=EvictionPolicy(enabled=True)), id="reclaim"),
    ],
)
async def test_moment_says_that_borrowers_come_last(tmp_path, model, policy):
    log = Log(tmp_path / "log", policy=policy)
    log.world([Queue(name=QueueName("a")), Queue(name=QueueName("b"), priority=5)], [logged_cluster("m1", 8)])
    log.submit(*(job(f"b-{number}", "b", created_at=START + number) for number in range(4)), job("first"))
    log.submit(job("second"))
    log.plan()
    log.write()
    add_history(model, log.path)
    async with console_of(model) as console:
        path = f"/moment?at={text_of(log.now)}"
        within = (await console.data(f"{path}&first=uid-b-0&second=uid-first"))["explanation"]
        assert within[-1].startswith("The priority of queue b, 5, is higher than")
        # The last one of queue b borrows after the first two of it.
        borrows = (await console.data(f"{path}&first=uid-second&second=uid-b-3"))["explanation"]
        assert borrows[0] == "It stayed within the fair share of its queue, and the other one would have borrowed (O3)."


async def test_moment_for_a_tenant_has_no_foreign_name(replayed):
    path = f"/moment?at={text_of(START + 3000)}&second=uid-fourth"
    data = await replayed.data(path, "one")
    assert "other" not in {row.get("name") for row in (*data["order"], *data["decisions"])}
    assert [queue["name"] for queue in data["queues"]] == ["root", "a"]
    assert data.get("clusters", []) == []
    text = await replayed.text(path, "one")
    assert "Job two/" not in text
    assert "uid-other" not in text


async def test_moment_before_the_log_says_so(console, model, monkeypatch):
    async def moment(self, at, focus):
        return msgspec.json.encode(MomentAnswer(None, "the log of this replica has no plan at or before that time"))

    monkeypatch.setattr(History, "moment", moment)
    model.history.add([decision(1)])
    assert "no plan" in (await console.data("/moment?at=2020-01-01T00:00"))["problem"]
    for bad in ("at=now", "at=2026-01-01&first=%3Cscript%3E", "at=2026-01-01&second=" + "a" * 65):
        assert await console.status(f"/api/v1/moment?{bad}") == 400
    assert await console.status("/moment") == 200


async def test_without_a_log_the_pages_say_so(console):
    assert "No decision log is served" in await console.text("/decisions")
    assert (await console.data("/overview")).get("recent", []) == []


def test_history_is_bounded(monkeypatch):
    monkeypatch.setattr("console.history._MAX_WAITS", 10)
    monkeypatch.setattr("console.history._MAX_DECIDED", 5)
    history = History()
    history.add(decision(number, "Wait") for number in range(50))
    history.add(decision(number) for number in reversed(range(50)))
    newest = [logged.at for logged in history.newest_first("Decided")]
    assert newest == [NOW + 1000 * number for number in range(49, 44, -1)]
    assert len(list(history.newest_first("Any"))) == 15
    assert history.since("Any") is None
    history._replicas["pod-1"] = Replica(since=NOW)
    since = {kind: history.since(kind) for kind in ("Decided", "Wait", "Any")}
    assert since == {"Decided": NOW + 45_000, "Wait": NOW + 40_000, "Any": NOW + 45_000}
    history.add(decision(60 + number, "Wait") for number in range(10))
    assert history.since("Any") == NOW + 60_000


def test_history_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("console.history._MAX_BYTES_OF_KIND", 100_000)
    requests = {f"example.com/{'r' * 60}{number}": "1" for number in range(100)}
    history = History()
    history.add(decision(number) for number in range(20))
    for number in range(100):
        history.add([decision(number, "Wait", request=requests)])
    assert len(list(history.newest_first("Decided"))) == 20
    waits = [logged.at for logged in history.newest_first("Wait")]
    assert 1 < len(waits) < 20
    assert waits[0] == NOW + 99_000
    history._replicas["pod-1"] = Replica(since=NOW)
    assert {kind: history.since(kind) for kind in ("Decided", "Wait")} == {"Decided": NOW, "Wait": waits[-1]}
    # What was dropped is not counted any more.
    history.add(decision(200 + number, "Wait") for number in range(400))
    assert len(list(history.newest_first("Wait"))) > 400


async def test_page_of_a_stream_shows_new_decisions(console, model):
    model.history.add([decision(1)])
    for handler in model.history.on_update:
        handler()
    await asyncio.sleep(0)
    assert "job-1" in await console.text("/decisions")
