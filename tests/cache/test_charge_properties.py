"""Charges of a divided workload through any sequence of resizes, divisions, moves and rollouts.

A small model of Karmada and the clusters says what they run; the controller accepts each resize and each move.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.store import Store
from controller.engine.state.workloads import Workload
from controller.scheduling.writes import confirmation_write
from tests.cache.fake_event_handler import received
from tests.cache.objects import DEPLOYMENT, DEPLOYMENTS, admission_record, deployment, deployment_binding

UID = "rb-web"
DIVIDED = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}
NAMES = ("m1", "m2", "m3")
MOST = 4


@dataclass
class Model:
    """A Deployment, its binding, and what runs in the clusters."""

    store: Store = field(default_factory=lambda: Store(DEPLOYMENTS))
    replicas: int = 2
    cpus: int = 1
    generation: int = 1
    placed: dict[str, int] = field(default_factory=lambda: {"m1": 2})
    leaving: dict[str, int] = field(default_factory=dict)
    """Replicas on the clusters of eviction tasks."""
    leaving_cpus: int = 0
    """CPUs of each of them: Karmada dispatches no later template to these clusters."""
    running: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Replicas, CPUs of each, and generation of the template in each cluster."""
    record: str = admission_record(UID, queue="a", charge={"cpu": "2", "pods": "2"}, clusters=("m1",))
    peak: int = 2
    """The most CPUs that it can have used at once, as far as its template says."""
    peak_cpus: int = 1

    def resize(self, replicas: int, cpus: int) -> None:
        self.generation += 1
        self.replicas, self.cpus, self.peak_cpus = replicas, cpus, max(cpus, self.peak_cpus)
        self.peak = max(self.peak, self.peak_cpus * max(replicas, sum(self.placed.values())))

    def divide(self, weights: list[int]) -> None:
        """Divide the replicas among clusters that it is not leaving, in the order of *weights*."""
        free = [name for name in NAMES if name not in self.leaving]
        counts = dict.fromkeys(free, 0)
        for replica in range(self.replicas):
            counts[free[weights[replica] % len(free)]] += 1
        self.placed = {name: count for name, count in counts.items() if count}

    def fail_over(self, weights: list[int]) -> None:
        """Move all replicas of one cluster, which keeps them until its eviction task ends."""
        if self.placed and not self.leaving:
            name = min(self.placed)
            self.leaving, self.leaving_cpus = {name: self.placed[name]}, self.cpus
            self.divide(weights)

    def end_evictions(self) -> None:
        self.running = {name: state for name, state in self.running.items() if name not in self.leaving}
        self.leaving = {}

    def roll_out(self) -> None:
        """Let all clusters follow the binding, and report."""
        staying = {name: state for name, state in self.running.items() if name in self.leaving}
        self.running = staying | {name: (count, self.cpus, self.generation) for name, count in self.placed.items()}

    def observe(self) -> Workload:
        """Return the workload after all writes of its record."""
        for _ in range(4):
            workload = self._observe_once()
            binding = self.store.binding(workload.uid)
            assert binding is not None
            if not (workload.has_moved or workload.has_resized):
                return workload
            made = confirmation_write(binding, workload)
            assert made is not None
            (self.record,) = (step["value"] for step in json.loads(made.patch) if ADMISSION_ANNOTATION in _name(step))
        raise AssertionError("its record is written again and again")

    def _observe_once(self) -> Workload:
        tasks = [{"fromCluster": name, "replicas": count} for name, count in self.leaving.items()]
        statuses = {
            name: {"replicas": count, "updatedReplicas": count, "resourceTemplateGeneration": generation}
            for name, (count, _, generation) in self.running.items()
        }
        spec = {"replicas": self.replicas or None, "placement": DIVIDED, "gracefulEvictionTasks": tasks}
        clusters = [{"name": name, "replicas": count} for name, count in self.placed.items()]
        bound = deployment_binding(
            cpu=str(self.cpus), paused=False, clusters=clusters, record=self.record, statuses=statuses, spec=spec
        )
        template = deployment(spec={"replicas": self.replicas}, generation=self.generation)
        return received(self.store, (DEPLOYMENT, template), ("bindings", bound)).workloads[UID]


def _name(step: dict[str, Any]) -> str:
    return str(step["path"]).replace("~1", "/")


def charged(workload: Workload) -> dict[str, int]:
    """Return the CPUs that are charged on each cluster, in thousandths."""
    assert workload.admission is not None
    return {booking.cluster: booking.charge.get("cpu", 0) for booking in workload.admission.cluster_charges}


WEIGHTS = st.lists(st.integers(0, len(NAMES) - 1), min_size=MOST, max_size=MOST)
STEPS = st.one_of(
    st.tuples(st.just(Model.resize), st.integers(0, MOST), st.integers(1, 3)),
    st.tuples(st.just(Model.divide), WEIGHTS),
    st.tuples(st.just(Model.fail_over), WEIGHTS),
    st.tuples(st.just(Model.end_evictions)),
    st.tuples(st.just(Model.roll_out)),
)


@given(st.lists(STEPS, max_size=12), WEIGHTS)
def test_charge_covers_what_runs_and_returns_to_the_peak(steps, weights):
    """D6, D7 and C4: a failover, a new division and a rollout are charged only as long as they last."""
    model = Model()
    model.observe()
    for step, *arguments in steps:
        step(model, *arguments)
        charges = charged(model.observe())
        if model.replicas and model.placed:
            assert all(charges[name] >= count * model.cpus * 1000 for name, count in model.placed.items())
            cpus = min(model.cpus, model.leaving_cpus)
            assert all(charges[name] >= count * cpus * 1000 for name, count in model.leaving.items())
    model.end_evictions()
    model.divide(weights)
    model.roll_out()
    whole = sum(charged(model.observe()).values())
    assert model.replicas * model.cpus * 1000 <= whole <= model.peak * 1000
