"""The numbers the webhook shows about itself; every label has a small closed set of values."""

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from webhook.request_metrics import RequestMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The webhook's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = RequestMetrics()
        self.registry.register(self.requests)
        self._certificate_expiry = Gauge(
            "volcano_global_webhook_certificate_expiration_timestamp_seconds",
            "When the served certificate expires; 0 while there is none.",
            registry=self.registry,
        )
        self._ready = Gauge(
            "volcano_global_webhook_ready", "1 while reviews can be answered, else 0.", registry=self.registry
        )
        self._authenticates = Gauge(
            "volcano_global_webhook_authenticates_callers",
            "1 where callers must show a client certificate, 0 where anyone who reaches the port is answered.",
            registry=self.registry,
        )
        self._queues = Gauge(
            "volcano_global_webhook_queues",
            "Queues known; -1 while they were never listed, and jobs are judged without them.",
            registry=self.registry,
        )

    def update(self, *, ready: bool, certificate_expiry: float, queues: int | None, authenticates: bool) -> None:
        """Set what is true now."""
        self._authenticates.set(authenticates)
        self._queues.set(-1 if queues is None else queues)
        self._ready.set(ready)
        self._certificate_expiry.set(certificate_expiry)

    def render(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)
