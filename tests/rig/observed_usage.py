"""Usage and limits at each revision, computed from stored jobs, queues and clusters.

After a limit is reduced, the earlier value is valid for a moment, because the controller learns of the change with a
delay.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from typing import Any

from tests.rig import requests
from tests.rig.binding_state import BindingState, observe
from tests.rig.external_usage import ExternalUsage
from tests.rig.history import Change, Key

#: Decisions may be based on states up to this age, in seconds.
LAG = 3.0
ROOT = "root"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
NOTHING: requests.Amounts = {}


def _until_next_change(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Compute a value once for equal arguments between two changes."""

    @wraps(compute)
    def known(self: "ObservedUsage", *args: Any, **kwargs: Any) -> Any:
        key = compute.__name__, args, *kwargs.values()
        if key not in self.computed:
            self.computed[key] = compute(self, *args, **kwargs)
        return self.computed[key]

    return known


class ObservedUsage:
    """Bindings, jobs, queues and clusters at the last applied change."""

    def __init__(self, *, lag: float = LAG) -> None:
        self.bindings: dict[Key, BindingState] = {}
        self.charges: dict[str, requests.Amounts] = {}
        """Charge of each binding by cluster since its admission."""
        self.admitted_until: dict[str, float] = {}
        """When each binding, by uid, was last seen admitted."""
        self._placed_at: dict[str, float] = {}
        """When Karmada placed a binding without an admission, by uid: a suspended one, or again a finished one."""
        self._resized: set[str] = set()
        """Bindings, by uid, that have finished, or run more often, since their admission (D7)."""
        self.jobs: dict[Key, dict[str, Any]] = {}
        """Last state of each job, including deleted ones."""
        self._decided: dict[str, dict[str, Any]] = {}
        """The state of its job that the admission of each binding, by uid, was decided on."""
        self._recent_jobs: dict[Key, list[tuple[float, dict[str, Any]]]] = {}
        """Earlier states of each job with the times of their ends, as long as these are within the lag."""
        self.external = ExternalUsage(self._charges_of, lag=lag)
        self.copies: dict[str, int] = {}
        """How often the template of each binding, by uid, has run at most since its admission."""
        self._lag = lag
        self._charges: dict[str, requests.Amounts] = {}
        """Charge of each binding that ever used capacity, by cluster."""
        self._requests: dict[str, requests.Amounts] = {}
        """Present requests of each binding that ever used capacity."""
        self._versions: dict[tuple[str, str], list[tuple[float, dict[str, Any] | None]]] = {}
        self.computed: dict[tuple[Any, ...], Any] = {}
        """Values since the last change."""

    def apply(self, change: Change) -> None:
        """Apply a change."""
        self.computed.clear()
        if change.kind == "resourcebindings":
            self._enter_binding(change)
        elif change.kind in {"jobs", "batch/jobs", "deployments"} and change.after is not None:
            self._keep_recent(change)
            self.jobs[change.key] = change.after
            self._resize(change)
        elif change.kind in {"queues", "clusters"}:
            versions = self._versions.setdefault((change.kind, change.key[1]), [])
            if not versions or limits_of(versions[-1][1]) != limits_of(change.after):
                versions.append((change.at, change.after))
            if change.kind == "clusters":
                self.external.apply_cluster(change.key[1], change.after, change.at)

    def _keep_recent(self, change: Change) -> None:
        before = self.jobs.get(change.key)
        if before is not None and change.after is not None and before["spec"] != change.after["spec"]:
            kept = [(end, job) for end, job in self._recent_jobs.get(change.key, []) if end >= change.at - self._lag]
            self._recent_jobs[change.key] = [*kept, (change.at, before)]

    def _resize(self, change: Change) -> None:
        """Apply a change of the requests of a job or Deployment whose binding uses capacity."""
        suffix = "deployment" if change.kind == "deployments" else "job"
        binding = self.bindings.get((change.key[0], f"{change.key[1]}-{suffix}"))
        if binding is not None and binding.uid in self._requests:
            present = self.requests_of(binding)
            if present != self._requests[binding.uid]:
                self._requests[binding.uid] = present
                self._lower_charge(binding)
                self.external.resized(binding.uid, change.at)

    def _charges_of(self, uid: str) -> tuple[requests.Amounts, requests.Amounts]:
        """Return the least and the most that a binding is charged with in each of its clusters."""
        charge, present = self._charges.get(uid, NOTHING), self._requests.get(uid, NOTHING)
        names = {*charge, *present}
        least = {name: min(charge.get(name, 0), present.get(name, 0)) for name in names}
        return least, {name: max(charge.get(name, 0), present.get(name, 0)) for name in names}

    def _enter_binding(self, change: Change) -> None:
        before = self.bindings.pop(change.key, None)
        if before is not None and before.admitted:
            self.admitted_until[before.uid] = change.at
        after = observe(before, change.after) if change.after is not None else None
        if after is not None and after.holds and after.uid not in self.charges:
            self.charges[after.uid] = self._requests_at_admission(after, change.at)
            if after.uid not in self._charges:
                self._charges[after.uid], self._requests[after.uid] = self.charges[after.uid], self.requests_of(after)
        if (after is None or after.gated) and (before is None or before.gated):
            self.external.apply_binding(before, after, change.at)
        if before is not None and (after is None or not after.holds or after.uid != before.uid):
            self.charges.pop(before.uid, None)
            self._decided.pop(before.uid, None)
        if after is not None:
            is_new = after.uid not in self.charges or after.is_admitted_since(before)
            self.copies[after.uid] = max(after.copies, 0 if is_new else self.copies.get(after.uid, 0))
            self._lower_charge(after)
            if after.is_finished:
                self._resized.add(after.uid)
            if after.is_admitted_since(before):
                self._placed_at.pop(after.uid, None)
                self._resized.discard(after.uid)
            elif after.holds and _is_placed_again(before, after):
                self._placed_at[after.uid] = change.at
                self._resized.add(after.uid)
            self.bindings[change.key] = after

    def _lower_charge(self, binding: BindingState) -> None:
        """Lower the charge of each replica of a Deployment to its present requests or its part of the record (D6)."""
        charge, present = self.charges.get(binding.uid), self.requests_of(binding)
        if charge is None or not binding.is_divided:
            return
        recorded, count = requests.amounts(binding.record.get("charge")), max(binding.copies, len(binding.clusters), 1)
        self.charges[binding.uid] = {
            name: min(amount, max(Fraction(recorded.get(name, 0), count), present.get(name, 0)))
            for name, amount in charge.items()
        }

    def _requests_at_admission(self, binding: BindingState, at: float) -> requests.Amounts:
        """Return the requests that *binding* was admitted with, which an edit within the lag may have changed.

        Of several states with the recorded charge, the one with the smallest gang was decided on.
        """
        present, current = self.requests_of(binding), self.jobs.get(binding.job)
        earlier = [job for end, job in self._recent_jobs.get(binding.job, ()) if end >= at - self._lag]
        possible = [
            job for job in (current, *earlier) if job is not None and _is_charge(binding, requests.job_requests(job))
        ]
        if not binding.admitted or not possible:
            return present
        decided = min(possible, key=lambda job: requests.gang_requests(job).get("pods", 0))
        if decided is not current:
            self._decided[binding.uid] = decided
        return requests.job_requests(decided)

    def requests_of(self, binding: BindingState) -> requests.Amounts:
        """Return the requests of *binding* in each of its clusters."""
        job = self.jobs.get(binding.job)
        return requests.job_requests(job) if job else NOTHING

    def gang(self, binding: BindingState) -> requests.Amounts:
        """Return the requests of the gang of *binding*, as it was at its admission."""
        job = self._decided.get(binding.uid) or self.jobs.get(binding.job)
        return requests.gang_requests(job) if job else NOTHING

    def queue(self, binding: BindingState) -> str:
        """Return the queue of its job; of other kinds the one that its record fixes (Q6)."""
        if not binding.is_volcano_job and binding.record.get("queue"):
            return str(binding.record["queue"])
        job = self.jobs.get(binding.job) or {}
        labels = job.get("metadata", {}).get("labels", {})
        return str(job.get("spec", {}).get("queue") or labels.get(QUEUE_NAME) or "default")

    # -- usage ------------------------------------------------------------

    def held_in(self, queue: str, at: float) -> requests.Amounts:
        """Return the usage of *queue* and its descendants that the controller certainly knows."""
        return requests.add(
            *(
                self.whole(holder)
                for holder in self.holders()
                if self._certainly_counts(self.queue(holder), queue, at) and not self.is_unseen(holder, at)
            )
        )

    def _certainly_counts(self, used_by: str, queue: str, at: float) -> bool:
        """Return whether usage of queue *used_by* counts in *queue* in each state within the lag.

        While a queue is absent, its usage counts in itself and the root, and in no other ancestor.
        """
        path = self.path(used_by, at)
        if queue not in path:
            return False
        below = path[: path.index(queue)]
        return queue == ROOT or all(None not in self._recent("queues", name, at) for name in below)

    def is_unseen(self, binding: BindingState, at: float) -> bool:
        """Return whether the controller may not know that Karmada has placed *binding* without an admission."""
        return self._placed_at.get(binding.uid, float("-inf")) >= at - self._lag

    @_until_next_change
    def held_on(self, cluster: str) -> requests.Amounts:
        """Return the usage of *cluster*, including what was admitted to it and Karmada has moved since."""
        return requests.add(
            *(
                self.charges[holder.uid]
                for holder in self.holders()
                for _ in range(holder.clusters.count(cluster) or int(cluster in (holder.record.get("clusters") or ())))
            )
        )

    def whole(self, binding: BindingState) -> requests.Amounts:
        """Return the charge of *binding* in all its clusters."""
        return requests.add(*[self.charges.get(binding.uid, NOTHING)] * (len(binding.clusters) or binding.copies))

    def holders(self) -> Iterator[BindingState]:
        """Yield the bindings that use capacity."""
        return (binding for binding in self.bindings.values() if binding.gated and binding.uid in self.charges)

    # -- limits -----------------------------------------------------------

    def queues(self, at: float) -> dict[str, dict[str, Any]]:
        """Return the existing queues by name."""
        names = [name for kind, name in self._versions if kind == "queues"]
        latest = {name: self._recent("queues", name, at)[-1] for name in names}
        return {name: queue for name, queue in latest.items() if queue is not None}

    def clusters(self) -> list[str]:
        """Return all clusters that ever existed."""
        return [name for kind, name in self._versions if kind == "clusters"]

    def is_open(self, queue: str, at: float) -> bool:
        """Return whether *queue* was open at any time within the lag."""
        versions = self._recent("queues", queue, at)
        return any(item is not None and _state(item) == "Open" for item in versions)

    @_until_next_change
    def path(self, queue: str, at: float) -> tuple[str, ...]:
        """Return *queue* and its ancestors, the root last."""
        path = [queue]
        while path[-1] != ROOT and len(path) < 8:
            versions = self._recent("queues", path[-1], at)
            last = next((version for version in reversed(versions) if version is not None), None)
            path.append(str((last or {}).get("spec", {}).get("parent") or ROOT))
        return tuple(path)

    @_until_next_change
    def queue_limit(self, queue: str, resource: str, at: float) -> requests.Amount:
        """Return the highest limit of *queue* for *resource* within the lag."""
        if queue == ROOT:
            return self._pool(resource, at)
        parent = self.path(queue, at)[1]
        above = self.queue_limit(parent, resource, at) - self._promised(parent, queue, resource, at)
        own = [_capability(item, resource) for item in self._recent("queues", queue, at) if item is not None]
        return above if not own or None in own else min(above, max(item for item in own if item is not None))

    @_until_next_change
    def free_capacity(self, cluster: str, resource: str, at: float) -> requests.Amount:
        """Return the highest capacity of *cluster* for workloads within the lag."""
        versions = self._recent("clusters", cluster, at)
        return max((_capacity_of(version, resource) for version in versions if version is not None), default=0)

    @_until_next_change
    def certain_capacity(self, cluster: str, resource: str, at: float) -> requests.Amount:
        """Return the lowest capacity of *cluster* for workloads within the lag; 0 if it may be unusable."""
        versions = self._recent("clusters", cluster, at)
        least = min(_certain_capacity_of(version, resource) for version in versions)
        return max(least - self.external.most(cluster, resource, at), 0)

    @_until_next_change
    def certain_limit(self, queue: str, resource: str, at: float) -> requests.Amount:
        """Return the lowest limit of *queue* for *resource* within the lag, without the guarantees of others."""
        if queue == ROOT:
            return sum((self._certain_share(name, resource, at) for name in self.clusters()), 0)
        above = self.certain_limit(self.path(queue, at)[1], resource, at)
        own = [_capability(item, resource) for item in self._recent("queues", queue, at) if item is not None]
        return min([above, *(item for item in own if item is not None)])

    @_until_next_change
    def guarantees(self, resource: str, at: float, *, without: tuple[str, ...]) -> requests.Amount:
        """Return the sum of the highest guarantees of the queues within the lag, except *without*."""
        names = [name for kind, name in self._versions if kind == "queues" and name not in without]
        return sum(
            (max(_guarantee_of(item, resource) for item in self._recent("queues", name, at)) for name in names),
        )

    def is_certainly_open(self, queue: str, at: float) -> bool:
        """Return whether *queue* was open all the time within the lag."""
        return all(item is not None and _state(item) == "Open" for item in self._recent("queues", queue, at))

    def _certain_share(self, cluster: str, resource: str, at: float) -> requests.Amount:
        """Return what a cluster adds to the root's limit at least; nothing if it may be unusable."""
        state = self._recent("clusters", cluster, at)
        if all(_certain_capacity_of(version, resource) for version in state):
            return self.certain_capacity(cluster, resource, at)
        return 0

    def _pool(self, resource: str, at: float) -> requests.Amount:
        """Return the capacity of all usable clusters, and what is used on the others (Q1).

        What workloads that run again use beyond the capacity of their clusters is added.
        """
        shares = (self._share_of_pool(name, resource, at) for name in self.clusters())
        return sum((*shares, *self._overcommitted(resource, at)), 0)

    def _overcommitted(self, resource: str, at: float) -> Iterator[requests.Amount]:
        """Yield by how much workloads that run again, or were resized, exceed at most the capacity of each cluster."""
        again, more = dict[str, requests.Amount](), dict[str, requests.Amount]()
        for holder in self.holders():
            if self.is_resized(holder.uid) or self._requests_other_than_recorded(holder):
                own = self.charges[holder.uid].get(resource, 0)
                for name in placement(holder):
                    again[name] = again.get(name, 0) + own
                    more[name] = more.get(name, 0) + self._of_other_replicas(holder, resource)
        for name, amount in again.items():
            excess = self.held_on(name).get(resource, 0) - self.certain_capacity(name, resource, at)
            yield max(min(excess, amount) + more.get(name, 0), 0)

    def is_resized(self, uid: str) -> bool:
        """Return whether a binding has finished, or run more often, since its admission."""
        return uid in self._resized

    def _requests_other_than_recorded(self, holder: BindingState) -> bool:
        charge, present = requests.amounts(holder.record.get("charge")), self.requests_of(holder)
        count = len(holder.clusters) or holder.copies
        return any(present.get(name, 0) * count != charge.get(name, 0) for name in {*present, *charge})

    def _share_of_pool(self, cluster: str, resource: str, at: float) -> requests.Amount:
        free = max(self.free_capacity(cluster, resource, at) - self.external.least(cluster, resource, at), 0)
        if all(state is not None and is_ready(state) for state in self._recent("clusters", cluster, at)):
            return free
        return max(free, self._most_held_on(cluster, resource))

    def _most_held_on(self, cluster: str, resource: str) -> requests.Amount:
        """Return what the controller may charge at most in *cluster*: of what has no clusters, all replicas."""
        moved = (self._of_other_replicas(holder, resource) for holder in self.holders() if cluster in placement(holder))
        return sum(moved, self.held_on(cluster).get(resource, 0))

    def _of_other_replicas(self, holder: BindingState, resource: str) -> requests.Amount:
        """Return what *holder* may be charged in each cluster beside one replica, if it has no clusters any more."""
        if holder.clusters:
            return 0
        return self.whole(holder).get(resource, 0) - self.charges[holder.uid].get(resource, 0)

    def _promised(self, parent: str, queue: str, resource: str, at: float) -> requests.Amount:
        """Return the lowest total guarantee of the siblings of *queue* within the lag; 0 if they may be scaled down."""
        if self.guarantees(resource, at, without=()) > min(
            self.certain_limit(name, resource, at) for name in (parent, ROOT)
        ):
            return 0
        names = [name for kind, name in self._versions if kind == "queues" and name not in {queue, ROOT}]
        siblings = [name for name in names if self.path(name, at)[1] == parent]
        return sum((self._guarantee(name, resource, at) for name in siblings), 0)

    def _guarantee(self, queue: str, resource: str, at: float) -> requests.Amount:
        return min(_certain_guarantee_of(item, resource) for item in self._recent("queues", queue, at))

    def _recent(self, kind: str, name: str, at: float) -> list[dict[str, Any] | None]:
        """Return the states within the lag, the current one last; ``None`` while absent."""
        versions = self._versions.get((kind, name), [])
        old = [state for seen, state in versions if seen < at - self._lag]
        return [old[-1] if old else None, *(state for seen, state in versions if seen >= at - self._lag)]


