"""The whole system in one process: an API server in memory, two controllers, the webhook and Karmada's stand-in.

Tenants, operators and clusters act on it through operations (`tests.deterministic.operations`).
"""

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.deterministic import kinds
from tests.deterministic.admission import AdmissionChain
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.clock import EPOCH
from tests.deterministic.network import Call, Network
from tests.deterministic.objects import Kind, Object, path_of
from tests.deterministic.processes import WebhookProcess, controller_process, karmada_process
from tests.deterministic.reads import Response
from tests.deterministic.watches import Change
from tests.deterministic.worlds import deletions_of_orphans, numbered_uids, request, timestamp
from tests.rig import audit

ROOT = Path(__file__).parents[2]
NAMESPACE = "team"
DATA_SYSTEM = "lake"
LOCATIONS: Mapping[str, Sequence[str]] = {
    "only-member1": ("member1",),
    "only-member2": ("member2",),
    "only-member3": ("member3",),
    "moving": ("member1", "member2"),
}
"""Data sets of the data system with the clusters that hold them."""
_CONFIGURATION = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"
_MAINTENANCE_SECONDS = 5
_EVENT_SECONDS = 600
"""Kubernetes events are deleted after this time."""
_HISTORY_SECONDS = 300
"""The server forgets older changes, as with the default compaction of etcd."""
_USERS = {"volcano-global-controller", "volcano-global-hyperjobs"}


