"""Collects metrics of the present state at each scrape; only the leader exports more than its caches.

Every label has a bounded set of values that operators decide: queues that do not exist and resources that only
workloads name have no series of their own.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.engine.fairness.shares import QueueShares
from controller.engine.reservations.idle import ReservationKind
from controller.engine.state.cluster_state import ClusterState
from controller.engine.state.hierarchy import ROOT, Queue, QueueName
from controller.engine.state.resources import CPU, MEMORY, PODS, Resources, base_units
from controller.engine.state.workloads import Workload, WorkloadState
from controller.kube.informer import Informer
from controller.kube.timing import Clock, wall_clock

NAMESPACE = "volcano_global"
"""First part of the name of every metric."""

QueueAmounts = Mapping[str, int | Fraction]
L = TypeVar("L", bound=str)

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and number of each sample."""

#: Queues beyond this number, those with the fewest pending workloads, are exported together without a name.
MAX_QUEUES = 200
#: Resources beyond this number, in alphabetical order after CPU and memory, are not exported.
MAX_RESOURCES = 10
#: Clusters beyond this number, in alphabetical order, are not exported.
MAX_CLUSTERS = 200


class Caches(NamedTuple):
    """Caches by the names that metrics use: the informers, and those of kinds that may not be served."""

    informers: Mapping[str, Informer[Any]]
    discovered: Mapping[str, Informer[Any]] = MappingProxyType({})


class ReservedIdle:
    """Integrates the free capacity that reservations set aside, over time."""

    def __init__(self) -> None:
        self._areas: dict[tuple[ReservationKind, str], int] = {}
        """In base units times milliseconds, by kind of reservation and resource."""
        self._idle: Mapping[ReservationKind, Resources] = {}
        self._at = 0

    def read(self, idle: Mapping[ReservationKind, Resources], now: int) -> None:
        """Count *idle* from *now* on, until the next call."""
        self._areas = self._until(now)
        self._idle, self._at = idle, now

    def _until(self, now: int) -> dict[tuple[ReservationKind, str], int]:
        areas = dict(self._areas)
        for kind, amounts in self._idle.items():
            for resource, amount in amounts.items():
                areas[kind, resource] = areas.get((kind, resource), 0) + amount * max(now - self._at, 0)
        return areas

    def metric(self, resources: Iterable[str], now: int) -> Metric:
        """Return the integrals until *now* as a metric."""
        areas, kinds = self._until(now), get_args(ReservationKind)
        labels = [(kind, resource) for kind in kinds for resource in resources]
        samples = ((label, areas.get(label, 0) / base_units(label[1]) / 1000) for label in labels)
        text = "Free capacity that head or advance reservations set aside, in units of the resource times seconds."
        return _counter("reserved_idle_resource_seconds", text, ("kind", "resource"), samples)


