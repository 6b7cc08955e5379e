"""The console follows the logs of all replicas: across a change of leader, gaps, and replicas that do not answer."""

import itertools
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest

from console.analysis import TemporaryAnswer
from console.history import History, HistoryAccess, MomentAnswer, UnreachableError
from console.history_file import HistoryFile
from console.settings import parse_flags
from controller.api.flags import SettingsError
from controller.history.server import HistoryEndpoint
from controller.kube.access_reviews import Access
from controller.kube.serving_certificate import Certificate
from controller.visibility.https import serve_endpoint
from tests.authority import write_certificate
from tests.console.test_decisions import decision
from tests.history.logs import Log, cluster, job, two_queues
from tests.history.test_server import Clock, Reviews


def endpoint(path) -> HistoryEndpoint:
    clock = Clock()
    return HistoryEndpoint(Access(Reviews({"operator"}), clock=clock), path, replay_seconds=30, clock=clock)


class LocalHistory(History):
    """A history of replicas at given addresses."""

    addresses: list[str]

    async def _addresses(self) -> list[str]:
        return self.addresses


def new_history(url: str, session, addresses: list[str], *, token: str = "operator", ca=None) -> LocalHistory:
    credentials = SimpleNamespace(authorization=f"Bearer {token}")
    history = LocalHistory(HistoryAccess(url, lambda: credentials, ca))
    history._session, history.addresses = session, addresses
    return history


@asynccontextmanager
async def following(*paths, token: str = "operator"):
    """Yield a history of replicas at 127.0.0.1, 127.0.0.2 and so on, each with one of *paths*, and how to stop them."""
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as session:
        port, stops = 0, []
        for number, path in enumerate(paths, start=1):
            one = await stack.enter_async_context(AsyncExitStack())
            served = serve_endpoint(endpoint(path), None, host=f"127.0.0.{number}", port=port)
            port = await one.enter_async_context(served)
            stops.append(one.aclose)
        addresses = [f"127.0.0.{number}" for number in range(1, len(paths) + 1)]
        history = new_history(f"http://localhost:{port}", session, addresses, token=token)
        yield history, stops, addresses


def names(history) -> list[tuple[str, str]]:
    return [(decision.action, decision.name) for decision in reversed(list(history.newest_first("Any")))]


@pytest.fixture
def logs(tmp_path):
    """Return the log of the first leader and that of the second one, which continues."""
    first = two_queues(tmp_path / "first")
    second = Log(tmp_path / "second", now=first.now + 10_000, identity="pod-2")
    second.world([], [cluster("m1", 6)])
    second.submit(job("after"))
    second.plan()
    second.write()
    return first, second


async def test_history_survives_a_change_of_leader(logs):
    first, second = logs
    async with following(first.path, second.path) as (history, stops, addresses):
        assert await history.poll()
        everything = names(history)
        assert everything[0] == ("Admit", "first")
        assert everything[-1][1] == "after"
        assert history.since("Any") == first.items[0].header.at
        assert not history.problem
        assert not await history.poll()
        # The former leader answers about its time, the new one about its own.
        for at, identity in ((first.now, "pod-1"), (second.now, "pod-2")):
            answer = msgspec.json.decode(await history.moment(at, []), type=MomentAnswer)
            assert answer.moment.identity == identity
        await stops[0]()
        assert await history.poll()
        assert "1 of 2 controllers cannot be read" in history.problem
        assert names(history) == everything
        addresses.pop(0)
        assert await history.poll()
        assert not history.problem
        assert names(history) == everything
        answer = msgspec.json.decode(await history.moment(first.now, []), type=MomentAnswer)
        assert answer.moment is None


async def test_stored_decisions_survive_a_restart(logs, tmp_path):
    first, second = logs
    path = tmp_path / "history.jsonl"
    async with following(first.path) as (history, _, _):
        history.file = HistoryFile(path, max_bytes=1 << 20)
        await history.load()
        await history.poll()
        await history.store()
        before = names(history)
        assert before
    assert path.stat().st_mode & 0o777 == 0o600
    # The process ended while it wrote, and the first replica is gone.
    with path.open("ab") as file:
        file.write(b'{"action":"Admit","uid":')
    async with following(second.path) as (history, _, _):
        history.file = HistoryFile(path, max_bytes=1 << 20)
        await history.load()
        assert names(history) == before
        await history.poll()
        await history.store()
        assert names(history)[: len(before)] == before
        assert names(history)[-1][1] == "after"
        both = names(history)
    # A log that is read again adds nothing.
    async with following(first.path, second.path) as (history, _, _):
        history.file = HistoryFile(path, max_bytes=1 << 20)
        await history.load()
        await history.poll()
        await history.store()
        assert names(history) == both
    assert len(path.read_bytes().splitlines()) == len(both)


