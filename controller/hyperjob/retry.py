"""Failed parts: which of them are tried again, and where.

Pure. What follows when too few are left is ``course``.
"""

from controller.api.hyperjobs import HyperJob
from controller.api.hyperjobstatus import PartStatus, SplitStatus
from controller.hyperjob.part import next_attempt
from controller.hyperjob.split import CapacitySnapshot, requests_of_parts


def retry_failed_parts(hyperjob: HyperJob, split_status: SplitStatus, capacity: CapacitySnapshot) -> SplitStatus:
    """Return the split with the failed parts waiting for another attempt, as far as they may have one."""
    most = hyperjob.spec.failure_policy.max_retries
    parts = tuple(
        _retry(hyperjob, part, capacity) if part.phase == "Failed" and part.retries < most else part
        for part in split_status.parts
    )
    return split_status.model_copy(update={"parts": parts})


def _retry(hyperjob: HyperJob, part: PartStatus, capacity: CapacitySnapshot) -> PartStatus:
    changes: dict[str, object] = {"retries": part.retries + 1}
    if hyperjob.spec.failure_policy.retry_on == "AnyCluster" and part.running_on:
        changes["failed_on"] = tuple(dict.fromkeys((*part.failed_on, part.running_on)))
        if part.cluster and _may_move(hyperjob, part):
            changes["cluster"] = _other_cluster(hyperjob, part, capacity)
    return next_attempt(part, **changes)


def _may_move(hyperjob: HyperJob, part: PartStatus) -> bool:
    job = next(each for each in hyperjob.spec.replicated_jobs if each.name == part.replicated_job)
    return job.split_policy is not None and job.split_policy.effective_strategy in {"Auto", "ByResources"}


def _other_cluster(hyperjob: HyperJob, part: PartStatus, capacity: CapacitySnapshot) -> str:
    """Return the cluster with room for the part where it has not failed, by name; its own where there is none."""
    (asked,) = requests_of_parts(hyperjob, [part])
    avoided = {*part.failed_on, part.running_on}
    fitting = [
        str(room.name)
        for room in capacity.free
        if room.cluster_state.is_usable
        and room.name not in avoided
        and all(amount <= room.headroom.get(name, 0) for name, amount in asked.items())
    ]
    return min(fitting, default=part.cluster)
