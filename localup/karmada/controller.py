"""Base of the controllers: a work queue of keys with exponential backoff; a key does not say what changed."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from controller.controllers.data_sources import work_queue
from controller.kube.errors import ApiError, Conflict, NotFound
from controller.kube.timing import Backoff
from localup.karmada.cache import ControlPlaneCache, Store
from localup.karmada.objects import Key, Object, is_terminating, key_of
from localup.karmada.workloads import TemplateError

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger()


class RetryError(Exception):
    """The key must be retried later."""


class WorkQueue(Generic[K]):
    """Work queue of one controller with its reconciler; *jitter* randomises the backoff after errors."""

    def __init__(
        self, name: str, reconcile: Callable[[K], Awaitable[None]], jitter: Callable[[], float] = random.random
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._jitter = jitter
        self._keys = work_queue.WorkQueue[K]()
        self._backoffs: dict[K, Backoff] = {}

    def add(self, key: K, *, seconds: float = 0) -> None:
        """Queue *key*, or let it be due after *seconds*, unless it is due earlier already."""
        self._keys.add(key, seconds=seconds)

    async def serve(self, workers: int) -> None:
        """Process keys with *workers* concurrent workers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(workers):
                tasks.create_task(work_queue.run_worker(self._keys, self._process))

    async def _process(self, key: K) -> None:
        try:
            await self._reconcile(key)
        except (Conflict, NotFound, RetryError) as error:
            self._retry(key, error, log.debug)
        except (ApiError, TemplateError) as error:
            self._retry(key, error, log.warning)
        except Exception as error:  # noqa: BLE001 -- outer guard: one invalid object must not block others
            self._retry(key, error, log.exception)
        else:
            self._backoffs.pop(key, None)

    def _retry(self, key: K, error: Exception, log_method: Callable[..., object]) -> None:
        backoff = self._backoffs.setdefault(key, Backoff(initial=0.05, maximum=10, jitter=self._jitter))
        delay = backoff.next_delay()
        log_method("retry scheduled", part=self.name, key=str(key), error=str(error), after=round(delay, 2))
        self.add(key, seconds=delay)


class Controller(Generic[K]):
    """Reconciles keys of its queue."""

    def __init__(self, cache: ControlPlaneCache) -> None:
        self.cache = cache
        self.queue = self.new_queue(type(self).__name__, self.reconcile)

    def new_queue(self, name: str, reconcile: Callable[[K], Awaitable[None]]) -> WorkQueue[K]:
        """Return a work queue with the random numbers of the stand-in."""
        return WorkQueue(name, reconcile, self.cache.random.random)

    @property
    def queues(self) -> list[WorkQueue[K]]:
        """All work queues of the controller."""
        return [self.queue]

    async def reconcile(self, key: K) -> None:
        """Make the actual state of *key* equal to the desired one."""
        raise NotImplementedError


class ObjectController(Controller[Key]):
    """Reconciles the objects of one store that exist and are not being deleted."""

    def __init__(self, cache: ControlPlaneCache, store: Store) -> None:
        super().__init__(cache)
        self.store = store
        store.add_event_handler(self._object_changed)

    def _object_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and self.concerns(old, new):
            self.queue.add(key_of(new))

    def concerns(self, _: Object | None, __: Object) -> bool:
        """Return whether an addition or update must be reconciled."""
        return True

    async def reconcile(self, key: Key) -> None:
        """Reconcile the object with *key*."""
        item = self.store.get(key)
        if item is not None and not is_terminating(item):
            await self.reconcile_object(item)

    async def reconcile_object(self, item: Object) -> None:
        """Reconcile *item*, which is not being deleted."""
        raise NotImplementedError
