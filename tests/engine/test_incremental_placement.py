"""Compares plans as `test_incremental` does, and looks for missed wake-ups, while what placement depends on changes.

That is: taints, labels, resource models and new resources of clusters, node shapes, answers of estimators, data and
resource claims, and affinity terms.
"""

import os
from dataclasses import replace
from random import Random

import pytest

from controller.engine.plan import Plan
from controller.engine.policy import NodeShapes
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, ClusterName, NodeShape, Requirement
from controller.engine.state.estimates import Estimate, Query
from controller.engine.state.workloads import Workload, WorkloadState
from tests.engine.test_incremental import RandomRun, check_reservations, fresh, reasons
from tests.engine.worlds import CLUSTERS, FPGA, DetailedObjects

EVENTS = 120
PROPERTIES = (
    *("taints", "labels", "region", "ready", "deleting", "enablements", "allocatable"),
    *("grades", "grades", "used", "used", "used"),
)
CLAIMS = (None, Refusal(Reason.DATA_NOT_READY), Refusal(Reason.REQUESTS_UNKNOWN))


class PlacementRun(RandomRun):
    """A run in which half of the events change what placement depends on."""

    kind_of_objects = DetailedObjects

    def __init__(self, seed: int) -> None:
        self.queries: list[Query] = []
        super().__init__(seed, exchanges=True, groups=seed % 3 > 0)
        self.engine.policy_changed(replace(self.engine.policy, node_estimates=self.dice.random() < 0.5))

    def node_shapes(self, name: ClusterName) -> NodeShapes:
        shapes, labels = super().node_shapes(name), Affinity(labels=(Requirement("tier", "In", ("x",)),))
        memory = NodeShape(self.dice.randint(1, 4), (("memory", self.dice.randint(0, 9)),))
        return replace(shapes, clusters=self.dice.choice([shapes.clusters, labels]), nodes=(*shapes.nodes, memory))

    def apply_event(self) -> None:
        if self.dice.random() < 0.5:
            super().apply_event()
            return
        frequent = [self.answer, self.answer, self.change_property, self.change_property, self.wait]
        self.dice.choice([*frequent, self.move_data, self.claim, self.request_resource, self.describe_nodes])()

    def any_workload(self, *states: WorkloadState) -> Workload | None:
        workloads = [workload for workload in self.engine.workloads.values() if workload.state in states]
        return self.dice.choice(workloads) if workloads else None

    def answer(self) -> None:
        """Answer an open query, perhaps too late."""
        if self.queries:
            query = self.queries.pop(self.dice.randrange(len(self.queries)))
            count, is_silent = self.dice.choice([0, 1, 2, 5, None, -1]), self.dice.random() < 0.1
            self.engine.cluster_estimated(Estimate(query, count, is_silent=is_silent), self.now)

    def change_property(self) -> None:
        """Change one property of a cluster."""
        known = self.engine.cluster_usage.clusters
        if known:
            before, name = self.dice.choice(known), self.dice.choice(PROPERTIES)
            changed = replace(before, **{name: getattr(self.objects.cluster(before.name), name)})
            self.engine.cluster_changed(changed, self.now)

    def move_data(self) -> None:
        """Change which clusters hold the data of a pending workload."""
        workload = self.any_workload(WorkloadState.PENDING)
        if workload is not None:
            data = self.dice.choice([None, self.objects.data_clusters(), self.objects.data_clusters()])
            self.update(workload, requirements=replace(workload.requirements, data_clusters=data))

    def claim(self) -> None:
        """Let the data or resource claims of a workload become unknown, or known again; an admitted one may follow."""
        self.update(self.any_workload(WorkloadState.PENDING, WorkloadState.ADMITTED), hold=self.dice.choice(CLAIMS))

    def request_resource(self) -> None:
        """Name another resource in a queue."""
        if self.engine.queues:
            queue = self.dice.choice(list(self.engine.queues.values()))
            name = self.dice.choice(["capability", "deserved", "guarantee"])
            self.engine.queue_changed(replace(queue, **{name: {**getattr(queue, name), FPGA: self.dice.randint(0, 3)}}))

    def describe_nodes(self) -> None:
        shapes = tuple(self.node_shapes(name) for name in self.dice.choice([[], CLUSTERS[:1], CLUSTERS[:2]]))
        is_estimating = self.engine.policy.node_estimates is not (self.dice.random() < 0.1)
        self.engine.policy_changed(replace(self.engine.policy, node_shapes=shapes, node_estimates=is_estimating))

    def wait(self) -> None:
        self.now += self.dice.choice([100, 300, 5_000, 31_000])


def changes(plan: Plan) -> tuple[object, ...]:
    return (*plan.decisions, *plan.record_updates, *plan.reschedules)


def compare(seed: int) -> None:
    """Compare each plan with that of a rebuilt state, and with one at a random time before its wake-up."""
    run, dice = PlacementRun(seed), Random(seed)
    for number in range(EVENTS):
        where = f"seed {seed}, event {number}"
        run.apply_event()
        rebuilt = fresh(run.engine, run.now)
        expected, plan = rebuilt.plan(run.now), run.engine.plan(run.now)
        assert changes(plan) == changes(expected), where
        assert dict(reasons(run.engine)) == dict(reasons(rebuilt)), where
        check_reservations(run.engine)
        run.queries += plan.queries
        wake_at = plan.wake_at or run.now + 3_000_000
        if not changes(plan) and wake_at > run.now and dice.random() < 0.5:
            early = fresh(run.engine, run.now)
            early.plan(run.now)
            early._planned_changes = -1  # an event that changes nothing
            at = dice.choice([dice.randrange(run.now, wake_at), wake_at - 1])
            assert changes(early.plan(at)) == (), f"{where}, at {at} before {wake_at}"
        run.now += 10


@pytest.mark.parametrize("seed", range(4))
def test_changed_placement_plans_as_in_a_rebuilt_state(seed):
    compare(seed)


@pytest.mark.long
def test_300_runs_with_changed_placement_plan_as_rebuilt_states():
    for seed in range(1000, 1000 + int(os.environ.get("RUNS", "300"))):
        compare(seed)
