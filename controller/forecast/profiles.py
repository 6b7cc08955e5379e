"""What is known about the run time of a workload before it runs, and the ends of runs, from the cached objects."""

from collections.abc import Iterable

from controller.cache.objects import CachedBinding, CachedTemplate, is_finished
from controller.cache.store import Store
from controller.engine.reservations.backfill import MISS_BUDGET
from controller.engine.state.resources import Resources
from controller.engine.state.workloads import Workload
from controller.forecast.run_times import JobProfile, Outcome, Run, RunTimes

_SECOND = 1000


def profile_of(store: Store, workload: Workload) -> JobProfile:
    """Return the profile of *workload*."""
    template = store.template_of(workload.uid)
    return _profile(workload.queue, workload.namespace, template, workload.requirements.requests)


def with_run_time(store: Store, run_times: RunTimes, workload: Workload) -> Workload:
    """Return *workload* with its expected run time and less probable bounds, unless too little is known (O9)."""
    return expecting(workload, run_times, profile_of(store, workload), store.configuration.backfill.confidence)


def expecting(workload: Workload, run_times: RunTimes, profile: JobProfile, confidence: float) -> Workload:
    """Return *workload* with the run time that it exceeds with a probability of 1 - *confidence*, and with its bounds.

    Each bound is exceeded half as probably as the one before.
    """
    if not run_times.knows(profile):
        return workload
    probabilities = [1 - (1 - confidence) / 2**halvings for halvings in range(MISS_BUDGET.bit_length())]
    seconds = run_times.quantiles(profile, probabilities)
    times = [max(round(quantile * _SECOND), _SECOND) for quantile in seconds]
    return workload.expecting(*times)


def _profile(queue: str, namespace: str, template: CachedTemplate | None, requests: Resources) -> JobProfile:
    counted = template.requests if template is not None else None
    amounts = counted.total if counted is not None else requests
    accelerators = ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()) if "/" in name and amount)
    return JobProfile(
        queue,
        namespace,
        counted.digest if counted is not None else "",
        accelerators,
        template.running_estimate if template is not None else 0,
    )


def ended_run(
    store: Store, before: CachedBinding | None, after: CachedBinding | None, now: int
) -> tuple[JobProfile, Run] | None:
    """Return the run that ended between two versions of a binding, observed at *now*; ``None`` if none did.

    A run that was evicted or deleted before its end counts as evicted; a workload that had not started has no run.
    A binding that was not observed before has not ended now, nor has one that is finished only by a changed
    configuration.
    """
    if before is None or before.record is None or before.record.admitted_at is None:
        return None
    if after is not None and after.resource_version == before.resource_version:
        return None
    if not before.record.admits or is_finished(before):
        return None
    if after is not None and after.uid == before.uid:
        if is_finished(after):
            return _run(store, after, now)
        if after.record is not None and after.record.admits:
            return None
    seconds = (now - before.record.admitted_at) // _SECOND
    has_run = store.start_failures.has_run(before) or store.start_failures.has_run_before(before)
    return (_profile_of_binding(store, before), Run(max(seconds, 1), Outcome.EVICTED)) if has_run else None


def finished_runs(store: Store, *, after: int = 0) -> Iterable[tuple[int, JobProfile, Run]]:
    """Yield the finished runs in the cache that ended *after* a time, each with its time, the oldest first."""
    bindings = [*store.bindings, *store.cluster_bindings]
    ended = [
        (binding.details.ended_at, binding)
        for binding in bindings
        if binding.details.ended_at is not None and binding.details.ended_at > after
    ]
    for ended_at, binding in sorted(ended, key=lambda item: (item[0], item[1].uid)):
        finished_run = _run(store, binding, ended_at) if is_finished(binding) else None
        if finished_run is not None:
            yield ended_at, *finished_run


def _run(store: Store, binding: CachedBinding, ended_at: int) -> tuple[JobProfile, Run] | None:
    record = binding.record
    if record is None or not record.admits or record.admitted_at is None or ended_at < record.admitted_at:
        return None
    profile = _profile_of_binding(store, binding)
    outcome = Outcome.FAILED if any(progress.failed for progress in binding.progress) else Outcome.COMPLETED
    return profile, Run(max((ended_at - record.admitted_at) // _SECOND, 1), outcome, profile.estimate)


def _profile_of_binding(store: Store, binding: CachedBinding) -> JobProfile:
    record = binding.record
    if record is None:
        raise AssertionError("only a binding with a record has run")
    return _profile(record.queue, binding.template.namespace, store.template(binding), record.charge)
