"""Verifies where workloads are admitted, and what becomes of those that Karmada moves or releases.

Only in hours without faults. C1: an admission names clusters that its placement allows. W3: what is suspended is not
admitted. D9: a binding that lost its policy before it was placed is suspended again. R1: a moved workload that does
not fit is evicted.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from localup.karmada.scheduler import cluster_matches, untolerated_taint
from tests.deterministic import kinds
from tests.deterministic.objects import Key, Kind, Object
from tests.deterministic.watches import Change
from tests.rig.binding_state import BindingState, parse_binding
from tests.rig.observed_usage import ObservedUsage, is_ready

_LAG_SECONDS: Final = 6.0
"""A decision may be based on states up to this age."""
_REACTION_SECONDS: Final = 60.0
"""For how long the controller may leave a workload as Karmada has left it."""
_TEMPLATES: Final = (kinds.JOBS, kinds.BATCH_JOBS, kinds.DEPLOYMENTS)


class AdmissibilityChecker:
    """Follows every change of a server."""

    def __init__(self) -> None:
        self._now: dict[tuple[Kind, Key], Object] = {}
        self._before: defaultdict[tuple[Kind, Key], list[tuple[float, Object]]] = defaultdict(list)
        """Earlier states with the times of their ends, as long as these are within the lag."""
        self._since: dict[Hashable, float] = {}
        """Since when something has been as it must not stay."""

    def take_present(self, kind: Kind, objects: Mapping[Key, Object]) -> None:
        """Take over the *objects* that exist already."""
        self._now.update({(kind, key): obj for key, obj in objects.items()})

    def apply(self, change: Change, at: float) -> Iterator[str]:
        """Apply *change* and yield its violations."""
        if change.kind not in {kinds.BINDINGS, kinds.CLUSTERS, *_TEMPLATES}:
            return
        place = change.kind, change.key
        if change.previous is not None:
            kept = [(end, obj) for end, obj in self._before[place] if end >= at - _LAG_SECONDS]
            self._before[place] = [*kept, (at, change.previous)]
        if change.obj is None:
            self._now.pop(place, None)
            return
        self._now[place] = change.obj
        if change.kind is kinds.BINDINGS:
            before = parse_binding(change.previous) if change.previous is not None else None
            after = parse_binding(change.obj)
            if after.gated and after.is_admitted_since(before):
                yield from self._judge_admission(change.key, after, at)

    def _states(self, kind: Kind, key: Key, at: float) -> list[Object]:
        """Return the states of an object within the lag."""
        states = [obj for end, obj in self._before.get((kind, key), ()) if end >= at - _LAG_SECONDS]
        current = self._now.get((kind, key))
        return [*states, current] if current is not None else states

    def _judge_admission(self, key: Key, after: BindingState, at: float) -> Iterator[str]:
        bindings = self._states(kinds.BINDINGS, key, at)
        for name in sorted({*after.clusters}):
            clusters = self._states(kinds.CLUSTERS, ("", name), at)
            if not any(_allows(binding, cluster) for binding in bindings for cluster in clusters):
                yield f"C1 {key[1]} was admitted to {name}, which its placement does not allow"
        templates = [obj for kind in _TEMPLATES for obj in self._states(kind, after.job, at)]
        if all((binding["spec"].get("suspension") or {}).get("dispatching") for binding in bindings):
            yield f"W3 {key[1]} was admitted, though its policy suspends dispatching"
        if templates and all(template["spec"].get("suspend") for template in templates):
            yield f"W3 {key[1]} was admitted, though it is suspended"

    def judge_states(self, usage: ObservedUsage, at: float) -> Iterator[str]:
        """Yield what has not been repaired in time; *usage* is the state at a time."""
        wrong = {**self._released(usage), **self._misplaced(usage, at)}
        self._since = {what: self._since.get(what, at) for what in wrong}
        for what, since in self._since.items():
            if at - since > _REACTION_SECONDS:
                yield f"{wrong[what]} since {since:.0f} s"

    def _released(self, usage: ObservedUsage) -> dict[Hashable, str]:
        """Return the bindings that no policy propagates and that have no clusters, but may run."""
        return {
            (binding.uid, ""): f"D9 {key[1]} is not suspended, though no policy propagates it,"
            for key, binding in usage.bindings.items()
            if binding.gated and not (binding.suspended or binding.has_policy or binding.clusters)
            if not binding.is_terminating
        }

    def _misplaced(self, usage: ObservedUsage, at: float) -> dict[Hashable, str]:
        """Return the workloads that Karmada has moved to a cluster that cannot hold them beside what runs there."""
        found: dict[Hashable, str] = {}
        for key, binding in usage.bindings.items():
            if not binding.holds or binding.suspended or binding.is_divided or binding.is_terminating:
                continue
            has_run = bool({*binding.running, *binding.ended} & {*binding.clusters})
            for name in binding.clusters:
                cluster = self._now.get((kinds.CLUSTERS, ("", name)))
                # A copy may be added to one that runs, which an eviction would stop; one that runs again is resized.
                if not binding.moved_at or has_run or name in binding.silent or usage.is_resized(binding.uid):
                    continue
                if cluster is not None and is_ready(cluster) and _exceeds(usage, binding, name, at):
                    found[binding.uid, name] = f"R1 {key[1]} stays on {name}, where it does not fit,"
        return found


def _exceeds(usage: ObservedUsage, binding: BindingState, cluster: str, at: float) -> bool:
    """Return whether the gangs that run on *cluster* leave too little for that of *binding*.

    Of those that Karmada moved together with it, some may have started there before they could be evicted, after it was
    accepted without them.
    """
    moved_at = binding.moved_at
    has_evicted = any(
        moved_at - _LAG_SECONDS <= (other.recorded_at("startupFailedAt") or 0) <= moved_at + _REACTION_SECONDS
        for other in usage.bindings.values()
    )
    running = [
        usage.gang(other)
        for other in usage.holders()
        if cluster in other.running and other.uid != binding.uid
        if not has_evicted or other.moved_at < moved_at - _LAG_SECONDS
    ]
    return any(
        sum(gang.get(resource, 0) for gang in running) + amount
        > usage.free_capacity(cluster, resource, at) - usage.external.least(cluster, resource, at)
        for resource, amount in usage.gang(binding).items()
    )


def _allows(binding: Object, cluster: Object) -> bool:
    """Return whether *cluster* takes new workloads and the placement of *binding* allows it."""
    spec, name = binding["spec"], cluster["metadata"]["name"]
    placement = spec.get("placement") or {}
    terms = placement.get("clusterAffinities") or [placement.get("clusterAffinity")]
    return (
        is_ready(cluster)
        and "deletionTimestamp" not in cluster["metadata"]
        and all(task["fromCluster"] != name for task in spec.get("gracefulEvictionTasks") or ())
        and any(cluster_matches(term, cluster) for term in terms)
        and untolerated_taint(cluster, placement, "NoSchedule", "NoExecute") is None
    )
