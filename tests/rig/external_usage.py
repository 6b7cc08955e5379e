"""Bounds of what a controller can know of external usage from the clusters' summaries (C2).

The summary is written only when it changes and has no time, so the exact value depends on what the controller saw
first. ``low`` holds for every order of the events, and ``high`` too.
"""

from collections import Counter as Tally
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.rig import requests
from tests.rig.binding_state import BindingState

SETTLE = 30.0
"""Default of ``clusterStatusSettlePeriod``."""
_TOLERANCE = 10.0
"""Seconds by which the controller's periods may differ from those computed here."""

ChargesOf = Callable[[str], tuple[requests.Amounts, requests.Amounts]]
"""Returns the least and the most that a binding, by uid, is charged with in each of its clusters."""


@dataclass
class _Cluster:
    used: requests.Amounts | None = None
    """Requests of the pods in the summary, with a node or without; ``None`` while there is no summary."""
    charged: dict[str, int] = field(default_factory=dict)
    """How often the template of each charged binding runs there."""
    beyond: dict[str, requests.Amounts] = field(default_factory=dict)
    """What each of them may be charged with besides: a Deployment that was scaled down stays charged (D6)."""
    running: set[str] = field(default_factory=set)
    """Charged bindings whose pods the summary has counted."""
    freed: list[tuple[float, requests.Amounts]] = field(default_factory=list)
    changed_at: float = float("-inf")
    settled_at: float = float("-inf")
    """Last change that the controller must have seen: older than the lag."""
    unseen: deque[float] = field(default_factory=deque)
    """Later changes."""
    low: dict[str, requests.Amount] = field(default_factory=dict)
    high: dict[str, requests.Amount] = field(default_factory=dict)
    history: deque[tuple[float, Mapping[str, requests.Amount], Mapping[str, requests.Amount]]] = field(
        default_factory=deque
    )
    refreshed_at: float | None = None
    """Time of the last refresh, unless something has changed since."""


