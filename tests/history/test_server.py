"""The history endpoint: permissions, limits and invalid requests."""

import time
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from controller.api.flags import SettingsError
from controller.api.visibility import DECISIONS_PATH, MOMENT_PATH
from controller.history import server
from controller.history.moment import read_moment
from controller.history.server import HistoryEndpoint
from controller.history.settings import parse_flags
from controller.kube.access_reviews import Access
from controller.visibility import https
from controller.visibility.https import serve_endpoint
from tests.history.logs import two_queues
from tests.virtual_time import Clock


class Reviews:
    """An API server that knows tokens, and who may list decisions."""

    def __init__(self, readers) -> None:
        self.readers = readers
        self.asked = []

    async def create(self, path: str, body: bytes) -> bytes:
        spec = msgspec.json.decode(body)["spec"]
        self.asked.append((path.rpartition("/")[2], spec))
        if "token" in spec:
            known = spec["token"] in {"operator", "tenant"}
            return msgspec.json.encode({"status": {"authenticated": known, "user": {"username": spec["token"]}}})
        return msgspec.json.encode({"status": {"allowed": spec["user"] in self.readers}})


@asynccontextmanager
async def served(tmp_path, *, clock=None):
    """Yield a function that asks the endpoint, the reviews and the clock."""
    log, clock = two_queues(tmp_path / "log"), clock or Clock()
    reviews = Reviews({"operator"})
    history = HistoryEndpoint(Access(reviews, clock=clock), log.path, replay_seconds=30, clock=clock)

    async def ask(path=DECISIONS_PATH, token="operator", method="GET", **options):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"http://127.0.0.1:{port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, **options) as answer,
        ):
            return answer.status, await answer.json()

    async with serve_endpoint(history, None, host="127.0.0.1", port=0) as port:
        yield ask, reviews, clock, log


async def test_reader_of_decisions_gets_pages_and_moments(tmp_path):
    async with served(tmp_path) as (ask, reviews, _, log):
        status, page = await ask(f"{DECISIONS_PATH}?limit=2")
        assert (status, page["kind"], len(page["items"]), page["isComplete"]) == (200, "DecisionList", 2, False)
        status, rest = await ask(f"{DECISIONS_PATH}?after={page['position']}")
        assert (status, rest["isComplete"]) == (200, True)
        assert rest["items"][-1]["at"] == log.now
        status, moment = await ask(f"{MOMENT_PATH}?at={log.now}&focus=uid-other")
        assert (status, moment["plan"]) == (200, 3)
        asked = next(spec for kind, spec in reviews.asked if kind == "subjectaccessreviews")
        assert asked["resourceAttributes"] == {
            "verb": "list",
            "group": "visibility.volcano-global.io",
            "resource": "decisions",
        }


@pytest.mark.parametrize(("token", "status"), [("", 401), ("unknown", 401), ("tenant", 403)])
async def test_others_get_nothing(tmp_path, token, status):
    async with served(tmp_path) as (ask, _, _, _):
        for path in (DECISIONS_PATH, f"{DECISIONS_PATH}?namespace=two&name=other", f"{MOMENT_PATH}?at=1"):
            answer = await ask(path, token)
            assert answer[0] == status
            assert "other" not in answer[1]["message"].replace("other requests", "")


async def test_permission_that_ends_closes_it_within_a_minute(tmp_path):
    async with served(tmp_path) as (ask, reviews, clock, _):
        assert (await ask())[0] == 200
        reviews.readers.clear()
        clock.now += 31
        assert (await ask())[0] == 403


LONG_NAME = "a" * 300


@pytest.mark.parametrize(
    "query",
    [
        *(f"{DECISIONS_PATH}?{query}" for query in ("limit=0", "limit=2001", "limit=x", "since=-1", "after=1")),
        *(f"{DECISIONS_PATH}?{query}" for query in ("until=2026-11-23", "name=%00", "queue=a%20b", "page=2")),
        f"{DECISIONS_PATH}?name={LONG_NAME}",
        *(f"{MOMENT_PATH}?{query}" for query in ("", "at=x", "at=1&focus=a&focus=b&focus=c", "at=1&focus=%2F")),
        f"{MOMENT_PATH}?at=1&queue=a",
    ],
)
async def test_invalid_parameters_are_refused(tmp_path, query):
    async with served(tmp_path) as (ask, _, _, _):
        status, body = await ask(query)
        assert (status, body["reason"]) == (400, "BadRequest")


async def test_only_reads_are_served(tmp_path):
    async with served(tmp_path) as (ask, _, _, _):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await ask(method=method))[0] == 404
        assert (await ask("/metrics"))[0] == 404
        assert (await ask(data=b"x"))[0] == 400
        assert (await ask(f"{MOMENT_PATH}?at=1"))[0] == 404


async def test_connection_stays_open_for_a_long_replay(tmp_path, monkeypatch):
    def replay_slowly(*arguments, **options):
        time.sleep(0.6)
        return read_moment(*arguments, **options)

    monkeypatch.setattr(https, "_CONNECTION_SECONDS", 0.2)
    monkeypatch.setattr(server, "read_moment", replay_slowly)
    async with served(tmp_path) as (ask, _, _, log):
        assert (await ask(f"{MOMENT_PATH}?at={log.now}"))[0] == 200


async def test_cached_moments_are_bounded_in_bytes(tmp_path, monkeypatch):
    replays = []

    def replay(*arguments, **options):
        replays.append(arguments[2])
        return read_moment(*arguments, **options)

    monkeypatch.setattr(server, "read_moment", replay)
    async with served(tmp_path) as (ask, _, _, log):
        paths = [f"{MOMENT_PATH}?at={log.now}&focus={focus}" for focus in ("a", "b")]
        assert [await ask(path) for path in paths] == [await ask(path) for path in paths]
        assert len(replays) == 2
        monkeypatch.setattr(server, "_MAX_BYTES", 1)
        assert (await ask(paths[0]))[1]["plan"] == 3
        assert [(await ask(path))[0] for path in paths] == [200, 200]
        assert len(replays) == 4


async def test_requests_of_one_user_are_limited(tmp_path):
    async with served(tmp_path) as (ask, _, _, _):
        statuses = [(await ask(f"{DECISIONS_PATH}?limit=1"))[0] for _ in range(35)]
        assert statuses == [200] * 30 + [429] * 5


def test_missing_flag_is_named():
    with pytest.raises(SettingsError, match=r"^--decision-log: Field required$"):
        parse_flags([])


def test_other_addresses_require_a_certificate():
    with pytest.raises(SettingsError, match="certificate-directory"):
        parse_flags(["--decision-log", "/tmp/log", "--host", "0.0.0.0"])
    assert parse_flags(["--decision-log", "/tmp/log"]).port == 8445
