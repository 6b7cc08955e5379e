"""A changed configuration has the same effect as a restart with it."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.cache.store import Store
from controller.engine.engine import Engine
from tests.cache.fake_event_handler import upsert
from tests.cache.objects import (
    CREATED_MS,
    DEPLOYMENT,
    admission_record,
    binding,
    cluster,
    deployment,
    deployment_binding,
    job,
    priority_class,
    queue,
)
from tests.draws import draws

NOW = CREATED_MS + 3_600_000
LATER = datetime.fromtimestamp(NOW / 1000 + 1800, UTC)
ONE = {"cpu": "1", "pods": "1"}
KIND = "apiVersion: apps/v1, kind: Deployment"
OPTIONS = (
    ("queueOrder: FairShareFirst", "tenantFairness: NamespaceFirst", "ageing: {after: 1m, step: 5, max: 20}"),
    ("defaultQueue: b", "defaultQueue: nowhere"),
    ("startupTimeout: 10s", "startupTimeout: 8h"),
    ("clusterStatusSettlePeriod: 0s", "clusterStatusSettlePeriod: 10m"),
    ("tenants: [{namespaces: [ml], queues: [b]}]", "tenants: [{namespaces: [ml], priorityClasses: [low]}]"),
    ("unmatchedTenants: Deny",),
    ("reclaim: {enabled: true, maxEvictions: 1}", "preemption: {enabled: true, minRuntime: 0s}"),
    ("nodeShapes: [{clusters: [m1], nodes: [{count: 2, allocatable: {cpu: 1}}]}]",),
    ("advanceReservations: [{name: r, clusters: [m1], from: 2026-01-01T00:00:00Z, until: 2027-01-01T00:00:00Z}]",),
    ("resourceClaimTemplates: [{name: gpu, requests: {cpu: 1}}]", "resourceClaimTemplates: []"),
    ("exemptNamespaces: [ml]",),
    (
        f"integrations: [{{{KIND}}}]",
        f"integrations: [{{{KIND}, priorityClass: spec.class}}]",
        f"integrations: [{{{KIND}, queue: spec.queue, finished: {{conditions: [Complete]}}}}]",
    ),
)


def configurations() -> st.SearchStrategy[VolcanoGlobalConfiguration]:
    chosen = st.tuples(*(st.sampled_from(("", *options)) for options in OPTIONS))
    return chosen.map(lambda lines: load_configuration("\n".join(filter(None, lines)) or "{}"))


def record(name: str, **fields: object) -> str:
    return admission_record(f"rb-{name}", queue="a", **fields)


ADMITTED = {"paused": False, "clusters": ["m1"], "phases": {"m1": "Running"}}
LISTS = {
    "queues": [queue("a"), queue("b", weight=2)],
    "priority_classes": [priority_class("high", 100), priority_class("low", -1, default=True)],
    "clusters": [cluster("m1", cpu="12", pods="110", used={"cpu": "6", "pods": "6"}), cluster("m2", cpu="2", pods="9")],
    "jobs": [
        job("pending", queue="", priority="high"),
        job("backing-off"),
        job("reserved", requests={"cpu": "3"}),
        job("aborted"),
        job("running", priority="high", requests={"cpu": "2"}),
        job("finished"),
        job("moved"),
    ],
    "bindings": [
        binding("pending"),
        binding("backing-off", record=record("backing-off", back_off_until=LATER, attempts=1)),
        binding("reserved", record=record("reserved", reserved_since=LATER, evictions=1)),
        binding("aborted", record=record("aborted", aborted=True)),
        binding("running", **ADMITTED, record=record("running", charge=ONE, clusters=("m1",), evictions=1)),
        binding("finished", paused=False, clusters=["m1"], phases={"m1": "Completed"}),
        binding("moved", **ADMITTED, record=record("moved", charge=ONE, clusters=("m2",))),
        deployment_binding(
            cpu="750m",
            paused=False,
            clusters=[{"name": "m1", "replicas": 4}],
            statuses={
                "m1": {"replicas": 4, "readyReplicas": 4, "conditions": [{"type": "Available", "status": "True"}]}
            },
        ),
    ],
}
WEB = deployment(
    annotations={"scheduling.volcano.sh/queue-name": "a"},
    spec={"class": "high", "queue": "b", "template": {"spec": {"priorityClassName": "low", "containers": []}}},
)


def listed(store: Store, engine: Engine) -> None:
    """Add all objects as with a new list, and update *engine*."""
    objects = [(kind, obj) for kind, objects in LISTS.items() for obj in objects]
    upsert(store, *objects, *([(DEPLOYMENT, WEB)] if DEPLOYMENT in store.kinds else []))
    store.sync_to(engine, NOW)


def outcome(store: Store, engine: Engine) -> tuple[object, ...]:
    plan = engine.plan(NOW)
    usage = {name: amounts for name, amounts in engine.current_usage.items() if any(amounts.values())}
    return (
        engine.policy,
        engine.workloads,
        store.conditions,
        plan.decisions,
        {uid: engine.refusal(uid) for uid in engine.workloads},
        usage,
        {
            state.name: {name: amount for name, amount in state.headroom.items() if amount}
            for state in engine.cluster_usage
        },
    )


@draws(60)
@given(configurations(), configurations())
def test_changed_configuration_has_the_effect_of_a_restart(before, after):
    running, restarted = (Store(before), Engine()), (Store(after), Engine())
    listed(*running)
    running[0].configure(after)
    listed(*running)
    restarted[0].note_former_configuration(before)
    listed(*restarted)
    assert outcome(*running) == outcome(*restarted)