class ExternalUsage:
    """Bounds of the external usage of each cluster; *lag* is the age up to which they may be decided on."""

    def __init__(self, charges_of: ChargesOf, *, lag: float) -> None:
        self._charges_of = charges_of
        self._lag = lag
        self._clusters: defaultdict[str, _Cluster] = defaultdict(_Cluster)

    def apply_cluster(self, name: str, cluster: Mapping[str, Any] | None, at: float) -> None:
        """Apply a change of a cluster."""
        state = self._clusters[name]
        summary = ((cluster or {}).get("status") or {}).get("resourceSummary") or {}
        if cluster is None or not summary.get("allocatable"):
            state.used, state.low, state.high = None, {}, {}
            state.history.append((at, {}, {}))
            return
        self._refresh(state, at)
        used = (requests.amounts(summary.get(name)) for name in ("allocated", "allocating"))
        state.used, state.refreshed_at = requests.add(*used), None
        self._refresh(state, at)

    def apply_binding(self, before: BindingState | None, after: BindingState | None, at: float) -> None:
        """Apply a change of a binding."""
        uid = before.uid if before is not None else after.uid if after is not None else ""
        is_same = after is not None and after.uid == uid
        places = Tally(_places(after, before)) if is_same and after is not None else Tally[str]()
        running = set(after.running) if is_same and after is not None else set()
        # Its charge begins or ends to leave, for example with an eviction that takes its time.
        is_turned = is_same and before is not None and after is not None and before.holds != after.holds
        for name, state in list(self._clusters.items()):
            if uid in state.charged and name not in places:
                self._undo_recent_fall(name, at)
                ended = _times(self._charges_of(uid)[1], state.charged.pop(uid))
                state.freed.append((at, requests.add(ended, state.beyond.pop(uid, {}))))
                state.running.discard(uid)
                _change(state, at)
        for name in places:
            state = self._clusters[name]
            if after is not None and after.is_divided and (not after.clusters or name in after.silent):
                # Its replicas are charged until they have ended, though Karmada assigns fewer or none, and as long as
                # the cluster refuses its Work.
                places[name] = max(places[name], state.charged.get(uid, 0))
            count = state.charged.get(uid, 0)
            if is_turned or places[name] != count or (name in running) != (uid in state.running):
                self._refresh(state, at)
                self._undo_recent_fall(name, at)
                # Fewer replicas may stay charged (D6), and then nothing has changed.
                _change(state, at, may_be_none=not is_turned and places[name] < count)
            if places[name] < count:
                state.freed.append((at, _times(self._charges_of(uid)[1], count - places[name])))
            state.charged[uid], state.beyond[uid] = places[name], self._beyond(after)
            (state.running.add if name in running else state.running.discard)(uid)
        if before is not None and after is not None and not is_same:
            self.apply_binding(None, after, at)

    def _beyond(self, binding: BindingState | None) -> requests.Amounts:
        """Return what the record of a Deployment charges more than all its replicas request."""
        if binding is None or not binding.is_divided or not binding.holds:
            return {}
        requested = _times(self._charges_of(binding.uid)[1], max(binding.copies, len(binding.clusters)))
        charge = requests.amounts(binding.record.get("charge"))
        return {
            name: amount - requested.get(name, 0) for name, amount in charge.items() if amount > requested.get(name, 0)
        }

    def _undo_recent_fall(self, cluster: str, at: float) -> None:
        """Raise ``high`` to what it was within the lag, before a change of a workload.

        A summary may have been seen together with the change or after it, and then nothing falls for a settle period.
        """
        recent, state = self._recent(cluster, at), self._clusters[cluster]
        high = dict(state.high)
        for _, earlier in recent:
            for name, amount in earlier.items():
                high[name] = max(high.get(name, 0), amount)
        if high != state.high:
            state.high = high
            state.history.append((at, state.low, high))

    def resized(self, uid: str, at: float) -> None:
        """Apply a change of the requests of a binding."""
        for state in self._clusters.values():
            if uid in state.charged:
                self._refresh(state, at)
                _change(state, at)

    def least(self, cluster: str, resource: str, at: float) -> requests.Amount:
        """Return the least external usage that is known for certain."""
        return min(low.get(resource, 0) for low, _ in self._recent(cluster, at))

    def most(self, cluster: str, resource: str, at: float) -> requests.Amount:
        """Return the most external usage that may be presumed."""
        return max(high.get(resource, 0) for _, high in self._recent(cluster, at))

    def _recent(
        self, cluster: str, at: float
    ) -> list[tuple[Mapping[str, requests.Amount], Mapping[str, requests.Amount]]]:
        state = self._clusters[cluster]
        self._refresh(state, at)
        while len(state.history) > 1 and state.history[1][0] < at - self._lag:
            state.history.popleft()
        return [(low, high) for _, low, high in state.history] or [({}, {})]

    def _refresh(self, state: _Cluster, at: float) -> None:
        if state.used is None or state.refreshed_at == at:
            return
        state.refreshed_at = at
        oldest = at - max(SETTLE + _TOLERANCE, self._lag)
        state.freed = [(freed, charge) for freed, charge in state.freed if freed > oldest]
        while state.unseen and state.unseen[0] < at - self._lag:
            state.settled_at = state.unseen.popleft()
        charges = {
            uid: tuple(_times(amounts, count) for amounts in self._charges_of(uid))
            for uid, count in state.charged.items()
        }
        most = requests.add(*(most for _, most in charges.values()), *state.beyond.values())
        least = requests.add(*(least for least, _ in charges.values()))
        counted = requests.add(*(least for uid, (least, _) in charges.items() if uid in state.running))
        freed = requests.add(*(charge for when, charge in state.freed if when > at - SETTLE - _TOLERANCE))
        # The summary may be seen before the ends of workloads, which are stored elsewhere.
        unseen = requests.add(*(charge for when, charge in state.freed if when >= at - self._lag))
        recently = requests.add(*(charge for when, charge in state.freed if when > at - SETTLE + _TOLERANCE))
        is_low_settled = at - state.settled_at >= SETTLE - _TOLERANCE
        is_high_settled = at - state.changed_at >= SETTLE + _TOLERANCE
        low, high = dict(state.low), dict(state.high)
        for name in {*state.used, *low, *high}:
            used = state.used.get(name, 0)
            low[name] = max(low.get(name, 0), used - most.get(name, 0) - freed.get(name, 0))
            high[name] = max(high.get(name, 0), used - least.get(name, 0) - recently.get(name, 0))
            if is_low_settled:
                low[name] = min(low[name], max(used - most.get(name, 0) - unseen.get(name, 0), 0))
            if is_high_settled:
                high[name] = min(high[name], max(used - counted.get(name, 0), 0))
        if (low, high) != (state.low, state.high) or not state.history:
            state.low, state.high = low, high
            state.history.append((at, low, high))


def _times(amounts: requests.Amounts, count: int) -> requests.Amounts:
    return amounts if count == 1 else {name: amount * count for name, amount in amounts.items()}


def _change(state: _Cluster, at: float, *, may_be_none: bool = False) -> None:
    state.changed_at, state.refreshed_at = at, None
    if not may_be_none:
        state.unseen.append(at)


def _places(binding: BindingState | None, before: BindingState | None) -> tuple[str, ...]:
    """Return the clusters in which *binding* is charged, or still has pods after an eviction (P5)."""
    if binding is None or binding.is_finished:
        return ()
    if binding.holds:
        # It is charged as well where Karmada evicts it, until it has ended there (C4).
        leaving = tuple(name for name in binding.leaving if name not in {*binding.clusters, *binding.ended})
        return (binding.clusters or tuple(binding.record.get("clusters") or ())) + leaving
    charged_before = before is not None and before.uid == binding.uid
    return binding.listed if charged_before else ()
