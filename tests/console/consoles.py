"""A console over the objects of files, with users and rights of the test's choice, and no API server."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp.test_utils import TestClient, TestServer

from console.__main__ import connect_parts
from console.analysis import Analyses
from console.history import History, MomentAnswer
from console.identity import Identity
from console.model import Model
from console.reader import Rights
from console.renders import Renders
from console.server import ConsoleServer
from console.settings import ConsoleSettings
from controller.api.visibility import RESOURCE
from controller.cli.input.offline import read_offline_state
from controller.cli.input.snapshot import ActiveConfiguration, ConfigurationSource
from controller.forecast.profiles import finished_runs
from controller.forecast.run_times import RunTimes
from controller.history.pages import Filters, read_page
from controller.kube.access_reviews import Permission, User
from tests.cli import manifests
from tests.cli.manifests import write
from tests.history.logs import moment_at

NOW = 1_790_000_000_000

OPERATOR = frozenset({("", RESOURCE), ("", "queues"), ("", "clusters")})


def tenant_of(*namespaces: str) -> frozenset[tuple[str, str]]:
    return frozenset((namespace, RESOURCE) for namespace in namespaces)


USERS = {"op": OPERATOR, "one": tenant_of("one"), "two": tenant_of("two"), "nothing": frozenset[tuple[str, str]]()}


def cluster(name: str, cpu: int = 4) -> dict[str, Any]:
    return manifests.cluster(name, {"cpu": str(cpu), "memory": "64Gi"})


def pending_job(namespace: str, name: str, queue: str, *, cpu: int = 8, **more: Any) -> dict[str, Any]:
    """Return a job that fits nowhere by default, so that it stays pending."""
    requests = {"cpu": str(cpu), "memory": "1Gi"}
    return manifests.job(name, requests, queue=queue, namespace=namespace, created="2026-09-01T00:00:00Z", **more)


@dataclass(slots=True)
class ScriptedAccess:
    """Knows users by token, and their permissions as namespace and resource."""

    users: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    reviews: list[tuple[str, Permission]] = field(default_factory=list)

    async def user(self, token: str) -> User | None:
        return self.known_user(token)

    def known_user(self, token: str) -> User | None:
        return User(token) if token in self.users else None

    async def may(self, user: User, permission: Permission) -> bool:
        self.reviews.append((user.username, permission))
        rights = self.users.get(user.username, frozenset())
        return ("", permission.resource) in rights or (permission.namespace, permission.resource) in rights


def new_model() -> Model:
    return Model(None, namespace="karmada-system", refresh_seconds=2)  # type: ignore[arg-type] # nothing is read


def model_of(folder: Path, *objects: dict[str, Any], now: int = NOW) -> Model:
    """Return the model of manifests, with the run times of the finished jobs in them."""
    offline = read_offline_state([write(folder, *objects)], now)
    model = new_model()
    model.store = offline.store
    model.configuration = ActiveConfiguration(offline.objects.configuration, ConfigurationSource.FILE)
    run_times = RunTimes()
    for _, profile, run in finished_runs(offline.store):
        run_times.record(profile, run)
    model.use_run_times(run_times)
    model.refresh(now)
    return model


class LoggedHistory(History):
    """The history of one log, with moments that are replayed here."""

    log: Path

    async def moment(self, at: int, focus: Iterable[str]) -> bytes:
        return msgspec.json.encode(MomentAnswer(moment_at(self.log, at, tuple(focus))))


def add_history(model: Model, log: Path) -> None:
    """Give *model* the history of a log."""
    model.history = LoggedHistory()
    model.history.log = log
    model.history.add(read_page(log, Filters(), None, 10_000).items)


@dataclass(slots=True)
class RunningConsole:
    """A console that answers requests."""

    client: TestClient
    access: ScriptedAccess
    renders: Renders
    server: ConsoleServer

    @property
    def origin(self) -> str:
        return str(self.client.make_url("/")).rstrip("/")

    async def get(self, path: str, token: str = "", **headers: str):
        own = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.client.get(path, headers={**own, **headers}, allow_redirects=False)

    async def status(self, path: str, token: str = "op", **headers: str) -> int:
        return (await self.get(path, token, **headers)).status

    async def text(self, path: str, token: str = "op") -> str:
        answer = await self.get(path, token)
        assert answer.status == 200, await answer.text()
        return await answer.text()

    async def data(self, path: str, token: str = "op") -> dict[str, Any]:
        """Return the data of a page when its analysis has ended."""
        async with asyncio.timeout(90):
            while True:
                answer = await self.get(f"/api/v1{path}", token)
                assert answer.status == 200, await answer.text()
                data = await answer.json()
                if data.get("analysis") != "Running":
                    return data
                await asyncio.sleep(0.1)

    async def post(self, path: str, origin: str | None, **form: str):
        """Send a form as a page of *origin*."""
        headers = {"Origin": origin} if origin else {}
        return await self.client.post(path, data=form, headers=headers, allow_redirects=False)


@asynccontextmanager
async def console_of(
    model: Model, users: Mapping[str, frozenset[tuple[str, str]]] = USERS, **settings: Any
) -> AsyncIterator[RunningConsole]:
    access = ScriptedAccess(dict(users))
    options = ConsoleSettings(**{"requests_per_second": 10_000, **settings})
    renders = Renders(model, Rights(access), Analyses(seconds=options.analysis_seconds))
    server = ConsoleServer(renders, Identity(access, options), options)
    connect_parts(model, renders, server)
    renders.invalidate()
    async with TestClient(TestServer(server.app)) as client:
        try:
            yield RunningConsole(client, access, renders, server)
        finally:
            server.stop()
            for task in list(renders.analyses._running.values()):
                task.cancel()
