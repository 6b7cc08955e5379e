"""Follows the decision logs of all controllers, and holds their newest decisions in memory and in a file.

Each replica has the decisions that it made as the leader; together they are the history, whichever leads now.
"""

import asyncio
import heapq
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import structlog
from yarl import URL

from console.analysis import TemporaryAnswer
from console.history_file import HistoryFile, encode
from controller.api.visibility import DECISIONS_PATH, MOMENT_PATH, Decisions, LoggedDecision, Moment
from controller.kube.errors import read_status
from controller.kube.kubeconfig import ApiServerAccess, client_context

#: Decisions in memory: changed pending reasons, and all others.
_MAX_WAITS, _MAX_DECIDED = 30_000, 20_000
#: Bytes of either as JSON, since a tenant may request many resources with long names.
_MAX_BYTES_OF_KIND = 32 << 20
MAX_BYTES = 2 * _MAX_BYTES_OF_KIND
#: Where older decisions were dropped for their bytes, at least this part is used: a decision has less than the rest.
_FULL = 0.9
#: Decisions in one answer, answers in one round for one replica, and replicas.
_PAGE, _PAGES, _MAX_REPLICAS = 2_000, 4, 16
#: Time for one answer, and for one with a replay, which may wait for another one.
_SECONDS, _MOMENT_SECONDS = 20.0, 150.0
_CONNECT = aiohttp.ClientTimeout(total=None, sock_connect=3)
_MAX_ERROR = 200
#: The same replica may answer otherwise a moment later.
_TEMPORARY = frozenset({429, 503})

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_AT = attrgetter("at")
Kind = Literal["Decided", "Wait", "Any"]


class UnreachableError(Exception):
    """A replica did not answer; the message says why."""


class MomentAnswer(msgspec.Struct, frozen=True):
    """One moment, or why there is none."""

    moment: Moment | None = None
    problem: str = ""


@dataclass(slots=True)
class Replica:
    """What was read from one controller."""

    position: str = ""
    since: int | None = None


