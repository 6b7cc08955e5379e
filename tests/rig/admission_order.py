"""I6: verifies that no workload is admitted to capacity that an earlier pending workload could have used.

It reads the store's history and only compares workloads whose order does not depend on fair shares: in one queue, or
in queues of different priority. Possible excuses count in the controller's favour: events still in transit,
concurrent decisions, capacity freed meanwhile, lost writes, unused guarantees, reservations and nominations, and
clusters in which equal workloads did not start.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from tests.rig import requests
from tests.rig.binding_state import BindingState, observe, parse_binding
from tests.rig.history import Change, Key
from tests.rig.observed_usage import ROOT, ObservedUsage, limits_of, placement

_KEPT_SECONDS = 60
"""For how long after the horizon of a decision ended usage is stored: decisions are judged in the order of writes."""
_UNPLACED_SECONDS = 330
"""For how long a workload that no cluster had reported when it was evicted is charged (P5)."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Stored admission with its decision time in seconds of the monotonic clock."""

    revision: int
    decided: float
    seen: BindingState


@dataclass(frozen=True, slots=True)
class _Usage:
    """Resources that a workload uses in each cluster and in each ancestor queue."""

    queues: Sequence[str]
    clusters: Sequence[str]
    asked: requests.Amounts
    is_anywhere: bool = False
    """Whether its cluster is not known, so that it may be any."""
    copies: int = 1
    """How often its template may run there."""

    def of(self, resource: str, *, cluster: str = "", queue: str = "") -> Any:
        if self.is_anywhere:
            there = self.copies * int(bool(cluster) or queue in self.queues)
        else:
            there = self.clusters.count(cluster) if cluster else len(self.clusters) * (queue in self.queues)
        return self.asked.get(resource, 0) * there


@dataclass(frozen=True, slots=True)
class _FailedStart:
    """Why workloads of a namespace with equal requests are not tried in a cluster (R1)."""

    cluster: str
    namespace: str
    asked: tuple[requests.Amounts, requests.Amounts]
    """The requests, and those of the gang."""
    until: float = float("inf")
    """When the record ceased to say so, the cluster changed, or a workload that ran there ended."""


