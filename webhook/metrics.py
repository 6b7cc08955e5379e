"""Defines the metrics of the webhook; every label has a small closed set of values."""

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from webhook.request_metrics import RequestMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Metrics of the webhook, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = RequestMetrics()
        self.registry.register(self.requests)
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

    def update(self, *, ready: bool, certificate_expiry: float, queues: int | None, authenticates: bool) -> None:
        """Set the gauges."""
        self._authenticates.set(authenticates)
        self._queues.set(-1 if queues is None else queues)
        self._ready.set(ready)
        self._certificate_expiry.set(certificate_expiry)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
