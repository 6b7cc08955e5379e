"""Who was admitted and does not run: since when, what was tried already, and where it is not tried again (R1).

Pure. What is not on the binding (that it was requeued, the cluster that is left
out, until when it backs off) is forgotten with the process; the worst that
follows is that it is tried once more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from controller.cache.facts import BindingFacts, Phase
from controller.engine.clusters import Cluster, ClusterName
from controller.engine.resources import EMPTY
from controller.engine.workloads import State, Workload, WorkloadUid

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Overdue:
    """One that should run by now; *is_last* when requeueing it has not helped."""

    uid: WorkloadUid
    is_last: bool


class Starts:
    """Sees workloads come and go."""

    def __init__(self) -> None:
        self._since: dict[WorkloadUid, int] = {}
        self._ran: set[WorkloadUid] = set()
        self._requeued: set[WorkloadUid] = set()
        self._left_out: dict[WorkloadUid, dict[ClusterName, Cluster]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def see(self, binding: BindingFacts, workload: Workload | None) -> None:
        """Take note of how *binding* stands as it was observed."""
        uid = binding.uid
        if any(each.phase is Phase.RUNNING or each.ran for each in binding.progress):
            self._ran.add(uid)
        admission = workload.admission if workload is not None and workload.state is State.ADMITTED else None
        is_ours = admission is not None and not admission.adopted and admission.admitted_at > 0
        if admission is None or not is_ours or uid in self._ran or workload is None or workload.hold is not None:
            self._since.pop(uid, None)
            if workload is None or workload.state is not State.ADMITTED:
                self._requeued.discard(uid)
            if binding.paused:
                self._ran.discard(uid)
            return
        self._since[uid] = admission.admitted_at

    def forget(self, uid: WorkloadUid) -> None:
        """Forget one that is gone."""
        self._since.pop(uid, None)
        self._left_out.pop(uid, None)
        self._ran.discard(uid)
        self._requeued.discard(uid)

    def overdue(self, now: int, timeout_ms: int) -> Iterator[Overdue]:
        """Yield who should run by now, and is to be requeued, or taken back."""
        for uid, since in sorted(self._since.items()):
            if now >= since + 2 * timeout_ms:
                yield Overdue(uid, is_last=True)
            elif now >= since + timeout_ms and uid not in self._requeued:
                yield Overdue(uid, is_last=False)

    def wake_at(self, timeout_ms: int) -> int | None:
        """Return when the next one comes due."""
        steps = (since + (2 if uid in self._requeued else 1) * timeout_ms for uid, since in self._since.items())
        return min(steps, default=None)

    def requeue(self, uid: WorkloadUid) -> None:
        """Note that it was given to Karmada's scheduler once more."""
        self._requeued.add(uid)

    def leave_out(self, uid: WorkloadUid, clusters: Iterable[Cluster]) -> None:
        """Leave *clusters* out for it until they change."""
        known = self._left_out.setdefault(uid, {})
        known.update((each.name, replace(each, used=EMPTY)) for each in clusters)

    def left_out(self, uid: WorkloadUid) -> frozenset[ClusterName]:
        """Return the clusters in which it is not tried now."""
        return frozenset(self._left_out.get(uid, ()))

    def changed(self, cluster: Cluster | None, name: ClusterName) -> list[WorkloadUid]:
        """Take *cluster* as it is now; return for whom it counts again."""
        now = replace(cluster, used=EMPTY) if cluster is not None else None
        freed = [uid for uid, known in self._left_out.items() if name in known and known[name] != now]
        for uid in freed:
            del self._left_out[uid][name]
            if not self._left_out[uid]:
                del self._left_out[uid]
        return freed


def backoff_ms(attempts: int, timeout_ms: int) -> int:
    """Return how long one that did not start *attempts* times before waits: half the timeout, doubled each time."""
    return min((timeout_ms << min(attempts, 16)) // 2, max(timeout_ms, _HOUR_MS))
