"""The numbers the controller shows about itself; every label has a bounded set of values.

What is counted is told by those who do it; what merely is, is read when
somebody asks.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.cache.store import Store
from controller.engine.queues import QueueName
from controller.engine.world import World

CONTENT_TYPE = CONTENT_TYPE_LATEST

#: Beyond so many queues the ones with the fewest waiting are shown together, without a name.
MAX_QUEUES = 200

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)


class Watched(Protocol):
    """What is told of an informer."""

    lists: int
    undecodable: int

    @property
    def is_synced(self) -> bool:
        """Whether its cache is a state that the server really had."""

    @property
    def silent_for(self) -> float:
        """How long the server has said nothing, in seconds."""


class Metrics:
    """The controller's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._admissions = Counter(
            "volcano_global_admissions",
            "Workloads admitted, as acknowledged by the API server.",
            registry=self.registry,
        )
        self._evictions = Counter(
            "volcano_global_evictions", "Workloads evicted, by reason.", ("reason",), registry=self.registry
        )
        self._waited = Histogram(
            "volcano_global_admission_wait_time_seconds",
            "Time from a template's creation to its admission.",
            buckets=_LONG,
            registry=self.registry,
        )
        self._cycles = Histogram(
            "volcano_global_cycle_duration_seconds",
            "Time to bring the world up to date and decide.",
            buckets=_SHORT,
            registry=self.registry,
        )
        self._failed_cycles = Counter(
            "volcano_global_failed_cycles", "Cycles that ended in an error of ours.", registry=self.registry
        )
        self._patches = Histogram(
            "volcano_global_patch_duration_seconds",
            "Time of one patch, by its effect and outcome.",
            ("effect", "outcome"),
            buckets=_SHORT,
            registry=self.registry,
        )
        self._leading = Gauge(
            "volcano_global_leader", "1 while this process may write, else 0.", registry=self.registry
        )

    def watch(self, world: Callable[[], World], store: Store, informers: Mapping[str, Watched]) -> None:
        """Show what is there whenever somebody asks; *world* returns the present one."""
        self.registry.register(_Present(world, store, informers))

    def count_admission(self, *, waited: float) -> None:
        """Count an acknowledged admission after *waited* seconds."""
        self._admissions.inc()
        self._waited.observe(max(waited, 0))

    def count_eviction(self, reason: str) -> None:
        """Count an acknowledged eviction."""
        self._evictions.labels(reason).inc()

    def count_cycle(self, seconds: float) -> None:
        """Count a cycle."""
        self._cycles.observe(seconds)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended in an error of ours."""
        self._failed_cycles.inc()

    def count_patch(self, effect: str, outcome: str, *, seconds: float) -> None:
        """Count a patch; both words are from closed sets."""
        self._patches.labels(effect, outcome).observe(seconds)

    def show_leading(self, *, leading: bool) -> None:
        """Set whether this process may write."""
        self._leading.set(leading)

    def page(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)


class _Present:
    """Reads what is true now; counts nothing."""

    def __init__(self, world: Callable[[], World], store: Store, informers: Mapping[str, Watched]) -> None:
        self._world = world
        self._store = store
        self._informers = informers

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._workloads()
        yield from self._caches()

    def _workloads(self) -> Iterator[Metric]:
        world = self._world()
        waiting = Tally({queue: len(held) for queue, held in world.held.items()})
        for lane in world.backlog.lanes():
            waiting[lane.queue] += len(lane.entries)
        yield _gauge("pending_workloads", "Workloads that wait, by queue.", "queue", _capped(waiting))
        reasons = Tally(world.told.values())
        yield _gauge("waiting_reasons", "Workloads that wait, by reason.", "reason", reasons.items())
        states = Tally(workload.state for workload in world.workloads.values())
        yield _gauge("workloads", "Gated workloads, by state.", "state", states.items())
        remarks = Tally(remark for found in self._store.remarks.values() for remark in found)
        yield _gauge("remarkable_bindings", "Bindings that somebody may have to see to.", "remark", remarks.items())

    def _caches(self) -> Iterator[Metric]:
        caches = self._informers.items()
        synced = ((name, cache.is_synced) for name, cache in caches)
        yield _gauge("cache_synced", "1 while a cache is a state the API server had.", "resource", synced)
        silent = ((name, min(cache.silent_for, 1e9)) for name, cache in caches)
        yield _gauge("cache_silence_seconds", "Time since the API server was last heard.", "resource", silent)
        lists = ((name, cache.lists) for name, cache in caches)
        yield _counter("cache_lists", "Whole lists that were applied.", "resource", lists)
        undecodable = ((name, cache.undecodable) for name, cache in caches)
        yield _counter("cache_undecodable_objects", "Objects that could not be read.", "resource", undecodable)


def _capped(counts: Mapping[QueueName, int]) -> list[tuple[str, int]]:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown: list[tuple[str, int]] = [(str(queue), count) for queue, count in most[:MAX_QUEUES]]
    rest = sum(count for _, count in most[MAX_QUEUES:])
    return [*shown, ("", rest)] if rest else shown


def _gauge(name: str, text: str, label: str, samples: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"volcano_global_{name}", text, labels=(label,))
    for value, sample in samples:
        family.add_metric((value,), sample)
    return family


def _counter(name: str, text: str, label: str, samples: Iterable[tuple[str, float]]) -> Metric:
    family = CounterMetricFamily(f"volcano_global_{name}", text, labels=(label,))
    for value, sample in samples:
        family.add_metric((value,), sample)
    return family