def placement(binding: BindingState) -> Sequence[str]:
    """Return the clusters of *binding*; those that it was admitted to, while Karmada names none."""
    return binding.clusters or (binding.record.get("clusters") or () if binding.copies else ())


def _is_placed_again(before: BindingState | None, after: BindingState) -> bool:
    if before is None or not (before.clusters or before.is_finished):
        return after.suspended
    return before.is_finished or bool(Tally(after.clusters) - Tally(before.clusters))


def _is_charge(binding: BindingState, amounts: requests.Amounts) -> bool:
    """Return whether the record of *binding* has the charge of *amounts* in each of its clusters."""
    charge = requests.amounts(binding.record.get("charge"))
    return charge == dict(requests.add(*[amounts] * (len(binding.clusters) or binding.copies)))


def limits_of(obj: Mapping[str, Any] | None) -> Any:
    """Return what limits workloads of a queue or cluster."""
    status = (obj or {}).get("status") or {}
    summary = status.get("resourceSummary") or {}
    ready = obj is not None and is_ready(obj)
    is_going = obj is None or "deletionTimestamp" in obj["metadata"]
    return obj is None, is_going, (obj or {}).get("spec"), status.get("state"), summary.get("allocatable"), ready


def _state(queue: Mapping[str, Any]) -> str:
    return str(queue.get("status", {}).get("state") or "Open")


