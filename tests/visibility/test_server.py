"""The endpoint's answers, limits and certificate, over TLS on the loopback."""

import asyncio
import gc
import ssl
import weakref
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import aiohttp
import pytest

from controller.api.visibility import namespace_path
from controller.cli.input.visibility import ServerAddress, visible_workloads
from controller.engine.fairness.pending_order import PendingOrder
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import Queue, QueueName
from controller.kube.access_reviews import User
from controller.kube.serving_certificate import Certificate
from controller.kube.timing import RequestRates
from controller.visibility import https as endpoint
from controller.visibility.https import serve_endpoint
from controller.visibility.report import describe
from controller.visibility.scan import Scan, Scanner
from controller.visibility.server import Visibility
from tests.authority import write_certificate
from tests.engine import worlds
from tests.engine.objects import cluster, workload
from tests.virtual_time import Clock
from tests.waiting import poll


class EveryoneMayRead:
    """Accepts every token; the token is the name of the user."""

    async def user(self, token):
        return User(username=token)

    async def require(self, token, namespace, verb):
        return None


def planned():
    engine = worlds.build(worlds.Policy())
    engine.plan(worlds.NOW)
    return engine


@asynccontextmanager
async def served(tmp_path, *, leads=True, engine=None, clock=None):
    """Yield the port of an endpoint, its certificate, and a function that asks it as a user."""
    folder = tmp_path / "serving"
    write_certificate(folder)
    certificate = Certificate(folder)
    certificate.refresh()
    engine = planned() if engine is None else engine
    visibility = Visibility(EveryoneMayRead(), lambda: engine, leads=lambda: leads, clock=clock or Clock())

    async def ask(user="ann", namespace="ml"):
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        url = f"https://127.0.0.1:{port}{namespace_path(namespace)}"
        headers = {"Authorization": f"Bearer {user}"}
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
            return answer.status, await answer.json()

    async with serve_endpoint(visibility, certificate, host="127.0.0.1", port=0) as port:
        yield port, certificate, ask


@pytest.mark.parametrize(
    ("leads", "has_planned", "says"),
    [
        pytest.param(False, True, "not the leader", id="standby"),
        pytest.param(True, False, "", id="leader-before-its-first-plan"),
    ],
)
async def test_only_a_leader_with_a_plan_answers(tmp_path, leads, has_planned, says):
    engine = planned() if has_planned else worlds.build(worlds.Policy())
    async with served(tmp_path, leads=leads, engine=engine) as (_, _, ask):
        status, body = await ask()
    assert (status, body["reason"]) == (503, "ServiceUnavailable")
    assert says in body["message"]


async def test_commands_find_a_workload_of_any_kind_by_its_name(tmp_path):
    web = workload("web", {"cpu": 1000}, namespace="ml", kind="Deployment")
    engine = worlds.build(worlds.Policy(), Queue(QueueName("q")), web, workload("job", {"cpu": 1000}, namespace="ml"))
    engine.plan(worlds.NOW)
    async with served(tmp_path, engine=engine) as (port, _, _), aiohttp.ClientSession() as session:
        api = SimpleNamespace(session=session, access=SimpleNamespace(authorization="Bearer ann"))
        address = ServerAddress(f"https://127.0.0.1:{port}", (tmp_path / "serving" / "ca.crt").read_text())
        report = await visible_workloads(api, address, "ml", "web")
    assert [(item.kind, item.name) for item in report.items] == [("Deployment", "web")]


async def test_workloads_and_queues_of_an_answer_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("controller.visibility.server.MAX_ITEMS", 20)
    monkeypatch.setattr("controller.visibility.report.MAX_QUEUES", 3)
    names = ["a", "b", "c", "d", "e", "e"]
    jobs = [workload(f"job-{number}", {"cpu": 10**9}, namespace="ml", queue=name) for number, name in enumerate(names)]
    absent = [workload(f"more-{number}", {"cpu": 1}, namespace="ml", queue=f"absent-{number}") for number in range(20)]
    engine = worlds.build(worlds.Policy(), *(Queue(QueueName(name)) for name in sorted(set(names))), *jobs, *absent)
    engine.plan(worlds.NOW)
    async with served(tmp_path, engine=engine) as (_, _, ask):
        _, body = await ask()
    assert [queue["name"] for queue in body["queues"]] == ["a", "b", "e"]
    assert (len(body["items"]), body["remaining"]) == (20, 6)


