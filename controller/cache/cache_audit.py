"""Whether a sink holds what the server had: an event that a watch lost in silence would be missed for ever.

Counts are compared after every watch, since a list of one object tells them;
versions seldom, and without the objects. What differs is said, and nothing
else done about it.
"""

import random
from collections.abc import Hashable
from typing import Protocol

import msgspec

from controller.cache.collection import Collection, Observation
from controller.cache.watch_events import read_meta
from controller.kube import Api, ApiError, Page

#: Every so many comparisons are by versions: about every ten minutes, with watches of 40 seconds.
_VERSION_CHECK_INTERVAL = 15


class CacheView(Protocol):
    """What a sink was told and has not been told otherwise since."""

    def __len__(self) -> int:
        """Return how many objects that are."""

    def version(self, namespace: str, name: str) -> int | None:
        """Return the resourceVersion of which an object is known."""


class CollectionView:
    """What a collection holds, by the names that the API server uses."""

    def __init__(self, collection: Collection[Observation[Hashable]]) -> None:
        self._collection = collection

    def __len__(self) -> int:
        return len(self._collection)

    def version(self, namespace: str, name: str) -> int | None:
        """Return the resourceVersion of which an object is known."""
        known = self._collection.get(self._collection.key(namespace, name))
        return None if known is None else known.resource_version


class CacheAudit:
    """Compares *holdings* with what the server had in *path* at one version, as long as it still knows."""

    def __init__(self, api: Api, path: str, holdings: CacheView, *, page: int = 500) -> None:
        self._api = api
        self._path = path
        self._holdings = holdings
        self._page = page
        # Several processes, and several kinds in one, are not to ask for much at the same time.
        self._turn = random.randrange(_VERSION_CHECK_INTERVAL)  # noqa: S311 -- spreads load, keeps no secret

    def holds(self, namespace: str, name: str) -> bool:
        """Say whether any state of that object is held."""
        return self._holdings.version(namespace, name) is not None

    async def difference(self, version: str, *, lacking: int) -> str | None:
        """Return what was missed up to *version*, ``None`` where nothing was or the server does not tell.

        *lacking* is how many objects could not be read and are not held as of an earlier time either.
        """
        self._turn = (self._turn + 1) % _VERSION_CHECK_INTERVAL
        try:
            count = await (self._count(version) if self._turn else self._checked(version))
        except (ApiError, msgspec.MsgspecError):
            return None  # an outage, or a version too old to ask about: no news about what is held
        except _MissedEventError as missed:
            return str(missed)
        held = len(self._holdings) + lacking
        return None if held == count else f"{held} objects are known where the server had {count}"

    async def _count(self, version: str) -> int:
        page = await self._read(version, limit=1)
        return len(page.items or ()) + page.metadata.remaining

    async def _checked(self, version: str) -> int:
        """Return the count after a look at every object's version."""
        count, token = 0, ""
        while True:
            page = await self._read(version, limit=self._page, token=token, metadata_only=True)
            for raw in page.items or ():
                self._check(bytes(raw))
            count += len(page.items or ())
            token = page.metadata.continue_token
            if not token:
                return count

    def _check(self, raw: bytes) -> None:
        meta = read_meta(raw)
        held = self._holdings.version(meta.namespace, meta.name)
        if held is not None and meta.resource_version.isdecimal() and held < int(meta.resource_version):
            raise _MissedEventError(f"{meta.path} is known as of {held}, and changed at {meta.resource_version}")

    async def _read(self, version: str, *, limit: int, token: str = "", metadata_only: bool = False) -> Page:
        asked = {} if token else {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        return await self._api.list_page(self._path, asked, limit=limit, token=token, metadata_only=metadata_only)


class _MissedEventError(Exception):
    """An object is known as of a version that it had before; the message says which."""
