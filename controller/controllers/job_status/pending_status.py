"""Decides the status of a Volcano Job that no cluster reports, and builds its patch.

Pure. Karmada copies the status of the member cluster as soon as it reports; from then on the status belongs to Karmada.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from controller.cache.objects import CachedBinding, CachedTemplate, ClusterProgress, StatusReason
from controller.cache.translate.units import format_time
from controller.cache.unapplied_works import describe_refusals, is_refused_unstarted, unapplied
from controller.cache.unbound_jobs import UnboundJobs
from controller.engine.plan import Wait
from controller.engine.reasons import Reason
from controller.engine.state.clusters import Assignment
from controller.kube.events import truncate
from controller.scheduling.workload_events import pending_note

#: Age after which a job without a binding is reported as selected by no policy; Karmada claims a job within seconds.
UNBOUND_AFTER_MS = 30_000

#: Reasons of statuses of admitted jobs.
_ADMITTED_REASONS = frozenset({StatusReason.ADMITTED, StatusReason.WORK_NOT_APPLIED})

#: Kubernetes' limit for the messages of conditions and events.
_MAX_MESSAGE_BYTES = 1024


class PendingStatus(msgspec.Struct, frozen=True):
    """Why a job is pending, or that it is admitted and its clusters have not reported yet."""

    reason: str
    source: Wait | Callable[[], str]
    """What the message is rendered from; most statuses are replaced before they are written."""
    since: int
    """Time at which the reason changed, in milliseconds."""

    def message(self) -> str:
        """Return the message."""
        return pending_note(self.source) if isinstance(self.source, Wait) else self.source()

    @property
    def is_admitted(self) -> bool:
        """Whether it is the status of an admitted job."""
        return self.reason in _ADMITTED_REASONS


def can_publish(job: CachedTemplate | None, binding: CachedBinding | None, reason: str = "") -> bool:
    """Return whether the controller may write *reason* to the status of *job*.

    It may while no cluster reports and no other client wrote the status; Karmada reports nothing of a refused job.
    """
    if job is None or job.deleting or job.published_reason is None:
        return False
    if binding is None:
        return True
    is_reported = bool(binding.progress)
    if reason == StatusReason.WORK_NOT_APPLIED:
        is_reported = not is_refused_unstarted(binding)
    return not (is_reported or binding.details.evicting or binding.details.deleting)


def is_settled(status: PendingStatus, binding: CachedBinding | None) -> bool:
    """Return whether the observed *binding* agrees with *status*: it is not placed before its admission."""
    if binding is None:
        return status.reason == Reason.NO_MATCHING_POLICY
    return status.is_admitted or (binding.is_suspended and not binding.targets)


def is_evicted(binding: CachedBinding) -> bool:
    """Return whether it is pending after an eviction, so that its stale status is about to be corrected.

    After an eviction by others, its record still admits it until the record is updated.
    """
    record = binding.record
    return binding.is_suspended and record is not None and (record.admits or record.evictions + record.attempts > 0)


def admitted_status(binding: CachedBinding, now: int) -> PendingStatus:
    """Return the status after the admission of *binding*."""
    return PendingStatus(StatusReason.ADMITTED, partial(_admission_message, binding.targets), now)


def _admission_message(targets: Iterable[Assignment]) -> str:
    where = ", ".join(target.name for target in targets)
    return f"admitted to {where}; waiting for the cluster to report" if where else "admitted; Karmada chooses clusters"


def refused_status(binding: CachedBinding, now: int) -> PendingStatus:
    """Return the status of an admitted job that a cluster refuses."""
    return PendingStatus(StatusReason.WORK_NOT_APPLIED, partial(_refusal_message, unapplied(binding)), now)


def _refusal_message(refusing: Iterable[ClusterProgress]) -> str:
    return f"admitted, and does not start, because a cluster does not accept it: {describe_refusals(refusing)}"


def is_unselected(job: CachedTemplate, unbound: UnboundJobs, now: int) -> bool:
    """Return whether no policy selects *job*, which has no binding.

    Karmada may create bindings late while thousands of jobs arrive: it must have bound a younger job, or be idle.
    """
    if now < job.created_at + UNBOUND_AFTER_MS:
        return False
    return unbound.newest_bound_at > job.created_at or now >= unbound.newest_binding_at + UNBOUND_AFTER_MS


def unselected_status(now: int) -> PendingStatus:
    """Return the status of a job that no policy selects, or to which Karmada has not applied the policy."""
    return PendingStatus(
        Reason.NO_MATCHING_POLICY,
        lambda: (
            "no PropagationPolicy selects it, or Karmada has not applied the policy, so it is not queued; create a"
            " policy that selects it, or change the job"
        ),
        now,
    )


def status_patch(job: CachedTemplate, status: PendingStatus) -> Mapping[str, Any]:
    """Return the merge patch that sets *status*; the API server rejects it if the job has changed."""
    state = {
        "phase": "Pending",
        "reason": status.reason,
        "message": truncate(status.message(), _MAX_MESSAGE_BYTES),
        "lastTransitionTime": format_time(status.since),
    }
    return {
        "metadata": {"uid": job.uid, "resourceVersion": str(job.resource_version)},
        "status": {"state": state},
    }
