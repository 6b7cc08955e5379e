"""The product's informer against the in-memory API server on virtual time."""

import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from controller.kube.cache_audit import CacheAudit
from controller.kube.informer import Informer, WatchOptions
from tests.deterministic.clock import simulate
from tests.deterministic.transport import ServedApi, connected
from tests.deterministic.worlds import ROOTS, THINGS, new_server, send, thing

PATH = ROOTS["things"]


class History:
    """A sink that records every call with its time, and the objects that result."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, Any]] = []
        self.objects: dict[str, str] = {}

    def replace_in_steps(self, objects: Sequence[Any], *, unreadable: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
        self.objects = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects}
        self._record("replace", sorted(self.objects.items()))
        yield

    def upsert(self, obj: Any) -> None:
        self.objects[obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]
        self._record("upsert", obj["metadata"])

    def remove(self, obj: Any) -> None:
        self.objects.pop(obj["metadata"]["name"], None)
        self._record("remove", obj["metadata"])

    def forget(self, namespace: str, name: str) -> None:
        self.objects.pop(name, None)
        self._record("forget", name)

    def _record(self, call: str, what: Any) -> None:
        self.calls.append((asyncio.get_running_loop().time(), call, what))


def run(seed: int, *, minutes: float, faults: bool) -> tuple[History, dict[str, str], int]:
    """Return what an informer saw of a server that changes at random, what the server has, and the number of lists."""

    async def main() -> tuple[History, dict[str, str], int]:
        server = new_server(asyncio.get_running_loop().time)
        served = ServedApi(server, lambda: random.uniform(0.001, 0.2))
        history = History()
        async with connected(served) as api, asyncio.TaskGroup() as group:
            options = WatchOptions(page=2, watch=40, silence=58, healthy_seconds=5)
            informer: Informer[Any] = Informer(api, PATH, decode=json.loads, sink=history, options=options)
            watching = group.create_task(informer.run())
            loop = asyncio.get_running_loop()
            while loop.time() < minutes * 60:
                await asyncio.sleep(random.expovariate(1))
                _change(server)
                if faults and random.random() < 0.03:
                    _break(served)
            served.is_listening = True
            # A watch ends within 50 s, a silent connection after 58 s, and a retry waits at most 30 s.
            await asyncio.sleep(150)
            watching.cancel()
        await served.close()
        stored = {name: obj["metadata"]["resourceVersion"] for (_, name), obj in server.objects(THINGS).items()}
        return history, stored, informer.lists

    return simulate(main, seed)


def _change(server: Any) -> None:
    name, size = random.choice("abcdef"), random.randint(1, 100)
    match random.randint(0, 3):
        case 0:
            send(server, "POST", PATH, thing(name, {"size": size}))
        case 1 | 2:
            send(server, "PATCH", f"{PATH}/{name}", {"spec": {"size": size}}, "merge-patch")
        case _:
            send(server, "DELETE", f"{PATH}/{name}")


def _break(served: ServedApi) -> None:
    match random.randint(0, 2):
        case 0:
            served.server.compact()
            served.server.expires_as_status = random.random() < 0.5
            served.cut()
        case 1:
            served.cut()
        case _:
            served.is_listening = not served.is_listening
            served.cut()


def test_informer_follows_a_changing_server():
    history, stored, lists = run(1, minutes=10, faults=False)
    assert history.objects == stored
    assert lists == 1
    assert len(history.calls) > 200


@pytest.mark.parametrize("seed", range(5))
def test_informer_recovers_from_cuts_expiry_and_outages(seed):
    history, stored, lists = run(seed, minutes=10, faults=True)
    assert history.objects == stored
    assert lists > 1


class Versions(dict[tuple[str, str], int]):
    """A cache as the audit sees it: the version of each object by namespace and name."""

    def version(self, namespace: str, name: str) -> int | None:
        return self.get((namespace, name))


SELECTED = {"labelSelector": "!other"}


@pytest.mark.parametrize(
    ("selectors", "lost", "extra", "unreadable", "found"),
    [
        ({}, "", "", "", None),
        ({}, "b", "c", "", "is not cached"),
        ({}, "b", "", "", "the cache has 1 objects, the server has 2"),
        ({}, "", "c", "", "the cache has 3 objects, the server has 2"),
        ({}, "b", "", "b", None),
        (SELECTED, "", "", "", None),
        (SELECTED, "b", "c", "", "is not cached"),
        (SELECTED, "b", "", "", "is not cached"),
        (SELECTED, "", "c", "", "the cache has 3 objects, the server has 2"),
        (SELECTED, "b", "", "b", None),
    ],
)
def test_audit_finds_lost_creations_and_deletions_also_together(selectors, lost, extra, unreadable, found):
    async def main() -> list[str | None]:
        server = new_server(asyncio.get_running_loop().time)
        served = ServedApi(server, lambda: 0.001)
        for name in "ab":
            send(server, "POST", PATH, thing(name, {"size": 1}))
        cached = Versions({key: int(obj["metadata"]["resourceVersion"]) for key, obj in server.objects(THINGS).items()})
        namespace = next(iter(cached))[0]
        cached.pop((namespace, lost), None)
        cached |= {(namespace, name): 1 for name in extra}
        async with connected(served) as api:
            audit = CacheAudit(api, PATH, cached, selectors=selectors, page=1)
            lacking = {(namespace, name) for name in unreadable}
            reports = [await audit.find_difference(str(server.version), lacking=lacking) for _ in range(15)]
        await served.close()
        return reports

    reports = [report for report in simulate(main, 1) if report is not None]
    assert (found is None) == (not reports)
    assert not found or any(found in report for report in reports)


def test_one_seed_gives_one_history():
    first, second = (run(7, minutes=10, faults=True)[0].calls for _ in range(2))
    assert first == second
    assert first != run(8, minutes=10, faults=True)[0].calls


@pytest.mark.process
def test_one_seed_gives_one_history_in_every_process():
    digests = set()
    for hash_seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "tests.deterministic.test_informer"]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True).stdout.splitlines()[-1])
    assert len(digests) == 1


if __name__ == "__main__":
    print(hashlib.sha256(repr(run(5, minutes=10, faults=True)[0].calls).encode()).hexdigest())  # noqa: T201
