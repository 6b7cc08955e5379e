"""Collects metrics of the present state at each scrape.

Every label has a bounded set of values: only some queues are exported by name.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Protocol, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.fairness.ordering import QueueShares
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.resources import PODS, base_units
from controller.engine.state.workloads import WorkloadState

NAMESPACE = "volcano_global"
"""First part of the name of every metric."""

QueueAmounts = Mapping[str, int | Fraction]
L = TypeVar("L", bound=str)

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and number of each sample."""

#: Queues beyond this number, those with the fewest pending workloads, are exported together without a name.
MAX_QUEUES = 200
#: Resources beyond this number, in alphabetical order, are not exported.
MAX_RESOURCES = 10


class InformerStats(Protocol):
    """Statistics of an informer."""

    lists: int
    decode_failures: int

    @property
    def unreadable(self) -> int:
        """Number of objects whose present version could not be decoded."""

    @property
    def is_synced(self) -> bool:
        """Whether the cache equals a state of the API server."""

    @property
    def seconds_since_response(self) -> float:
        """Seconds since the last message of the API server."""


class StateCollector:
    """Prometheus collector of the engine's state and the caches."""

    def __init__(self, state: Callable[[], Engine], store: Store, informers: Mapping[str, InformerStats]) -> None:
        self._state = state
        self._store = store
        self._informers = informers

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        state = self._state()
        active, inadmissible = _pending_by_queue(state)
        yield _pending_metric(active, inadmissible)
        yield from self._workloads(state)
        if state.queue_shares is not None:
            yield from _queue_metrics(state.queue_shares, _queues_to_show(state.queue_shares, active + inadmissible))
        yield from self._caches()

    def _workloads(self, state: Engine) -> Iterator[Metric]:
        admitted: Tally[QueueName] = Tally()
        states: Tally[WorkloadState] = Tally()
        for workload in state.workloads.values():
            states[workload.state] += 1
            if workload.state is WorkloadState.ADMITTED:
                admitted[workload.queue] += 1
        text = "Admitted workloads that are not finished."
        yield _gauge("admitted_active_workloads", text, ("queue",), _with_remainder(admitted))
        reasons = Tally(state.last_reasons.values())
        yield _gauge("pending_workloads_by_reason", "Pending workloads, by reason.", ("reason",), _by_label(reasons))
        yield _gauge("workloads", "Gated workloads, by state.", ("state",), _by_label(states))
        conditions = Tally(condition for found in self._store.conditions.values() for condition in found)
        text = "Bindings with a condition that may need an action."
        yield _gauge("bindings_by_condition", text, ("condition",), _by_label(conditions))

    def _caches(self) -> Iterator[Metric]:
        informers = self._informers

        def samples(value: Callable[[InformerStats], float]) -> Samples:
            return (((name,), value(informer)) for name, informer in informers.items())

        label = ("resource",)
        text = "1 while a cache equals a state of the API server."
        yield _gauge("cache_synced", text, label, samples(lambda informer: informer.is_synced))
        text = "Time since the last message of the API server."
        silence = samples(lambda informer: min(informer.seconds_since_response, 1e9))
        yield _gauge("cache_silence_seconds", text, label, silence)
        lists = samples(lambda informer: informer.lists)
        yield _counter("cache_lists", "Complete lists that were applied.", label, lists)
        text = "Objects whose present version cannot be decoded."
        yield _gauge("cache_unreadable_objects", text, label, samples(lambda informer: informer.unreadable))
        failures = samples(lambda informer: informer.decode_failures)
        yield _counter("cache_undecodable_objects", "Objects that could not be decoded.", label, failures)


def _pending_by_queue(state: Engine) -> tuple[Tally[QueueName], Tally[QueueName]]:
    """Return the number of pending workloads by queue: those that capacity alone may admit, and all others."""
    active: Tally[QueueName] = Tally()
    inadmissible = Tally({queue: len(workloads) for queue, workloads in state.index.on_hold.items()})
    for workload_class in state.pending.classes():
        counts = active if workload_class.inadmissible is None else inadmissible
        counts[workload_class.queue] += len(workload_class.workloads)
    return active, inadmissible


def _pending_metric(active: Tally[QueueName], inadmissible: Tally[QueueName]) -> Metric:
    text = "Pending workloads, by queue; `inadmissible`: capacity alone cannot admit them."
    samples = (
        ((*queue, status), count)
        for status, counts in (("active", active), ("inadmissible", inadmissible))
        for queue, count in _with_remainder(counts)
    )
    return _gauge("pending_workloads", text, ("queue", "status"), samples)


def _queues_to_show(standing: QueueShares, waiting: Mapping[QueueName, int]) -> list[QueueName]:
    """Return the root and the queues with the most pending workloads, then those with usage."""

    def weight(name: QueueName) -> tuple[bool, int, bool, str]:
        return name != ROOT, -waiting.get(name, 0), not standing.quota.allocated[name], name

    return sorted(standing.quota.tree.nodes, key=weight)[:MAX_QUEUES]


def _queue_metrics(standing: QueueShares, names: list[QueueName]) -> Iterator[Metric]:
    resources = sorted(set(standing.fair_shares[ROOT]) - {PODS})[:MAX_RESOURCES]
    tables: tuple[tuple[str, str, Callable[[QueueName], QueueAmounts]], ...] = (
        ("fair_share", "Fair share of a queue.", lambda name: standing.fair_shares[name]),
        ("usage", "Charges of a queue and of all queues below it.", lambda name: standing.quota.allocated[name]),
        ("limit", "Limit of a queue.", lambda name: standing.quota.limits[name].limit),
    )
    for word, text, amounts in tables:
        samples = (
            ((name, resource), float(amounts(name).get(resource, 0) / base_units(resource)))
            for name in names
            for resource in resources
        )
        yield _gauge(f"queue_resource_{word}", text, ("queue", "resource"), samples)
    shares = (((name,), _usage_ratio(standing, name)) for name in names)
    yield _gauge("queue_usage_ratio", "Usage divided by fair share, of the dominant resource.", ("queue",), shares)


def _usage_ratio(standing: QueueShares, name: QueueName) -> float:
    is_infinite, share = standing.usage_ratio(name, frozenset())
    return float("inf") if is_infinite else float(share)


def _with_remainder(counts: Mapping[QueueName, int]) -> list[tuple[tuple[str], int]]:
    """Return the largest *counts* as samples, and the sum of all others without a queue name."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown: list[tuple[tuple[str], int]] = [((queue,), count) for queue, count in most[:MAX_QUEUES]]
    rest = sum(count for _, count in most[MAX_QUEUES:])
    return [*shown, (("",), rest)] if rest else shown


def _by_label(counts: Tally[L]) -> Samples:
    return (((label,), count) for label, count in counts.items())


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _with_samples(GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _with_samples(CounterMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _with_samples(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, number in samples:
        family.add_metric(labels, number)
    return family
