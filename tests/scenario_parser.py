"""Parses the YAML of a scenario into engine values: queues, clusters and jobs.

Unknown keys are errors, so that a misspelt key cannot weaken a scenario.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.api.quantity import parse_quantity
from controller.engine.policy import (
    AdvanceReservation,
    Ageing,
    Backfill,
    EvictionPolicy,
    HeadReservationPolicy,
    NodeShapes,
    Policy,
    Resize,
    Tenant,
)
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import (
    Affinity,
    ApiKind,
    Cluster,
    ClusterName,
    NodeShape,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Taint,
    Term,
    Toleration,
)
from controller.engine.state.hierarchy import ROOT, Queue, QueueName, QueueState
from controller.engine.state.requests import (
    Container,
    JobTemplate,
    PodTemplate,
    Task,
    gang_minimum,
    pod_requests,
    pod_sets,
    total_requests,
)
from controller.engine.state.resources import scale, total
from controller.engine.state.workloads import (
    VOLCANO_JOB,
    Admission,
    ClusterCharge,
    HyperJobGang,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)

ALIASES = {"gpu": "nvidia.com/gpu"}
KINDS = {"Job": VOLCANO_JOB, "Deployment": ApiKind("apps/v1", "Deployment")}
ONE_CLUSTER = (Spread("cluster", 1, 1),)

PLACEMENT = "affinity terms tolerations spread divided aggregated weights"
CLUSTER = "name has used grades labels provider region zones taints enables ready deleting"
QUEUE = "name parent weight priority capability deserved guarantee reclaimable fifo state"
TASK = "name replicas minAvailable containers init overhead requests limits priorityClassName"
JOB = (
    "name uid namespace count queue priority class unknownClass since hold placement term prefers evictingFrom runsOn "
    "asks gang replicas tasks minAvailable classes on charge shown adopted resized ran evictions preserved never "
    "nominated endsLate group reserved started unplaced moved attempts excludedClusters retryableClusters runs"
)
POLICY = (
    "queueOrder tenantFairness clusterStatusSettlePeriod tenants nodeShapes reclaim preemption headReservation resize "
    "startupTimeout backfill ageing advanceReservations"
)
EVICTION = "minRuntime maxEvictions"


def known(written: Mapping[str, Any], keys: str) -> Mapping[str, Any]:
    """Return *written*; raise for a key that is not one of *keys*."""
    unknown = sorted(set(map(str, written)) - set(keys.split()))
    if unknown:
        raise KeyError(f"a scenario does not know {', '.join(unknown)} in {dict(written)}")
    return written


def amounts(written: Mapping[str, Any] | None) -> dict[str, int]:
    """Parse ``{u: 2, gpu: 1, memory: 4Gi}``; u is one CPU with one GiB."""
    sums: dict[str, int] = {}
    for name, value in (written or {}).items():
        parts = [("cpu", value), ("memory", f"{value}Gi")] if name == "u" else [(resource(name), value)]
        for resource_name, quantity in parts:
            sums[resource_name] = sums.get(resource_name, 0) + parse_quantity(resource_name, str(quantity))
    return sums


def resource(name: str) -> str:
    return ALIASES.get(name, name)


def requirements(written: Mapping[str, Any] | None) -> tuple[Requirement, ...]:
    """Parse ``{tier: gpu}`` or ``{tier: [In, gpu, fast]}``."""
    parsed = []
    for key, value in (written or {}).items():
        operator, *values = value if isinstance(value, list) else ("In", value)
        parsed.append(Requirement(key, operator, tuple(map(str, values))))
    return tuple(parsed)


def names(written: Iterable[str] | None) -> tuple[ClusterName, ...]:
    return tuple(ClusterName(name) for name in written or ())


def affinity(written: Mapping[str, Any]) -> Affinity:
    return Affinity(
        names=names(written.get("names")),
        excluded=frozenset(names(written.get("exclude"))),
        labels=requirements(written.get("labels")),
        fields=requirements(written.get("fields")),
    )


def placement(written: Mapping[str, Any] | None) -> Placement:
    """Parse a placement; one cluster for the whole workload unless ``spread`` is given."""
    written = known(written or {}, PLACEMENT)
    spread = tuple(
        Spread(entry.get("by", "cluster"), entry.get("min", 1), entry.get("max", 0))
        for entry in written.get("spread", ())
    )
    return Placement(
        affinity=affinity(written["affinity"]) if "affinity" in written else None,
        terms=tuple(
            Term(term["name"], affinity(term), tuple(map(affinity, term.get("overflow", ()))))
            for term in written.get("terms", ())
        ),
        tolerations=tuple(Toleration(**entry) for entry in written.get("tolerations", ())),
        spread=spread if "spread" in written else ONE_CLUSTER,
        divided=written.get("divided", False),
        aggregated=written.get("aggregated", False),
        weights=tuple(StaticWeight(affinity(entry), entry["weight"]) for entry in written.get("weights", ())),
    )


def cluster(written: Mapping[str, Any]) -> Cluster:
    """Parse a cluster; ``has: null`` means that it has no resource summary."""
    known(written, CLUSTER)
    allocatable = {"pods": 1_000_000, **amounts(written["has"])} if written.get("has") is not None else None
    return Cluster(
        name=ClusterName(written["name"]),
        labels={key: str(value) for key, value in written.get("labels", {}).items()},
        provider=written.get("provider", ""),
        region=written.get("region", ""),
        zones=tuple(written.get("zones", ())),
        taints=tuple(
            Taint(entry["key"], entry.get("value", ""), entry["effect"]) for entry in written.get("taints", ())
        ),
        enablements=frozenset(KINDS[kind] for kind in written.get("enables", KINDS)),
        ready=written.get("ready", True),
        deleting=written.get("deleting", False),
        allocatable=allocatable,
        used=amounts(written.get("used")),
        grades=tuple(map(amounts, written.get("grades", ()))),
    )


def queue(written: Mapping[str, Any]) -> Queue:
    known(written, QUEUE)
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


def task(written: Mapping[str, Any]) -> Task:
    known(written, TASK)
    return Task(
        name=written.get("name", ""),
        replicas=written.get("replicas", 1),
        minimum=written.get("minAvailable"),
        pod=PodTemplate(
            containers=tuple(container(entry) for entry in written.get("containers", ())),
            init=tuple(container(entry) for entry in written.get("init", ())),
            overhead=amounts(written.get("overhead")),
            requests=amounts(written.get("requests")),
            limits=amounts(written.get("limits")),
            priority_class=written.get("priorityClassName", ""),
        ),
    )


def shape(written: Mapping[str, Any]) -> SchedulingRequirements:
    """Parse the requests of a job: ``tasks`` of a template, ``replicas`` of ``asks``, or just ``asks``."""
    asked = amounts(written.get("asks"))
    if "tasks" in written:
        job = JobTemplate(tuple(task(entry) for entry in written["tasks"]), written.get("minAvailable", 0))
        classes = written.get("classes", {})
        gang = gang_minimum(job, lambda name: classes.get(name, 0))
        sets = pod_sets(job, lambda name: classes.get(name, 0))
        requested = SchedulingRequirements(total_requests(job), gang, pods=pod_requests(job), pod_sets=sets)
    elif "replicas" in written:
        whole = scale(asked, written["replicas"])
        requested = SchedulingRequirements(whole, whole, api=KINDS["Deployment"], replicas=written["replicas"])
    else:
        requested = SchedulingRequirements(asked, amounts(written["gang"]) if "gang" in written else asked)
    return replace(
        requested,
        placement=placement(written.get("placement")),
        observed_term=written.get("term", ""),
        preferred_clusters=names(written.get("prefers")),
        evicting_from=frozenset(names(written.get("evictingFrom"))),
        current_clusters=frozenset(names(written.get("runsOn"))),
        excluded_clusters=frozenset(names(written.get("excludedClusters"))),
        retryable_clusters=frozenset(names(written.get("retryableClusters"))),
    )


def workloads(written: Mapping[str, Any], order: int, *, now: int = 0) -> Iterator[Workload]:
    """Parse one entry of ``jobs``; ``count: 3`` makes name-1 to name-3, each a second younger."""
    known(written, JOB)
    asked = shape(written)
    count = written.get("count")
    for number in range(1, (count or 1) + 1):
        name = f"{written['name']}-{number}" if count else written["name"]
        yield Workload(
            uid=WorkloadUid(f"uid-{written.get('uid', name)}"),
            namespace=written.get("namespace", "ml"),
            name=name,
            kind=asked.api.kind,
            queue=QueueName(written.get("queue", "default")),
            requirements=asked,
            priority=written.get("priority", 0),
            created_at=written.get("since", order + number - 1) * 1000,
            state=WorkloadState.ADMITTED if "on" in written else WorkloadState.PENDING,
            admission=admission(asked, written, now) if "on" in written else None,
            hold=hold(written["hold"], now) if "hold" in written else None,
            details=WorkloadDetails(
                priority_class=written.get("class", ""),
                unknown_class=written.get("unknownClass", False),
                evictions=written.get("evictions", 0),
                preserved=written.get("preserved", False),
                has_long_grace_period=written.get("endsLate", False),
                preempts=not written.get("never", False),
                nomination=nomination(written["nominated"], asked, now) if "nominated" in written else None,
                gang=HyperJobGang(**written["group"]) if "group" in written else None,
                reservation=reserved(written["reserved"], now) if "reserved" in written else None,
                run_time_ms=written["runs"] * 1000 if "runs" in written else None,
                failed_starts=written.get("attempts", 0),
                has_run=written.get("started", False),
                unplaced=written.get("unplaced", False),
            ),
        )


def hold(written: str | Mapping[str, Any], now: int) -> Refusal:
    """Parse ``Suspended`` or ``{reason: StartupBackoff, for: 60}``, in seconds from now."""
    if isinstance(written, str):
        return Refusal(Reason(written))
    return Refusal(Reason(written["reason"]), until=now + written["for"] * 1000)


def nomination(written: Mapping[str, Any], asked: SchedulingRequirements, now: int) -> Nomination:
    """Parse ``{cluster: m, for: 60, rank: 0, asks: {u: 1}}``, in seconds up to now."""
    demand = amounts(written["asks"]) if "asks" in written else asked.requests
    since = now - written.get("for", 0) * 1000
    return Nomination(ClusterName(written["cluster"]), since, written.get("rank", 0), demand)


def reserved(written: Mapping[str, Any], now: int) -> Reservation:
    """Parse ``{for: 60, cluster: m, asks: {u: 1}}``, in seconds up to now; old records have only the time.

    ``clusters: {m: {u: 1}, n: {u: 2}}`` instead of ``cluster`` and ``asks`` gives what is reserved on several
    clusters.
    """
    parts = {name: amounts(entry) for name, entry in written.get("clusters", {}).items()}
    demand = amounts(written["asks"]) if "asks" in written else None
    if "cluster" in written and demand is not None:
        parts[written["cluster"]] = demand
    rooms = tuple(ClusterCharge(ClusterName(name), part) for name, part in sorted(parts.items()))
    return Reservation(now - written.get("for", 0) * 1000, rooms, total(parts.values()) if parts else demand)


def admission(asked: SchedulingRequirements, written: Mapping[str, Any], now: int) -> Admission:
    """Parse ``m``, ``[m1, m2]`` or replicas by cluster, ``{m1: 3, m2: 1}``; ``charge`` is that on each cluster."""
    where = written["on"]
    if isinstance(where, Mapping):
        parts = {name: scale(asked.replica_requests, replicas) for name, replicas in where.items()}
    else:
        charge = amounts(written["charge"]) if "charge" in written else asked.requests
        parts = dict.fromkeys(where if isinstance(where, list) else [where], charge)
    bookings = tuple(ClusterCharge(ClusterName(name), part) for name, part in parts.items())
    return Admission(
        charge=total(parts.values()),
        cluster_charges=bookings,
        admitted_at=now - written["ran"] * 1000 if "ran" in written else 0,
        adopted=written.get("adopted", False),
        resized=bool(written.get("resized")),
        increased=frozenset(map(resource, written["resized"] if isinstance(written.get("resized"), list) else ())),
        moved=written.get("moved", False),
        reported=written.get("shown", False),
    )


def policy(written: Mapping[str, Any] | None) -> Policy:
    written = known(written or {}, POLICY)
    tenants = tuple(
        Tenant(tuple(entry["namespaces"]), tuple(entry.get("queues", ())), tuple(entry.get("priorityClasses", ())))
        for entry in written.get("tenants", ())
    )
    return Policy(
        queue_order=written.get("queueOrder", "PriorityFirst"),
        tenant_fairness=written.get("tenantFairness", "None"),
        settle_ms=written.get("clusterStatusSettlePeriod", 30) * 1000,
        startup_timeout_ms=written["startupTimeout"] * 1000 if "startupTimeout" in written else None,
        tenants=tenants,
        node_shapes=tuple(map(node_shapes, written.get("nodeShapes", ()))),
        resize=resize(written.get("resize", {})),
        reclaim=eviction(written.get("reclaim")),
        preemption=eviction(written.get("preemption")),
        backfill=Backfill(enabled=written.get("backfill") != "off", evicts_overrun=written.get("backfill") == "Evict"),
        ageing=ageing(written.get("ageing")),
        advance_reservations=tuple(map(advance_reservation, written.get("advanceReservations", ()))),
        head_reservation=head_reservation(written.get("headReservation", {})),
    )


def head_reservation(written: Mapping[str, Any]) -> HeadReservationPolicy:
    """Parse ``{max: 1800, maxIdle: 0.1}``, in seconds."""
    known(written, "max maxIdle")
    permille = round(1000 * written.get("maxIdle", 0.1))
    return HeadReservationPolicy(max_ms=written.get("max", 7200) * 1000, max_idle_permille=permille)


def ageing(written: Mapping[str, Any] | None) -> Ageing:
    """Parse ``{after: 60, step: 10, max: 20}``, with seconds."""
    written = known(written or {}, "after step max")
    return Ageing(written.get("after", 0) * 1000, written.get("step", 0), written.get("max", 0))


def advance_reservation(written: Mapping[str, Any]) -> AdvanceReservation:
    """Parse ``{name: x, clusters: [m], from: 1000600, until: 1001200}``, in seconds like those of jobs."""
    known(written, "name clusters from until queue workload amounts evict drain")
    return AdvanceReservation(
        written["name"],
        clusters=names(written["clusters"]),
        since=written["from"] * 1000,
        until=written["until"] * 1000,
        queue=QueueName(written["queue"]) if "queue" in written else None,
        workload=tuple(written["workload"].split("/")) if "workload" in written else None,
        amounts=amounts(written.get("amounts")),
        evicts=written.get("evict", False),
        drain_ms=written.get("drain", 86_400) * 1000,
    )


def node_shapes(written: Mapping[str, Any]) -> NodeShapes:
    """Parse ``{clusters: {names: [m]}, nodes: [{count: 4, has: {gpu: 8}}]}``."""
    known(written, "clusters nodes")
    nodes = tuple(NodeShape(entry["count"], tuple(sorted(amounts(entry["has"]).items()))) for entry in written["nodes"])
    return NodeShapes(affinity(written["clusters"]), nodes)


def resize(written: Mapping[str, Any]) -> Resize:
    """Parse ``{action: Report, gracePeriod: 60}``, in seconds."""
    known(written, "action gracePeriod")
    return Resize(written.get("action", "Evict") == "Evict", written.get("gracePeriod", 300) * 1000)


def eviction(written: Mapping[str, Any] | None) -> EvictionPolicy:
    """Parse ``{}`` as enabled with the default limits; missing means disabled."""
    if written is None:
        return EvictionPolicy()
    known(written, EVICTION)
    return EvictionPolicy(
        enabled=True,
        min_runtime_ms=written.get("minRuntime", 300) * 1000,
        max_evictions=written.get("maxEvictions", 3),
    )
