"""Runs the system with namespaces, queues and clusters of hostile, harmless and other tenants."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from controller.kube.client import Api
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions, tail
from localup.stack import Stack
from tests.hostile.bystanders import JOBS_PER_SECOND, Bystander, Latencies
from tests.hostile.traffic import CLOSING_SECONDS, Request, send
from tests.rig.objects import NamespaceObjects

WILD = tuple(f"wild-{number}" for number in range(20))
PLAIN = tuple(f"plain-{number}" for number in range(20))
CALM = ("calm-0", "calm-1")
_OURS = {"cpu": "60", "memory": "200Gi"}
_WHOLE = {"memory": "200Gi", "nvidia.com/gpu": "8"}
#: Together less than the 300 CPUs of the clusters, so that other tenants always have free capacity.
QUEUES: dict[str, dict[str, Any]] = {
    "calm": {"guarantee": {"resource": _OURS}, "deserved": _OURS},
    "plain": {"capability": {"cpu": "100", **_WHOLE}},
    "wild-a": {"capability": {"cpu": "50", **_WHOLE}},
    "wild-b": {"capability": {"cpu": "50", **_WHOLE}},
    "default": {"capability": {"cpu": "20", **_WHOLE}},
}
RUN_TIME = "90s"
#: ResourceClaimTemplate that is mapped to one GPU.
CLAIM = "one-gpu"
_CONFIGURATION: dict[str, Any] = {
    "apiVersion": "config.volcano-global.io/v1alpha1",
    "kind": "VolcanoGlobalConfiguration",
    "unmatchedTenants": "Deny",
    "resourceClaimTemplates": [{"name": CLAIM, "requests": {"nvidia.com/gpu": 1}}],
    "tenants": [
        {"namespaces": ["calm-*"], "queues": ["calm"], "priorityClasses": ["calm-high"]},
        {"namespaces": ["plain-*"], "queues": ["plain"]},
        {"namespaces": ["wild-*"], "queues": ["wild-a", "wild-b", "default"]},
    ],
}


@dataclass(slots=True)
class Ground:
    """The running system and the tenants that measure latencies on it."""

    stack: Stack
    api: Api
    bystanders: Sequence[Bystander]
    pids: tuple[int | None, ...] = ()

    async def measure(self, requests: Sequence[Request], *, seconds: float) -> Latencies:
        """Send *requests* as tenants of their namespaces; return the latencies of the other tenants meanwhile."""
        latencies = Latencies()
        per_bystander = JOBS_PER_SECOND / len(self.bystanders)
        async with asyncio.TaskGroup() as tasks:
            for one in self.bystanders:
                tasks.create_task(one.submit(latencies, per_second=per_bystander, seconds=seconds))
            sending = tasks.create_task(send(self.stack.plane, cycle(requests), seconds=seconds))
        print(latencies.summary(), sending.result(), sep="\n")
        return latencies

    async def drain(self, *, idle_seconds: float) -> None:
        """Wait until all jobs of the other tenants are admitted, or none was within *idle_seconds*."""
        waiting, since = len(self.waiting()), time.monotonic()
        while waiting and time.monotonic() < since + idle_seconds:
            await asyncio.sleep(0.2)
            if len(self.waiting()) < waiting:
                waiting, since = len(self.waiting()), time.monotonic()

    def waiting(self) -> list[str]:
        """Return the jobs of the other tenants that are not admitted."""
        return [name for one in self.bystanders for name in one.waiting]

    def restarted(self) -> bool:
        """Return whether a process ended or was replaced."""
        self.stack.check()
        return self.pids != tuple(part.pid for part in self.stack.parts)


def start(plane: ControlPlane) -> Iterator[Stack]:
    """Yield the system on *plane*; the configuration restricts each tenant to its queues."""
    path = plane.folder / "admission.json"
    path.write_text(json.dumps(_CONFIGURATION))
    flags = ["--admission-configuration", path]
    options = {
        "webhook": ProcessOptions(flags=flags),
        "controller": ProcessOptions(flags=flags),
        # Hostile jobs run long enough to compare their charges; harmless jobs set their own run time.
        "karmada": ProcessOptions(flags=["--status-period", "1s", "--run-time", RUN_TIME]),
    }
    with Stack(plane, options=options) as stack:
        yield stack


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[Ground]:
    """Create namespaces, queues and clusters, and watch the jobs of the other tenants."""
    plane = stack.plane
    for namespace in (*WILD, *PLAIN, *CALM):
        create_namespace(plane.admin, namespace)
    async with Api.connect(plane.kubeconfig("admin")) as api:
        for namespace in (*WILD, *PLAIN, *CALM):
            await NamespaceObjects(api, namespace).policy()
        objects = NamespaceObjects(api, CALM[0])
        for name, spec in QUEUES.items():
            await objects.queue(name, **spec)
        await objects.priority_class("calm-high", 1000)
        for number in (1, 2, 3):
            await objects.member(f"c{number}", cpu="100", gpu="16", pods=str(10**12))
        bystanders = [Bystander(api, namespace, "calm") for namespace in CALM]
        tasks = [asyncio.create_task(one.follow()) for one in bystanders]
        try:
            yield Ground(stack, api, bystanders, tuple(part.pid for part in stack.parts))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(CLOSING_SECONDS)
            for part in ("controller", "webhook", "karmada"):
                print(f"--- {part}", tail(stack.log(part), lines=40), sep="\n")
