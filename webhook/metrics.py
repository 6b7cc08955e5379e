"""Defines the metrics of the webhook; every label has a small closed set of values.

Requests are counted in one thread without the locks of the Prometheus client, which would cost a twentieth of a review.
"""

import platform
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from webhook.review import Outcome

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_LABELS = (*map(str, BUCKETS), "+Inf")

CONTENT_TYPE = CONTENT_TYPE_LATEST


@dataclass(slots=True)
class LatencyHistogram:
    """Latency of the answers on one path."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_LABELS))
    total: float = 0

    def add(self, seconds: float) -> None:
        """Record one answer."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Return the cumulative count of each bucket."""
        return list(zip(_LABELS, accumulate(self.counts), strict=True))


class RequestMetrics(Collector):
    """Answered requests by path."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, Outcome], int] = {}
        self._codes: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, LatencyHistogram] = {}

    def initialize(self, path: str) -> None:
        """Export every outcome of *path* as 0, so that a rate has a first value."""
        self._outcomes |= {(path, outcome): 0 for outcome in Outcome}

    def count_request(self, path: str, *, code: int, seconds: float) -> None:
        """Count an answer; *path* is a registered path or ``other``."""
        self._codes[path, code] = self._codes.get((path, code), 0) + 1
        latency = self._latencies.get(path)
        if latency is None:
            latency = self._latencies[path] = LatencyHistogram()
        latency.add(seconds)

    def count_review(self, path: str, outcome: Outcome) -> None:
        """Count the outcome of a review on an initialized path."""
        self._outcomes[path, outcome] += 1

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families."""
        requests = CounterMetricFamily(
            "volcano_global_webhook_requests",
            "HTTP requests answered, by registered path and status code.",
            labels=("path", "code"),
        )
        for (path, code), count in self._codes.items():
            requests.add_metric((path, str(code)), count)
        seconds = HistogramMetricFamily(
            "volcano_global_webhook_request_duration_seconds",
            "Time from the headers of a request to its answer.",
            labels=("path",),
        )
        for path, latency in self._latencies.items():
            seconds.add_metric((path,), latency.buckets(), latency.total)
        reviews = CounterMetricFamily(
            "volcano_global_webhook_responses",
            "Reviews answered, by outcome; `exempt` counts objects of exempt namespaces.",
            labels=("path", "outcome"),
        )
        for (path, outcome), count in self._outcomes.items():
            reviews.add_metric((path, outcome.value), count)
        yield from (requests, seconds, reviews)


class WebhookMetrics:
    """Metrics of the webhook, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = RequestMetrics()
        self.registry.register(self.requests)
        build = Gauge(
            "volcano_global_webhook_build_info",
            "1; the labels are versions.",
            ("version", "python_version"),
            registry=self.registry,
        )
        build.labels(version("volcano-global"), platform.python_version()).set(1)
        self._rejected = Gauge(
            "volcano_global_webhook_configuration_rejected",
            "1 while the present configuration file is rejected and the previous one stays in force, else 0.",
            registry=self.registry,
        )
        self._certificate_expiry = Gauge(
            "volcano_global_webhook_certificate_expiration_timestamp_seconds",
            "When the served certificate expires; 0 without a certificate.",
            registry=self.registry,
        )
        self._ready = Gauge(
            "volcano_global_webhook_ready",
            "1 if the webhook is ready to answer reviews, else 0.",
            registry=self.registry,
        )
        self._authenticates = Gauge(
            "volcano_global_webhook_authenticates_callers",
            "1 if callers must present a client certificate, 0 if every caller is answered.",
            registry=self.registry,
        )
        self._queues = Gauge(
            "volcano_global_webhook_queues",
            "Number of cached queues; -1 before the first list, when jobs are validated without their queues.",
            registry=self.registry,
        )

    def update(
        self, *, ready: bool, certificate_expiry: float, queues: int | None, authenticates: bool, rejected: bool
    ) -> None:
        """Set the gauges."""
        self._rejected.set(rejected)
        self._authenticates.set(authenticates)
        self._queues.set(-1 if queues is None else queues)
        self._ready.set(ready)
        self._certificate_expiry.set(certificate_expiry)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