async def test_file_of_decisions_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("console.history._MAX_BYTES_OF_KIND", 4_000)
    path, sizes = tmp_path / "history.jsonl", []
    history = History(file=HistoryFile(path, max_bytes=8_000))
    for number in range(400):
        history.add([decision(number, "Wait" if number % 2 else "Admit", request={"cpu": "1" * (number % 50)})])
        await history.store()
        sizes.append(path.stat().st_size)
    assert max(sizes) <= 16_000
    # Most times it is only appended to.
    assert 2 < sum(after < before for before, after in itertools.pairwise(sizes)) < 20
    # Of a larger file, the end is read.
    path.write_bytes(b"{}\n" * 10_000 + path.read_bytes())
    again = History(file=HistoryFile(path, max_bytes=8_000))
    await again.load()
    assert names(again) == names(history)
    await again.store()
    assert path.stat().st_size <= 8_000


async def test_decisions_are_stored_after_an_error(logs, tmp_path):
    first, _ = logs
    folder = tmp_path / "volume"
    async with following(first.path) as (history, _, _):
        history.file = HistoryFile(folder / "history.jsonl", max_bytes=1 << 20)
        await history.load()
        assert await history.poll()
        await history.store()
        folder.mkdir()
        await history.store()
        assert len((folder / "history.jsonl").read_bytes().splitlines()) == len(names(history))


async def test_new_decisions_are_read_once(logs):
    first, second = logs
    async with following(first.path) as (history, _, _):
        await history.poll()
        before = names(history)
        first.remove("uid-second")
        first.plan()
        first.write()
        assert await history.poll()
        assert names(history)[len(before) :] == [("Admit", "fourth")]
        assert not await history.poll()
        # A new pod with a known address is read from its beginning.
        first.path.write_bytes(second.path.read_bytes())
        await history.poll()
        await history.poll()
        assert names(history)[-1][1] == "after"


async def test_missing_permission_is_a_problem_and_no_failure(logs):
    async with following(logs[0].path, token="tenant") as (history, _, _):
        assert await history.poll()
        assert "403" in history.problem
        assert names(history) == []
        answer = msgspec.json.decode(await history.moment(logs[0].now, []), type=MomentAnswer)
        assert answer.moment is None
        assert "you may not list" in answer.problem


@pytest.mark.parametrize(
    ("statuses", "problem", "is_temporary"),
    [
        pytest.param((429, 404), "others are being replayed", True, id="busy"),
        pytest.param((404, None), "does not answer", True, id="unreachable"),
        pytest.param((404, 404), "no plan at that time", False, id="no-plan"),
    ],
)
async def test_moment_without_an_answer_is_temporary(statuses, problem, is_temporary, monkeypatch):
    texts = {429: "others are being replayed", 404: "no plan at that time"}
    history = new_history("http://localhost:1", None, ["127.0.0.1", "127.0.0.2"])
    answers = iter(statuses)

    async def get(self, address, path, seconds):
        status = next(answers)
        if status is None:
            raise UnreachableError("it does not answer")
        return status, msgspec.json.encode({"kind": "Status", "message": texts[status]})

    monkeypatch.setattr(History, "_get", get)
    answer = await history.moment(1, [])
    assert problem in msgspec.json.decode(answer, type=MomentAnswer).problem
    assert isinstance(answer, TemporaryAnswer) is is_temporary


async def test_replica_without_a_log_is_no_problem(tmp_path, logs):
    async with following(logs[0].path, tmp_path / "nothing") as (history, _, _):
        await history.poll()
        assert history.problem == ""


async def test_certificate_is_verified_by_the_name_of_the_service(tmp_path, logs):
    write_certificate(tmp_path / "serving")
    certificate = Certificate(tmp_path / "serving")
    certificate.refresh()
    async with (
        serve_endpoint(endpoint(logs[0].path), certificate, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession() as session,
    ):
        for host, ca, is_valid in (
            ("localhost", tmp_path / "serving" / "ca.crt", True),
            ("other.example", tmp_path / "serving" / "ca.crt", False),
            ("localhost", None, False),
        ):
            history = new_history(f"https://{host}:{port}", session, ["127.0.0.1"], ca=ca)
            await history.poll()
            assert bool(names(history)) is is_valid, (host, history.problem)


def test_tls_follows_the_file(tmp_path):
    write_certificate(tmp_path / "a")
    access = HistoryAccess("https://localhost:1", lambda: None, tmp_path / "a" / "ca.crt")
    first = access.tls()
    assert access.tls() is first
    assert first.verify_mode is ssl.CERT_REQUIRED
    write_certificate(tmp_path / "b")
    (tmp_path / "a" / "ca.crt").write_bytes((tmp_path / "b" / "ca.crt").read_bytes())
    assert access.tls() is not first


@pytest.mark.parametrize(
    "url", ["http://history.example:8445", "https://history.example", "history:8445", "https://h:1/path", "ftp://h:1"]
)
def test_address_without_encryption_or_port_is_refused(url):
    with pytest.raises(SettingsError, match="history-url"):
        parse_flags(["--history-url", url])
    assert parse_flags(["--history-url", "https://history.example:8445"]).history_url
