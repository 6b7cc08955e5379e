"""Serves pages of the decision log, and the plan of a moment, to readers of all decisions.

Files are read and replayed in threads: this process decides nothing, so that nothing but its answers waits for them.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web

from controller.api.visibility import DECISIONS, DECISIONS_PATH, GROUP, MOMENT_PATH, Decisions
from controller.history.moment import find_plan, read_moment
from controller.history.pages import Filters, HistoryError, Position, read_page
from controller.kube.access_reviews import Access, Permission, RefusedError
from controller.visibility.https import Endpoint, required_token

#: Decisions in one answer.
MAX_ITEMS, _DEFAULT_ITEMS = 2_000, 500
#: Requests of one user: so many a second, and so many at once.
_REQUESTS_PER_SECOND, _BURST = 10.0, 30.0
#: Moments that are replayed or wait for it, and the answers that are cached, with their bytes.
_MAX_REPLAYS, _MAX_MOMENTS, _MAX_BYTES = 4, 32, 64 << 20
_MAX_FOCUS = 2
_PARAMETERS = frozenset({"queue", "namespace", "kind", "name", "action", "since", "until", "after", "limit"})
_NUMBER = re.compile(r"[0-9]{1,15}")
_NAME = re.compile(r"[A-Za-z0-9]([-.:A-Za-z0-9]{0,251}[A-Za-z0-9])?")


class HistoryEndpoint(Endpoint):
    """Answers requests about the decision log at *path*."""

    def __init__(
        self, access: Access, path: Path, *, replay_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(access, per_second=_REQUESTS_PER_SECOND, burst=_BURST, clock=clock)
        self._path = path
        self._replay_seconds = replay_seconds
        self.long_answer_seconds = _MAX_REPLAYS * replay_seconds
        self._replay_lock = asyncio.Lock()
        self._replays = 0
        self._moments: OrderedDict[object, bytes] = OrderedDict()

    async def answer(self, request: web.BaseRequest) -> Decisions | msgspec.Raw:
        """Return a page of decisions or a moment."""
        if request.path not in {DECISIONS_PATH, MOMENT_PATH} or request.method != "GET":
            raise RefusedError(404, "NotFound", f"only GET {DECISIONS_PATH} and {MOMENT_PATH} are served")
        user = await self.user(required_token(request))
        if not await self.access.may(user, Permission("list", DECISIONS)):
            text = (
                f"you may not list {DECISIONS} of {GROUP}; the role `volcano-global-console-operator` allows it. "
                "Tenants see their part of the decisions in the web console"
            )
            raise RefusedError(403, "Forbidden", text)
        try:
            if request.path == MOMENT_PATH:
                return msgspec.Raw(await self._moment(request))
            return await self._decisions(request)
        except HistoryError as error:
            raise RefusedError(404, "NotFound", str(error)) from error
        except ValueError as error:
            raise RefusedError(400, "BadRequest", str(error)) from error

    async def _decisions(self, request: web.BaseRequest) -> Decisions:
        query = request.query
        if unknown := set(query) - _PARAMETERS:
            raise ValueError(f"the parameters are {', '.join(sorted(_PARAMETERS))}, not {min(unknown)[:64]!r}")
        texts = {name: _name(query.get(name, "")) for name in ("queue", "namespace", "kind", "name", "action")}
        filters = Filters(**texts, since=_number(query.get("since", "0")), until=_number(query.get("until", "9" * 15)))
        after = Position.parse(query["after"]) if query.get("after") else None
        limit = _number(query.get("limit", str(_DEFAULT_ITEMS)))
        if not 1 <= limit <= MAX_ITEMS:
            raise ValueError(f"limit must be a number from 1 to {MAX_ITEMS}")
        return await asyncio.to_thread(read_page, self._path, filters, after, limit)

    async def _moment(self, request: web.BaseRequest) -> bytes:
        """Return a moment as JSON; one is replayed at a time."""
        query = request.query
        at, focus = _number(query.get("at", "")), frozenset(map(_name, query.getall("focus", [])))
        if set(query) - {"at", "focus"} or len(focus) > _MAX_FOCUS:
            raise ValueError(f"the parameters are `at` and at most {_MAX_FOCUS} times `focus`, the uid of a binding")
        if self._replays >= _MAX_REPLAYS:
            raise RefusedError(429, "TooManyRequests", "other moments are being replayed; try again in some seconds")
        self._replays += 1
        try:
            async with self._replay_lock:
                plan = await asyncio.to_thread(find_plan, self._path, at)
                moment = self._moments.get((plan, focus))
                if moment is None:
                    read = asyncio.to_thread(read_moment, self._path, plan, focus, seconds=self._replay_seconds)
                    moment = self._moments[plan, focus] = msgspec.json.encode(await read)
                while len(self._moments) > _MAX_MOMENTS or sum(map(len, self._moments.values())) > _MAX_BYTES:
                    self._moments.popitem(last=False)
                return moment
        finally:
            self._replays -= 1


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("times are milliseconds since 1970, and limit is a number")
    return int(text)


def _name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise ValueError("a name in the parameters is not valid")
    return text
