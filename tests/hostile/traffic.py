"""Generates hostile requests and harmless ones of equal size, and sends them at a constant rate."""

import asyncio
import io
import json
import random
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import aiohttp

from localup.controlplane import ControlPlane
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


async def send(plane: ControlPlane, requests: Iterator[Request], *, seconds: float) -> Counter[str]:
    """Send requests as the tenant at a constant rate, whatever the responses; count them by kind and status."""
    sent: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(limit=100, ssl=ssl.create_default_context(cadata=plane.ca))
    timeout = aiohttp.ClientTimeout(total=60)
    session = aiohttp.ClientSession(plane.url, connector=connector, timeout=timeout)

    async def send_one(request: Request) -> None:
        headers = {"Authorization": f"Bearer {plane.token('tenant')}", "Content-Type": request.content}
        body = io.BytesIO(request.body) if request.body else None
        try:
            async with session.request(request.method, request.path, data=body, headers=headers) as answer:
                await answer.read()
                sent[f"{request.kind} {answer.status}"] += 1
        except (aiohttp.ClientError, TimeoutError) as error:
            sent[f"{request.kind} {type(error).__name__}"] += 1

    async with session, asyncio.TaskGroup() as tasks:
        await at_rate(PER_SECOND, seconds, lambda: tasks.create_task(send_one(next(requests))))
    await asyncio.sleep(CLOSING_SECONDS)
    return sent


async def at_rate(per_second: float, seconds: float, start: Callable[[], object]) -> None:
    """Call *start* at a constant rate for *seconds*; late calls are made up for."""
    due = asyncio.get_running_loop().time()
    end = due + seconds
    while due < end:
        start()
        due += 1 / per_second
        await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))
