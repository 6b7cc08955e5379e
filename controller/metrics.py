"""The numbers the controller shows about itself; every label has a bounded set of values.

What is counted is told by those who do it; what merely is, ``present`` reads
when somebody asks.
"""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from controller.cache.store import Store
from controller.engine.state import State
from controller.state_collector import InformerStats, StateCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)


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
        self._internal_errors = Counter(
            "volcano_global_internal_errors",
            "Workloads that were set aside because an error of ours came up, by the step in which it did.",
            ("step",),
            registry=self.registry,
        )
        self._patches = Histogram(
            "volcano_global_patch_duration_seconds",
            "Time of one patch, by its effect and outcome.",
            ("effect", "outcome"),
            buckets=_SHORT,
            registry=self.registry,
        )
        self._conflicts = Counter(
            "volcano_global_patch_conflicts",
            "Patches refused because the binding had changed since it was decided upon.",
            registry=self.registry,
        )
        self._events = Counter(
            "volcano_global_events",
            "Events for tenants, by what became of them; `dropped`: there were too many to be told.",
            ("outcome",),
            registry=self.registry,
        )
        self._lag = Histogram(
            "volcano_global_event_loop_lag_seconds",
            "How late the event loop comes round; beyond a second it is told in the log.",
            buckets=_SHORT,
            registry=self.registry,
        )
        self._registered = Gauge(
            "volcano_global_webhook_registered",
            "1 while our webhook configuration of a kind is as it should be, else 0.",
            ("configuration",),
            registry=self.registry,
        )
        self._turns = Counter(
            "volcano_global_leadership_changes",
            "How often this process began or ceased to lead.",
            registry=self.registry,
        )
        self._leading = Gauge(
            "volcano_global_leader", "1 while this process may write, else 0.", registry=self.registry
        )

        self._estimates = Histogram(
            "volcano_global_estimator_query_duration_seconds",
            "Time of one question to a cluster's scheduler estimator, by its outcome.",
            ("outcome",),
            buckets=_SHORT,
            registry=self.registry,
        )
        self._lost_decision_files = Counter(
            "volcano_global_decision_journal_losses",
            "How often the journal of decisions could not be written; each time a part of it is missing.",
            registry=self.registry,
        )

    def register_state(self, state: Callable[[], State], store: Store, informers: Mapping[str, InformerStats]) -> None:
        """Show what is there whenever somebody asks; *world* returns the present one."""
        self.registry.register(StateCollector(state, store, informers))

    def count_admission(self, *, wait_seconds: float) -> None:
        """Count an acknowledged admission after *waited* seconds."""
        self._admissions.inc()
        self._waited.observe(max(wait_seconds, 0))

    def count_eviction(self, reason: str) -> None:
        """Count an acknowledged eviction."""
        self._evictions.labels(reason).inc()

    def count_cycle(self, seconds: float) -> None:
        """Count a cycle."""
        self._cycles.observe(seconds)

    def count_failed_cycle(self) -> None:
        """Count a cycle that ended in an error of ours."""
        self._failed_cycles.inc()

    def count_internal_error(self, step: str) -> None:
        """Count a workload that was set aside; the word is from a closed set."""
        self._internal_errors.labels(step).inc()

    def count_patch(self, effect: str, outcome: str, *, seconds: float) -> None:
        """Count a patch; both words are from closed sets."""
        self._patches.labels(effect, outcome).observe(seconds)

    def count_conflict(self) -> None:
        """Count a patch that came too late."""
        self._conflicts.inc()

    def count_event(self, outcome: str) -> None:
        """Count an event that was written, refused, not answered or dropped."""
        self._events.labels(outcome).inc()

    def count_lag(self, seconds: float) -> None:
        """Count how late the event loop was."""
        self._lag.observe(seconds)

    def count_estimate(self, outcome: str, *, seconds: float) -> None:
        """Count a question to an estimator: counted, uncounted, late or failed."""
        self._estimates.labels(outcome).observe(seconds)

    def set_webhook_registered(self, kind: str, *, right: bool) -> None:
        """Set whether a webhook configuration is as it should be."""
        self._registered.labels(kind).set(right)

    def count_decision_log_loss(self) -> None:
        """Count that decisions are not taken down in the journal until another file begins."""
        self._lost_decision_files.inc()

    def set_leading(self, *, leading: bool) -> None:
        """Set whether this process leads."""
        self._leading.set(leading)
        self._turns.inc()

    def exposition(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)
