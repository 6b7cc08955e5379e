"""An API server whose jobs and bindings are generated when they are listed, so that a million need no memory.

Lists and watches of them are served here; everything else, and each object that is written, is in the in-memory API
server of the deterministic tests.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec
import yaml
from aiohttp import web

from controller.api.keys import CLUSTERS, JOBS, PRIORITY_CLASSES, QUEUES, RESOURCE_BINDINGS
from controller.cache.translate.units import format_resources
from tests.benchmarks.generated_objects import NAMESPACES, VERSION, Collection, GeneratedState, Manifest
from tests.benchmarks.seed import cluster_manifest, completed
from tests.deterministic import kinds
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.objects import Kind
from tests.deterministic.parsing import Request
from tests.deterministic.watches import Watch

BOOKMARK_SECONDS = 10
_JSON = "application/json"
_TENANTS = [f"team-{number}" for number in range(NAMESPACES)]
_WATCH_SECONDS = 1800
#: Fields of all objects are known to be valid: ownership, which only server-side apply needs, is not tracked.
_KINDS = [replace(kind, owners=False) for kind in kinds.SYSTEM]
_KIND_AT = {f"/{'apis' if kind.group else 'api'}/{kind.api_version}/{kind.plural}": kind for kind in _KINDS}


class StreamingServer:
    """Serves a generated state over HTTP."""

    def __init__(self, state: GeneratedState) -> None:
        uids = count(1)
        self.server = ApiServer(
            _KINDS,
            now=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            uid=lambda: f"00000000-0000-4000-9000-{next(uids):012x}",
            version=VERSION,
        )
        self.port = 0
        self.requests = 0
        self._state = state
        self._capacities = state.capacities()
        self._collections: Mapping[Kind, Collection] = {
            _KIND_AT[RESOURCE_BINDINGS.path]: state.bindings,
            _KIND_AT[JOBS.path]: state.jobs,
        }
        self._store()

    def _store(self) -> None:
        """Store everything that is not generated."""
        for name in (*_TENANTS, "karmada-system", "default"):
            self.write("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for manifest in self._state.manifests():
            self.write("POST", (QUEUES if manifest["kind"] == QUEUES.kind else PRIORITY_CLASSES).path, manifest)
        for number, capacity in enumerate(self._capacities):
            self.write("POST", CLUSTERS.path, cluster_manifest(f"m{number}", format_resources(capacity)))
            self._publish_capacity(number)

    def add_capacity(self, number: int, count: int = 1) -> None:
        """Add capacity for *count* workloads of the first shape to the cluster with this number."""
        capacity = self._capacities[number]
        for name, amount in self._state.shapes[0].items():
            capacity[name] += count * amount
        self._publish_capacity(number)

    def _publish_capacity(self, number: int) -> None:
        status = cluster_manifest(f"m{number}", format_resources(self._capacities[number]))["status"]
        self.write("PATCH", f"{CLUSTERS.path}/m{number}/status", {"status": status})

    def finish(self, index: int) -> None:
        """Report that the admitted workload with *index* has completed."""
        path = RESOURCE_BINDINGS.item_path(*self._state.bindings.key(index))
        self._adopt(path)
        cluster = f"m{index % self._state.size.clusters}"
        self.write("PATCH", f"{path}/status", {"status": completed(cluster)})

    def write(self, method: str, path: str, body: Manifest) -> Manifest:
        """Write one object and return it; raise ``ValueError`` if it is rejected."""
        kind = "application/json" if method == "POST" else "application/merge-patch+json"
        response = self.server.handle(Request(method, path, {}, json.dumps(body).encode(), kind))
        if response.status >= 400:
            raise ValueError(f"{method} {path}: {response.body}")
        return response.body

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.requests += 1
        is_watch = request.query.get("watch") in {"true", "1"}
        metadata_only = "PartialObjectMetadataList" in request.headers.get("Accept", "")
        kind = _KIND_AT.get(request.path)
        # No generated object has the labels of a selector.
        is_list = request.method == "GET" and not is_watch and "labelSelector" not in request.query
        if kind in self._collections and is_list:
            body = self._page(kind, request.query, metadata_only=metadata_only)
            return web.Response(body=body, content_type=_JSON)
        self._adopt(request.path)
        response = self.server.handle(
            Request(
                request.method,
                request.path,
                dict(request.query),
                await request.read(),
                request.content_type,
                metadata_only,
                request.headers.get("User-Agent", "unknown"),
            )
        )
        if response.watch is not None:
            return await self._stream(request, response.watch)
        return web.Response(body=msgspec.json.encode(response.body), status=response.status, content_type=_JSON)

    def _adopt(self, path: str) -> None:
        """Store the generated object at *path*, because it is read or written."""
        target = self.server.target(path)
        if target is None or not target.name or target.kind not in self._collections:
            return
        if target.key in self.server.objects(target.kind):
            return
        objects = self._collections[target.kind]
        index = objects.index(*target.key)
        if index is not None:
            self.server.adopt(target.kind, target.key, json.loads(objects.make(index)))

    def _page(self, kind: Kind, query: Mapping[str, str], *, metadata_only: bool) -> bytes:
        """Return one page of generated objects; those that were written are in their present state."""
        objects = self._collections[kind]
        version, _, first = query.get("continue", f"{self.server.version}:0").partition(":")
        start, limit = int(first), int(query.get("limit", 0)) or objects.count
        end = min(start + limit, objects.count)
        written = self.server.objects(kind)
        items = [
            msgspec.json.encode(written[objects.key(index)])
            if written and objects.key(index) in written
            else objects.make(index)
            for index in range(start, end)
        ]
        if metadata_only:
            items = [msgspec.json.encode({"metadata": msgspec.json.decode(item)["metadata"]}) for item in items]
        left = objects.count - end
        metadata = {"resourceVersion": version}
        if left:
            metadata |= {"continue": f"{version}:{end}", "remainingItemCount": left}
        head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
        return b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], b",".join(items))

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        """Send the events of *watch* until its timeout."""
        wake = asyncio.Event()
        watch.notify = wake.set
        answer = web.StreamResponse(headers={"Content-Type": _JSON})
        await answer.prepare(request)
        now = asyncio.get_running_loop().time
        ends_at = now() + float(request.query.get("timeoutSeconds", _WATCH_SECONDS))
        # A client that has gone ends the stream.
        with contextlib.suppress(ConnectionResetError):
            while True:
                wake.clear()
                for event in watch.take():
                    await answer.write(msgspec.json.encode(event) + b"\n")
                if watch.ended or now() >= ends_at:
                    break
                try:
                    async with asyncio.timeout(min(BOOKMARK_SECONDS, ends_at - now())):
                        await wake.wait()
                except TimeoutError:
                    self.server.send_bookmarks(watch)
        self.server.end_watch(watch)
        return answer

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server and return its path."""
        names = {"cluster": "streaming", "user": "streaming"}
        document = {
            "current-context": "streaming",
            "contexts": [{"name": "streaming", "context": names}],
            "clusters": [{"name": "streaming", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "streaming", "user": {"token": "unused"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path


@asynccontextmanager
async def serving(state: GeneratedState) -> AsyncIterator[StreamingServer]:
    """Serve *state* on a free port while the block runs."""
    server = StreamingServer(state)
    runner = web.ServerRunner(web.Server(server.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()