class StateCollector:
    """Prometheus collector of the caches and, while the process leads, of the engine's state.

    *more* yields further metrics of the leader, for some resources and a time.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        store: Store,
        caches: Caches,
        *,
        leads: Callable[[], bool],
        more: Callable[[list[str], int], Iterator[Metric]],
    ) -> None:
        self.clock: Clock = wall_clock
        self._engine = engine
        self._store = store
        self._caches = caches
        self._leads = leads
        self._more = more

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        if self._leads():
            yield from self._leader_metrics(self._engine())
        yield from self._cache_metrics()

    def _leader_metrics(self, engine: Engine) -> Iterator[Metric]:
        pending = _Pending(engine, self.clock())
        yield pending.counts()
        yield pending.ages()
        yield from self._workloads(engine)
        resources = _resources_to_show(engine)
        queue_shares, quota = engine.queue_shares, engine.current_quota
        if queue_shares is not None and quota is not None:
            names = _queues_to_show(queue_shares, pending.by_queue())
            usage = {name: quota.allocated[name] if name in quota.tree.nodes else {} for name in names}
            yield from _queue_metrics(queue_shares, usage, resources)
        yield from _cluster_metrics(list(engine.cluster_usage), resources)
        yield from self._more(resources, self.clock())

    def _workloads(self, engine: Engine) -> Iterator[Metric]:
        admitted: Tally[QueueName] = Tally()
        states: Tally[WorkloadState] = Tally()
        for workload in engine.workloads.values():
            states[workload.state] += 1
            if workload.state is WorkloadState.ADMITTED:
                admitted[_known(workload.queue, engine.queues)] += 1
        text = "Admitted workloads that are not finished."
        yield gauge("admitted_active_workloads", text, ("queue",), _with_remainder(admitted))
        reasons = Tally(engine.last_reasons.values())
        yield gauge("pending_workloads_by_reason", "Pending workloads, by reason.", ("reason",), _by_label(reasons))
        yield gauge("workloads", "Gated workloads, by state.", ("state",), _by_label(states))
        conditions = Tally(condition for of_binding in self._store.conditions.values() for condition in of_binding)
        text = "Bindings with a condition that may need an action."
        yield gauge("bindings_by_condition", text, ("condition",), _by_label(conditions))

    def _cache_metrics(self) -> Iterator[Metric]:
        informers, discovered = self._caches

        def samples(value: Callable[[Informer[Any]], float]) -> Samples:
            return (((name,), value(informer)) for name, informer in informers.items())

        label = ("resource",)
        text = "1 while a cache equals a state of the API server."
        of_discovered = (((name,), cache.synced.is_set()) for name, cache in discovered.items())
        yield gauge("cache_synced", text, label, [*samples(lambda informer: informer.is_synced), *of_discovered])
        text = "Time since the last message of the API server."
        silence = samples(lambda informer: min(informer.seconds_since_response, 1e9))
        yield gauge("cache_silence_seconds", text, label, silence)
        lists = samples(lambda informer: informer.lists)
        yield _counter("cache_lists", "Complete lists that were applied.", label, lists)
        text = "Objects whose present version cannot be decoded."
        yield gauge("cache_unreadable_objects", text, label, samples(lambda informer: informer.unreadable))
        failures = samples(lambda informer: informer.decode_failures)
        yield _counter("cache_undecodable_objects", "Objects that could not be decoded.", label, failures)


class _Pending:
    """Pending workloads by queue: those that capacity alone may admit, and all others."""

    def __init__(self, engine: Engine, now: int) -> None:
        self._active: Tally[QueueName] = Tally()
        self._inadmissible: Tally[QueueName] = Tally()
        self._oldest: dict[tuple[str, str], int] = {}
        self._now = now
        for queue, workloads in engine.index.on_hold.items():
            held = (engine.workloads[uid] for uid in workloads)
            self._add(self._inadmissible, "inadmissible", _known(queue, engine.queues), held)
        for workload_class in engine.pending.classes():
            is_active = workload_class.inadmissible is None
            counts, status = (self._active, "active") if is_active else (self._inadmissible, "inadmissible")
            self._add(counts, status, _known(workload_class.queue, engine.queues), workload_class)

    def _add(self, counts: Tally[QueueName], status: str, queue: QueueName, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            counts[queue] += 1
            if workload.created_at > 0:
                self._oldest[queue, status] = min(self._oldest.get((queue, status), self._now), workload.created_at)

    def by_queue(self) -> Mapping[QueueName, int]:
        """Return the number of pending workloads of each queue."""
        return self._active + self._inadmissible

    def counts(self) -> Metric:
        """Return the numbers as a metric."""
        text = "Pending workloads, by queue; `inadmissible`: capacity alone cannot admit them."
        samples = (
            ((*queue, status), count)
            for status, counts in (("active", self._active), ("inadmissible", self._inadmissible))
            for queue, count in _with_remainder(counts)
        )
        return gauge("pending_workloads", text, ("queue", "status"), samples)

    def ages(self) -> Metric:
        """Return the age of the oldest workload of each queue, of at most so many queues as have a name."""
        text = "Time since the creation of the oldest pending workload, by queue."
        oldest = sorted(self._oldest.items(), key=lambda item: (item[1], item[0]))[: 2 * MAX_QUEUES]
        samples = ((labels, max(self._now - created_at, 0) / 1000) for labels, created_at in oldest)
        return gauge("oldest_pending_age_seconds", text, ("queue", "status"), samples)


def _known(queue: QueueName, queues: Mapping[QueueName, Queue]) -> QueueName:
    """Return *queue*, or an empty name if it does not exist: users may name as many of those as they like."""
    return queue if queue in queues or queue == ROOT else QueueName("")


def _resources_to_show(engine: Engine) -> list[str]:
    """Return the resources that clusters have or queues name; users cannot add to them."""
    names = {name for cluster in engine.cluster_usage for name in cluster.allocatable}
    for queue in engine.queues.values():
        names.update(queue.capability, queue.deserved, queue.guarantee)
    return sorted(names - {PODS}, key=lambda name: (name not in (CPU, MEMORY), name))[:MAX_RESOURCES]


def _queues_to_show(queue_shares: QueueShares, waiting: Mapping[QueueName, int]) -> list[QueueName]:
    """Return the root and the queues with the most pending workloads, then those with usage."""

    def weight(name: QueueName) -> tuple[bool, int, bool, str]:
        return name != ROOT, -waiting.get(name, 0), not queue_shares.quota.allocated[name], name

    return sorted(queue_shares.quota.tree.nodes, key=weight)[:MAX_QUEUES]


def _queue_metrics(
    queue_shares: QueueShares, usage: Mapping[QueueName, Resources], resources: list[str]
) -> Iterator[Metric]:
    """Yield the metrics of the queues of *usage*, which is the current one as in commands and the status of queues."""
    usage_text = "Charges of a queue and of all queues below it, also of workloads that are being evicted."
    tables: tuple[tuple[str, str, Callable[[QueueName], QueueAmounts]], ...] = (
        ("fair_share", "Fair share of a queue.", lambda name: queue_shares.fair_shares[name]),
        ("usage", usage_text, lambda name: usage[name]),
        ("limit", "Limit of a queue.", lambda name: queue_shares.quota.limits[name].limit),
    )
    for word, text, amounts in tables:
        samples = (((name, resource), _in_units(amounts(name), resource)) for name in usage for resource in resources)
        yield gauge(f"queue_resource_{word}", text, ("queue", "resource"), samples)
    shares = (((name,), _usage_ratio(queue_shares, name, used)) for name, used in usage.items())
    yield gauge("queue_usage_ratio", "Usage divided by fair share, of the dominant resource.", ("queue",), shares)


def _cluster_metrics(clusters: list[ClusterState], resources: list[str]) -> Iterator[Metric]:
    shown = sorted((state for state in clusters if state.cluster), key=lambda state: state.name)[:MAX_CLUSTERS]
    text = "1 while a cluster accepts new admissions, else 0."
    yield gauge("cluster_usable", text, ("cluster",), (((state.name,), state.is_usable) for state in shown))
    tables: tuple[tuple[str, str, Callable[[ClusterState], Resources]], ...] = (
        ("allocatable", "Allocatable resources of a cluster.", lambda state: state.allocatable),
        ("usage", "Charges of admitted workloads on a cluster.", lambda state: state.charged),
        ("external_usage", "What other pods use on a cluster.", lambda state: state.external_usage),
    )
    for word, text, amounts in tables:
        samples = (
            ((state.name, resource), _in_units(amounts(state), resource))
            for state in shown
            for resource in resources
            if resource in state.allocatable or resource in amounts(state)
        )
        yield gauge(f"cluster_resource_{word}", text, ("cluster", "resource"), samples)


def _in_units(amounts: QueueAmounts, resource: str) -> float:
    """Return the amount of *resource* in its usual unit."""
    return float(amounts.get(resource, 0) / base_units(resource))


def _usage_ratio(queue_shares: QueueShares, name: QueueName, usage: Resources) -> float:
    is_infinite, share = queue_shares.usage_ratio_with(name, usage)
    return float("inf") if is_infinite else float(share)


def _with_remainder(counts: Mapping[QueueName, int]) -> list[tuple[tuple[str], int]]:
    """Return the largest *counts* as samples, and the sum of all others without a queue name."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown: list[tuple[tuple[str], int]] = [((queue,), count) for queue, count in most[:MAX_QUEUES]]
    rest = sum(count for _, count in most[MAX_QUEUES:])
    return [*shown, (("",), rest)] if rest else shown


def _by_label(counts: Tally[L]) -> Samples:
    return (((label,), count) for label, count in counts.items())


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    """Return a gauge with *samples*."""
    return _with_samples(GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _counter(name: str, text: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    return _with_samples(CounterMetricFamily(f"{NAMESPACE}_{name}", text, labels=labels), samples)


def _with_samples(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for labels, number in samples:
        family.add_metric(labels, number)
    return family
