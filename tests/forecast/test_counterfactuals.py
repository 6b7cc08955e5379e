"""Applies every counterfactual to new random states: it admits the workload, and the next smaller change does not."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import msgspec
import pytest

from controller.api.quantity import format_quantity, parse_quantity
from controller.engine.checkpoint import take_checkpoint, take_history
from controller.engine.engine import Engine
from controller.engine.policy import Policy
from controller.engine.remedies import plan_until_stable
from controller.engine.state.clusters import Taint, Toleration
from controller.engine.state.hierarchy import Queue, QueueName
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
from controller.engine.state.workloads import Admission, ClusterCharge, Workload, WorkloadState, WorkloadUid
from controller.forecast import counterfactuals as under_test
from controller.forecast.counterfactuals import (
    Counterfactual,
    Dimension,
    FieldChange,
    PendingJob,
    find_counterfactuals,
)
from controller.forecast.trials import Trials, finished, step_of
from tests.engine.objects import cluster, workload
from tests.engine.test_remedies import draw, pending
from tests.engine.worlds import NOW, RandomObjects, build
from tests.workloads import changed

UNITS = {"cpu": 500, "memory": 256 * 2**20, "nvidia.com/gpu": 1000, "pods": 1}
TAINTS = [Taint("dedicated", "training", "NoSchedule"), Taint("spot", "", "NoExecute")]
CLASSES = {"low": 0, "normal": 10, "high": 20}


def scaled(amounts):
    return {name: amount * UNITS[name] for name, amount in amounts.items()}


class World:
    """A random state in common units, with the templates of its jobs."""

    def __init__(self, seed: int) -> None:
        drawn, self.objects = draw(seed), RandomObjects(Random(f"templates {seed}"))
        self.policy = drawn.policy
        self.clusters = {
            cluster.name: replace(
                cluster,
                allocatable=scaled(cluster.allocatable),
                used=scaled(cluster.used),
                taints=tuple(taint for taint in TAINTS if self.objects.chance(10)),
            )
            for cluster in drawn.clusters
        }
        self.queues = {
            queue.name: replace(
                queue,
                capability=scaled(queue.capability),
                deserved=scaled(queue.deserved),
                guarantee=scaled(queue.guarantee),
            )
            for queue in drawn.queues
        }
        self.templates = {workload.uid: self.template() for workload in drawn.workloads}
        self.workloads = [self.with_template(workload, self.templates[workload.uid]) for workload in drawn.workloads]

    def engine(self) -> Engine:
        return build(self.policy, *self.workloads, *self.queues.values(), *self.clusters.values())

    def template(self) -> JobTemplate:
        tasks = tuple(self.task(number) for number in range(self.objects.random.randint(1, 2)))
        pods = sum(task.replicas for task in tasks)
        return JobTemplate(tasks, self.objects.random.choice([0, 0, pods, max(pods - 1, 1)]))

    def task(self, number: int) -> Task:
        amounts = scaled({"cpu": 1, **self.objects.amounts(2)})
        container = Container(requests=amounts, limits={name: amounts[name] for name in amounts if "/" in name})
        return Task(f"task-{number}", self.objects.random.randint(1, 4), PodTemplate(containers=(container,)))

    def with_template(self, workload: Workload, template: JobTemplate) -> Workload:
        requirements = replace(
            workload.requirements,
            requests=total_requests(template),
            gang_requests=gang_minimum(template, zero),
            pods=pod_requests(template),
            pod_sets=pod_sets(template, zero),
        )
        admission = workload.admission
        if admission is not None:
            charge = requirements.requests
            admission = Admission(
                charge, (ClusterCharge(admission.cluster_charges[0].cluster, charge),), reported=True, admitted_at=1
            )
        return replace(workload, requirements=requirements, admission=admission)

    def apply(self, change: FieldChange) -> None:
        """Change the object that *change* names, as a user would."""
        kind, *path = change.target.split("/")
        if kind == "queue":
            queue = self.queues[QueueName(path[0])]
            field, resource = re.fullmatch(r"spec\.(\w+)\.'?([^']+)'?", change.field).groups()
            amounts = getattr(queue, field)
            assert format_quantity(resource, amounts[resource]) == change.before
            self.queues[queue.name] = replace(
                queue, **{field: {**amounts, resource: parse_quantity(resource, change.after)}}
            )
        elif kind == "cluster":
            cluster = self.clusters[path[0]]
            resource = re.fullmatch(r"status\.resourceSummary\.allocatable\.'?([^']+)'?", change.field).group(1)
            allocatable = {**cluster.allocatable, resource: parse_quantity(resource, change.after)}
            self.clusters[path[0]] = replace(cluster, allocatable=allocatable)
        else:
            self.apply_to_job(path[-1], change)

    def apply_to_job(self, name: str, change: FieldChange) -> None:
        index = next(number for number, workload in enumerate(self.workloads) if workload.name == name)
        self.workloads[index] = self.changed_job(self.workloads[index], change)

    def changed_job(self, workload: Workload, change: FieldChange) -> Workload:
        if change.field == "status.state.phase":
            # Its cluster's summary still includes its pods.
            return changed(finished(workload), last_admission=replace(workload.admission, ends_at=NOW))
        if change.field == "spec.queue":
            return replace(workload, queue=QueueName(change.after))
        if change.field == "spec.priorityClassName":
            return changed(workload, priority=CLASSES[change.after], priority_class=change.after)
        if change.field == "spec.placement.clusterTolerations":
            tolerations = tuple(msgspec.json.decode(change.after, type=tuple[Toleration, ...]))
            placement = replace(workload.requirements.placement, tolerations=tolerations)
            return replace(workload, requirements=replace(workload.requirements, placement=placement))
        if change.field.startswith("spec.placement"):
            placement = replace(workload.requirements.placement, affinity=None, terms=())
            return replace(workload, requirements=replace(workload.requirements, placement=placement))
        template = self.templates[workload.uid] = changed_template(self.templates[workload.uid], change)
        return self.with_template(workload, template)


def zero(_: str) -> int:
    return 0


def changed_template(template: JobTemplate, change: FieldChange) -> JobTemplate:
    if change.field == "spec.minAvailable":
        return replace(template, min_available=int(change.after))
    index = int(re.match(r"spec\.tasks\[(\d+)\]", change.field).group(1))
    task = template.tasks[index]
    if change.field.endswith(".replicas"):
        changed = replace(task, replicas=int(change.after))
    else:
        part, resource = re.search(r"resources\.(\w+)\.'?([^']+)'?$", change.field).groups()
        container = task.pod.containers[0]
        amounts = {**getattr(container, part), resource: parse_quantity(resource, change.after)}
        changed = replace(task, pod=replace(task.pod, containers=(replace(container, **{part: amounts}),)))
    return replace(template, tasks=(*template.tasks[:index], changed, *template.tasks[index + 1 :]))


def counterfactuals(seed: int, *, most: int = 3) -> Iterator[tuple[WorkloadUid, Counterfactual]]:
    """Yield the counterfactuals of the first pending workloads of one state, whose engine does not change."""
    world = World(seed)
    engine, untouched = world.engine(), take_checkpoint(World(seed).engine())
    history = take_history(engine)
    plan = engine.plan(NOW)
    waiting = pending(engine)

    trials = Trials(engine, history, NOW, plan)
    for uid in waiting[:most]:
        job = PendingJob(engine.workloads[uid], world.templates[uid], zero, CLASSES, engine.workloads[uid].name)
        for counterfactual in find_counterfactuals(trials, job):
            yield uid, counterfactual
        after = take_checkpoint(engine)
        assert sorted(after.workloads, key=uid_of) == sorted(untouched.workloads, key=uid_of)
        assert (after.queues, after.history) == (untouched.queues, untouched.history)


def uid_of(workload: Workload) -> WorkloadUid:
    return workload.uid


def is_admitted(seed: int, uid: WorkloadUid, changes: tuple[FieldChange, ...]) -> bool:
    world = World(seed)
    for change in changes:
        world.apply(change)
    engine = world.engine()
    plan_until_stable(engine, NOW)
    return engine.workloads[uid].state is WorkloadState.ADMITTED


def one_step_smaller(counterfactual: Counterfactual) -> tuple[FieldChange, ...] | None:
    """Return the changes by one step less; ``None`` where the dimension has no amounts."""
    first = counterfactual.changes[0]
    if counterfactual.dimension not in {Dimension.REQUESTS, Dimension.QUOTA, Dimension.CAPACITY}:
        return None
    resource = first.field.rpartition(".")[2].strip("'")
    if resource in {"replicas", "minAvailable", "gpu"} or resource == "com/gpu":
        resource = "nvidia.com/gpu"
    before, after = (parse_quantity(resource, text) for text in (first.before, first.after))
    smaller = after - step_of(resource) if after > before else after + step_of(resource)
    return tuple(replace(change, after=format_quantity(resource, smaller)) for change in counterfactual.changes)


def fewer_tolerations(counterfactual: Counterfactual) -> Iterator[FieldChange]:
    """Yield the change of tolerations without each of them."""
    change = counterfactual.changes[0]
    if change.field.endswith("clusterTolerations"):
        tolerations = msgspec.json.decode(change.after)
        for left_out in tolerations:
            others = [toleration for toleration in tolerations if toleration is not left_out]
            yield replace(change, after=msgspec.json.encode(others).decode())


def check(seeds: Iterable[int]) -> Counter[Dimension]:
    dimensions: Counter[Dimension] = Counter()
    for seed in seeds:
        for uid, counterfactual in counterfactuals(seed):
            dimensions[counterfactual.dimension] += 1
            assert is_admitted(seed, uid, counterfactual.changes), (seed, uid, counterfactual)
            smaller = one_step_smaller(counterfactual)
            if smaller is not None:
                assert not is_admitted(seed, uid, smaller), (seed, uid, counterfactual)
            if counterfactual.dimension is Dimension.COMPLETION:
                for change in counterfactual.changes:
                    others = tuple(other for other in counterfactual.changes if other != change)
                    assert not is_admitted(seed, uid, others), (seed, uid, counterfactual)
            for change in fewer_tolerations(counterfactual):
                assert not is_admitted(seed, uid, (change,)), (seed, uid, counterfactual)
    return dimensions


def test_reached_limit_of_pods_is_raised():
    queue = Queue(QueueName("a"), capability={"pods": 2000, "cpu": 100_000})
    jobs = [workload(f"j{n}", {"pods": 1000, "cpu": 1000}, queue="a", created_at=NOW + n) for n in range(4)]
    engine = build(Policy(), *jobs, queue, cluster(cpu=100_000, pods=110_000))
    plan_until_stable(engine, NOW)
    trials = Trials(engine, take_history(engine), NOW, engine.plan(NOW))
    minimal = list(find_counterfactuals(trials, PendingJob(engine.workloads[jobs[3].uid])))
    changes = {
        str(change)
        for counterfactual in minimal
        for change in counterfactual.changes
        if counterfactual.dimension is Dimension.QUOTA
    }
    assert changes == {"queue/a.spec.capability.pods=4"}


def test_queues_with_fewest_workloads_are_tried(monkeypatch):
    monkeypatch.setattr(under_test, "_MAX_QUEUES", 1)
    equal = [workload(f"equal-{n}", {"cpu": 9000}, queue="a") for n in range(3)]
    different = [workload(f"different-{n}", {"cpu": 9000 + n}, queue="b") for n in range(2)]
    template = JobTemplate((Task("task", 1, PodTemplate(containers=(Container(requests={"cpu": 1000}),))),))
    own = workload("own", {"cpu": 1000}, queue="c")
    queues = [Queue(QueueName("a")), Queue(QueueName("b")), Queue(QueueName("c"), capability={"cpu": 0})]
    engine = build(Policy(), *equal, *different, own, *queues, cluster(cpu=8000))
    plan_until_stable(engine, NOW)
    trials = Trials(engine, take_history(engine), NOW, engine.plan(NOW))
    found = find_counterfactuals(trials, PendingJob(engine.workloads[own.uid], template))
    chosen = [
        change.after
        for counterfactual in found
        for change in counterfactual.changes
        if counterfactual.dimension is Dimension.QUEUE
    ]
    assert chosen == ["b"]


def test_counterfactuals_admit_and_are_minimal():
    dimensions = check([*range(32), 86])  # state 86 admits a workload without its affinity
    assert set(dimensions) == set(Dimension)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 21_000, 1000))
def test_counterfactuals_of_twenty_thousand_states(first):
    """Check a thousand states; one range runs alone as ``-k "[5000]"``."""
    print(check(range(first, first + 1000)))  # noqa: T201 -- the figures of the long run
