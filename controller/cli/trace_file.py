"""A trace read from manifests: the world they describe, and when each job comes and how long it runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.keys import RUNTIME_ANNOTATION, SUBMIT_ANNOTATION
from controller.cache.objects import TemplateKey, group_kind
from controller.cache.store import Store
from controller.cli.default_bindings import template_key
from controller.cli.manifests import InputError, Manifest
from controller.cli.objects import InputNote
from controller.cli.offline import read_offline_state
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.estimates import Estimate
from controller.engine.policy import Policy
from controller.engine.queues import Queue, QueueName
from controller.engine.reasons import EvictionReason
from controller.engine.requests import pod_request
from controller.engine.workloads import Workload, WorkloadState, WorkloadUid
from controller.simulator.spans import SpanError, format_span, parse_span
from controller.simulator.trace import PodSet, Submission, Trace

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(slots=True)
class TraceRecorder:
    """Takes down what a store tells, as a World would hear it."""

    policy: Policy = field(default_factory=Policy)
    queues: dict[QueueName, Queue] = field(default_factory=dict)
    clusters: dict[ClusterName, Cluster] = field(default_factory=dict)
    workloads: dict[WorkloadUid, Workload] = field(default_factory=dict)

    def policy_changed(self, policy: Policy) -> None:
        """Take down the policy."""
        self.policy = policy

    def queue_changed(self, queue: Queue) -> None:
        """Take down a queue."""
        self.queues[queue.name] = queue

    def queue_removed(self, name: QueueName) -> None:
        """Strike out a queue."""
        self.queues.pop(name, None)

    def cluster_changed(self, cluster: Cluster, now: int) -> None:  # noqa: ARG002 - when it was told does not matter
        """Take down a cluster."""
        self.clusters[cluster.name] = cluster

    def cluster_removed(self, name: ClusterName) -> None:
        """Strike out a cluster."""
        self.clusters.pop(name, None)

    def cluster_estimated(self, estimate: Estimate, now: int) -> None:
        """Leave it out: a simulation asks no estimator."""

    def workload_changed(self, workload: Workload, now: int) -> None:  # noqa: ARG002 - when it was told does not matter
        """Take down a workload."""
        self.workloads[workload.uid] = workload

    def workload_removed(self, uid: WorkloadUid, now: int) -> None:  # noqa: ARG002 - when it was told does not matter
        """Strike out a workload."""
        self.workloads.pop(uid, None)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What the files amount to, and what to tell whoever gave them."""

    trace: Trace
    notes: tuple[InputNote, ...]
    writes_per_second: int
    """As the VolcanoGlobalConfiguration among the files limits them."""


def read_trace(paths: Sequence[str], *, now: int, runtime: int) -> TraceFile:
    """Return the trace in the files and folders *paths* as it starts at *now*, or raise `InputError`.

    A job that does not say how long it runs takes *runtime*; one that does
    not say when it comes is there at the start, and as old as it is.
    """
    state = read_offline_state(paths)
    cast = TraceRecorder()
    state.store.sync_to(cast, now)
    templates = {template_key(each): each for found in state.inventory.objects.values() for each in found}
    timing = _AnnotationReader(templates, now, runtime)
    submissions = [timing.submission(workload, state.store) for workload in cast.workloads.values()]
    if timing.faults:
        raise InputError(*timing.faults)
    configuration = state.inventory.configuration
    trace = Trace(
        queues=tuple(cast.queues[name] for name in sorted(cast.queues)),
        clusters=tuple(cast.clusters[name] for name in sorted(cast.clusters)),
        submissions=tuple(sorted(submissions, key=lambda each: (each.at, each.workload.namespace, each.workload.name))),
        policy=cast.policy,
        grace=_grace(configuration),
        start=now,
    )
    return TraceFile(trace, (*state.notes, *timing.notes()), configuration.patches.per_second)


def _grace(configuration: VolcanoGlobalConfiguration) -> dict[EvictionReason, int]:
    return {
        EvictionReason.RECLAIMED: configuration.reclaim.grace_period // _MILLISECOND,
        EvictionReason.PREEMPTED: configuration.preemption.grace_period // _MILLISECOND,
    }


class _AnnotationReader:
    """Reads the times on templates; what cannot be read is kept in *faults*."""

    def __init__(self, templates: Mapping[TemplateKey, Manifest], now: int, runtime: int) -> None:
        self.faults: list[str] = []
        self._templates = templates
        self._now = now
        self._runtime = runtime
        self._untimed = 0

    def notes(self) -> Iterator[InputNote]:
        """Yield a note where run times were made up."""
        if self._untimed:
            taken = f"taken to run {format_span(self._runtime)} (--runtime)"
            yield InputNote(f"{self._untimed} jobs without the annotation {RUNTIME_ANNOTATION} are {taken}")

    def submission(self, workload: Workload, store: Store) -> Submission:
        """Return *workload* with its times; one that runs already has run since its admission."""
        template = self._templates.get(
            TemplateKey(group_kind(workload.requirements.api), workload.namespace, workload.name)
        )
        at = self._span(template, SUBMIT_ANNOTATION)
        runtime = self._span(template, RUNTIME_ANNOTATION)
        if runtime is None:
            self._untimed += workload.state is not WorkloadState.FINISHED
            runtime = self._runtime
        admission = workload.admission
        if admission is not None:
            ran = self._now - admission.admitted_at if admission.admitted_at else 0
            return Submission(workload, max(runtime - max(ran, 0), 0), pods=_pods(workload, store))
        if at is not None:
            workload = replace(workload, created_at=self._now + at)
        return Submission(workload, runtime, at or 0, _pods(workload, store))

    def _span(self, template: Manifest | None, key: str) -> int | None:
        annotations = (template.body["metadata"].get("annotations") or {}) if template else {}
        if template is None or annotations.get(key) is None:
            return None
        try:
            return parse_span(annotations[key])
        except SpanError as error:
            self.faults.append(template.problem(f"metadata.annotations[{key}]: {error}"))
            return None


def _pods(workload: Workload, store: Store) -> tuple[PodSet, ...]:
    """Return the pods of a workload one by one, none where nobody counted them."""
    if workload.requirements.replicas:
        return (PodSet(workload.requirements.replicas, workload.requirements.replica_requests),)
    binding = store.binding(workload.uid)
    template = store.template(binding) if binding else None
    if template is None or template.requests is None or template.requests.job is None:
        return ()
    return tuple(PodSet(task.count, pod_request(task.pod)) for task in template.requests.job.tasks if task.count)
