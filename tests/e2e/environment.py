"""Test environment on a real control plane: clusters, queues and jobs of one test, and the states of its bindings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from controller.api.keys import CLUSTERS, JOBS, RESOURCE_BINDINGS
from controller.kube.client import Api
from controller.kube.errors import NotFound
from localup.controlplane import ControlPlane
from tests.rig.history import followed, present
from tests.rig.objects import RUNTIME, ObservedObjects, volcano_job
from tests.waiting import poll


class Environment(ObservedObjects):
    """Objects of one test; all are deleted at its end."""

    async def job(self, name: str, queue: str, **more: Any) -> None:
        """Submit a job."""
        await self.manifest(job(name, queue, **more))

    async def manifest(self, manifest: Mapping[str, Any]) -> None:
        """Submit any job."""
        await self.create(self.folder(JOBS), manifest)

    async def uid(self, name: str) -> str:
        """Return the uid of a job's binding."""
        uid: str = (await self.read(RESOURCE_BINDINGS.item_path(self.namespace, f"{name}-job")))["metadata"]["uid"]
        return uid

    def admitted(self) -> list[str]:
        """Return the names of currently admitted jobs, including finished ones."""
        return sorted(name for name, seen in self.bindings().items() if seen.admitted)

    def finished(self) -> list[str]:
        """Return the names of finished jobs."""
        return sorted(name for name, seen in self.bindings().items() if seen.is_finished)

    def order(self) -> list[str]:
        """Return the jobs in order of their first admission."""
        return list(dict.fromkeys(seen.job[1] for seen in self.binding_states() if seen.admitted))

    async def clear(self) -> None:
        """Delete all objects and wait until no binding and no cluster is left."""
        await self.delete_made()
        await self.until(lambda seen: not seen, "all bindings gone")
        for path in self.made:
            if path.startswith(CLUSTERS.path):
                # A real Karmada removes clusters slowly.
                await poll(lambda path=path: self._is_gone(path), f"{path} gone")

    async def _is_gone(self, path: str) -> bool:
        try:
            await self.api.get(path)
        except NotFound:
            return True
        return False


def job(name: str, queue: str, *, runtime: str = "1s", **more: Any) -> dict[str, Any]:
    """Return a Volcano Job that runs for *runtime*."""
    return volcano_job(name, queue, annotations={RUNTIME: runtime}, **more)


@asynccontextmanager
async def open_environment(plane: ControlPlane, namespace: str) -> AsyncIterator[Environment]:
    """Yield an environment in *namespace*, and clear it at the end."""
    since = await present(plane.etcd.url)
    async with (
        Api.connect(plane.kubeconfig("admin")) as api,
        followed(plane.etcd.url, plane.prefix, since=since) as history,
    ):
        environment = Environment(api, namespace, history)
        yield environment
        await environment.clear()
