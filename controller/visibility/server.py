"""Serves the workloads of a namespace to its readers over HTTPS; only the leader answers, others say so.

Callers are tenants: answers have a bounded number of workloads.
"""

import asyncio
import re
import time
from collections.abc import Callable

from aiohttp import web

from controller.api.visibility import VisibleWorkloads, namespace_path
from controller.engine.engine import Engine
from controller.kube.access_reviews import Access, RefusedError
from controller.visibility.https import Endpoint, required_token
from controller.visibility.report import describe, queues_of, workloads_of
from controller.visibility.scan import Scanner

#: Workloads in one answer.
MAX_ITEMS = 500

#: Requests of one user: so many a second, and so many at once.
_REQUESTS_PER_SECOND, _BURST = 5.0, 10.0
#: Workloads that are described without a pause for decisions.
_SLICE = 10

_PATH = re.compile(namespace_path(r"(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)"))
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class Visibility(Endpoint):
    """Answers requests."""

    def __init__(
        self,
        access: Access,
        engine: Callable[[], Engine],
        *,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(access, per_second=_REQUESTS_PER_SECOND, burst=_BURST, clock=clock)
        self._engine = engine
        self._leads = leads
        self._scanner = Scanner(clock)

    async def answer(self, request: web.BaseRequest) -> VisibleWorkloads:
        """Return the workloads of one namespace."""
        token, namespace, kind, name = _parse(request)
        await self.user(token)
        await self.access.require(token, namespace, "get" if name else "list")
        state = self._engine()
        if not self._leads() or state.queue_shares is None:
            text = (
                "this replica is not the leader, or has made no plan yet; try again: each connection may reach another"
            )
            raise RefusedError(503, "ServiceUnavailable", text)
        scan = await self._scanner.scan(state)
        chosen = workloads_of(state, scan.in_order(state, namespace), kind=kind, name=name)
        items = []
        for number, workload in enumerate(chosen[:MAX_ITEMS]):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if state.workloads.get(workload.uid) is workload:
                items.append(describe(state, workload, scan))
        items.sort(key=lambda item: (item.position is None, item.queue, item.position or 0, item.name))
        remaining = max(len(chosen) - MAX_ITEMS, 0)
        usage = scan.usage.get(namespace, {})
        shown = {item.queue for item in items} if name else set(usage)
        queues = queues_of(state, {queue: own for queue, own in usage.items() if queue in shown})
        return VisibleWorkloads(namespace, tuple(items), remaining, tuple(queues))


def _parse(request: web.BaseRequest) -> tuple[str, str, str, str]:
    """Return token, namespace, kind and name of a request; raise `RefusedError`."""
    path = _PATH.fullmatch(request.path)
    if path is None or request.method != "GET":
        raise RefusedError(404, "NotFound", f"only GET {namespace_path('NAMESPACE')} is served")
    kind, name = request.query.get("kind", ""), request.query.get("name", "")
    token = required_token(request)
    if (name and not _NAME.fullmatch(name)) or (kind and not _KIND.fullmatch(kind)):
        raise RefusedError(400, "BadRequest", "the name or the kind is not valid; write a kind like Job")
    return token, path["namespace"], kind, name
