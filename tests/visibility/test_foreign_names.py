"""No answer to a reader of one namespace names workloads of others, or queues outside of its own paths."""

import re
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.api.quantity import parse_quantity
from controller.api.visibility import VisibleWorkloads
from controller.cli.render.output import PLAIN
from controller.cli.render.visibility import pending_listing, workload_text
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.policy import HeadReservationPolicy
from controller.engine.state.hierarchy import QueueName
from controller.scheduling.workload_events import pending_note
from controller.visibility.report import describe, queues_of, workloads_of
from controller.visibility.scan import Scan
from tests.engine import worlds

NAMESPACES = ("one", "two")


def own_queues(engine: Engine, name: QueueName) -> set[str]:
    """Return a queue and its ancestors, also in a cycle."""
    path: set[str] = set()
    while name not in path:
        path.add(name)
        queue = engine.queues.get(name)
        name = queue.parent if queue is not None else name
    return path


def texts_for(engine: Engine, plan: Plan, namespace: str) -> list[tuple[QueueName, str]]:
    """Return every text that a reader of *namespace* gets, with the queue of the workload."""
    texts = []
    scan = Scan()
    for workload in engine.workloads.values():
        scan.add(workload)
    usage = scan.usage[namespace]
    for workload in workloads_of(engine, scan.workloads[namespace]):
        queues = tuple(queues_of(engine, {name: own for name, own in usage.items() if name == workload.queue}))
        answer = VisibleWorkloads(namespace, (describe(engine, workload, scan),), queues=queues)
        shown = (msgspec.json.encode(answer).decode(), pending_listing(answer).text(), workload_text(answer, PLAIN))
        texts += [(workload.queue, text) for text in shown]
    return texts + [
        (wait.workload.queue, pending_note(wait)) for wait in plan.waits if wait.workload.namespace == namespace
    ]


@given(
    queues=worlds.queues(),
    clusters=worlds.clusters(),
    workloads=worlds.workloads(),
    policy=worlds.policies(),
    later=st.sampled_from([0, 10_000]),
)
def test_no_text_names_objects_of_others(queues, clusters, workloads, policy, later):
    policy = replace(policy, head_reservation=HeadReservationPolicy(after_ms=1000, max_ms=1_000_000))
    engine = worlds.build(policy, *queues, *clusters, *workloads)
    engine.plan(worlds.NOW)
    plan = engine.plan(worlds.NOW + later)
    for namespace in NAMESPACES:
        foreign = {workload.name for workload in engine.workloads.values() if workload.namespace != namespace}
        for queue, text in texts_for(engine, plan, namespace):
            named = set(re.findall(r"[a-z]+-\d+|q\d+", text))
            assert not named & foreign, text
            others = {name for name in engine.queues if name not in own_queues(engine, queue)}
            assert not named & others, text


@given(queues=worlds.queues(), clusters=worlds.clusters(), workloads=worlds.workloads(), policy=worlds.policies())
def test_own_and_other_amounts_add_up_to_the_queue(queues, clusters, workloads, policy):
    engine = worlds.build(policy, *queues, *clusters, *workloads)
    engine.plan(worlds.NOW)
    scan = Scan()
    for workload in engine.workloads.values():
        scan.add(workload)
    for namespace in NAMESPACES:
        for queue in queues_of(engine, scan.usage[namespace]):
            usage = engine.current_usage.get(QueueName(queue.name), {})
            for resource, own in queue.allocated.items():
                both = parse_quantity(resource, own) + parse_quantity(resource, queue.others_allocated[resource])
                assert both == usage.get(resource, 0)
            assert queue.pending + queue.others_pending == engine.pending_count(QueueName(queue.name))
