"""Compares the generated objects of the benchmarks with the generated state of the engine."""

import msgspec

from controller.cache.store import Store
from tests.benchmarks.generated_objects import GeneratedState
from tests.benchmarks.states import NOW, Size, workloads
from tests.cache.fake_event_handler import FakeEventHandler

SIZE = Size(600, (2, 3, 2), clusters=7, further_resources=4)


def clusters_of(workload):
    return [charge.cluster for charge in workload.admission.cluster_charges] if workload.admission else None


def test_generated_objects_are_the_engines_workloads():
    state, store, received = GeneratedState(SIZE), Store(), FakeEventHandler()
    for manifest in (manifest for manifest in state.manifests() if manifest["kind"] == "PriorityClass"):
        manifest["metadata"]["resourceVersion"] = "1"
        store.priority_classes.upsert(store.priority_classes.decode(msgspec.json.encode(manifest)))
    for index in range(state.jobs.count):
        store.jobs.upsert(store.jobs.decode(state.jobs.make(index)))
        store.bindings.upsert(store.bindings.decode(state.bindings.make(index)))
    while not store.sync_to(received, NOW):
        pass
    by_name = {workload.name: workload for workload in received.workloads.values()}
    assert not any(store.conditions.values())
    for expected in workloads(SIZE):
        workload = by_name.pop(expected.name)
        assert (workload.namespace, workload.queue, workload.priority, workload.state) == (
            expected.namespace,
            expected.queue,
            expected.priority,
            expected.state,
        )
        present = {name: amount for name, amount in expected.requirements.requests.items() if amount}
        assert workload.requirements.requests == present
        assert workload.requirements.placement.spread == expected.requirements.placement.spread
        assert clusters_of(workload) == clusters_of(expected)
    assert not by_name