async def test_one_user_is_limited_and_others_are_not(tmp_path):
    clock = Clock()
    async with served(tmp_path, clock=clock) as (_, _, ask):
        statuses = [(await ask())[0] for _ in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        assert (await ask("ben"))[0] == 200
        clock.now += 1
        assert [(await ask())[0] for _ in range(6)] == [200] * 5 + [429]


def test_known_users_are_bounded():
    rates = RequestRates(5.0, burst=10.0, max_keys=3, clock=Clock())
    for number in range(10):
        assert rates.admits(f"user-{number}")
    assert len(rates) == 3


async def test_requests_share_one_scan_of_a_state_for_a_second():
    clock, engine, other_engine = Clock(), planned(), planned()
    scanner = Scanner(clock)
    first, *others = await asyncio.gather(*(scanner.scan(engine) for _ in range(8)))
    assert all(scan is first for scan in others)
    assert await scanner.scan(other_engine) is not first
    first = await scanner.scan(engine)
    clock.now += 1.5
    assert await scanner.scan(engine) is not first


async def test_scan_that_takes_long_is_repeated_less_often():
    """With a million workloads it takes seconds, and tenants may ask all the time."""
    clock, engine = Clock(), planned()

    def slow() -> float:
        clock.now += 0.5
        return clock.now

    scanner = Scanner(slow)
    scans = [await scanner.scan(engine) for _ in range(10)]
    assert len(set(map(id, scans[:9]))) == 1
    assert scans[9] is not scans[0]


async def test_workloads_of_a_namespace_are_sorted_once_in_a_scan():
    made = [
        workload("late", {"cpu": 1}, created_at=2),
        workload("b", {"cpu": 1}, created_at=1),
        workload("a", {"cpu": 1}, created_at=1),
        workload("admitted", {"cpu": 1}, on="m"),
    ]
    engine = worlds.build(worlds.Policy(), Queue(QueueName("q")), cluster(cpu=9), *made)
    scan = await Scanner(Clock()).scan(engine)
    ordered = scan.in_order(engine, "ns")
    assert ordered == ["a", "b", "late", "admitted"]
    assert scan.in_order(engine, "ns") is ordered
    assert scan.in_order(engine, "other") == []


async def test_silent_connections_beyond_the_limit_are_closed(tmp_path, monkeypatch):
    """A tenant that holds all connections must not prevent the answers for others."""
    monkeypatch.setattr(endpoint, "_MAX_CONNECTIONS", 2)
    async with served(tmp_path) as (port, _, ask):
        context = ssl.create_default_context(cafile=str(tmp_path / "serving" / "ca.crt"))
        (oldest, _), _ = silent = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(2)]
        assert (await ask("ben"))[0] == 200
        with suppress(ConnectionError):
            assert await oldest.read() == b""
        for _, writer in silent:
            writer.close()


async def test_silent_connection_is_closed_after_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "_CONNECTION_SECONDS", 0.2)
    async with served(tmp_path) as (port, _, _):
        context = ssl.create_default_context(cafile=str(tmp_path / "serving" / "ca.crt"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_closed_connection_is_not_kept_until_its_time(tmp_path, monkeypatch):
    transports, made = [], endpoint.LimitedServer.connection_made

    def connection_made(server, handler, transport):
        transports.append(weakref.ref(transport))
        made(server, handler, transport)

    monkeypatch.setattr(endpoint.LimitedServer, "connection_made", connection_made)
    async with served(tmp_path) as (_, _, ask):
        assert (await ask())[0] == 200
        await poll(lambda: gc.collect() >= 0 and transports[0]() is None, "release of the connection", seconds=20)


async def test_changed_certificate_is_served_to_new_connections(tmp_path):
    async with served(tmp_path) as (_, certificate, ask):
        assert (await ask())[0] == 200
        write_certificate(tmp_path / "serving")
        with pytest.raises(aiohttp.ClientError):
            await ask()  # the client trusts the new CA, and the server still serves the old certificate
        certificate.refresh()
        assert (await ask())[0] == 200


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        pytest.param(worlds.Policy(tenant_fairness="Namespace"), {}, id="tenant-fairness"),
        pytest.param(worlds.Policy(), {"hold": Refusal(Reason.REQUESTS_UNKNOWN)}, id="on-hold"),
        pytest.param(worlds.Policy(), {}, id="by-age"),
    ],
)
async def test_long_queue_is_sorted_once_for_all_positions(policy, fields, monkeypatch):
    jobs = [
        workload(f"job-{number}", {"cpu": 1000}, namespace=f"n{number % 2}", created_at=number, **fields)
        for number in range(202)
    ]
    engine, scan, sorts = worlds.build(policy, Queue(QueueName("q")), *jobs), Scan(), []
    engine.plan(worlds.NOW)
    expected = {job.uid: number for number, job in enumerate(engine.pending_workloads(QueueName("q")), start=1)}
    listed = PendingOrder.pending_workloads
    monkeypatch.setattr(PendingOrder, "pending_workloads", lambda *call: sorts.append(call) or listed(*call))
    assert {job.uid: scan.position(engine, job) for job in jobs} == expected
    assert len(sorts) <= 1


def test_remedy_for_a_tenant_names_no_list_of_shortages():
    running, waiting = workload("runs", {"cpu": 1000}, on="m"), workload("waits", {"cpu": 1000})
    queue = Queue(QueueName("q"), capability={"cpu": 1000})
    engine = worlds.build(worlds.Policy(), queue, cluster("m", cpu=8000), running, waiting)
    engine.plan(worlds.NOW)
    shown = describe(engine, engine.workloads[waiting.uid], Scan())
    assert (shown.reason, shown.remedy) == (
        "QueueLimitReached",
        "it starts when workloads of the queue finish; other shortages are not included",
    )


def test_position_of_a_sorted_queue_follows_changes():
    jobs = [workload(f"job-{number}", {"cpu": 1000}, created_at=number) for number in range(3)]
    engine, scan = worlds.build(worlds.Policy(tenant_fairness="Namespace"), Queue(QueueName("q")), *jobs), Scan()
    engine.plan(worlds.NOW)
    assert scan.position(engine, jobs[2]) == 3
    engine.workload_removed(jobs[0].uid, worlds.NOW)
    assert scan.position(engine, jobs[2]) == 2
    late = workload("late", {"cpu": 1000}, created_at=9)
    engine.workload_changed(late, worlds.NOW)
    assert scan.position(engine, late) == 3
