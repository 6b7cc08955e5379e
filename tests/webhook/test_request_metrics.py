"""Tests that the metrics equal those of the Prometheus client."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from webhook.metrics import BUCKETS, RequestMetrics
from webhook.review import Outcome

PATHS = st.sampled_from(["/jobs/mutate", "/queues/validate", "other"])
SECONDS = st.floats(0, 10) | st.sampled_from(BUCKETS)


def lines(*collectors) -> list[str]:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    page = generate_latest(registry).decode()
    return sorted(line for line in page.splitlines() if "_created" not in line and "volcano" in line)


@given(st.lists(st.tuples(PATHS, st.sampled_from([200, 400, 413]), SECONDS, st.sampled_from(Outcome))))
def test_metrics_match_prometheus_client(answers):
    metrics, prefix = RequestMetrics(), "volcano_global_webhook_"
    described = "HTTP requests answered, by registered path and status code."
    requests = Counter(f"{prefix}requests", described, ("path", "code"), registry=None)
    described = "Time from the headers of a request to its answer."
    seconds = Histogram(f"{prefix}request_duration_seconds", described, ("path",), buckets=BUCKETS, registry=None)
    described = "Reviews answered, by outcome; `exempt` counts objects of exempt namespaces."
    reviews = Counter(f"{prefix}responses", described, ("path", "outcome"), registry=None)
    for path in {path for path, *_ in answers}:
        metrics.initialize(path)
        for outcome in Outcome:
            reviews.labels(path, outcome.value)
    for path, code, latency, outcome in answers:
        metrics.count_request(path, code=code, seconds=latency)
        metrics.count_review(path, outcome)
        requests.labels(path, str(code)).inc()
        seconds.labels(path).observe(latency)
        reviews.labels(path, outcome.value).inc()
    assert lines(metrics) == lines(requests, seconds, reviews)