class System:
    """All processes and their environment; *folder* holds the configuration file."""

    def __init__(self, seed: int, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.random = random.Random(seed)
        self.server = ApiServer(kinds.SYSTEM, now=self.timestamp, uid=numbered_uids())
        self.network = Network(self.server, random.Random(self.random.getrandbits(64)))
        self.configuration_file = folder / "configuration.yaml"
        self.configurations: list[tuple[float, Mapping[str, Any]]] = []
        """The options written to the configuration file, with the times."""
        self.configure()
        self.failures: list[str] = []
        """Processes that ended by themselves."""
        self.occurrences: Counter[str] = Counter()
        """How often each fault and each operation happened."""
        self.writes: list[audit.Request] = []
        """The controllers' writes that the server answered, without leases and events."""
        self.webhook = WebhookProcess(self.network, self.configuration_file, failed=self.failures.append)
        self.controllers = [
            controller_process(self.network, f"controller-{name}", self.configuration_file, failed=self.failures.append)
            for name in "ab"
        ]
        self.karmada = karmada_process(self.network, failed=self.failures.append)
        self.processes = [self.webhook.process, *(item.process for item in self.controllers), self.karmada]
        self._chain = AdmissionChain(self.server, self.webhook.review)
        self.quota = self._chain.quota
        self.network.admit, self.network.is_reviewed = self._chain.handle, self._chain.is_reviewed
        self.network.observers.append(self._observe)
        self._digest = hashlib.sha256()
        self._encoder = msgspec.json.Encoder(order="deterministic")
        self.server.observers.append(self._record)
        self._versions: list[tuple[float, int]] = []
        self._may_have_orphans = False

    def timestamp(self) -> str:
        """Return the server's time of day."""
        return timestamp(int(self.loop.time()))

    @property
    def digest(self) -> str:
        """A digest of all writes with their times."""
        return self._digest.hexdigest()

    @property
    def unanswered(self) -> set[str]:
        """Names of the objects with a write that was not answered, of templates instead of their bindings."""
        targets = (self.server.target(path) for path in self.network.unanswered)
        return {template_name(target.name) for target in targets if target is not None}

    def _record(self, change: Change) -> None:
        if change.obj is None or (change.previous is None and "ownerReferences" in change.obj["metadata"]):
            self._may_have_orphans = True
        head = f"{self.loop.time()!r} {change.version} {change.kind.plural} {change.key}"
        self._digest.update(head.encode() + (b"-" if change.obj is None else self._encoder.encode(change.obj)))

    def _observe(self, call: Call, response: Response) -> None:
        sent = call.request
        target = self.server.target(sent.path)
        if sent.method == "GET" or sent.user_agent not in _USERS or target is None:
            return
        if target.kind.plural in {"leases", "events"}:
            return
        try:
            body = json.loads(sent.body) if sent.body else None
        except ValueError:
            body = None
        self.writes.append(
            audit.Request(
                at=datetime.fromtimestamp(EPOCH + self.loop.time(), UTC),
                user=sent.user_agent,
                verb=sent.method,
                resource=target.kind.plural,
                namespace=target.namespace,
                name=target.name or ((body or {}).get("metadata") or {}).get("name", ""),
                status=response.status,
                revision=int((response.body.get("metadata") or {}).get("resourceVersion") or 0),
                body=body,
            )
        )

    # -- the environment -------------------------------------------------------

    async def send(self, method: str, path: str, body: Any = None, kind: str = "json", **query: str) -> Response:
        """Send a request of an operator or tenant, which no fault of the network concerns."""
        asked = request(method, path, body, kind, **query)
        return await self._chain.handle(asked) if self._chain.is_reviewed(asked) else self.server.handle(asked)

    async def create(self, kind: Kind, obj: Object) -> Response:
        namespace = obj["metadata"].get("namespace", "")
        full = {"apiVersion": kind.api_version, "kind": kind.name, **obj}
        return await self.send("POST", path_of(kind, namespace), full)

    async def merge(self, kind: Kind, key: tuple[str, str], patch: Object, part: str = "") -> Response:
        return await self.send("PATCH", f"{path_of(kind, *key)}{part}", patch, "merge-patch")

    async def delete(self, kind: Kind, key: tuple[str, str]) -> Response:
        return await self.send("DELETE", path_of(kind, *key), {"propagationPolicy": "Background"})

    def configure(self, *, locations: Mapping[str, Sequence[str]] = LOCATIONS, **options: Any) -> None:
        """Write the configuration file; *locations* are those of the data sets."""
        static = [
            {"system": DATA_SYSTEM, "name": name, "clusters": list(clusters)} for name, clusters in locations.items()
        ]
        options["dataSources"] = {"static": static}
        options["integrations"] = [
            {"apiVersion": "apps/v1", "kind": "Deployment"},
            {"apiVersion": "batch/v1", "kind": "Job", "finished": {"conditions": ["Complete", "Failed"]}},
        ]
        self.configurations.append((self.loop.time(), options))
        self.configuration_file.write_text(_CONFIGURATION + yaml.safe_dump(options))

    async def install(self) -> None:
        """Create what an installation creates: namespaces and webhook configurations."""
        for name in ("karmada-system", "default", NAMESPACE):
            await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        text = (ROOT / "charts/volcano-global/files/webhooks.yaml").read_text()
        text = text.replace("['batch.volcano.sh/Job']", "['batch.volcano.sh/Job', 'apps/Deployment', 'batch/Job']")
        for document in yaml.safe_load_all(text):
            for webhook in document["webhooks"]:
                webhook["clientConfig"]["caBundle"] = "Q0E="
            kind = kinds.MUTATING if document["kind"] == kinds.MUTATING.name else kinds.VALIDATING
            await self.create(kind, document)

    def start(self) -> None:
        """Start all processes."""
        for process in self.processes:
            process.start()

    async def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes:
            await process.stop()

    async def maintain(self) -> None:
        """Collect garbage, delete old events, and forget old changes, until cancelled."""
        seen = -1
        while True:
            if self.server.version != seen:
                seen = self.server.version
                self._collect_garbage()
            now = self.loop.time()
            self._versions.append((now, self.server.version))
            while self._versions[0][0] < now - _HISTORY_SECONDS:
                _, version = self._versions.pop(0)
                if version > self.server.compacted:
                    self.server.compact(version)
            await asyncio.sleep(_MAINTENANCE_SECONDS)

    def _collect_garbage(self) -> None:
        if self._may_have_orphans:
            self._may_have_orphans = False
            for due in list(deletions_of_orphans(self.server)):
                self.server.handle(due)
        for kind in (kinds.EVENTS, kinds.CORE_EVENTS):
            self.server.expire(kind, timestamp(self.loop.time() - _EVENT_SECONDS))


def template_name(name: str) -> str:
    """Return the name of the template of a binding, or that of another object unchanged."""
    return name.removesuffix("-job").removesuffix("-deployment")


async def wait_until(done: Callable[[], bool], seconds: float, *, every: float = 1) -> bool:
    """Wait until *done*, at most *seconds*; return whether it is."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while not done():
        if loop.time() >= ends:
            return False
        await asyncio.sleep(every)
    return True
