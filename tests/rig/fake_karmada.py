"""Fake of Karmada and member clusters for fault scenarios, with the fewest writes that the controller needs.

Bindings are created as the detector creates them and the webhook changes them. Admitted jobs run, and finish unless
they are endless.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from controller.api.keys import CLUSTERS, JOBS, RESOURCE_BINDINGS, Resource, binding_name
from controller.kube.client import Api
from controller.kube.errors import ApiError, NotFound
from tests.benchmarks import seed
from tests.clusters import with_models
from tests.rig.binding_state import BindingState, parse_binding
from tests.rig.history import History
from tests.rig.objects import ObservedObjects, cluster, volcano_job

ENDLESS = "rig/endless"


class FakeKarmada(ObservedObjects):
    """Acts on the control plane in one namespace, in addition to the controller."""

    def __init__(self, api: Api, namespace: str, history: History) -> None:
        super().__init__(api, namespace, history)
        self.classes: dict[str, int] = {}
        """Values of the created PriorityClasses."""
        self._played: dict[str, str] = {}

    # -- objects ----------------------------------------------------------

    async def cluster(self, name: str, **capacity: str) -> None:
        """Create a ready cluster."""
        await self.create(CLUSTERS.path, cluster(name))
        await self.set_summary(name, **capacity)

    async def set_summary(
        self, name: str, *, ready: str = "True", kinds: Sequence[Resource] = (JOBS,), **capacity: str
    ) -> None:
        """Set the summary, the readiness and the served kinds of a cluster."""
        status: dict[str, Any] = {
            "apiEnablements": [
                {"groupVersion": kind.api_version, "resources": [{"kind": kind.kind, "name": kind.plural}]}
                for kind in kinds
            ],
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }
        if capacity:
            status["resourceSummary"] = {"allocatable": {"memory": "1Ti", "pods": "1000", **capacity}}
            status = with_models({"status": status})["status"]
        await self.merge(f"{CLUSTERS.path}/{name}/status", {"status": status})

    async def priority_class(self, name: str, value: int) -> None:
        """Create a PriorityClass."""
        self.classes[name] = value
        await super().priority_class(name, value)

    async def job(self, name: str, queue: str, **more: Any) -> None:
        """Create a job and its binding."""
        await self.bind(name, await self.template(name, queue, **more))

    async def submit(self, manifest: dict[str, Any]) -> None:
        """Create any job and its binding."""
        made = await self.create(self.folder(JOBS), manifest)
        await self.bind(made["metadata"]["name"], made["metadata"]["uid"])

    async def template(self, name: str, queue: str, **more: Any) -> str:
        """Create a job without a binding; return its uid."""
        made = await self.create(self.folder(JOBS), job(name, queue, **more))
        return str(made["metadata"]["uid"])

    async def bind(self, name: str, uid: str, *, of: Resource = JOBS, **spec: Any) -> str:
        """Create the suspended binding of a job, or of an object of another kind; return its uid."""
        bound = seed.binding(self.namespace, name, uid)
        bound["metadata"]["name"] = binding_name(name, of.kind)
        bound["spec"]["placement"]["clusterAffinity"] = {}
        bound["spec"]["resource"] |= {"apiVersion": of.api_version, "kind": of.kind}
        bound["spec"] |= spec
        made = await self.create(self.folder(RESOURCE_BINDINGS), bound)
        return str(made["metadata"]["uid"])

    # -- changes ----------------------------------------------------------

    async def phase(self, name: str, phase: str) -> None:
        """Report the phase of a job from its members."""
        await self.report(name, state={"phase": phase})

    async def report(self, name: str, **status: Any) -> None:
        """Report the status of a job from its members."""
        binding = self.stored_bindings()[f"{name}-job"]
        told = [
            {"clusterName": cluster, "applied": True, "status": status} for cluster in parse_binding(binding).clusters
        ]
        await self.merge(f"{self.path(name)}/status", {"status": {"aggregatedStatus": told}})

    async def delete_works(self, *names: str) -> None:
        """Remove the statuses of the Works of jobs, as Karmada does when it deletes them."""
        for name in names:
            await self.merge(f"{self.path(name)}/status", {"status": {"aggregatedStatus": []}})

    def path(self, name: str) -> str:
        """Return the path of a job's binding."""
        return RESOURCE_BINDINGS.item_path(self.namespace, f"{name}-job")

    # -- background -------------------------------------------------------

    async def run(self) -> None:
        """Run admitted jobs and finish those that may end, until cancelled; outages are retried."""
        while True:
            seen = self.history.revision
            if all([await self._advance(binding) for binding in self._admitted()]):
                await self.history.until(lambda now, seen=seen: now.revision > seen, "anything", seconds=3600)
            else:
                await asyncio.sleep(0.1)

    def _admitted(self) -> list[BindingState]:
        return [seen for seen in self.bindings().values() if seen.admitted and seen.clusters and not seen.is_finished]

    async def _advance(self, binding: BindingState) -> bool:
        """Report the next phase of a job; return whether that succeeded."""
        template = self.history.now.get("jobs", {}).get(binding.job, {})
        endless = ENDLESS in template.get("metadata", {}).get("annotations", {})
        played = self._played.get(binding.uid, "")
        phase = "Completed" if played and not endless else "Running"
        if phase == played:
            return True
        try:
            await self.phase(binding.job[1], phase)
        except (NotFound, KeyError):
            return True  # deleted meanwhile
        except ApiError:
            return False
        self._played[binding.uid] = phase
        return True


def job(name: str, queue: str, *, endless: bool = False, **more: Any) -> dict[str, Any]:
    """Return a job; *endless* jobs never finish."""
    return volcano_job(name, queue, annotations={ENDLESS: "yes"} if endless else None, **more)
