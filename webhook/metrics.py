"""The numbers the webhook shows about itself; every label has a small closed set of values."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from webhook.verdict import Outcome

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The webhook's metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # Looking a child up costs more than counting.
        self._outcomes: dict[tuple[str, Outcome], Counter] = {}
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "volcano_global_webhook_requests",
            "HTTP requests answered, by registered path and status code.",
            ("path", "code"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "volcano_global_webhook_request_duration_seconds",
            "Time from a request's headers to its answer.",
            ("path",),
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
            registry=self.registry,
        )
        self._verdicts = Counter(
            "volcano_global_webhook_verdicts",
            "Reviews answered, by outcome; `exempt` counts what an exempt namespace let by.",
            ("path", "outcome"),
            registry=self.registry,
        )
        self._certificate_ends = Gauge(
            "volcano_global_webhook_certificate_expiration_timestamp_seconds",
            "When the served certificate expires; 0 while there is none.",
            registry=self.registry,
        )
        self._ready = Gauge(
            "volcano_global_webhook_ready", "1 while reviews can be answered, else 0.", registry=self.registry
        )

        self._queues = Gauge(
            "volcano_global_webhook_queues",
            "Queues known; -1 while they were never listed, and jobs are judged without them.",
            registry=self.registry,
        )

    def announce(self, path: str) -> None:
        """Show every outcome of *path* as 0, so that a rate has a beginning."""
        for outcome in Outcome:
            self._outcomes[path, outcome] = self._verdicts.labels(path, outcome.value)

    def count_request(self, path: str, *, code: int, seconds: float) -> None:
        """Count an answer; *path* is one of the registered ones or ``other``."""
        found = self._counted.get((path, code))
        if found is None:
            found = self._requests.labels(path, str(code)), self._seconds.labels(path)
            self._counted[path, code] = found
        found[0].inc()
        found[1].observe(seconds)

    def count_verdict(self, path: str, outcome: Outcome) -> None:
        """Count what was said of an object."""
        self._outcomes[path, outcome].inc()

    def show(self, *, ready: bool, certificate_ends: float, queues: int | None) -> None:
        """Set what is true now."""
        self._queues.set(-1 if queues is None else queues)
        self._ready.set(ready)
        self._certificate_ends.set(certificate_ends)

    def page(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)