@dataclass
class AdmissionOrder:
    """Pending workloads with their waiting times and order."""

    usage: ObservedUsage
    admissions: Sequence[Admission]
    classes: Mapping[str, int]
    """Value of each PriorityClass that is stored in a form which has none."""
    with_failed_writes: AbstractSet[str]
    """Jobs with a lost or rejected write."""
    max_event_delay: float
    """Maximum delay of events until the controller decides, in seconds."""
    is_by_priority: Callable[[float, float], bool]
    """Whether the order between two times depended on no fair shares."""
    is_placed_freely: Callable[[str], bool]
    """Whether a job, by name, can use each cluster that its binding's affinity names."""
    _limits_changed_at: float = float("-inf")
    """Last change of a limit or of a PriorityClass."""
    _since: dict[Key, float] = field(default_factory=dict)
    """Last change of each binding or its job."""
    _edited: dict[Key, float] = field(default_factory=dict)
    """Last change of the spec of each job."""
    _jobs: set[Key] = field(default_factory=set)
    _classes: dict[str, int | None] = field(default_factory=dict)
    """Existing PriorityClasses with their stored values."""
    _ended: list[tuple[float, str, _Usage]] = field(default_factory=list)
    """When the charge of a workload, by uid, has ended or ends."""
    _failed_starts: dict[tuple[str, str], _FailedStart] = field(default_factory=dict)
    """By the uid of the workload that did not start, and the cluster."""

    def apply(self, change: Change, *, before: BindingState | None) -> None:
        """Apply *change* before the usage does; *before* is the previous state of the binding."""
        if change.kind == "priorityclasses":
            self._limits_changed_at = change.at
            self._classes.pop(change.key[1], None)
            if change.after is not None:
                self._classes[change.key[1]] = change.after.get("value")
        elif change.kind in {"queues", "clusters"} and limits_of(change.before) != limits_of(change.after):
            self._limits_changed_at = change.at
            if change.kind == "clusters":
                self._retry_in(change.key[1], change.at)
        elif change.kind == "jobs":
            self._enter_job(change)
        elif change.kind == "resourcebindings":
            now = observe(before, change.after) if change.after is not None else None
            self._since.update({item.job: change.at for item in (before, now) if item is not None})
            self._follow_failed_starts(before, now, change.at)
            if before is not None and before.holds and (now is None or not now.holds):
                # Until a cluster has reported it, Karmada may be placing it once more.
                delay = 0 if now is None or (before.clusters and before.listed) else _UNPLACED_SECONDS
                self._ended = [release for release in self._ended if release[1] != before.uid]
                self._ended.append((change.at + delay, before.uid, self._hold(before, change.at)))
            elif before is not None and before.listed and (now is None or not (now.holds or now.listed)):
                # An evicted workload is charged until no cluster reports it any more.
                left = replace(self._hold(before, change.at), is_anywhere=True)
                self._ended = [release for release in self._ended if release[1] != before.uid or release[0] > change.at]
                if before.uid not in {uid for _, uid, _ in self._ended}:
                    self._ended.append((change.at, before.uid, left))

    def _follow_failed_starts(self, before: BindingState | None, now: BindingState | None, at: float) -> None:
        """Follow in which clusters equal workloads are not tried (R1)."""
        for cluster in {*(before.running if before else ())} - {*(now.running if now else ())}:
            self._retry_in(cluster, at)
        known, recorded = ((item.record.get("excludedClusters") or {} if item else {}) for item in (before, now))
        if before is not None:
            for cluster in known.keys() - recorded.keys():
                self._end_failed_start((before.uid, cluster), at)
        if now is not None:
            left = placement(before) if before is not None and before.admitted and not now.admitted else ()
            for cluster in recorded:
                if cluster not in known or cluster in left:
                    asked = self.usage.requests_of(now), self.usage.gang(now)
                    self._failed_starts[now.uid, cluster] = _FailedStart(cluster, now.job[0], asked)

    def _retry_in(self, cluster: str, at: float) -> None:
        for key in [key for key in self._failed_starts if key[1] == cluster]:
            self._end_failed_start(key, at)

    def _end_failed_start(self, key: tuple[str, str], at: float) -> None:
        failed = self._failed_starts.get(key)
        if failed is not None and failed.until > at:
            self._failed_starts[key] = replace(failed, until=at)

    def _enter_job(self, change: Change) -> None:
        (self._jobs.discard if change.after is None else self._jobs.add)(change.key)
        self._since[change.key] = change.at
        if (change.before or {}).get("spec") != (change.after or {}).get("spec"):
            self._edited[change.key] = change.at

    def find_overtaken(self, change: Change, before: BindingState | None, after: BindingState) -> Iterator[str]:
        """Yield a violation for each pending workload that should have been admitted instead of *after*.

        What was set aside for *after* itself could not be used by another one.
        """
        ours = next((admission for admission in self.admissions if admission.revision == change.revision), None)
        horizon = min(ours.decided if ours else change.at, change.at) - self.max_event_delay
        if ours is None or self._limits_changed_at > horizon or after.job[1] in self.with_failed_writes:
            return
        if before is not None and _has_capacity_set_aside(before):
            return
        if self._edited.get(after.job, horizon) > horizon:  # it may have had another priority or size
            return
        at = change.at
        if not self.is_by_priority(horizon, at):
            return
        waiting = self._waiting(after, horizon, at)
        if not waiting:
            return
        later = {
            admission.seen.uid: admission.seen
            for admission in self.admissions
            if admission.revision > ours.revision and admission.decided <= ours.decided
        }
        taken = [self._hold(holder, at) for holder in self.usage.holders() if holder.uid not in {after.uid, *later}]
        taken += [self._hold(item, at) for item in later.values()]
        # Those of the same plan may have been decided after it and written before; a gang needs less than its charge.
        together = {admission.seen.uid for admission in self.admissions if admission.decided == ours.decided}
        before_it = [
            self._hold(holder, at, knows_division=True)
            for holder in self.usage.holders()
            if holder.uid not in {after.uid, *together}
        ]
        perhaps_held = list(self._perhaps_held(after, before_it, horizon, at))
        for item in waiting:
            if item.uid in later:
                continue
            beside, excluded = [*taken, *self._set_aside(item, at)], self._perhaps_excluded(item, horizon)
            if all(
                self._fits(item, [*gone, *beside], excluded, at)
                and not self._fits(item, [*gone, *beside, self._hold(after, at)], excluded, at)
                for gone in perhaps_held
            ):
                where = f"at {change.revision} {'/'.join(change.key)}"
                yield f"I6 {where} was admitted before {'/'.join(item.job)}, which is first in the order and fits"

    def _perhaps_held(
        self, after: BindingState, taken: Sequence[_Usage], horizon: float, at: float
    ) -> Iterator[list[_Usage]]:
        """Yield what may have been counted still of ended workloads when *after* was admitted, in several ways.

        As much as leaves room for *after*: first what ends at a later time (P5), or first what has ended last.
        """
        self._ended = [release for release in self._ended if release[0] > horizon - _KEPT_SECONDS]
        admitted_again = {holder.uid for holder in self.usage.holders()}
        ended = [release for release in self._ended if release[0] > horizon and release[1] not in admitted_again]
        ended.sort(key=lambda release: release[0], reverse=True)
        later, recent = (
            [release for release in ended if release[0] > at],
            [release for release in ended if release[0] <= at],
        )
        for order in ([*later, *recent], [*recent, *later]):
            held: list[_Usage] = []
            for _, _, hold in order:
                if self._may_fit(after, [*taken, *held, hold], at):
                    held.append(hold)
            yield held

    def _perhaps_excluded(self, waiting: BindingState, horizon: float) -> set[str]:
        """Return in which clusters *waiting* may not be tried, because an equal workload did not start there (R1)."""
        asked = self.usage.requests_of(waiting), self.usage.gang(waiting)
        return {
            failed.cluster
            for failed in self._failed_starts.values()
            if failed.until > horizon and (failed.namespace, failed.asked) == (waiting.job[0], asked)
        }

    def _set_aside(self, waiting: BindingState, at: float) -> list[_Usage]:
        """Return what may be set aside for other pending workloads: reservations, nominations, uncertain writes."""
        set_aside = []
        for binding in self.usage.bindings.values():
            if not binding.gated or not binding.suspended or binding.uid == waiting.uid or binding.is_finished:
                continue
            is_uncertain = binding.clusters or binding.listed or binding.job[1] in self.with_failed_writes
            if is_uncertain or _has_capacity_set_aside(binding):
                set_aside.append(replace(self._hold(binding, at), is_anywhere=True))
        return set_aside

    def _waiting(self, after: BindingState, horizon: float, at: float) -> list[BindingState]:
        """Return the workloads before *after* that have been pending in an open queue since *horizon*."""
        before: dict[str, bool] = {}
        earlier = []
        for binding in self.usage.bindings.values():
            is_free = (
                binding.gated
                and binding.suspended
                and not binding.dispatch_suspended
                and binding.has_policy
                and binding.job[1] not in self.with_failed_writes
                and self.is_placed_freely(binding.job[1])
                and not (binding.is_terminating or binding.clusters or binding.listed or binding.record)
            )
            if not is_free or binding.job not in self._jobs or self._since.get(binding.job, at) >= horizon:
                continue
            queue = self.usage.queue(binding)
            if queue not in before:
                before[queue] = self._is_before(queue, self.usage.queue(after), at) and self._takes(queue, at)
            # A HyperJob's part has the age of the HyperJob.
            place = self._key(binding) if self._is_alone(after) else self._key(binding)[:1]
            is_first = queue != self.usage.queue(after) or place < self._key(after)[: len(place)]
            if before[queue] and is_first and self._is_alone(binding):
                earlier.append(binding)
        return sorted(earlier, key=lambda binding: binding.job)

    def _is_alone(self, waiting: BindingState) -> bool:
        """Return whether a workload is no HyperJob part and is not terminating."""
        meta = self.usage.jobs[waiting.job]["metadata"]
        return "deletionTimestamp" not in meta and not meta.get("ownerReferences")

    def _takes(self, queue: str, at: float) -> bool:
        """Return whether *queue* is an open leaf of a valid hierarchy."""
        *path, root = self.usage.path(queue, at)
        parents = {self.usage.path(name, at)[1] for name in self.usage.queues(at) if name != ROOT}
        return root == ROOT and queue not in parents and all(self.usage.is_certainly_open(name, at) for name in path)

    def _is_before(self, queue: str, other: str, at: float) -> bool:
        """Return whether *queue* equals *other* or precedes it independently of fair shares."""
        queues = self.usage.queues(at)
        first, second = (queues.get(name, {}).get("spec", {}).get("priority", 0) for name in (queue, other))
        return queue == other or first > second

    def _key(self, binding: BindingState) -> tuple[int, str, Key]:
        job = self.usage.jobs.get(binding.job, {"metadata": {}, "spec": {}})
        name = job["spec"].get("priorityClassName", "")
        stored = self._classes.get(name)
        value = (self.classes.get(name, 0) if stored is None else stored) if name in self._classes else 0
        return -value, job["metadata"].get("creationTimestamp", ""), binding.job

    def _hold(self, binding: BindingState, at: float, *, knows_division: bool = False) -> _Usage:
        """Return what a workload uses; a divided one may use all in any cluster, unless its division is known."""
        asked = self.usage.charges.get(binding.uid) or self.usage.requests_of(binding)
        grown = self.usage.requests_of(binding)
        most = {name: max(asked.get(name, 0), grown.get(name, 0)) for name in {*asked, *grown}}
        # A workload that was admitted and has lost its cluster is charged where it was.
        clusters = [*placement(binding), *binding.leaving]
        copies = self.usage.copies.get(binding.uid, binding.copies)
        is_lost = not clusters and binding.uid in self.usage.charges
        is_anywhere = is_lost or (binding.is_divided and not knows_division)
        return _Usage(self.usage.path(self.usage.queue(binding), at), tuple(clusters), most, is_anywhere, copies)

    def _fits(self, waiting: BindingState, taken: Iterable[_Usage], excluded: Container[str], at: float) -> bool:
        """Return whether *waiting* certainly fits, all its pods at once, whatever guarantees are unused."""
        usage, held, asked = self.usage, list(taken), self.usage.requests_of(waiting)
        path = usage.path(usage.queue(waiting), at)
        for resource, amount in asked.items():
            promised = usage.guarantees(resource, at, without=path)
            if not _is_within(path, resource, amount + promised, held, lambda *of: usage.certain_limit(*of, at)):
                return False
        return self._has_cluster(
            asked,
            held,
            lambda *of: usage.certain_capacity(*of, at),
            lambda cluster: cluster not in excluded and waiting.may_run_on(cluster),
        )

    def _may_fit(self, after: BindingState, taken: Iterable[_Usage], at: float) -> bool:
        """Return whether the gang of *after* fits in any of the states of the lag."""
        usage, held = self.usage, list(taken)
        path = usage.path(usage.queue(after), at)
        for resource, amount in usage.requests_of(after).items():
            if not _is_within(path, resource, amount, held, lambda *of: usage.queue_limit(*of, at)):
                return False
        return self._has_cluster(usage.gang(after), held, lambda *of: usage.free_capacity(*of, at))

    def _has_cluster(
        self,
        asked: requests.Amounts,
        held: Sequence[_Usage],
        capacity: Callable[..., Any],
        is_candidate: Callable[[str], bool] = lambda _: True,
    ) -> bool:
        """Return whether a cluster with this *capacity* has *asked* left."""
        return any(
            all(
                sum(hold.of(resource, cluster=cluster) for hold in held) + amount <= capacity(cluster, resource)
                for resource, amount in asked.items()
            )
            for cluster in self.usage.clusters()
            if is_candidate(cluster)
        )


def _has_capacity_set_aside(binding: BindingState) -> bool:
    """Return whether a pending workload has a reservation or a nomination."""
    return bool(binding.record.get("reservedSince") or binding.record.get("nominatedAt"))


def _is_within(
    path: Sequence[str], resource: str, amount: Any, held: Sequence[_Usage], limit: Callable[..., Any]
) -> bool:
    """Return whether *amount* more stays within the *limit* of each queue; pods are limited by the root only."""
    return all(
        sum(hold.of(resource, queue=queue) for hold in held) + amount <= limit(queue, resource)
        for queue in path
        if resource != "pods" or queue == ROOT
    )


def find_admissions(changes: Iterable[Change], offset: float) -> list[Admission]:
    """Return all admissions of *changes*; *offset* is the time of day at zero of the monotonic clock."""
    admissions = []
    for change in changes:
        if change.kind != "resourcebindings" or change.after is None:
            continue
        before = parse_binding(change.before) if change.before is not None else None
        after = parse_binding(change.after)
        if after.is_admitted_since(before):
            decided = after.recorded_at("admittedAt")
            admissions.append(Admission(change.revision, change.at if decided is None else decided - offset, after))
    return admissions
