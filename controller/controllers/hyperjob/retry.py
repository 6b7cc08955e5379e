"""Selects the failed parts that are retried, and their clusters.

Pure. The consequences of too many failures are in ``state``.
"""

from controller.api.hyperjobs import HyperJob, PartStatus, SplitStatus
from controller.controllers.hyperjob.part import next_attempt
from controller.controllers.hyperjob.split import CapacitySnapshot, requests_of_parts


def retry_failed_parts(hyperjob: HyperJob, split_status: SplitStatus, capacity: CapacitySnapshot) -> SplitStatus:
    """Return the split with failed parts pending again, up to their maximum number of retries."""
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
    job = next(
        replicated_job for replicated_job in hyperjob.spec.replicated_jobs if replicated_job.name == part.replicated_job
    )
    return job.split_policy is not None and job.split_policy.effective_strategy in {"Auto", "ByResources"}


def _other_cluster(hyperjob: HyperJob, part: PartStatus, capacity: CapacitySnapshot) -> str:
    """Return the first cluster by name that fits the part and where it has not failed; its own if there is none."""
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
