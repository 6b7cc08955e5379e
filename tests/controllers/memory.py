"""An API server in memory and the product's client for it, whose requests are recorded and of which one may fail."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from controller.api.keys import Resource
from controller.kube.client import Api
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.network import Call, Network, NoFaults, Route
from tests.deterministic.objects import Kind
from tests.deterministic.processes import client
from tests.deterministic.reads import Response
from tests.deterministic.worlds import numbered_uids, request, timestamp


class Traffic(NoFaults):
    """Records the requests of a process, and breaks the connection of one write."""

    def __init__(self, *, is_instant: bool = False) -> None:
        self.is_instant = is_instant
        """Whether requests take no time."""
        self.requests: list[str] = []
        self.writes: list[str] = []
        self.fail_before: int | None = None
        """Number of the write that never arrives."""
        self.fail_after: int | None = None
        """Number of the write with a lost answer."""
        self.error: Callable[[Call], tuple[int, str] | None] = lambda _: None
        """Returns status and message of the error that answers a request, ``None`` for the server's own answer."""
        self.on_write: Callable[[], object] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    def on_request(self, call: Call, route: Route) -> None:
        number, text = len(self.writes), f"{call.request.method} {call.request.path}"
        self.requests.append(text)
        if self.is_instant:
            route.there = route.back = 0
        if error := self.error(call):
            status, message = error
            route.response = Response(status, {"kind": "Status", "code": status, "message": message})
        if call.is_write:
            self.writes.append(text)
            self.on_write()
            route.refused, route.reset = number == self.fail_before, number == self.fail_after
            if route.refused or route.reset:
                self.on_failure()


def memory_server(kinds: Iterable[Kind], clock: Callable[[], float]) -> ApiServer:
    """Return a server of these *kinds*; *clock* returns seconds since the start."""
    return ApiServer(kinds, now=lambda: timestamp(int(clock())), uid=numbered_uids())


class MemoryControlPlane:
    """An API server in memory, and what tests do as its administrators."""

    namespace = "ml"

    def __init__(self, kinds: Iterable[Kind], clock: Callable[[], float]) -> None:
        self.server = memory_server(kinds, clock)
        self.send("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def send(self, verb: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """Send a request and return the object; the body of a patch is merged."""
        response = self.server.handle(request(verb, path, body, "merge-patch" if verb == "PATCH" else kind))
        assert response.status < 400, response.body
        return response.body

    def folder(self, resource: Resource) -> str:
        """Return the path of a collection of the namespace."""
        return resource.item_path(self.namespace, "").rstrip("/")

    def path(self, resource: Resource, name: str) -> str:
        """Return the path of an object, which may be cluster-scoped."""
        return resource.item_path(self.namespace if resource.namespaced else "", name)

    def merge(self, resource: Resource, name: str, patch: Any) -> Any:
        """Change an object."""
        return self.send("PATCH", self.path(resource, name), patch)


def connect(server: ApiServer, traffic: Traffic) -> Api:
    """Return the product's client for *server*."""
    network = Network(server, random.Random(1), faults=traffic)
    return client(network, "controller", user_agent="volcano-global-controller")