@dataclass(slots=True)
class HistoryAccess:
    """Where the history endpoints are, and how the console presents itself."""

    url: str
    credentials: Callable[[], ApiServerAccess]
    ca: Path | None = None
    """CA certificates, read again when they change; ``None`` for those of the system."""
    _tls: tuple[str, ssl.SSLContext] | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return how a connection is verified, ``None`` for plain HTTP; raise ``OSError``."""
        if not self.url.startswith("https:"):
            return None
        pem = self.ca.read_text() if self.ca is not None else ""
        if self._tls is None or self._tls[0] != pem:
            self._tls = pem, client_context(pem=pem)
        return self._tls[1]


@dataclass(slots=True)
class History:
    """The newest decisions of all replicas, the oldest first; `on_update` handlers must not block."""

    access: HistoryAccess | None = None
    """``None`` where no history is served."""
    file: HistoryFile | None = None
    """``None`` where decisions are held in memory only."""
    on_update: list[Callable[[], None]] = field(default_factory=list)
    problem: str = ""
    """Why a part of the history is missing, empty if it is complete."""
    _decided: list[LoggedDecision] = field(default_factory=list)
    _waits: list[LoggedDecision] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Bytes of all decisions by key: a log may be read again, after its replica or the console was restarted."""
    _bytes: Counter[str] = field(default_factory=Counter)
    """Bytes of the decisions of each kind."""
    _not_stored: list[bytes] = field(default_factory=list)
    _replicas: dict[str, Replica] = field(default_factory=dict)
    _session: aiohttp.ClientSession | None = None

    @property
    def is_enabled(self) -> bool:
        """Return whether there is a history."""
        return self.access is not None or bool(self._decided)

    def since(self, kind: Kind) -> int | None:
        """Return when the oldest log begins, or the oldest decision in memory where older ones were dropped."""
        starts = [replica.since for replica in self._replicas.values() if replica.since is not None]
        if not starts:
            return None
        cut = [
            known[0].at
            for name, known, most in self._limited()
            if kind in {name, "Any"} and (len(known) == most or self._bytes[name] > _FULL * _MAX_BYTES_OF_KIND)
        ]
        return max([min(starts), *cut])

    def _limited(self) -> tuple[tuple[Kind, list[LoggedDecision], int], ...]:
        return ("Wait", self._waits, _MAX_WAITS), ("Decided", self._decided, _MAX_DECIDED)

    def add(self, decisions: Iterable[LoggedDecision]) -> None:
        """Add *decisions* that are not known yet; the oldest ones are dropped beyond the limits."""
        for decision in decisions:
            key = _key(decision)
            if key not in self._known:
                line = encode(decision)
                self._known[key] = len(line)
                self._bytes["Wait" if decision.action == "Wait" else "Decided"] += len(line)
                (self._waits if decision.action == "Wait" else self._decided).append(decision)
                if self.file is not None:
                    self._not_stored.append(line)
        for kind, known, most in self._limited():
            # Nearly sorted: only the answers of several replicas overlap.
            known.sort(key=_AT)
            dropped = 0
            while len(known) - dropped > most or self._bytes[kind] > _MAX_BYTES_OF_KIND:
                self._bytes[kind] -= self._known.pop(_key(known[dropped]))
                dropped += 1
            del known[:dropped]

    def newest_first(self, kind: Kind) -> Iterator[LoggedDecision]:
        """Yield decisions, the newest first: changed pending reasons, the others, or both."""
        chosen = [reversed(self._decided)] if kind != "Wait" else []
        chosen += [reversed(self._waits)] if kind != "Decided" else []
        yield from heapq.merge(*chosen, key=_AT, reverse=True)

    def of_workload(self, uid: str) -> list[LoggedDecision]:
        """Return the decisions about one workload, the oldest first."""
        # Of one plan the decision comes before the pending reason that follows from it.
        return sorted(
            (decision for known in (self._decided, self._waits) for decision in known if decision.uid == uid), key=_AT
        )

    # -- the file and the replicas ----------------------------------------------------------------

    async def run(self, *, seconds: float) -> NoReturn:
        """Read new decisions every *seconds*, until cancelled."""
        await self.load()
        async with aiohttp.ClientSession(trust_env=False) as session:
            self._session = session
            while True:
                if await self.poll():
                    for handler in self.on_update:
                        handler()
                await self.store()
                await asyncio.sleep(seconds)
        raise AssertionError("it runs until it is cancelled")

    async def load(self) -> None:
        """Add the decisions of an earlier console process."""
        if self.file is None:
            return
        try:
            self.add(await asyncio.to_thread(self.file.read))
        except OSError as error:
            log.warning("stored decisions not read", error=str(error))

    async def store(self) -> None:
        """Write new decisions to the file; after an error all of them are written again."""
        if self.file is None or not (self._not_stored or self.file.is_due(0)):
            return
        new, self._not_stored = self._not_stored, []
        try:
            if self.file.is_due(sum(map(len, new))):
                everything = sorted([*self._decided, *self._waits], key=_AT)
                await asyncio.to_thread(self.file.replace, everything)
            else:
                await asyncio.to_thread(self.file.append, new)
        except OSError as error:
            log.warning("decisions not stored", error=str(error), remedy="check the volume of --history-file")

    async def poll(self) -> bool:
        """Read what is new; return whether the pages change."""
        before, problems, changed = (self.problem, self.since("Any")), list[str](), False
        try:
            addresses = await self._addresses()
        except OSError as error:
            addresses = []
            problems.append(f"the controllers are not found: {error.strerror or type(error).__name__}")
        for gone in set(self._replicas) - set(addresses) if addresses else ():
            # Its decisions stay; another pod may get its address.
            del self._replicas[gone]
        for address in addresses:
            try:
                changed |= await self._follow(address)
            except UnreachableError as error:
                problems.append(str(error))
        if problems:
            count = f"{len(problems)} of {len(addresses)} controllers" if addresses else "the controllers"
            self.problem = f"the history of {count} cannot be read: {problems[0]}"
        else:
            self.problem = ""
        if self.problem and self.problem != before[0]:
            log.warning("history not read", reason=self.problem)
        return changed or (self.problem, self.since("Any")) != before

    async def _addresses(self) -> list[str]:
        if self.access is None:
            return []
        parts = urlsplit(self.access.url)
        entries = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
        return sorted({str(entry[4][0]) for entry in entries})[:_MAX_REPLICAS]

    async def _follow(self, address: str) -> bool:
        """Read what *address* has written; return whether there was something."""
        replica = self._replicas.setdefault(address, Replica())
        has_new = False
        for _ in range(_PAGES):
            query = {"limit": str(_PAGE), **({"after": replica.position} if replica.position else {})}
            status, body = await self._get(address, f"{DECISIONS_PATH}?{urlencode(query)}", _SECONDS)
            if status == 404:  # noqa: PLR2004 -- HTTP
                # It has no log yet.
                return has_new
            if status == 400:  # noqa: PLR2004 -- HTTP
                # The log is another one, of a new pod with this address.
                self._replicas[address] = Replica()
                return has_new
            try:
                if status != 200:  # noqa: PLR2004 -- HTTP
                    raise UnreachableError(f"it answers {status}: {read_status(body).message[:_MAX_ERROR]}")
                page = msgspec.json.decode(body, type=Decisions)
            except msgspec.MsgspecError as error:
                raise UnreachableError("its answer is not that of a history endpoint") from error
            self.add(page.items)
            replica.position, replica.since = page.position, page.since
            has_new |= bool(page.items)
            if page.is_complete:
                break
        return has_new

    async def moment(self, at: int, focus: Iterable[str]) -> bytes:
        """Return the `MomentAnswer` for the last plan at or before *at* of any replica.

        Where no replica has one and one of them may answer otherwise in some seconds, it is a `TemporaryAnswer`.
        """
        query = urlencode([("at", str(at)), *(("focus", uid) for uid in focus)])
        newest: Moment | None = None
        problem, is_temporary = "no controller has a decision log that reaches back to this time", False
        try:
            addresses = await self._addresses()
        except OSError:
            addresses, problem, is_temporary = [], "the controllers are not found", True
        for address in addresses:
            try:
                status, body = await self._get(address, f"{MOMENT_PATH}?{query}", _MOMENT_SECONDS)
                if status == 200:  # noqa: PLR2004 -- HTTP
                    moment = msgspec.json.decode(body, type=Moment)
                    newest = moment if newest is None or moment.at > newest.at else newest
                elif not is_temporary or status in _TEMPORARY:
                    problem, is_temporary = read_status(body).message[:_MAX_ERROR], status in _TEMPORARY
            except (UnreachableError, msgspec.MsgspecError):
                problem, is_temporary = "a controller that may have this time in its log does not answer", True
        answer = msgspec.json.encode(MomentAnswer(newest, "" if newest is not None else problem))
        return TemporaryAnswer(answer) if newest is None and is_temporary else answer

    async def _get(self, address: str, path: str, seconds: float) -> tuple[int, bytes]:
        if self.access is None or self._session is None:
            raise UnreachableError("no history is served")
        parts = urlsplit(self.access.url)
        host = f"[{address}]" if ":" in address else address
        url = URL(f"{parts.scheme}://{host}:{parts.port}{path}", encoded=True)
        headers = {"Authorization": self.access.credentials().authorization or ""}
        try:
            tls = self.access.tls()
            name = parts.hostname if tls is not None else None
            request = self._session.get(
                url, headers=headers, timeout=_CONNECT, allow_redirects=False, ssl=tls or True, server_hostname=name
            )
            async with asyncio.timeout(seconds), request as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreachableError(f"it does not answer ({type(error).__name__})") from error


def _key(decision: LoggedDecision) -> tuple[object, ...]:
    """Return the key of a decision: a plan has at most one about a workload for each action and reason."""
    return decision.at, decision.uid, decision.action, decision.plan, decision.reason
