"""Tracks where workloads did not start, which have run since, and shares failed starts between equal workloads (R1).

Pure. A binding's record names the excluded clusters, each with a fingerprint; the exclusion holds while the cluster has
the same fingerprint. Other workloads of the namespace with equal requests skip these clusters too, until a workload
stops running there, because its nodes have more free capacity then; where no other cluster can ever hold it, the
workload itself is tried there again, too. A restart forgets that a cluster changed in between, such expiry, and that a
workload has run if its status does not report its past.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from hashlib import blake2b
from typing import NamedTuple

from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome
from controller.cache.index import Index
from controller.cache.interning import InternPool
from controller.cache.objects import CachedBinding, WorkloadPhase, WorkloadRequests
from controller.cache.record import AdmissionRecord
from controller.cache.unapplied_works import may_have_run
from controller.engine.plan import StartupBackoff
from controller.engine.reasons import Refusal
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid

_NO_CLUSTERS: frozenset[ClusterName] = frozenset()

_STARTED_PHASES = {WorkloadPhase.RUNNING, WorkloadPhase.FINISHED}
FailureKey = tuple[str, WorkloadRequests]
"""A namespace and the requests of a workload."""


class ExcludedClusters(NamedTuple):
    """Where a workload is not tried, because it or an equal one did not start there."""

    names: frozenset[ClusterName] = _NO_CLUSTERS
    retryable: frozenset[ClusterName] = _NO_CLUSTERS
    """Those where only the workload itself did not start and one has ended since."""


class SharedStartFailures:
    """Clusters of failed starts by namespace and requests, while the record of a workload names them."""

    def __init__(self) -> None:
        self._keys: dict[WorkloadUid, FailureKey] = {}
        """Keys of the workloads with failed starts."""
        self._failed: dict[FailureKey, dict[ClusterName, set[WorkloadUid]]] = {}
        self._keys_by_cluster: Index[ClusterName, FailureKey] = Index()
        self._expired: dict[WorkloadUid, set[ClusterName]] = {}
        """Clusters of a record that no longer count for others, until the workload is tried again."""

        self.changed_namespaces: set[str] = set()
        """Namespaces with changed exclusions."""

    def __bool__(self) -> bool:
        return bool(self._failed)

    def clusters(self, key: FailureKey) -> frozenset[ClusterName]:
        """Return where workloads with this *key* did not start."""
        return frozenset(self._failed.get(key, _NO_CLUSTERS))

    def expired(self, uid: WorkloadUid) -> Collection[ClusterName]:
        """Return where a workload has ended since *uid* did not start there."""
        return self._expired.get(uid, _NO_CLUSTERS)

    def pop_changed_namespaces(self) -> set[str]:
        """Return the namespaces with exclusions that changed since the last call."""
        changed, self.changed_namespaces = self.changed_namespaces, set()
        return changed

    def update(self, uid: WorkloadUid, key: FailureKey | None, names: Iterable[ClusterName]) -> None:
        """Update the clusters where *uid* did not start."""
        known = self._keys.get(uid)
        if known is not None and key is not None and not _has_equal_requests(known, key):
            # It was resized since, and none has failed to start with its new requests.
            self._expired.setdefault(uid, set()).update(self.clusters(known))
        concerned = [either for either in (known, key) if either is not None]
        before = [self.clusters(either) for either in concerned]
        wanted = {*names} - self._expired.get(uid, set()) if key is not None else set[ClusterName]()
        if known is not None:
            self._drop(known, uid, self.clusters(known))
            del self._keys[uid]
        if key is not None and wanted:
            self._keys[uid] = key
            failed = self._failed.setdefault(key, {})
            for name in sorted(wanted):
                failed.setdefault(name, set()).add(uid)
                self._keys_by_cluster.add(name, key)
        changed = (either for either, names in zip(concerned, before, strict=True) if self.clusters(either) != names)
        self.changed_namespaces.update(namespace for namespace, _ in changed)

    def retry(self, uid: WorkloadUid, failed: Iterable[ClusterName]) -> None:
        """Let the next record of *uid* count again for the clusters where it has *failed* to start once more."""
        if uid in self._expired:
            self._expired[uid].difference_update(failed)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a deleted workload."""
        self._expired.pop(uid, None)
        self.update(uid, None, ())

    def expire(self, names: Collection[ClusterName]) -> None:
        """Let other workloads be tried again on the clusters *names*."""
        for name in sorted(names):
            for key in self._keys_by_cluster.of(name):
                self.changed_namespaces.add(key[0])
                for uid in sorted(self._failed[key][name]):
                    self._expired.setdefault(uid, set()).add(name)
                    self._drop(key, uid, {name})

    def _drop(self, key: FailureKey, uid: WorkloadUid, names: Iterable[ClusterName]) -> None:
        failed = self._failed.get(key, {})
        for name in names:
            uids = failed.get(name, set())
            uids.discard(uid)
            if not uids:
                failed.pop(name, None)
                self._keys_by_cluster.discard(name, key)
        if not failed:
            self._failed.pop(key, None)


