"""Reads a trace for the simulator from manifests, with submission and run times from annotations and estimates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.api.keys import RUNTIME_ANNOTATION, SUBMIT_ANNOTATION
from controller.cache.objects import TemplateKey, group_kind
from controller.cache.store import Store
from controller.cli.errors import InputError
from controller.cli.input.default_bindings import template_key
from controller.cli.input.manifests import Manifest
from controller.cli.input.objects import InputNote
from controller.cli.input.offline import offline_state
from controller.cli.input.what_if import Changes
from controller.engine.engine import Engine
from controller.engine.state.requests import pod_request
from controller.engine.state.workloads import Workload, WorkloadState
from controller.simulator.trace import (
    DurationError,
    PodSet,
    Submission,
    Trace,
    format_duration,
    parse_duration,
)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The trace read from files, and notes about the files."""

    trace: Trace
    notes: tuple[InputNote, ...]
    writes_per_second: int
    """From the configuration in the files."""


def read_trace(
    manifests: Sequence[Manifest], *, now: int, runtime: int, strict: bool = False, changes: Changes | None = None
) -> TraceFile:
    """Return the trace of *manifests* after *changes*, starting at *now*, or raise `InputError`.

    A job without a run time takes its ``spec.runningEstimate``, and *runtime* without one. A job without a submission
    time is pending at the start and keeps its age.
    """
    state = offline_state(manifests, now, strict=strict, changes=changes)
    engine = Engine()
    state.store.sync_to(engine, now)
    templates = {template_key(manifest): manifest for group in state.objects.objects.values() for manifest in group}
    reader = _AnnotationReader(templates, now, runtime)
    submissions = [reader.submission(workload, state.store) for workload in engine.workloads.values()]
    if reader.violations:
        raise InputError(*reader.violations)
    configuration = state.objects.configuration
    trace = Trace(
        queues=tuple(engine.queues[name] for name in sorted(engine.queues)),
        clusters=tuple(engine.cluster_usage.clusters),
        submissions=tuple(
            sorted(
                submissions,
                key=lambda submission: (submission.at, submission.workload.namespace, submission.workload.name),
            )
        ),
        policy=engine.policy,
        start=now,
    )
    return TraceFile(trace, (*state.notes, *reader.notes()), configuration.patches.per_second)


class _AnnotationReader:
    """Reads the times in the annotations of templates; collects *violations*."""

    def __init__(self, templates: Mapping[TemplateKey, Manifest], now: int, runtime: int) -> None:
        self.violations: list[str] = []
        self._templates = templates
        self._now = now
        self._runtime = runtime
        self._untimed = 0

    def notes(self) -> Iterator[InputNote]:
        """Yield a note if jobs have the default run time."""
        if self._untimed:
            jobs, are = ("1 job", "is") if self._untimed == 1 else (f"{self._untimed} jobs", "are")
            assumed = f"assumed to run {format_duration(self._runtime)} (--runtime)"
            yield InputNote(
                f"{jobs} without the annotation {RUNTIME_ANNOTATION} and without spec.runningEstimate {are} {assumed}"
            )

    def submission(self, workload: Workload, store: Store) -> Submission:
        """Return *workload* with its times; an admitted one has run since its admission."""
        template = self._templates.get(
            TemplateKey(group_kind(workload.requirements.api), workload.namespace, workload.name)
        )
        at = self._span(template, SUBMIT_ANNOTATION)
        runtime = self._span(template, RUNTIME_ANNOTATION)
        if runtime is None and (observed := store.template_of(workload.uid)) and observed.running_estimate:
            runtime = 1000 * observed.running_estimate
        if runtime is None:
            self._untimed += workload.state is not WorkloadState.FINISHED
            runtime = self._runtime
        admission = workload.admission
        if admission is not None:
            ran = self._now - admission.admitted_at if admission.admitted_at else 0
            return Submission(workload, runtime, pods=_pods(workload, store), ran=min(max(ran, 0), runtime))
        if at is not None:
            workload = replace(workload, created_at=self._now + at)
        return Submission(workload, runtime, at or 0, _pods(workload, store))

    def _span(self, template: Manifest | None, key: str) -> int | None:
        annotations = (template.body["metadata"].get("annotations") or {}) if template else {}
        if template is None or annotations.get(key) is None:
            return None
        try:
            return parse_duration(annotations[key])
        except DurationError as error:
            self.violations.append(template.violation(f"metadata.annotations[{key}]: {error}"))
            return None


def _pods(workload: Workload, store: Store) -> tuple[PodSet, ...]:
    """Return the pods of a workload, none if they are unknown."""
    if workload.requirements.replicas:
        return (PodSet(workload.requirements.replicas, workload.requirements.replica_requests),)
    template = store.template_of(workload.uid)
    if template is None or template.requests is None or template.requests.job is None:
        return ()
    return tuple(PodSet(task.count, pod_request(task.pod)) for task in template.requests.job.tasks if task.count)
