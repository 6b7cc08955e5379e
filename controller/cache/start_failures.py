"""Where workloads did not start and are not tried again, and who has run since he was admitted (R1).

Pure. The binding's record names the clusters that are left out, each with a
mark of how the cluster was; while it is still like that the workload is not
tried there. That a cluster was another one in between is forgotten with the
process, and so is that a kind has run whose status does not tell of its past.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome
from controller.cache.objects import AdmissionRecord, CachedBinding, WorkloadPhase
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.plan import StartupBackoff
from controller.engine.reasons import Refusal
from controller.engine.workloads import Workload, WorkloadState, WorkloadUid

_NO_CLUSTERS: frozenset[ClusterName] = frozenset()
_STARTED_PHASES = {WorkloadPhase.RUNNING, WorkloadPhase.FINISHED}


class StartFailures:
    """Sees workloads and clusters come, change and go."""

    def __init__(self) -> None:
        self._ran: dict[WorkloadUid, frozenset[ClusterName]] = {}
        """Where each has run since it was admitted, as long as it is there."""
        self._marks: dict[ClusterName, str] = {}
        self._left_out: dict[WorkloadUid, dict[ClusterName, str]] = {}
        """Where each is not tried, with the mark that its record has."""
        self._others: set[ClusterName] = set()
        """The clusters that have become other ones."""
        self._changed: dict[WorkloadUid, dict[ClusterName, str]] = {}
        """What a record leaves out in vain, because the cluster was seen to be another one since."""

    def see(self, binding: CachedBinding, workload: Workload | None) -> None:
        """Take note of how *binding* stands."""
        if workload is None or workload.state is WorkloadState.PENDING:
            self._ran.pop(binding.uid, None)
        elif places := self._places(binding):
            self._ran[binding.uid] = places
        else:
            self._ran.pop(binding.uid, None)

    def has_run(self, binding: CachedBinding) -> bool:
        """Say whether it runs, or has run since it was admitted, on a cluster where it is now."""
        return bool(self._places(binding))

    def _places(self, binding: CachedBinding) -> frozenset[ClusterName]:
        """Return the clusters of *binding* where it runs or has run; one that it has left counts no more."""
        told = {each.cluster for each in binding.progress if each.ran or each.phase in _STARTED_PHASES}
        return (self._ran.get(binding.uid, _NO_CLUSTERS) | told) & {target.name for target in binding.targets}

    def excluded_clusters(self, uid: WorkloadUid, recorded: Mapping[ClusterName, str]) -> frozenset[ClusterName]:
        """Return which of the *recorded* clusters are as they were, so that it is not tried there."""
        if not recorded:
            if uid in self._left_out or uid in self._changed:
                self._forget_places(uid)
            return _NO_CLUSTERS
        changed = self._changed.get(uid, {})
        changed |= {name: mark for name, mark in recorded.items() if self._marks.get(name) != mark}
        kept = {name: mark for name, mark in recorded.items() if changed.get(name) != mark}
        _set_or_delete(self._changed, uid, {name: mark for name, mark in changed.items() if name in recorded})
        _set_or_delete(self._left_out, uid, kept)
        return frozenset(kept)

    def try_anew(self, uid: WorkloadUid) -> None:
        """Take what its record leaves out next as it is written: it was tried once more."""
        self._changed.pop(uid, None)

    def forget(self, uid: WorkloadUid) -> None:
        """Forget one that is gone."""
        self._forget_places(uid)
        self._ran.pop(uid, None)

    def _forget_places(self, uid: WorkloadUid) -> None:
        self._left_out.pop(uid, None)
        self._changed.pop(uid, None)

    def cluster_changed(self, cluster: Cluster | None, name: ClusterName) -> list[WorkloadUid]:
        """Take *cluster* as it is now, ``None`` where it is gone; return for whom it counts again."""
        before, now = self._marks.pop(name, None), None
        if cluster is not None:
            now = self._marks[name] = cluster_fingerprint(cluster)
        if before is None or now == before:
            return []
        self._others.add(name)
        return [uid for uid, known in self._left_out.items() if name in known]

    def take_changed(self) -> set[ClusterName]:
        """Return the clusters that have become other ones since this was last asked."""
        changed, self._others = self._others, set()
        return changed

    def as_they_were(self, recorded: Mapping[ClusterName, str]) -> list[ClusterName]:
        """Return which of the *recorded* clusters have the marks that they had."""
        return [name for name, mark in recorded.items() if self._marks.get(name) == mark]

    def marks(self, names: Iterable[ClusterName]) -> dict[ClusterName, str]:
        """Return the marks of those of *names* that there are."""
        return {name: self._marks[name] for name in sorted(names) if name in self._marks}


def recorded_exclusions(binding: CachedBinding, outcomes: Iterable[AssumedOutcome]) -> Mapping[ClusterName, str]:
    """Return where it is not tried, as its record says, or will say once *outcomes* are written."""
    known: Mapping[ClusterName, str] = dict(binding.record.excluded_clusters) if binding.record else {}
    for outcome in outcomes:
        known = outcome.excluded_clusters if isinstance(outcome, AssumedEviction) else known
    return known


def startup_backoff(record: AdmissionRecord | None, now: int, longest: int) -> Refusal | None:
    """Return why one that was taken back waits at *now*, as its record tells.

    No pause is as long as *longest* and more: such a time was written by a
    clock that was wrong.
    """
    if record is None or record.admits or record.back_off_until is None:
        return None
    if not now < record.back_off_until <= now + longest:
        return None
    names = tuple(name for name, _ in record.excluded_clusters)
    at_fault = record.startup_failed_at is not None
    return StartupBackoff(record.startup_failed_at or 0, record.back_off_until, names, is_at_fault=at_fault).refusal


def cluster_fingerprint(cluster: Cluster) -> str:
    """Return a short text that is another one when *cluster* is; what is used there, and on which nodes, is no part."""
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
    known: dict[WorkloadUid, dict[ClusterName, str]], uid: WorkloadUid, marks: dict[ClusterName, str]
) -> None:
    """Remember *marks*, or nothing where there are none."""
    if marks:
        known[uid] = marks
    else:
        known.pop(uid, None)