def _capability(queue: Mapping[str, Any], resource: str) -> requests.Amount | None:
    return requests.amounts(queue["spec"].get("capability")).get(resource)


def _guarantee_of(queue: Mapping[str, Any] | None, resource: str) -> requests.Amount:
    guarantee = (queue or {}).get("spec", {}).get("guarantee") or {}
    return requests.amounts(guarantee.get("resource")).get(resource, 0)


def _certain_guarantee_of(queue: Mapping[str, Any] | None, resource: str) -> requests.Amount:
    """Return what is guaranteed at least: nothing if the queue takes no workloads, at most its capability (Q3)."""
    if queue is None or _state(queue) != "Open":
        return 0
    guarantee, capability = _guarantee_of(queue, resource), _capability(queue, resource)
    return guarantee if capability is None else min(guarantee, capability)


def _certain_capacity_of(cluster: Mapping[str, Any] | None, resource: str) -> requests.Amount:
    """Return the capacity of a cluster that every workload can be admitted to."""
    if cluster is None or "deletionTimestamp" in cluster["metadata"] or cluster["spec"].get("taints"):
        return 0
    return _capacity_of(cluster, resource)


def _capacity_of(cluster: Mapping[str, Any], resource: str) -> requests.Amount:
    summary = cluster.get("status", {}).get("resourceSummary") or {}
    return requests.amounts(summary.get("allocatable")).get(resource, 0) if is_ready(cluster) else 0


def is_ready(cluster: Mapping[str, Any]) -> bool:
    """Return whether *cluster* is ready."""
    conditions = cluster.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
