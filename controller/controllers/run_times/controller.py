"""Learns run times from observed ends, and stores them in a ConfigMap that commands read.

Only the leader learns. It writes at most once a minute, and nothing while nothing ends. A new leader reads what
the last one wrote and adds the workloads that finished since then.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NoReturn

import msgspec
import structlog

from controller.api.keys import CONFIG_MAPS, RUN_TIMES_KEY, RUN_TIMES_NAME
from controller.cache.objects import CachedBinding
from controller.cache.store import Store
from controller.engine.state.workloads import Workload
from controller.forecast.codec import RunTimesError, decode_config_map, encode_run_times
from controller.forecast.profiles import ended_run, finished_runs, with_run_time
from controller.forecast.run_times import JobProfile, Outcome, Run, RunTimes
from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from controller.kube.timing import Backoff, Clock

#: Least time between two writes, in seconds: an object of up to 256 KiB, and forecasts need no newer one.
WRITE_INTERVAL_SECONDS = 60.0

#: Interval at which a standby looks whether it leads, and a leader whether its cache is complete, in seconds.
_POLL_SECONDS = 1.0

#: Ended runs that wait to be learned, together once a minute: each one makes all expected run times outdated. Of more
#: than so many the older ones are dropped.
_MAX_UNREAD = 1_000

_FIELD_MANAGER = "volcano-global-run-times"

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class RunTimesController:
    """Learns and stores run times while ``run`` is running."""

    def __init__(self, api: Api, store: Store, namespace: str, *, may_write: Callable[[], bool], clock: Clock) -> None:
        self.write_interval_seconds = WRITE_INTERVAL_SECONDS
        self._api = api
        self._store = store
        self._path = CONFIG_MAPS.item_path(namespace, RUN_TIMES_NAME)
        self._namespace = namespace
        self._may_write = may_write
        self._clock = clock
        self._run_times: RunTimes | None = None
        """``None`` until they are read, and while another process leads."""
        self._ended: deque[tuple[JobProfile, Run]] = deque(maxlen=_MAX_UNREAD)
        """Ended runs that are not learned yet."""
        self._is_stored = True
        """Whether the ConfigMap has everything that was learned."""
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=1, maximum=60)

    def on_binding(self, before: CachedBinding | None, after: CachedBinding | None) -> None:
        """Learn the run that ended with this change, if any, where this process leads."""
        if not self._may_write():
            return
        ended = ended_run(self._store, before, after, self._clock())
        if ended is not None:
            self._ended.append(ended)
            self._wake.set()

    def with_run_time(self, workload: Workload) -> Workload:
        """Return *workload* with its expected run time, where it is known."""
        return workload if self._run_times is None else with_run_time(self._store, self._run_times, workload)

    def on_leading(self) -> None:
        """Read what the last leader stored."""
        self._run_times = None
        self._wake.set()

    async def run(self) -> NoReturn:
        """Learn and store until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._may_write():
                self._run_times = None
                self._ended.clear()
                continue
            if not self._store.is_complete:
                self._wake.set()
                await asyncio.sleep(_POLL_SECONDS)
                continue
            try:
                has_written = await self._learn_and_store()
            except ApiError as error:
                delay = self._backoff.next_delay(at_least=error.retry_after)
                log.warning("run times not stored", path=self._path, error=str(error), again_in=round(delay, 1))
                self._wake.set()
                await asyncio.sleep(delay)
            else:
                self._backoff.reset()
                await asyncio.sleep(self.write_interval_seconds if has_written else 0)

    async def _learn_and_store(self) -> bool:
        """Learn what has ended; return whether it was written."""
        if self._run_times is None:
            self._run_times, until = await self._read()
            self._is_stored = True
            # From now on run times are known, at least those that users estimate.
            self._store.mark_all_changed()
            # The cache has all finished workloads, so those observed meanwhile are not counted twice.
            evicted = [ended for ended in self._ended if ended[1].outcome is Outcome.EVICTED]
            finished = [(profile, run) for _, profile, run in finished_runs(self._store, after=until)]
            self._ended = deque([*finished, *evicted], _MAX_UNREAD)
        run_times = self._run_times
        knew_all = run_times.knows_all
        while self._ended:
            run_times.record(*self._ended.popleft())
            self._is_stored = False
        if run_times.knows_all and not knew_all:
            self._store.mark_all_changed()
        if self._is_stored or not self._may_write():
            return False
        await self._write(encode_run_times(run_times, self._clock()))
        self._is_stored = True
        return True

    async def _read(self) -> tuple[RunTimes, int]:
        """Return the stored run times; none where there is no ConfigMap, or an unreadable one, which is replaced."""
        try:
            return decode_config_map(await self._api.get(self._path))
        except NotFound:
            return RunTimes(), 0
        except RunTimesError as error:
            log.warning("stored run times unreadable, learning again", path=self._path, error=str(error))
            return RunTimes(), 0

    async def _write(self, document: bytes) -> None:
        manifest = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": RUN_TIMES_NAME, "namespace": self._namespace},
            "data": {RUN_TIMES_KEY: document.decode()},
        }
        await self._api.apply(self._path, msgspec.json.encode(manifest), field_manager=_FIELD_MANAGER)
        log.debug("run times stored", path=self._path, bytes=len(document))
