"""Where workloads did not start, for others of their namespace that ask for the same (R1).

Pure. What is known is what records say: which clusters a workload is not tried
on, while they are as they were. It lapses for the others when a workload that
ran on such a cluster ends there, because its nodes have more free then; a
restart forgets only that.
"""

from collections.abc import Collection, Iterable

from controller.cache.objects import CachedBinding, WorkloadPhase, WorkloadRequests
from controller.engine.clusters import ClusterName
from controller.engine.workloads import WorkloadUid

FailureKey = tuple[str, WorkloadRequests]
"""A namespace, and what its workloads ask for."""

_NO_CLUSTERS: frozenset[ClusterName] = frozenset()


class SharedStartFailures:
    """Clusters by requirements, as long as some workload's record names them."""

    def __init__(self) -> None:
        self._requirements: dict[WorkloadUid, FailureKey] = {}
        """Of the workloads that did not start somewhere."""
        self._failed: dict[FailureKey, dict[ClusterName, set[WorkloadUid]]] = {}
        self._lapsed: dict[WorkloadUid, set[ClusterName]] = {}
        """Which clusters of a record tell others nothing any more, until the workload is tried again."""

        self.news: set[str] = set()
        """The namespaces in which other clusters count than before."""

    def __bool__(self) -> bool:
        return bool(self._failed)

    def clusters(self, requirements: FailureKey) -> frozenset[ClusterName]:
        """Return where workloads with these *requirements* did not start."""
        return frozenset(self._failed.get(requirements, _NO_CLUSTERS))

    def take_news(self) -> set[str]:
        """Return the namespaces in which other clusters count than when this was last asked."""
        news, self.news = self.news, set()
        return news

    def see(self, uid: WorkloadUid, requirements: FailureKey | None, names: Iterable[ClusterName]) -> None:
        """Take note of where *uid* did not start."""
        known = self._requirements.get(uid)
        concerned = [each for each in (known, requirements) if each is not None]
        before = [self.clusters(each) for each in concerned]
        wanted = {*names} - self._lapsed.get(uid, set()) if requirements is not None else set[ClusterName]()
        if known is not None:
            self._drop(known, uid, self.clusters(known))
            del self._requirements[uid]
        if requirements is not None and wanted:
            self._requirements[uid] = requirements
            failed = self._failed.setdefault(requirements, {})
            for name in sorted(wanted):
                failed.setdefault(name, set()).add(uid)
        changed = (each for each, names in zip(concerned, before, strict=True) if self.clusters(each) != names)
        self.news.update(namespace for namespace, _ in changed)

    def try_again(self, uid: WorkloadUid) -> None:
        """Believe what the record of *uid* says next: it was tried once more."""
        self._lapsed.pop(uid, None)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget a workload that is gone."""
        self._lapsed.pop(uid, None)
        self.see(uid, None, ())

    def lapse(self, names: Collection[ClusterName]) -> None:
        """Let others be tried again on the clusters *names*."""
        for requirements, failed in list(self._failed.items()):
            for name in sorted(set(names) & failed.keys()):
                self.news.add(requirements[0])
                for uid in sorted(failed[name]):
                    self._lapsed.setdefault(uid, set()).add(name)
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
    """Return the clusters on which a workload ran and does not run any more."""
    still = _running_clusters(after) if after is not None and after.uid == before.uid else set()
    return _running_clusters(before) - still


def _running_clusters(binding: CachedBinding) -> set[ClusterName]:
    return {each.cluster for each in binding.progress if each.phase is WorkloadPhase.RUNNING}
