"""Computes the charge of a workload per cluster, from its record, its template and its clusters.

Pure. The recorded charge counts unless the template requests more (D6, D7); ``spec.clusters`` says where it is placed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.api.jobs import default_task_name
from controller.cache.objects import VOLCANO_JOB, CachedBinding, WorkloadPhase, WorkloadRequests
from controller.cache.record import AdmissionRecord
from controller.engine.state.clusters import Assignment, ClusterName
from controller.engine.state.requests import pod_request
from controller.engine.state.resources import EMPTY, Resources, add, elementwise_max, scale, total
from controller.engine.state.workloads import Admission, ClusterCharge

_NO_REQUESTS = WorkloadRequests(EMPTY)


def recorded(binding: CachedBinding, requests: WorkloadRequests | None, record: AdmissionRecord) -> Admission:
    """Return the admission of a workload that *record* admits, never charged below the requests of its template."""
    requests = requests or _NO_REQUESTS
    targets = binding.targets or _recorded_targets(binding, record)
    if requests.total == record.charge and _is_placed_as_a_whole(binding, targets, record):
        # True for most workloads; none of the steps below would change the charge.
        cluster_charges = (ClusterCharge(targets[0].name, requests.total),)
        return Admission(
            requests.total, cluster_charges, admitted_at=record.admitted_at or 0, raised_by=record.raised_by
        )
    requested = _add_excess_pods(_requests_by_cluster(binding, targets, requests), binding, requests)
    divided = is_divided(binding, requests)
    recorded_parts = _recorded_shares(record, targets, is_divided=divided)
    parts = {name: elementwise_max(recorded_parts[name], requested[name]) for name in requested}
    sums = total(requested.values())
    increased = frozenset(name for name, amount in sums.items() if amount > record.charge.get(name, 0))
    left = _usage_on_left_clusters(binding, requests, {*parts})
    if not divided and not requests.replicas:
        # Its record will contain the sum of equal copies.
        left = {name: elementwise_max(record.charge_of_copy, amounts) for name, amounts in left.items()}
    parts = _add_surplus_replicas(parts, binding, requests) | left
    admission = _admission(parts, binding, requests, admitted_at=record.admitted_at or 0)
    # The record of a move contains the cluster that it leaves, so leaving it is not another move.
    leaving = {assignment.name for assignment in binding.details.evicting} - {*requested}
    moved = bool(binding.targets and record.clusters) and {*requested} != {*record.clusters} - leaving
    return replace(admission, resized=bool(increased), increased=increased, moved=moved, raised_by=record.raised_by)


def _is_placed_as_a_whole(binding: CachedBinding, targets: tuple[Assignment, ...], record: AdmissionRecord) -> bool:
    """Return whether a workload is placed on the one cluster of its record, and no cluster has reported about it."""
    if len(targets) != 1 or targets[0].replicas is not None or binding.progress or binding.details.evicting:
        return False
    return record.clusters == (targets[0].name,)


def _recorded_targets(binding: CachedBinding, record: AdmissionRecord) -> tuple[Assignment, ...]:
    """Return the clusters of *record* without those that the workload is leaving, unless it is leaving all of them."""
    staying = [name for name in record.clusters if name not in binding.evicting_from]
    return tuple(Assignment(name) for name in staying or record.clusters)


def is_divided(binding: CachedBinding, requests: WorkloadRequests | None) -> bool:
    """Return whether all clusters together have one copy of the workload, which may be scaled to zero."""
    requests = requests or _NO_REQUESTS
    is_empty = not requests.total and binding.template.kind != VOLCANO_JOB
    return binding.placement.divided and (bool(requests.replicas) or is_empty)


def adopted(binding: CachedBinding, requests: WorkloadRequests | None) -> Admission:
    """Return the admission of a workload that runs without a record, charged from its template (D10)."""
    requests = requests or _NO_REQUESTS
    parts = _add_surplus_replicas(
        _add_excess_pods(_requests_by_cluster(binding, binding.targets, requests), binding, requests), binding, requests
    )
    parts |= _usage_on_left_clusters(binding, requests, {*parts})
    admission = _admission(parts, binding, requests, admitted_at=0)
    return replace(admission, adopted=True)


def still_evicting(binding: CachedBinding, requests: WorkloadRequests | None) -> Admission | None:
    """Return what a finished workload still uses on clusters that Karmada evicts it from, ``None`` if it uses none.

    A cluster counts until its eviction task ends, its status is removed or it reports the workload finished there (C4).
    """
    running = {reported.cluster for reported in binding.progress if reported.phase is not WorkloadPhase.FINISHED}
    placed = {target.name for target in binding.targets} | ({*binding.evicting_from} - running)
    parts = _usage_on_left_clusters(binding, requests or _NO_REQUESTS, placed)
    return _admission(parts, binding, requests or _NO_REQUESTS, admitted_at=0) if parts else None


def remaining(
    binding: CachedBinding,
    requests: WorkloadRequests | None,
    *,
    leaving: WorkloadRequests | None = None,
    placeable_until: int | None = None,
) -> Admission | None:
    """Return what a pending workload still holds on clusters that it has not left, ``None`` if it has left all.

    It has left a cluster once its clusters, its eviction tasks and its status no longer name the cluster (P5). Until
    then the cluster runs what is *leaving*, whatever its template requests now, or nothing where it has finished. A
    workload that was evicted before Karmada placed it may still be placed until *placeable_until*.
    """
    if not binding.targets and not binding.details.evicting and not binding.progress and placeable_until is None:
        return None
    requests = requests or _NO_REQUESTS
    leaving = leaving or requests
    parts = dict(_requests_by_cluster(binding, binding.targets, requests))
    if placeable_until is not None and binding.record is not None:
        parts |= _requests_by_cluster(binding, map(Assignment, binding.record.clusters), requests)
    left = {name: part for name, part in _requests_on_left_clusters(binding, leaving).items() if name not in parts}
    ended = dict.fromkeys(sorted(_finished_clusters(binding) - {*parts}), EMPTY)
    parts = _add_excess_pods(parts, binding, requests) | _add_excess_pods(left, binding, leaving) | ended
    reported = binding.targets or binding.evicting_from or binding.progress
    admission = _admission(parts, binding, requests, admitted_at=0)
    return replace(admission, ends_at=None if reported else placeable_until) if parts else None


def _requests_on_left_clusters(binding: CachedBinding, requests: WorkloadRequests) -> dict[ClusterName, Resources]:
    """Return the requests on each cluster that it is leaving: of its replicas there, or all where these are unknown.

    Of a workload that Karmada divides, all clusters with an unknown number have the other replicas together.
    """
    replicas = {assignment.name: assignment.replicas or 0 for assignment in binding.details.evicting}
    for reported in binding.progress:
        replicas[reported.cluster] = max(replicas.get(reported.cluster, 0), reported.replicas)
    parts = {name: _requests_of_replicas(count or None, requests) for name, count in replicas.items()}
    finished = _finished_clusters(binding)
    unknown = {name: 1 for name, count in replicas.items() if not count and name not in finished}
    if unknown and is_divided(binding, requests):
        others = max(requests.replicas - sum(replicas.values()), 0)
        parts |= _divide(_requests_of_replicas(others, requests), unknown)
    return parts


def _requests_by_cluster(
    binding: CachedBinding, targets: Iterable[Assignment], requests: WorkloadRequests
) -> dict[ClusterName, Resources]:
    """Return the template's requests on each target: its replicas there, or all of them (D5); none without replicas.

    Those of a workload that Karmada divides are divided evenly while it has not divided them.
    """
    targets = [target for target in targets if target.replicas != 0 or not requests.replicas]
    if is_divided(binding, requests) and all(target.replicas is None for target in targets):
        return _divide(requests.total, {target.name: 1 for target in targets})
    return {target.name: _requests_of_replicas(target.replicas, requests) for target in targets}


def _add_excess_pods(
    parts: Mapping[ClusterName, Resources], binding: CachedBinding, requests: WorkloadRequests
) -> dict[ClusterName, Resources]:
    """Return *parts* with the pods of a Volcano Job that a cluster runs beyond the template's current requests.

    A job with a reduced template runs unchanged until the cluster reports fewer pods: Karmada may not have dispatched
    the change, and does not while dispatching is suspended.
    """
    if requests.job is None:
        return dict(parts)
    # In the cluster Volcano names those without a name.
    tasks = {task.name or default_task_name(index): task for index, task in enumerate(requests.job.tasks)}
    by_cluster = dict(parts)
    for reported in binding.progress:
        if reported.cluster not in by_cluster:
            continue
        for name, count in reported.pods:
            task = tasks.get(name)
            if task is None:
                # The template does not have this task, or no longer: its pods are charged as the largest.
                by_cluster[reported.cluster] = add(by_cluster[reported.cluster], scale(_largest_pod(requests), count))
            elif count > task.count:
                pods = scale(pod_request(task.pod), count - task.count)
                by_cluster[reported.cluster] = add(by_cluster[reported.cluster], pods)
    return by_cluster


def _largest_pod(requests: WorkloadRequests) -> Resources:
    """Return the largest request of any pod of the workload, by resource."""
    amounts = EMPTY
    for pod in requests.pods:
        amounts = elementwise_max(amounts, pod)
    return amounts


def _add_surplus_replicas(
    parts: Mapping[ClusterName, Resources], binding: CachedBinding, requests: WorkloadRequests
) -> dict[ClusterName, Resources]:
    """Return *parts* with the replicas that a cluster reports beyond those assigned to it.

    A surge of a rolling update and an autoscaler in the cluster are charged, but are not a resize (D7).
    """
    by_cluster = dict(parts)
    replica = requests.pods[0] if requests.replicas and requests.pods else EMPTY
    if not replica:
        return by_cluster
    for reported in binding.progress:
        if reported.replicas and reported.cluster in by_cluster:
            by_cluster[reported.cluster] = elementwise_max(
                by_cluster[reported.cluster], scale(replica, reported.replicas)
            )
    return by_cluster


def _usage_on_left_clusters(
    binding: CachedBinding, requests: WorkloadRequests, placed: set[ClusterName]
) -> dict[ClusterName, Resources]:
    """Return the usage on clusters from which Karmada evicts the workload, until the eviction tasks end.

    Karmada starts the workload elsewhere first, so it runs on both clusters, unless it has finished there.
    """
    excluded = placed | _finished_clusters(binding)
    leaving = [assignment for assignment in binding.details.evicting if assignment.name not in excluded]
    parts = {assignment.name: _requests_of_replicas(assignment.replicas, requests) for assignment in leaving}
    return _add_surplus_replicas(_add_excess_pods(parts, binding, requests), binding, requests)


def _finished_clusters(binding: CachedBinding) -> set[ClusterName]:
    """Return the clusters that report the workload finished there."""
    return {reported.cluster for reported in binding.progress if reported.phase is WorkloadPhase.FINISHED}


def _requests_of_replicas(count: int | None, requests: WorkloadRequests) -> Resources:
    """Return the requests of *count* replicas, or all where it is unknown or the kind has no replicas."""
    if not requests.replicas or count is None:
        return requests.total
    replica = {name: amount // requests.replicas for name, amount in requests.total.items()}
    return scale(replica, count)


def _recorded_shares(
    record: AdmissionRecord, targets: tuple[Assignment, ...], *, is_divided: bool
) -> dict[ClusterName, Resources]:
    """Return the part of the recorded total charge that falls on each target.

    A workload that is duplicated to each cluster has the same charge on each, however many there are now; a divided one
    keeps its total.
    """
    if not is_divided:
        copy = record.charge_of_copy
        return {target.name: copy for target in targets}
    weights = {target.name: 1 if target.replicas is None else target.replicas for target in targets}
    return _divide(record.charge, weights)


def _divide(amounts: Resources, weights: Mapping[ClusterName, int]) -> dict[ClusterName, Resources]:
    """Return the part of *amounts* of each cluster by weight; the parts add up, so that no rounding is charged."""
    whole, before = max(sum(weights.values()), 1), 0
    parts: dict[ClusterName, Resources] = {}
    for cluster, weight in weights.items():
        up_to = before + weight
        parts[cluster] = {
            name: -(-amount * up_to // whole) + (-amount * before // whole) for name, amount in amounts.items()
        }
        before = up_to
    return parts


def _admission(
    parts: Mapping[ClusterName, Resources], binding: CachedBinding, requests: WorkloadRequests, *, admitted_at: int
) -> Admission:
    charges = tuple(ClusterCharge(name, _shared(parts[name], requests)) for name in parts)
    charge = _shared(total(parts.values()), requests)
    running = {progress.cluster for progress in binding.progress if progress.phase is WorkloadPhase.RUNNING}
    placed = {target.name for target in binding.targets if target.replicas != 0}
    is_reported = bool(binding.targets) and placed <= running
    still_running = not is_reported and {*parts} <= running
    return Admission(charge, charges, admitted_at=admitted_at, reported=is_reported, still_running=still_running)


def _shared(amounts: Resources, requests: WorkloadRequests) -> Resources:
    """Return *amounts*; most workloads hold what their template requests, and equal templates share one value."""
    return requests.total if amounts == requests.total else amounts
