"""Generates hostile requests and harmless ones of equal size, and sends them at a constant rate."""

import asyncio
import io
import json
import random
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.e2e.environment import job as sound_job
from tests.hostile import objects

PER_SECOND = 20
MERGE, JSON = "application/merge-patch+json", "application/json"
CLOSING_SECONDS = 0.25
"""Time that the transports of a closed session need to end."""
_REMEMBERED = 60
_KINDS: Sequence[tuple[str, int, str, Callable[[random.Random, str], objects.Object]]] = (
    ("job", 36, "batch.volcano.sh/v1alpha1/namespaces/{}/jobs", objects.job),
    ("hyperjob", 8, "{}", objects.hyperjob),
    ("deployment", 4, "apps/v1/namespaces/{}/deployments", objects.deployment),
    ("policy", 8, "policy.karmada.io/v1alpha1/namespaces/{}/propagationpolicies", objects.propagation),
    ("override", 4, "policy.karmada.io/v1alpha1/namespaces/{}/overridepolicies", objects.override),
    ("command", 3, "bus.volcano.sh/v1alpha1/namespaces/{}/commands", objects.command),
    ("work", 2, "work.karmada.io/v1alpha1/namespaces/{}/works", objects.work),
    ("binding", 2, "work.karmada.io/v1alpha2/namespaces/{}/resourcebindings", objects.binding),
    ("configmap", 3, "{}", objects.config_map),
)
_CHANGES = (("delete", 16), ("recreate", 4), ("edit", 6), ("patch-binding", 5), ("purge", 1))


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server; *kind* is for the counts."""

    kind: str
    method: str
    path: str
    body: bytes = b""
    content: str = JSON


def hostile(dice: random.Random, namespaces: Sequence[str]) -> Iterator[Request]:
    """Yield requests without end: creations of every kind, edits, deletions and recreations in bursts."""
    made: deque[tuple[str, str, objects.Object]] = deque(maxlen=_REMEMBERED * len(namespaces))
    names = [*(each[0] for each in _KINDS), *(name for name, _ in _CHANGES)]
    weights = [*(each[1] for each in _KINDS), *(weight for _, weight in _CHANGES)]
    number = 0
    while True:
        chosen, namespace = dice.choices(names, weights)[0], dice.choice(namespaces)
        known = {each[0]: each for each in _KINDS}.get(chosen)
        if known is not None:
            number += 1
            body = known[3](dice, f"{chosen}-{number}" if dice.random() < 0.97 else f"{chosen}-{dice.randrange(300)}")
            path = _path(body, known[2], namespace)
            made.append((chosen, path, body))
            yield Request(chosen, "POST", path, _encoded(body))
        elif chosen == "purge":
            yield Request("purge", "DELETE", f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs")
        elif made:
            yield from _change(dice, chosen, made)


def _path(body: objects.Object, path: str, namespace: str) -> str:
    if body["kind"] == "HyperJob":
        return f"/apis/{body['apiVersion']}/namespaces/{namespace}/hyperjobs"
    if body["kind"] == "ConfigMap":
        return f"/api/v1/namespaces/{namespace}/configmaps"
    return f"/apis/{path.format(namespace)}"


def _change(dice: random.Random, chosen: str, made: deque[tuple[str, str, objects.Object]]) -> Iterator[Request]:
    """Yield requests that change objects created before."""
    if chosen in {"delete", "recreate"}:
        for _ in range(dice.choice((1, 1, 1, 8))):
            kind, path, body = made[dice.randrange(len(made))]
            yield Request(f"delete-{kind}", "DELETE", f"{path}/{body['metadata']['name']}")
            if chosen == "recreate":
                yield Request(kind, "POST", path, _encoded(body))
        return
    kind, path, body = made[dice.randrange(len(made))]
    if chosen == "edit":
        fresh = {name: make for name, _, _, make in _KINDS}[kind](dice, body["metadata"]["name"])
        patch = {name: value for name, value in fresh.items() if name not in {"apiVersion", "kind"}}
        yield Request(f"edit-{kind}", "PATCH", f"{path}/{body['metadata']['name']}", _encoded(patch), MERGE)
        return
    jobs = [each for each in made if each[0] == "job"]
    if jobs:
        _, path, body = dice.choice(jobs)
        folder = path.replace("batch.volcano.sh/v1alpha1", "work.karmada.io/v1alpha2").replace(
            "jobs", "resourcebindings"
        )
        name, patch = f"{body['metadata']['name']}-job", objects.binding_patch(dice)
        status = "/status" if "status" in patch else ""
        yield Request("patch-binding", "PATCH", f"{folder}/{name}{status}", _encoded(patch), MERGE)


def _encoded(body: objects.Object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("utf-8", "backslashreplace")


def harmless(requests: Iterable[Request], namespaces: Sequence[str]) -> Iterator[Request]:
    """Yield equally many and large requests: valid jobs and their deletions."""
    made: deque[str] = deque()
    for number, request in enumerate(requests):
        folder = f"/apis/{objects.JOB}/namespaces/{namespaces[number % len(namespaces)]}/jobs"
        if request.body:
            job = sound_job(f"job-{number}", "plain", runtime="2s")
            missing = len(request.body) - len(_encoded(job))
            job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["args"] = ["x" * max(missing, 0)]
            made.append(f"{folder}/job-{number}")
            yield Request("job", "POST", folder, _encoded(job))
        elif request.kind == "purge":
            yield Request("purge", "DELETE", folder)
        elif made:
            yield Request("delete-job", "DELETE", made.popleft())


@dataclass(slots=True)
class Sender:
    """Sends requests as one user at a constant rate, whatever the responses."""

    url: str
    ca: str
    token: str
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    size: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    async def send(self, requests: Iterator[Request], *, seconds: float) -> None:
        """Send requests for *seconds* without waiting for responses."""
        loop = asyncio.get_running_loop()
        due, end = loop.time(), loop.time() + seconds
        connector = aiohttp.TCPConnector(limit=100, ssl=ssl.create_default_context(cadata=self.ca))
        timeout = aiohttp.ClientTimeout(total=60)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as tasks,
        ):
            while due < end:
                tasks.create_task(self._send(session, next(requests)))
                due += 1 / PER_SECOND
                await asyncio.sleep(max(due - loop.time(), 0))
        await asyncio.sleep(CLOSING_SECONDS)

    async def _send(self, session: aiohttp.ClientSession, request: Request) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": request.content}
        self.size += len(request.body)
        try:
            async with session.request(
                request.method,
                self.url + request.path,
                data=io.BytesIO(request.body) if request.body else None,
                headers=headers,
            ) as answer:
                text = await answer.text()
                self.sent[request.kind, answer.status] += 1
                if answer.status >= 400 and answer.status not in {403, 404, 409}:
                    self.errors[f"{request.kind} {answer.status}: {text[:300]}"] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            self.sent[request.kind, 0] += 1
            self.errors[f"{request.kind} {type(error).__name__}: {error}"[:300]] += 1

    def summary(self) -> str:
        """Return the number of requests by kind and status."""
        kinds: dict[str, list[str]] = {}
        for (kind, status), count in sorted(self.sent.items()):
            kinds.setdefault(kind, []).append(f"{count} of {status}")
        return f"{sum(self.sent.values())} requests, {self.size / 1e6:.1f} MB: " + "; ".join(
            f"{kind} {' '.join(found)}" for kind, found in kinds.items()
        )
