"""Measures plain patches: what the API server accepts from the controller's client without decisions.

Runs in its own process and on the event loop of the controller: prints ``ready``, waits for a line, patches, and
prints its processor time in seconds. With ``watch`` it also receives every change and discards it, because a controller
needs a watch in any case.
"""

import asyncio
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec

from controller.__main__ import run_to_end
from controller.api.keys import RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.scheduling.patches import admit
from tests.benchmarks.seed import CLUSTER, Batch, binding_path, in_flight
from tests.watching import Watcher, watching

RECORD = (
    '{"uid":"%s","queue":"queue-1","charge":{"cpu":"1","memory":"1Gi","pods":"1"},'
    '"clusters":["member1"],"admittedAt":"2026-01-01T00:00:00Z","evictions":0,"attempts":0}'
)


class _SuspendedBinding:
    """A suspended binding with annotations, like every seeded one."""

    has_annotations = True
    has_suspension = True
    has_clusters = False

    def __init__(self, uid: str) -> None:
        self.uid = uid


async def main(kubeconfig: Path, batch: Batch, *, watches: bool) -> None:
    """Resume every binding of *batch*, with the controller's concurrency."""
    async with (
        Api.connect(kubeconfig) as api,
        watching(api, RESOURCE_BINDINGS.path, Watcher(), decode=len) if watches else nullcontext(),
    ):
        listed = api.list_items(binding_path(batch.namespace, "").rpartition("/")[0])
        metadata = [msgspec.json.decode(item)["metadata"] async for item in listed]
        patches = [
            (binding_path(batch.namespace, meta["name"].removesuffix("-job")), _patch(meta["uid"])) for meta in metadata
        ]
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        begun = time.process_time()
        await in_flight(patches, lambda patch: api.patch(patch[0], patch[1]))
        print(time.process_time() - begun, flush=True)


def _patch(uid: str) -> bytes:
    return admit(_SuspendedBinding(uid), [(CLUSTER, None)], RECORD % uid)


if __name__ == "__main__":
    run_to_end(main(Path(sys.argv[1]), Batch(sys.argv[2], int(sys.argv[3]), 0), watches="watch" in sys.argv[4:]))
