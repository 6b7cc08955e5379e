"""Implements Karmada's cluster and execution controllers on members that annotations of their Clusters describe.

The manifest of a Work is in its member as soon as the Work is observed, and is removed when the Work is deleted. After
a restart, jobs continue from the status of their Work. A cluster that is not ready accepts no new workloads; running
ones stay. One that refuses Works runs what it ran before, and bindings get no status of it. Zero amounts and empty
parts of a summary are omitted (facts, §2); the summary has no timestamp.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog

from controller.api.quantity import QuantityError
from controller.engine.state.resources import EMPTY, MILLI, PODS, Resources, total
from controller.kube.errors import Conflict
from localup.karmada.cache import STATUS, ControlPlaneCache
from localup.karmada.controller import Controller, WorkQueue
from localup.karmada.member import Member, allocatable_modelings
from localup.karmada.objects import (
    NAMESPACES,
    TEMPLATES,
    WORK_FINALIZER,
    Condition,
    Key,
    Object,
    annotations_of,
    cluster_of,
    condition,
    execution_namespace,
    generation_of,
    is_terminating,
    key_of,
    new_object,
    nonempty,
    same_specification,
    spec_of,
    status_of,
    with_conditions,
    with_spec,
    with_status,
)
from localup.karmada.settings import StandInSettings
from localup.karmada.status import health, reported_status, run_from_status, status_in_member
from localup.karmada.workloads import amounts, parse_workload, quantities
from localup.karmada.works import manifest_of, with_applied_status, with_refused_condition, with_suspended_condition

ALLOCATABLE: Final = "standin.volcano-global.io/allocatable"
NODES: Final = "standin.volcano-global.io/nodes"
EXTERNAL_USAGE: Final = "standin.volcano-global.io/external-usage"
READY: Final = "standin.volcano-global.io/ready"
REFUSE_WORKS: Final = "standin.volcano-global.io/refuse-works"

#: Pod capacity of a member whose description has none.
_DEFAULT_MEMBER_PODS: Final = 1000 * MILLI

#: Pod capacity of a node whose description has none.
_DEFAULT_NODE_PODS: Final = 110 * MILLI

#: Maximum number of nodes of a member.
_MAX_NODES: Final = 10_000

_READINESS: Final[Mapping[str, Condition]] = {
    "True": Condition("Ready", "True", "ClusterReady", "cluster is healthy and ready to accept workloads"),
    "False": Condition(
        "Ready", "False", "ClusterNotReady", "cluster is reachable but health endpoint responded without ok"
    ),
    "Unknown": Condition("Ready", "Unknown", "ClusterStatusUnknown", "cluster is not reachable"),
}

_COMPLETE: Final = Condition(
    "CompleteAPIEnablements", "True", "Complete", "collected complete APIEnablements from the cluster"
)


class DescriptionError(ValueError):
    """An annotation of a Cluster is invalid."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """Simulated member cluster as described by annotations of its Cluster."""

    allocatable: Resources = EMPTY
    external_usage: Resources = EMPTY
    ready: str = "True"
    nodes: tuple[Resources, ...] = ()
    """Allocatable resources of each node; if empty, one node has all allocatable resources."""
    refusal: str = ""
    """Why the cluster applies no Work; empty where it does."""

    @classmethod
    def of(cls, cluster: Object) -> Self | None:
        """Parse the annotations or raise `DescriptionError`; ``None`` without ``allocatable`` and ``nodes``."""
        parsed = annotations_of(cluster)
        if ALLOCATABLE not in parsed and NODES not in parsed:
            return None
        ready = parsed.get(READY, "True")
        if ready not in _READINESS:
            raise DescriptionError(f"{READY}: {ready!r} is not one of {', '.join(_READINESS)}")
        nodes = _nodes(parsed[NODES]) if NODES in parsed else ()
        allocatable = (
            total(nodes) if nodes else {PODS: _DEFAULT_MEMBER_PODS, **_amounts(ALLOCATABLE, parsed[ALLOCATABLE])}
        )
        external_usage = _amounts(EXTERNAL_USAGE, parsed.get(EXTERNAL_USAGE, "{}"))
        return cls(allocatable, external_usage, ready, nodes, parsed.get(REFUSE_WORKS, ""))

    @property
    def is_reachable(self) -> bool:
        """Whether Karmada can reach the cluster."""
        return self.ready == "True"

    def apply_to(self, member: Member[Any]) -> None:
        """Give *member* the described capacity and external usage."""
        member.allocatable, member.external_usage = self.allocatable, self.external_usage
        member.node_sizes = self.nodes


def with_summary(cluster: Object, description: MemberDescription, member: Member[Any], *, now: float) -> Object:
    """Return *cluster* with the current status of its member; if not Ready, the last summary remains."""
    updated = with_conditions(cluster, _READINESS[description.ready], _COMPLETE, now=now)
    if not description.is_reachable:
        return updated
    return with_status(
        updated,
        apiEnablements=_enablements(),
        kubernetesVersion="v1.33.0",
        nodeSummary={"readyNum": len(description.nodes) or 1, "totalNum": len(description.nodes) or 1},
        resourceSummary=nonempty(
            {
                "allocatable": quantities(description.allocatable),
                "allocated": quantities(member.allocated),
                "allocating": quantities(member.allocating),
                "allocatableModelings": allocatable_modelings(
                    spec_of(cluster).get("resourceModels") or (), member.nodes
                ),
            }
        ),
    )


def _enablements() -> list[Object]:
    kinds = TEMPLATES.values()
    return [
        {
            "groupVersion": version,
            "resources": [{"kind": kind.kind, "name": kind.plural} for kind in kinds if kind.api_version == version],
        }
        for version in sorted({kind.api_version for kind in kinds})
    ]


def _amounts(annotation: str, text: str) -> Resources:
    try:
        parsed: Any = json.loads(text)
        return amounts(parsed)
    except (AttributeError, QuantityError, TypeError, ValueError) as error:
        raise DescriptionError(f'{annotation}: {error}; write it like {{"cpu": "64", "memory": "256Gi"}}') from error


def _nodes(text: str) -> tuple[Resources, ...]:
    """Parse the allocatable resources of each node, or raise `DescriptionError`."""
    example = '[{"count": 4, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}]'
    try:
        parsed: Any = json.loads(text)
        shapes = [(int(item["count"]), {PODS: _DEFAULT_NODE_PODS, **amounts(item["allocatable"])}) for item in parsed]
    except (AttributeError, KeyError, QuantityError, TypeError, ValueError) as error:
        raise DescriptionError(f"{NODES}: {error}; write it like {example}") from error
    if not all(count > 0 for count, _ in shapes) or not 0 < sum(count for count, _ in shapes) <= _MAX_NODES:
        raise DescriptionError(f"{NODES}: write 1 to {_MAX_NODES} nodes, like {example}")
    return tuple(size for count, size in shapes for _ in range(count))


log = structlog.get_logger()

NOT_READY: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/not-ready"}
UNREACHABLE: Final = {"effect": "NoSchedule", "key": "cluster.karmada.io/unreachable"}
_BY_READINESS: Final = {"True": [], "False": [NOT_READY], "Unknown": [UNREACHABLE]}


@dataclass(slots=True)
class SimulatedCluster:
    """Simulated member of a Cluster; *submitted* Works must report their status after the next advance."""

    description: MemberDescription
    member: Member[Key]
    submitted: set[Key]
    written_at: float = 0


class ClusterController(Controller[str]):
    """Advances simulated members and updates their Clusters: status, execution namespace, and taint by readiness."""

    def __init__(self, cache: ControlPlaneCache, settings: StandInSettings) -> None:
        super().__init__(cache)
        self.clusters: dict[str, SimulatedCluster] = {}
        self._settings = settings
        self._with_namespace: set[str] = set()
        self._event_handlers: list[Callable[[str, set[Key]], None]] = []
        cache.clusters.add_event_handler(self._cluster_changed)

    def add_event_handler(self, handler: Callable[[str, set[Key]], None]) -> None:
        """Call *handler* with a cluster and its works with a changed status; with none when its description changed."""
        self._event_handlers.append(handler)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        name = key_of(new or old or {}).name
        if new is None:
            self.clusters.pop(name, None)
        elif old is None or not same_specification(old, new):
            self._describe(name, new)
            self.queue.add(name)

    def _describe(self, name: str, cluster: Object) -> None:
        try:
            description = MemberDescription.of(cluster)
        except DescriptionError as error:
            log.error("cluster description invalid", cluster=name, error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            return
        known = self.clusters.get(name)
        if description is None:
            self.clusters.pop(name, None)
        elif known is None or known.description != description:
            new = known or SimulatedCluster(description, Member(), set())
            self.clusters[name] = new
            new.description = description
            description.apply_to(new.member)
            self._notify(name, set())

    async def reconcile(self, key: str) -> None:
        """Advance a member; write the status of its Cluster unless it was written within the period; set its taint."""
        simulated = self.clusters.get(key)
        cluster: Object | None = self.cache.clusters.get(Key("", key))
        if simulated is not None:
            self._advance(key, simulated)
        if cluster is None or is_terminating(cluster):
            return
        if key not in self._with_namespace:
            with suppress(Conflict):
                await self.cache.create(new_object(NAMESPACES, execution_namespace(key)))
            self._with_namespace.add(key)
        # A new cluster is tainted before it is ready, because the removal of the taint triggers scheduling.
        cluster = await self._taint(cluster)
        if simulated is not None:
            await self._taint(await self._write_status(cluster, simulated))

    async def _taint(self, cluster: Object) -> Object:
        """Return *cluster* with the taint that matches its readiness."""
        wanted = tainted(cluster)
        if wanted is cluster:
            return cluster
        taints = [taint["key"] for taint in _taints_of(wanted)]
        log.info("cluster tainted", cluster=key_of(cluster).name, taints=taints)
        return await self.cache.update(cluster, wanted)

    def _advance(self, name: str, simulated: SimulatedCluster) -> None:
        now, member = self.cache.now(), simulated.member
        changed, simulated.submitted = simulated.submitted, set()
        changed |= member.advance(now)
        if changed:
            self._notify(name, changed)
        if (next_change := member.next_change()) is not None:
            self.queue.add(name, seconds=max(0, next_change - now))

    async def _write_status(self, cluster: Object, simulated: SimulatedCluster) -> Object:
        """Return *cluster* with its current status, or unchanged before the next status is due."""
        now, due = self.cache.now(), simulated.written_at + self._settings.status_period
        if now < due:
            self.queue.add(key_of(cluster).name, seconds=due - now)
            return cluster
        updated = with_summary(cluster, simulated.description, simulated.member, now=now)
        written = await self.cache.update(cluster, updated, part=STATUS)
        if written is not cluster:
            simulated.written_at = self.cache.now()
        return written

    def _notify(self, name: str, works: set[Key]) -> None:
        for handler in self._event_handlers:
            handler(name, works)


def _taints_of(cluster: Object) -> list[Object]:
    return list(spec_of(cluster).get("taints") or ())


def tainted(cluster: Object) -> Object:
    """Return *cluster* with exactly the taint that matches its readiness."""
    ready = condition(status_of(cluster).get("conditions") or (), "Ready")
    wanted = _BY_READINESS[ready["status"] if ready else "False"]
    others = [taint for taint in _taints_of(cluster) if taint["key"] not in {NOT_READY["key"], UNREACHABLE["key"]}]
    present = [taint["key"] for taint in _taints_of(cluster) if taint not in others]
    if present == [taint["key"] for taint in wanted]:
        return cluster
    return with_spec(cluster, taints=[*others, *wanted] or None)


class ExecutionController(Controller[Key]):
    """Runs manifests of Works in simulated members and reports their status."""

    def __init__(self, cache: ControlPlaneCache, clusters: ClusterController, *, run_time: float) -> None:
        super().__init__(cache)
        self._reports = self.new_queue("reports", self._report)
        self._clusters = clusters
        self._run_time = run_time
        cache.works.add_event_handler(self._work_changed)
        clusters.add_event_handler(self._cluster_changed)

    @property
    def queues(self) -> list[WorkQueue[Key]]:
        """The queues of submissions and of status reports."""
        return [self.queue, self._reports]

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._remove(old)
        elif new is not None and (old is None or generation_of(old) != generation_of(new)):
            self.queue.add(key_of(new))

    def _cluster_changed(self, name: str, works: set[Key]) -> None:
        for key in sorted(works):
            self._reports.add(key)
        if not works:
            for work in self.cache.works:
                if cluster_of(key_of(work).namespace) == name:
                    self.queue.add(key_of(work))

    async def reconcile(self, key: Key) -> None:
        """Submit the manifest of a Work to its member, or remove it."""
        work, simulated = self.cache.works.get(key), self._cluster_for(key)
        if work is None or simulated is None or not simulated.description.is_reachable:
            return
        if is_terminating(work):
            self._remove(work)
            await self.cache.remove_finalizer(work, WORK_FINALIZER)
        elif spec_of(work).get("suspendDispatching"):
            await self.cache.update(work, with_suspended_condition(work, now=self.cache.now()), part=STATUS)
        else:
            self._submit(work, simulated)
            if refusal := simulated.description.refusal:
                refused = with_refused_condition(work, refusal, now=self.cache.now())
                await self.cache.update(work, refused, part=STATUS)

    def _submit(self, work: Object, simulated: SimulatedCluster) -> None:
        """Submit the manifest of *work*, or adopt what it ran before a restart; a refused one changes nothing else."""
        key, manifest, member = key_of(work), manifest_of(work), simulated.member
        try:
            workload = parse_workload(manifest, run_time=self._run_time)
        except ValueError as error:
            log.error("manifest invalid", work=str(key), error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            return
        run = None if key in member.runs else run_from_status(manifest, reported_status(work) or {}, workload)
        if run is not None:
            member.adopt(key, run)
        elif not simulated.description.refusal:
            member.submit(key, workload, self.cache.now())
        simulated.submitted.add(key)
        self._clusters.queue.add(cluster_of(key.namespace))

    def _remove(self, work: Object) -> None:
        """Remove the workload from its member; `preserveResourcesOnDeletion` keeps it (facts, §1)."""
        simulated = self._cluster_for(key_of(work))
        if simulated is not None and not spec_of(work).get("preserveResourcesOnDeletion"):
            simulated.member.remove(key_of(work))
            self._clusters.queue.add(cluster_of(key_of(work).namespace))

    async def _report(self, key: Key) -> None:
        work, simulated = self.cache.works.get(key), self._cluster_for(key)
        run = simulated.member.runs.get(key) if simulated else None
        if work is None or run is None or is_terminating(work):
            return
        manifest = manifest_of(work)
        now = self.cache.now()
        updated = with_applied_status(work, status_in_member(manifest, run), health(manifest, run), now=now)
        if simulated is not None and (refusal := simulated.description.refusal):
            updated = with_refused_condition(updated, refusal, now=now)
        if await self.cache.update(work, updated, part=STATUS) is not work:
            log.info("job status reported", work=str(key), phase=str(run.phase), running=run.running)

    def _cluster_for(self, key: Key) -> SimulatedCluster | None:
        return self._clusters.clusters.get(cluster_of(key.namespace))
