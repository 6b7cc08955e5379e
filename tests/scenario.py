"""Reads a scenario and runs it: a world in a few lines of YAML, and what must come of it.

The format is described in ``tests/scenarios/README.md``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from controller.api.quantity import parse_quantity
from controller.engine.clusters import (
    Affinity,
    ApiKind,
    Cluster,
    ClusterName,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Taint,
    Term,
    Toleration,
)
from controller.engine.demand import Container, JobTemplate, PodTemplate, Task, demand, gang_minimum
from controller.engine.plan import Admit, Plan
from controller.engine.policy import Policy, Tenant
from controller.engine.queues import ROOT, Queue, QueueName, QueueState
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import Resources
from controller.engine.workloads import VOLCANO_JOB, Admission, Booking, Shape, State, Workload, WorkloadUid
from controller.engine.world import World

SCENARIOS = Path(__file__).parent / "scenarios"

ALIASES = {"gpu": "nvidia.com/gpu"}
ONE_CLUSTER = (Spread("cluster", 1, 1),)


def amounts(written: Mapping[str, Any] | None) -> dict[str, int]:
    """Read ``{u: 2, gpu: 1, memory: 4Gi}``; u is one CPU with one GiB."""
    found: dict[str, int] = {}
    for name, value in (written or {}).items():
        parts = [("cpu", value), ("memory", f"{value}Gi")] if name == "u" else [(ALIASES.get(name, name), value)]
        for resource, quantity in parts:
            found[resource] = found.get(resource, 0) + parse_quantity(resource, str(quantity))
    return found


def requirements(written: Mapping[str, Any] | None) -> tuple[Requirement, ...]:
    """Read ``{tier: gpu}`` or ``{tier: [In, gpu, fast]}``."""
    found = []
    for key, value in (written or {}).items():
        operator, *values = value if isinstance(value, list) else ("In", value)
        found.append(Requirement(key, operator, tuple(map(str, values))))
    return tuple(found)


def affinity(written: Mapping[str, Any]) -> Affinity:
    return Affinity(
        names=tuple(ClusterName(name) for name in written.get("names", ())),
        excluded=frozenset(ClusterName(name) for name in written.get("exclude", ())),
        labels=requirements(written.get("labels")),
        fields=requirements(written.get("fields")),
    )


def placement(written: Mapping[str, Any] | None) -> Placement:
    """Read a placement; one cluster for the whole of it unless ``spread`` says otherwise."""
    written = written or {}
    spread = tuple(
        Spread(each.get("by", "cluster"), each.get("min", 1), each.get("max", 0)) for each in written.get("spread", ())
    )
    return Placement(
        affinity=affinity(written["affinity"]) if "affinity" in written else None,
        terms=tuple(Term(term["name"], affinity(term)) for term in written.get("terms", ())),
        tolerations=tuple(Toleration(**each) for each in written.get("tolerations", ())),
        spread=spread if "spread" in written else ONE_CLUSTER,
        divided=written.get("divided", False),
        weights=tuple(StaticWeight(affinity(each), each["weight"]) for each in written.get("weights", ())),
    )


def cluster(written: Mapping[str, Any]) -> Cluster:
    allocatable = {"pods": 1_000_000, **amounts(written["has"])} if written.get("has") is not None else None
    return Cluster(
        name=ClusterName(written["name"]),
        labels={key: str(value) for key, value in written.get("labels", {}).items()},
        provider=written.get("provider", ""),
        region=written.get("region", ""),
        zones=tuple(written.get("zones", ())),
        taints=tuple(Taint(each["key"], each.get("value", ""), each["effect"]) for each in written.get("taints", ())),
        enablements=frozenset({VOLCANO_JOB, ApiKind("apps/v1", "Deployment")}),
        ready=written.get("ready", True),
        deleting=written.get("deleting", False),
        allocatable=allocatable,
        used=amounts(written.get("used")),
    )


def queue(written: Mapping[str, Any]) -> Queue:
    return Queue(
        name=QueueName(written["name"]),
        parent=QueueName(written.get("parent", ROOT)),
        weight=written.get("weight", 1),
        priority=written.get("priority", 0),
        capability=amounts(written.get("capability")),
        deserved=amounts(written.get("deserved")),
        guarantee=amounts(written.get("guarantee")),
        reclaimable=written.get("reclaimable", True),
        fifo=written.get("fifo", False),
        state=QueueState(written.get("state", "Open")),
    )


def container(written: Mapping[str, Any]) -> Container:
    return Container(amounts(written.get("requests")), amounts(written.get("limits")), written.get("restarts", False))


def template(written: Mapping[str, Any]) -> JobTemplate:
    """Read ``tasks`` and ``minAvailable`` as a Volcano Job has them."""
    tasks = tuple(
        Task(
            name=task.get("name", ""),
            replicas=task.get("replicas", 1),
            minimum=task.get("minAvailable"),
            pod=PodTemplate(
                containers=tuple(container(each) for each in task.get("containers", ())),
                init=tuple(container(each) for each in task.get("init", ())),
                overhead=amounts(task.get("overhead")),
                requests=amounts(task.get("requests")),
                limits=amounts(task.get("limits")),
                priority_class=task.get("priorityClassName", ""),
            ),
        )
        for task in written["tasks"]
    )
    return JobTemplate(tasks, written.get("minAvailable", 0))


def shape(written: Mapping[str, Any]) -> Shape:
    where = placement(written.get("placement"))
    if "tasks" in written:
        job = template(written)
        classes = written.get("classes", {})
        return Shape(demand(job), gang_minimum(job, lambda name: classes.get(name, 0)), where)
    asked = amounts(written.get("asks"))
    if "replicas" in written:
        whole = {name: amount * written["replicas"] for name, amount in asked.items()}
        return Shape(whole, whole, where, ApiKind("apps/v1", "Deployment"), replicas=written["replicas"])
    return Shape(asked, amounts(written["gang"]) if "gang" in written else asked, where)


def workloads(written: Mapping[str, Any], order: int) -> Iterator[Workload]:
    """Read one entry of ``jobs``; ``count: 3`` makes name-1 to name-3, each a second younger."""
    asked = shape(written)
    count = written.get("count")
    for number in range(1, (count or 1) + 1):
        name = f"{written['name']}-{number}" if count else written["name"]
        yield Workload(
            uid=WorkloadUid(f"uid-{name}"),
            namespace=written.get("namespace", "ml"),
            name=name,
            kind=asked.api.kind,
            queue=QueueName(written.get("queue", "default")),
            shape=asked,
            priority=written.get("priority", 0),
            priority_class=written.get("class", ""),
            since=written.get("since", order + number - 1) * 1000,
            state=State.ADMITTED if "on" in written else State.PENDING,
            admission=_admission(asked, written) if "on" in written else None,
            hold=Refusal(Reason(written["hold"])) if "hold" in written else None,
        )


def _admission(asked: Shape, written: Mapping[str, Any]) -> Admission:
    names = written["on"] if isinstance(written["on"], list) else [written["on"]]
    bookings = tuple(Booking(ClusterName(name), asked.demand) for name in names)
    charge = {name: amount * len(names) for name, amount in asked.demand.items()}
    return Admission(charge, bookings, admitted_at=0, shown=written.get("shown", False))


def policy(written: Mapping[str, Any] | None) -> Policy:
    written = written or {}
    tenants = tuple(
        Tenant(tuple(each["namespaces"]), tuple(each.get("queues", ())), tuple(each.get("priorityClasses", ())))
        for each in written.get("tenants", ())
    )
    return Policy(
        queue_order=written.get("queueOrder", "PriorityFirst"),
        tenant_fairness=written.get("tenantFairness", "None"),
        settle_ms=written.get("settleSeconds", 30) * 1000,
        tenants=tenants,
    )


@dataclass
class Outcome:
    """What is known after one step: who is where, who waits for what."""

    order: list[str] = field(default_factory=list)
    admitted: dict[str, list[str]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


class Scenario:
    """One YAML document, played step by step against one World."""

    def __init__(self, document: Mapping[str, Any], *, reverse: bool = False) -> None:
        self.document = document
        self.world = World(policy(document.get("policy")))
        self.now = 1_000_000_000
        self._reverse = reverse
        self._populate(document)

    def _populate(self, written: Mapping[str, Any]) -> None:
        jobs = [each for order, entry in enumerate(written.get("jobs", ())) for each in workloads(entry, 1000 * order)]
        # Charges come before the clusters' summaries, as a restart would find them.
        for workload in self._in_order(jobs):
            self.world.workload_changed(workload, self.now - 3_600_000)
        for entry in self._in_order(written.get("queues", ())):
            self.world.queue_changed(queue(entry))
        for entry in self._in_order(written.get("clusters", ())):
            self.world.cluster_changed(cluster(entry), self.now)

    def _in_order(self, things: Sequence[Any]) -> list[Any]:
        return list(reversed(things)) if self._reverse else list(things)

    def by_name(self, name: str) -> Workload:
        return self.world.workloads[WorkloadUid(f"uid-{name}")]

    def play(self, step: Mapping[str, Any]) -> Outcome:
        """Apply the events of *step*, plan, and return the outcome."""
        self.now += step.get("after", 0) * 1000
        self._populate(step)
        for name in step.get("finish", ()):
            done = replace(self.by_name(name), state=State.FINISHED, admission=None)
            self.world.workload_changed(done, self.now)
        for name in step.get("remove", ()):
            self.world.workload_removed(self.by_name(name).uid, self.now)
        for name in step.get("dropQueues", ()):
            self.world.queue_removed(QueueName(name))
        for name in step.get("dropClusters", ()):
            self.world.cluster_removed(ClusterName(name))
        return self._outcome(self.world.plan(self.now))

    def _outcome(self, plan: Plan) -> Outcome:
        outcome = Outcome()
        for decision in plan.decisions:
            assert isinstance(decision, Admit)
            outcome.order.append(decision.workload.name)
            outcome.admitted[decision.workload.name] = [each.name for each in decision.clusters]
        for workload in self.world.workloads.values():
            refusal = self.world.refusal(workload.uid)
            if refusal is not None:
                outcome.waiting[workload.name] = str(refusal.reason)
        return outcome


def documents() -> list[tuple[str, Mapping[str, Any]]]:
    """Return every scenario with its id: the file's name and the title."""
    return [
        (f"{path.stem}: {document['title']}", document)
        for path in sorted(SCENARIOS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def rows(expected: Mapping[str, Any] | None) -> dict[str, Resources]:
    """Read the expected amounts of queues."""
    return {name: amounts(each) for name, each in (expected or {}).items()}
