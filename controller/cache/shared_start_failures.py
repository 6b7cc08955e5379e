"""Shares failed starts between workloads with equal requests in one namespace (R1).

Pure. The records name the clusters where a workload did not start; other workloads with equal requests skip these
clusters too. An entry expires for the others when a workload stops running on the cluster, because its nodes have more
free capacity then. A restart forgets only such expiry.
"""

from collections.abc import Collection, Iterable

from controller.cache.objects import CachedBinding, WorkloadPhase, WorkloadRequests
from controller.engine.state.clusters import ClusterName
from controller.engine.state.workloads import WorkloadUid

FailureKey = tuple[str, WorkloadRequests]
"""A namespace and the requests of a workload."""

_NO_CLUSTERS: frozenset[ClusterName] = frozenset()


class SharedStartFailures:
    """Clusters of failed starts by namespace and requests, while the record of a workload names them."""

    def __init__(self) -> None:
        self._requirements: dict[WorkloadUid, FailureKey] = {}
        """Keys of the workloads with failed starts."""
        self._failed: dict[FailureKey, dict[ClusterName, set[WorkloadUid]]] = {}
        self._expired: dict[WorkloadUid, set[ClusterName]] = {}
        """Clusters of a record that no longer count for others, until the workload is tried again."""

        self.changed_namespaces: set[str] = set()
        """Namespaces with changed exclusions."""

    def __bool__(self) -> bool:
        return bool(self._failed)

    def clusters(self, requirements: FailureKey) -> frozenset[ClusterName]:
        """Return where workloads with these *requirements* did not start."""
        return frozenset(self._failed.get(requirements, _NO_CLUSTERS))

    def pop_changed_namespaces(self) -> set[str]:
        """Return the namespaces with exclusions that changed since the last call."""
        changed, self.changed_namespaces = self.changed_namespaces, set()
        return changed

    def update(self, uid: WorkloadUid, requirements: FailureKey | None, names: Iterable[ClusterName]) -> None:
        """Update the clusters where *uid* did not start."""
        known = self._requirements.get(uid)
        concerned = [key for key in (known, requirements) if key is not None]
        before = [self.clusters(key) for key in concerned]
        wanted = {*names} - self._expired.get(uid, set()) if requirements is not None else set[ClusterName]()
        if known is not None:
            self._drop(known, uid, self.clusters(known))
            del self._requirements[uid]
        if requirements is not None and wanted:
            self._requirements[uid] = requirements
            failed = self._failed.setdefault(requirements, {})
            for name in sorted(wanted):
                failed.setdefault(name, set()).add(uid)
        changed = (key for key, names in zip(concerned, before, strict=True) if self.clusters(key) != names)
        self.changed_namespaces.update(namespace for namespace, _ in changed)

    def retry(self, uid: WorkloadUid) -> None:
        """Let the next record of *uid* count again: the workload was retried."""
        self._expired.pop(uid, None)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a deleted workload."""
        self._expired.pop(uid, None)
        self.update(uid, None, ())

    def expire(self, names: Collection[ClusterName]) -> None:
        """Let other workloads be tried again on the clusters *names*."""
        for requirements, failed in list(self._failed.items()):
            for name in sorted(set(names) & failed.keys()):
                self.changed_namespaces.add(requirements[0])
                for uid in sorted(failed[name]):
                    self._expired.setdefault(uid, set()).add(name)
                    self._drop(requirements, uid, {name})

    def _drop(self, requirements: FailureKey, uid: WorkloadUid, names: Iterable[ClusterName]) -> None:
        failed = self._failed.get(requirements, {})
        for name in names:
            uids = failed.get(name, set())
            uids.discard(uid)
            if not uids:
                failed.pop(name, None)
        if not failed:
            self._failed.pop(requirements, None)


def stopped_clusters(before: CachedBinding, after: CachedBinding | None) -> set[ClusterName]:
    """Return the clusters where a workload ran and no longer runs."""
    still = _running_clusters(after) if after is not None and after.uid == before.uid else set()
    return _running_clusters(before) - still


def _running_clusters(binding: CachedBinding) -> set[ClusterName]:
    return {progress.cluster for progress in binding.progress if progress.phase is WorkloadPhase.RUNNING}