def _has_equal_requests(before: FailureKey, after: FailureKey) -> bool:
    """Return whether the requests are equal; after their pool was full they are two values."""
    left, right = before[1], after[1]
    return left is right or all(getattr(left, field.name) == getattr(right, field.name) for field in fields(left))


class StartFailures:
    """Tracks workloads and clusters as they change."""

    def __init__(self) -> None:
        self._has_run_on: dict[WorkloadUid, frozenset[ClusterName]] = {}
        """Clusters where each workload has run since its admission, while it is placed there.

        None of them once Karmada has no cluster for it, so that it has to start anew wherever it is placed.
        """
        self._places: InternPool[frozenset[ClusterName]] = InternPool()
        self._cluster_fingerprints: dict[ClusterName, str] = {}
        self._excluded: dict[WorkloadUid, dict[ClusterName, str]] = {}
        """Excluded clusters by workload, with the fingerprint in its record."""
        self._changed: dict[WorkloadUid, dict[ClusterName, str]] = {}
        """Recorded exclusions that no longer count, because the cluster has changed since."""
        self.shared = SharedStartFailures()

    def update(self, binding: CachedBinding, workload: Workload | None) -> None:
        """Update where *binding* runs; an eviction may still be refused while it is not suspended."""
        if workload is None or (workload.state is WorkloadState.PENDING and binding.is_suspended):
            self._has_run_on.pop(binding.uid, None)
        elif places := self._clusters_with_runs(binding):
            self._has_run_on[binding.uid] = self._places.get(places, lambda: places)
        elif self.has_run_before(binding):
            self._has_run_on[binding.uid] = _NO_CLUSTERS
        else:
            self._has_run_on.pop(binding.uid, None)

    def binding_changed(self, before: CachedBinding, after: CachedBinding | None) -> None:
        """Let equal workloads be tried again where *before* ran and *after* does not."""
        if self.shared:
            self.shared.expire(_stopped_clusters(before, after))

    def has_run(self, binding: CachedBinding) -> bool:
        """Whether it runs, or has run since its admission, on a cluster where it is placed now; or that is unknown."""
        return bool(self._clusters_with_runs(binding)) or may_have_run(binding)

    def has_run_before(self, binding: CachedBinding) -> bool:
        """Whether Karmada has no cluster for it, after it has run since its admission."""
        return not binding.targets and binding.uid in self._has_run_on

    def _clusters_with_runs(self, binding: CachedBinding) -> frozenset[ClusterName]:
        """Return the clusters of *binding* where it runs or has run; clusters that it has left do not count."""
        if not binding.targets or not (binding.progress or binding.uid in self._has_run_on):
            return _NO_CLUSTERS
        started = {
            progress.cluster for progress in binding.progress if progress.has_run or progress.phase in _STARTED_PHASES
        }
        return (self._has_run_on.get(binding.uid, _NO_CLUSTERS) | started) & {target.name for target in binding.targets}

    def exclusions(
        self,
        binding: CachedBinding,
        outcomes: Iterable[AssumedOutcome],
        resolve_requests: Callable[[], WorkloadRequests | None],
    ) -> ExcludedClusters:
        """Return where a workload is not tried: where it, or an equal one of its namespace, did not start.

        Its own failures are shared with equal workloads from then on; those of others concern only workloads that are
        not admitted.
        """
        runs_on, recorded = self._clusters_with_runs(binding), recorded_exclusions(binding, outcomes)
        own = self.excluded_clusters(binding.uid, {} if self.has_run(binding) else recorded)
        if not recorded and not self.shared:
            return ExcludedClusters(own)
        requests = resolve_requests()
        key = (binding.template.namespace, requests) if requests is not None else None
        self.shared.update(binding.uid, key, [name for name in self._unchanged(recorded) if name not in runs_on])
        if key is None or binding.targets or not binding.is_suspended:
            return ExcludedClusters(own)
        others = self.shared.clusters(key)
        return ExcludedClusters(own | others, own.intersection(self.shared.expired(binding.uid)) - others)

    def excluded_clusters(self, uid: WorkloadUid, recorded: Mapping[ClusterName, str]) -> frozenset[ClusterName]:
        """Return which of the *recorded* clusters are unchanged, so that the workload is not tried there."""
        if not recorded:
            if uid in self._excluded or uid in self._changed:
                self._forget_exclusions(uid)
            return _NO_CLUSTERS
        changed = self._changed.get(uid, {})
        changed |= {
            name: fingerprint
            for name, fingerprint in recorded.items()
            if self._cluster_fingerprints.get(name) != fingerprint
        }
        unchanged = {name: fingerprint for name, fingerprint in recorded.items() if changed.get(name) != fingerprint}
        _set_or_delete(
            self._changed, uid, {name: fingerprint for name, fingerprint in changed.items() if name in recorded}
        )
        _set_or_delete(self._excluded, uid, unchanged)
        return frozenset(unchanged)

    def own_exclusions(self, uid: WorkloadUid) -> Mapping[ClusterName, str]:
        """Return the clusters where *uid* itself did not start, each with the fingerprint in its record."""
        return self._excluded.get(uid, {})

    def retry(self, uid: WorkloadUid, failed: Iterable[ClusterName]) -> None:
        """Let the next record of *uid* count as written, for equal workloads only where it has *failed* to start."""
        self._changed.pop(uid, None)
        self.shared.retry(uid, failed)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a deleted workload."""
        self._forget_exclusions(uid)
        self._has_run_on.pop(uid, None)
        self.shared.forget(uid)

    def _forget_exclusions(self, uid: WorkloadUid) -> None:
        self._excluded.pop(uid, None)
        self._changed.pop(uid, None)

    def cluster_changed(self, cluster: Cluster | None, name: ClusterName) -> list[WorkloadUid]:
        """Update a cluster, ``None`` if it was deleted; return the workloads that it is no longer excluded for."""
        before, now = self._cluster_fingerprints.pop(name, None), None
        if cluster is not None:
            now = self._cluster_fingerprints[name] = cluster_fingerprint(cluster)
        if before is None or now == before:
            return []
        self.shared.expire({name})
        return [uid for uid, known in self._excluded.items() if name in known]

    def _unchanged(self, recorded: Mapping[ClusterName, str]) -> list[ClusterName]:
        return [name for name, fingerprint in recorded.items() if self._cluster_fingerprints.get(name) == fingerprint]

    def fingerprints(self, names: Iterable[ClusterName]) -> dict[ClusterName, str]:
        """Return the fingerprints of the existing clusters among *names*."""
        return {name: self._cluster_fingerprints[name] for name in sorted(names) if name in self._cluster_fingerprints}


def recorded_exclusions(binding: CachedBinding, outcomes: Iterable[AssumedOutcome]) -> Mapping[ClusterName, str]:
    """Return the excluded clusters that the record says, or will say once *outcomes* are written."""
    known: Mapping[ClusterName, str] = binding.record.excluded_clusters if binding.record else {}
    for outcome in outcomes:
        known = outcome.excluded_clusters if isinstance(outcome, AssumedEviction) else known
    return known


def startup_backoff(record: AdmissionRecord | None, now: int, longest: int) -> Refusal | None:
    """Return why a workload that did not start backs off at *now*, according to its record.

    A backoff of *longest* or more is ignored: it was written with a wrong clock.
    """
    if record is None or record.admits or record.back_off_until is None:
        return None
    if not now < record.back_off_until <= now + longest:
        return None
    names = tuple(record.excluded_clusters)
    at_fault = record.startup_failed_at is not None
    return StartupBackoff(record.startup_failed_at or 0, record.back_off_until, names, caused_failure=at_fault).refusal


def cluster_fingerprint(cluster: Cluster) -> str:
    """Return a short hash of a cluster's properties, without its usage and its number of nodes."""
    properties = (
        sorted(cluster.labels.items()),
        cluster.provider,
        cluster.region,
        cluster.zones,
        [(taint.key, taint.value, taint.effect) for taint in cluster.taints],
        sorted((kind.group_version, kind.kind) for kind in cluster.enablements),
        (cluster.ready, cluster.deleting),
        None if cluster.allocatable is None else sorted(cluster.allocatable.items()),
    )
    return blake2b(repr(properties).encode(), digest_size=8).hexdigest()


def _set_or_delete(
    known: dict[WorkloadUid, dict[ClusterName, str]], uid: WorkloadUid, fingerprints: dict[ClusterName, str]
) -> None:
    """Store *fingerprints*, or delete the entry if there are none."""
    if fingerprints:
        known[uid] = fingerprints
    else:
        known.pop(uid, None)


def _stopped_clusters(before: CachedBinding, after: CachedBinding | None) -> set[ClusterName]:
    """Return the clusters where a workload ran and no longer runs, or ran and ended without a report in between."""
    now = after if after is not None and after.uid == before.uid else None
    ended = _clusters_in(now, WorkloadPhase.FINISHED) - _clusters_in(before, WorkloadPhase.FINISHED)
    return ended | (_clusters_in(before, WorkloadPhase.RUNNING) - _clusters_in(now, WorkloadPhase.RUNNING))


def _clusters_in(binding: CachedBinding | None, phase: WorkloadPhase) -> set[ClusterName]:
    return {progress.cluster for progress in binding.progress if progress.phase is phase} if binding else set()
