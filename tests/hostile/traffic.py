"""Generates hostile requests and harmless ones of equal size, and sends them at a constant rate."""

import asyncio
import io
import json
import random
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import aiohttp

from controller.api.keys import RESOURCE_BINDINGS
from localup.controlplane import ControlPlane
from tests.e2e.environment import job as sound_job
from tests.hostile import objects

PER_SECOND = 20
MERGE, JSON = "application/merge-patch+json", "application/json"
CLOSING_SECONDS = 0.25
"""Time that the transports of a closed session need to end."""
_REMEMBERED = 60
_KINDS = {
    "Job": 36,
    "HyperJob": 8,
    "Deployment": 4,
    "PropagationPolicy": 8,
    "OverridePolicy": 4,
    "Command": 3,
    "Work": 2,
    "ResourceBinding": 2,
    "ConfigMap": 3,
}
_CHANGES = {"delete": 16, "recreate": 4, "edit": 6, "patch-binding": 5, "purge": 1}
"""Weights of the kinds that are created, and of the changes."""


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
    made: deque[tuple[str, objects.Object]] = deque(maxlen=_REMEMBERED * len(namespaces))
    weights = _KINDS | _CHANGES
    for number in count(1):
        chosen, namespace = dice.choices(list(weights), list(weights.values()))[0], dice.choice(namespaces)
        if chosen in _KINDS:
            name = f"{chosen.lower()}-{number if dice.random() < 0.97 else dice.randrange(300)}"
            body = objects.hostile_object(dice, chosen, name)
            made.append((namespace, body))
            yield Request(chosen, "POST", _path(body, namespace), _encoded(body))
        elif chosen == "purge":
            yield Request("purge", "DELETE", f"/apis/{objects.JOB}/namespaces/{namespace}/jobs")
        elif made:
            yield from _change(dice, chosen, made)


def _path(body: objects.Object, namespace: str) -> str:
    root = "apis" if "/" in body["apiVersion"] else "api"
    plural = f"{body['kind'].lower()}s".replace("policys", "policies")
    return f"/{root}/{body['apiVersion']}/namespaces/{namespace}/{plural}"


def _change(dice: random.Random, chosen: str, made: Sequence[tuple[str, objects.Object]]) -> Iterator[Request]:
    """Yield requests that change objects created before."""
    if chosen == "patch-binding":
        namespace, job = dice.choice([pair for pair in made if pair[1]["kind"] == "Job"] or [made[-1]])
        patch = objects.binding_patch(dice)
        path = RESOURCE_BINDINGS.item_path(namespace, f"{job['metadata']['name']}-job")
        yield Request(chosen, "PATCH", f"{path}/status" if "status" in patch else path, _encoded(patch), MERGE)
        return
    for _ in range(1 if chosen == "edit" else dice.choice((1, 1, 1, 8))):
        namespace, body = dice.choice(made)
        kind, name, folder = body["kind"], body["metadata"]["name"], _path(body, namespace)
        if chosen == "edit":
            fresh = objects.hostile_object(dice, kind, name)
            patch = {field: value for field, value in fresh.items() if field not in {"apiVersion", "kind"}}
            yield Request(f"edit {kind}", "PATCH", f"{folder}/{name}", _encoded(patch), MERGE)
        else:
            yield Request(f"delete {kind}", "DELETE", f"{folder}/{name}")
        if chosen == "recreate":
            yield Request(kind, "POST", folder, _encoded(body))


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
