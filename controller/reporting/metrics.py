"""Prometheus metrics of the controller; every label has a bounded set of values.

Events are counted by their callers; ``state_collector`` reads the present state at each scrape.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric

from controller.cache.store import Store
from controller.engine.engine import Engine
from controller.reporting.state_collector import (
    MAX_QUEUES,
    NAMESPACE,
    Caches,
    ReservedIdle,
    StateCollector,
    gauge,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)

#: Pairs of queue and priority class beyond this number are counted without the priority class.
_MAX_PAIRS = 2 * MAX_QUEUES


class ControllerMetrics:
    """The metrics of the controller, in their own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the client has no types here
        self.registry = CollectorRegistry()
        self._queues: set[str] = set()
        self._pairs: set[tuple[str, str]] = set()
        self._registered: dict[str, bool] = {}
        self.reserved_idle = ReservedIdle()
        """What reservations cost, to be read after each cycle."""
        self.hyperjobs: Callable[[], Mapping[str, int]] = dict
        """Returns the number of HyperJobs in each phase."""
        self.data_source_claims: Callable[[], Mapping[str, int]] = dict
        """Returns the number of DataSourceClaims in each phase."""
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, namespace=NAMESPACE, registry=self.registry)
        settable = partial(Gauge, namespace=NAMESPACE, registry=self.registry)
        durations = partial(Histogram, namespace=NAMESPACE, registry=self.registry, buckets=_SHORT)
        waits = partial(Histogram, namespace=NAMESPACE, registry=self.registry, buckets=_LONG)
        build = settable("build_info", "1; the labels are versions.", ("version", "python_version"))
        build.labels(version("volcano-global"), platform.python_version()).set(1)
        # Each admission counts in these; every label has a bounded set of values.
        text = "Workloads admitted, as acknowledged by the API server, by queue."
        self._admissions = cache(counter("admitted_workloads", text, ("queue",)).labels)
        self._evictions = counter("evicted_workloads", "Workloads evicted, by queue and reason.", ("queue", "reason"))
        text = "Time from a template's creation to its admission, by queue and priority class."
        self._wait_times = cache(waits("admission_wait_time_seconds", text, ("queue", "priority_class")).labels)
        self._cycles = durations("cycle_duration_seconds", "Time to apply changes and decide.")
        self._failed_cycles = counter("failed_cycles", "Cycles that ended in an internal error.")
        text = "Workloads quarantined after an internal error, by step."
        self._internal_errors = counter("internal_errors", text, ("step",))
        text = "Duration of a patch, by effect and outcome."
        self._patches = cache(durations("patch_duration_seconds", text, ("effect", "outcome")).labels)
        text = "Patches rejected because the binding had changed since the decision."
        self._conflicts = counter("patch_conflicts", text)
        self._events = counter("events", "Kubernetes events by outcome; `dropped`: the queue was full.", ("outcome",))
        text = "Delay of the event loop; a delay above one second is logged."
        self._lag = durations("event_loop_lag_seconds", text)
        text = "1 while the present content of a file is rejected and the previous one stays in force, else 0."
        self._rejected = settable("configuration_rejected", text, ("file",))
        self._turns = counter("leadership_changes", "Changes of leadership of this process.")
        self._leading = settable("leader", "1 while this process is the leader, else 0.")
        self._leads = False
        text = "Duration of a query to a cluster's scheduler estimator, by outcome."
        self._estimates = durations("estimator_query_duration_seconds", text, ("outcome",))
        text = "Duration of a request to a data plugin, with its retries, by system and outcome."
        self._data_requests = durations("data_request_duration_seconds", text, ("system", "outcome"))
        text = "Interruptions of the decision log; a part of it is missing after each."
        self._lost_decision_files = counter("decision_log_losses", text)

    def register_state(
        self,
        engine: Callable[[], Engine],
        store: Store,
        caches: Caches,
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Export the caches at each scrape, and while this process *leads* the present state.

        *engine* returns the engine in use.
        """
        self.registry.register(StateCollector(engine, store, caches, leads=leads, more=self._of_controllers))

    def _of_controllers(self, resources: list[str], now: int) -> Iterator[Metric]:
        yield self.reserved_idle.metric(resources, now)
        text = "1 while the webhook configuration of a kind is as desired, else 0."
        registered = (((kind,), right) for kind, right in self._registered.items())
        yield gauge("webhook_registered", text, ("configuration",), registered)
        phases = (((phase,), count) for phase, count in self.hyperjobs().items())
        yield gauge("hyperjobs", "HyperJobs, by phase.", ("phase",), phases)
        phases = (((phase,), count) for phase, count in self.data_source_claims().items())
        yield gauge("data_source_claims", "DataSourceClaims, by phase.", ("phase",), phases)

    def register_file(self, name: str, is_rejected: Callable[[], bool]) -> None:
        """Export at each scrape whether the present content of the file *name* is rejected."""
        self._rejected.labels(name).set_function(is_rejected)

    def count_admission(self, queue: str, *, priority_class: str = "", wait_seconds: float) -> None:
        """Count an acknowledged admission to *queue* after *wait_seconds*; *priority_class* must exist or be empty."""
        label = self._queue_label(queue)
        self._admissions(label).inc()
        self._wait_times(*self._pair(label, priority_class)).observe(max(wait_seconds, 0))

    def count_eviction(self, queue: str, reason: str) -> None:
        """Count an acknowledged eviction from *queue*."""
        self._evictions.labels(self._queue_label(queue), reason).inc()

    def _queue_label(self, queue: str) -> str:
        """Return *queue*, or an empty label once so many queues have one that more would need too much memory."""
        if len(self._queues) < MAX_QUEUES:
            self._queues.add(queue)
        return queue if queue in self._queues else ""

    def _pair(self, queue: str, priority_class: str) -> tuple[str, str]:
        """Return the labels, without the priority class once so many pairs exist."""
        pair = queue, priority_class
        if len(self._pairs) < _MAX_PAIRS:
            self._pairs.add(pair)
        return pair if pair in self._pairs else (queue, "")

    def count_cycle(self, seconds: float) -> None:
        """Count a cycle."""
        self._cycles.observe(seconds)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended in an internal error."""
        self._failed_cycles.inc()

    def count_internal_error(self, step: str) -> None:
        """Count a workload that was quarantined after an internal error in *step*."""
        self._internal_errors.labels(step).inc()

    def count_patch(self, effect: str, outcome: str, *, seconds: float) -> None:
        """Count a patch with its duration."""
        self._patches(effect, outcome).observe(seconds)

    def count_conflict(self) -> None:
        """Count a patch that was rejected because the binding had changed."""
        self._conflicts.inc()

    def count_event(self, outcome: str) -> None:
        """Count a Kubernetes event as written, refused, failed or dropped."""
        self._events.labels(outcome).inc()

    def count_lag(self, seconds: float) -> None:
        """Count a delay of the event loop."""
        self._lag.observe(seconds)

    def count_estimate(self, outcome: str, *, seconds: float) -> None:
        """Count a query to a scheduler estimator by its outcome: counted, uncounted, late or failed."""
        self._estimates.labels(outcome).observe(seconds)

    def count_data_request(self, system: str, outcome: str, seconds: float) -> None:
        """Count a request to the plugin of a configured system; the outcome is `Located` or why it failed."""
        self._data_requests.labels(system, outcome).observe(seconds)

    def set_webhook_registered(self, kind: str, *, right: bool) -> None:
        """Set whether a webhook configuration is as desired."""
        self._registered[kind] = right

    def count_decision_log_loss(self) -> None:
        """Count an interruption of the decision log, which lasts until the next file begins."""
        self._lost_decision_files.inc()

    def set_leading(self, *, leading: bool) -> None:
        """Set whether this process leads, and count a change."""
        if leading != self._leads:
            self._leads = leading
            self._leading.set(leading)
            self._turns.inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
