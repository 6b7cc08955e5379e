"""Lists and watches of the in-memory API server."""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass

from tests.deterministic import statuses
from tests.deterministic.objects import Key, Object, list_item
from tests.deterministic.parsing import Request, continue_token, read_continue_token, selection
from tests.deterministic.storage import Storage
from tests.deterministic.validation import Target
from tests.deterministic.watches import Change, Watch

_TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True)
class Response:
    status: int
    body: Object
    watch: Watch | None = None
    """Where the events of a watch arrive."""


class Reader(Storage):
    """Reads collections, from the storage or from its history."""

    def list_objects(self, request: Request, target: Target) -> Response:
        kind, query = target.kind, request.query
        matches = selection(query)
        limit = int(query.get("limit", 0))
        version, start = self._list_position(query)
        objects = self.objects_at(kind, self.version if version < 0 else version)
        chosen = sorted(key for key in objects if (not target.namespace or key[0] == target.namespace) and key > start)
        page = [key for key in chosen if matches(objects[key])]
        left = 0
        if limit and len(page) >= limit:
            page = page[:limit]
            left = len(chosen) - chosen.index(page[-1]) - 1
        shown = self.version if version < 0 else version
        metadata: Object = {"resourceVersion": str(shown)}
        if not kind.builtin and not request.metadata_only:
            metadata["continue"] = ""
        if left:
            metadata["continue"] = continue_token(shown, page[-1])
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = left
        items = [list_item(kind, objects[key], metadata_only=request.metadata_only) for key in page]
        if request.metadata_only:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        else:
            head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
        return Response(200, {**head, "metadata": metadata, "items": items})

    def _list_position(self, query: Mapping[str, str]) -> tuple[int, Key]:
        """Return the version to read (-1 for the newest), and the key to start after."""
        if token := query.get("continue"):
            version, start = read_continue_token(token)
            if 0 <= version < self.compacted:
                raise statuses.expired(_TOO_OLD_TOKEN, token=continue_token(-1, start))
            return version, start
        version = int(query.get("resourceVersion") or self.version)
        if version > self.version:
            raise statuses.version_too_large(version, self.version)
        if version < self.compacted:
            raise statuses.expired("The resourceVersion for the provided list is too old.")
        return version, ("", "")

    def watch(self, request: Request, target: Target) -> Response:
        query = request.query
        watch = Watch(target.kind, target.namespace, selection(query), query.get("allowWatchBookmarks") == "true")
        version = int(query.get("resourceVersion") or 0)
        if not version:
            for key in sorted(self._objects[target.kind]):
                obj = self._objects[target.kind][key]
                watch.observe(Change(self.version, target.kind, key, obj, None))
        elif version < self.compacted:
            why = f"too old resource version: {version} ({self.compacted})"
            if self.expires_as_status:
                raise statuses.expired(why)
            watch.end(statuses.expired(why).status)
            return Response(200, {}, watch)
        else:
            for change in self.changes[bisect.bisect_right(self.changes, version, key=_version_of) :]:
                watch.observe(change)
        self.watches.append(watch)
        return Response(200, {}, watch)


def _version_of(change: Change) -> int:
    return change.version
