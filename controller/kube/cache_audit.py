"""Periodically compares a cache with the API server, to detect watch events that were silently lost.

Object counts are compared after every watch, with a list of one object; names and resource versions rarely, with a
metadata-only list. A list with a selector does not tell how many objects there are, so that only the rare comparison is
made. A difference is only reported.

A cached version that the server does not have, although it is no newer than the list, shows that the server's store was
restored from a backup and has since reached later versions than the cache.
"""

import random
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import msgspec

from controller.api.meta import Page
from controller.kube.client import NO_PARAMETERS, Api, Parameters
from controller.kube.collection import Collection
from controller.kube.errors import ApiError
from controller.kube.watch_events import read_meta

#: One of this many audits compares versions: about every ten minutes, with watches of 40 seconds.
_VERSION_CHECK_INTERVAL = 15


class CacheDifference(NamedTuple):
    """How the cache differs from the server."""

    message: str
    is_restored: bool = False
    """Whether the cache has a version that the server never had, or lost."""


class CacheAudit:
    """Compares a collection with the API server's list of *path* at one resourceVersion, while the server has it."""

    def __init__(
        self,
        api: Api,
        path: str,
        collection: Collection[Any],
        *,
        selectors: Parameters = NO_PARAMETERS,
        page: int = 500,
    ) -> None:
        self._api = api
        self._path = path
        self._collection = collection
        self._selectors = selectors
        self._page = page
        # A random start spreads the expensive audits over processes and kinds.
        self._audits = random.randrange(_VERSION_CHECK_INTERVAL)  # noqa: S311 -- spreads load, keeps no secret

    def contains(self, namespace: str, name: str) -> bool:
        """Whether the object is cached, in any version."""
        return self._version(namespace, name) is not None

    def _version(self, namespace: str, name: str) -> int | None:
        """Return the cached resourceVersion of an object, ``None`` if the object is not cached."""
        known = self._collection.get(self._collection.key(namespace, name))
        return None if known is None else known.resource_version

    async def find_difference(
        self, version: str, *, lacking: AbstractSet[tuple[str, str]] = frozenset()
    ) -> CacheDifference | None:
        """Return which events up to *version* were missed, ``None`` if none is known.

        Nothing is known if the server does not answer, and between the rare comparisons of a list with a selector.
        *lacking* has the objects that could not be read and are not cached in an earlier version either, by namespace
        and name.
        """
        self._audits = (self._audits + 1) % _VERSION_CHECK_INTERVAL
        if self._audits and self._selectors:
            return None
        try:
            count = await (self._count(version) if self._audits else self._count_and_check(version, lacking))
        except (ApiError, msgspec.MsgspecError):
            return None  # an outage, or the version has expired: nothing is known about the cache
        except _DifferenceError as error:
            return error.difference
        held = len(self._collection) + len(lacking)
        return None if held == count else CacheDifference(f"the cache has {held} objects, the server has {count}")

    async def _count(self, version: str) -> int:
        page = await self._read(version, limit=1)
        return len(page.items or ()) + page.metadata.remaining

    async def _count_and_check(self, version: str, lacking: AbstractSet[tuple[str, str]]) -> int:
        """Return the number of objects after checking that the cache has each in its version or a later one.

        Where a creation and a deletion were lost, the counts are equal.
        """
        count, token = 0, ""
        while True:
            page = await self._read(version, limit=self._page, token=token, metadata_only=True)
            for raw in page.items or ():
                self._check(bytes(raw), version, lacking)
            count += len(page.items or ())
            token = page.metadata.continue_token
            if not token:
                return count

    def _check(self, raw: bytes, version: str, lacking: AbstractSet[tuple[str, str]]) -> None:
        """Compare one object of the list at *version*."""
        meta = read_meta(raw)
        held, stored = self._version(meta.namespace, meta.name), meta.resource_version
        if held is None and (meta.namespace, meta.name) not in lacking:
            raise _DifferenceError(CacheDifference(f"{meta.path} is not cached, the server has it in version {stored}"))
        if held is None or not (stored.isdecimal() and version.isdecimal()):
            return
        # Responses to writes may be newer than the list.
        is_restored = int(stored) < held <= int(version)
        if held < int(stored) or is_restored:
            message = f"{meta.path} is cached in version {held}, the server has {stored}"
            raise _DifferenceError(CacheDifference(message, is_restored))

    async def _read(self, version: str, *, limit: int, token: str = "", metadata_only: bool = False) -> Page:
        asked = {} if token else {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        asked |= self._selectors
        return await self._api.list_page(self._path, asked, limit=limit, token=token, metadata_only=metadata_only)


class _DifferenceError(Exception):
    """An object is not cached, or in another version than the server's."""

    def __init__(self, difference: CacheDifference) -> None:
        super().__init__(difference.message)
        self.difference = difference
