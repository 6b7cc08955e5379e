"""Keeps the last known progress of workloads whose Works Karmada cannot apply, because it reports no status of them.

Pure. A cluster refuses most of these Works, for example a change of immutable fields. What it ran before continues.
"""

from collections.abc import Iterable

from msgspec.structs import replace as replace_fields

from controller.cache.objects import CachedBinding, ClusterProgress, WorkloadPhase, is_finished


def keep_progress(before: CachedBinding | None, after: CachedBinding) -> CachedBinding:
    """Return *after* with the progress that was known *before* in each cluster where its Work cannot be applied.

    Where the cluster had not reported before, the workload has not run there.
    """
    if before is None or before.uid != after.uid or not any(reported.apply_error for reported in after.progress):
        return after
    known = {progress.cluster: progress for progress in before.progress}
    is_same_admission = _admitted_at(after) in {None, _admitted_at(before)}
    progress, ended_at = list[ClusterProgress](), after.details.ended_at
    for reported in after.progress:
        last = known.get(reported.cluster, ClusterProgress(reported.cluster, WorkloadPhase.WAITING))
        if reported.apply_error and (reported.cluster not in known or is_same_admission):
            if last.phase is WorkloadPhase.FINISHED and before.details.ended_at is not None:
                ended_at = max(before.details.ended_at, ended_at or 0)
            progress.append(last._replace(apply_error=reported.apply_error))
        else:
            progress.append(reported)
    details = after.details if ended_at == after.details.ended_at else replace_fields(after.details, ended_at=ended_at)
    return replace_fields(after, progress=tuple(progress), details=details)


def _admitted_at(binding: CachedBinding) -> int | None:
    return binding.record.admitted_at if binding.record is not None else None


def unapplied(binding: CachedBinding) -> tuple[ClusterProgress, ...]:
    """Return the progress of *binding* in those of its clusters where its Work cannot be applied."""
    if not any(reported.apply_error for reported in binding.progress):
        return ()
    targets = {target.name for target in binding.targets}
    return tuple(reported for reported in binding.progress if reported.apply_error and reported.cluster in targets)


def describe_refusals(refusing: Iterable[ClusterProgress]) -> str:
    """Return why the Work cannot be applied in each of the clusters of *refusing*."""
    return "; ".join(f"{reported.cluster}: {reported.apply_error}" for reported in refusing)


def is_refused_unstarted(binding: CachedBinding) -> bool:
    """Return whether clusters refuse *binding*, and it has not run in any cluster."""
    return bool(unapplied(binding)) and all(
        reported.apply_error and reported.phase is WorkloadPhase.WAITING and not reported.has_run
        for reported in binding.progress
    )


def may_have_run(binding: CachedBinding) -> bool:
    """Return whether it is not known that *binding* has not run in one of its clusters."""
    return any(reported.phase is WorkloadPhase.UNKNOWN for reported in unapplied(binding))


def phase_to_record(binding: CachedBinding, *, has_run: bool) -> str:
    """Return the phase that a restart must know of a workload whose Work cannot be applied; empty for others.

    It is empty, too, where the phase is unknown itself.
    """
    if not unapplied(binding) or may_have_run(binding):
        return ""
    if is_finished(binding):
        return WorkloadPhase.FINISHED
    return WorkloadPhase.RUNNING if has_run else WorkloadPhase.WAITING
