"""The dashboard is generated, and Debian's Prometheus answers its queries from scraped pages of the processes."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import MappingProxyType

import pytest

from controller.cache.objects import BindingCondition
from controller.engine.engine import Engine
from controller.engine.reasons import EvictionReason, Reason, Refusal
from controller.engine.state.clusters import Cluster, ClusterName
from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.workloads import VOLCANO_JOB, SchedulingRequirements, Workload, WorkloadUid
from controller.kube.timing import wall_clock
from controller.reporting.metrics import ControllerMetrics
from docs import generate_dashboard
from localup import ports
from tests.waiting import LIMIT_SECONDS
from webhook.metrics import WebhookMetrics
from webhook.review import Outcome

DASHBOARD = generate_dashboard.dashboard()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']}: {target['legendFormat']}")
    for panel in PANELS
    for target in panel["targets"]
]
VARIABLES = {"$namespace": "karmada-system", "$queue": ".*", "$resource": "cpu", "$__rate_interval": "10s"}


class Informer:
    lists, decode_failures, unreadable, is_synced, seconds_since_response = 1, 0, 0, False, 2.0


class Conditions:
    conditions = MappingProxyType({"u11": {BindingCondition.NOT_SUSPENDED}})


def pending(number: int, reason: Reason) -> Workload:
    uid, held = WorkloadUid(f"u{number}"), Refusal(reason)
    return Workload(uid, "ns", f"j{number}", "Job", QueueName("a"), SchedulingRequirements(), created_at=1, hold=held)


def controller_page() -> Callable[[], bytes]:
    """Return a function that counts one event of each kind and returns the metrics of a leader."""
    state, metrics, now = Engine(), ControllerMetrics(), wall_clock()
    state.queue_changed(Queue(QueueName("a")))
    state.cluster_changed(
        Cluster(ClusterName("m1"), allocatable={"cpu": 8000}, enablements=frozenset({VOLCANO_JOB})), now
    )
    for number, reason in enumerate((Reason.HYPERJOB_INCOMPLETE, Reason.SUSPENDED)):
        state.workload_changed(pending(number, reason), now)
    requests = {"cpu": 5000}
    needs = SchedulingRequirements(requests=requests, gang_requests=requests)
    for number in (8, 9):
        uid = WorkloadUid(f"u{number}")
        waits = Workload(uid, "ns", f"j{number}", "Job", QueueName("a"), needs, created_at=now - 60_000)
        state.workload_changed(waits, now)
    state.plan(now)
    metrics.register_state(lambda: state, Conditions(), {"jobs": Informer()})
    metrics.register_file("admission", lambda: False)
    metrics.hyperjobs = lambda: {"Running": 1}
    metrics.set_leading(leading=True)
    metrics.set_webhook_registered("MutatingWebhookConfiguration", right=True)

    def page() -> bytes:
        metrics.count_admission("a", priority_class="high", wait_seconds=3)
        metrics.count_eviction("a", EvictionReason.RECLAIMED)
        metrics.count_cycle(0.1)
        metrics.count_patch("admit", "done", seconds=0.1)
        metrics.count_internal_error("write")
        metrics.count_event("dropped")
        metrics.count_lag(0.1)
        return metrics.exposition()

    return page


def webhook_page() -> Callable[[], bytes]:
    metrics = WebhookMetrics()
    metrics.requests.initialize("/jobs/mutate")
    expiry = time.time() + 1000
    metrics.update(ready=True, certificate_expiry=expiry, queues=1, authenticates=True, rejected=False)

    def page() -> bytes:
        metrics.requests.count_request("/jobs/mutate", code=200, seconds=0.01)
        metrics.requests.count_review("/jobs/mutate", Outcome.PATCHED)
        return metrics.render()

    return page


@contextmanager
def served(page: Callable[[], bytes]) -> Iterator[int]:
    """Serve *page* at every path; yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@contextmanager
def claimed() -> Iterator[int]:
    port = ports.claim()
    try:
        yield port
    finally:
        ports.release(port)


def scrape(name: str, port: int) -> dict[str, object]:
    labels = {"namespace": "karmada-system", "service": f"volcano-global-{name}", "pod": f"{name}-1"}
    return {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]}


def ask(port: int, query: str) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory) -> Iterator[int]:
    """Run a Prometheus that scrapes a controller and a webhook; yield its port."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is missing: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    with served(controller_page()) as controller, served(webhook_page()) as webhook, claimed() as port:
        jobs = [scrape("controller", controller), scrape("webhook", webhook)]
        settings = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(json.dumps(settings))
        flags = ("config.file=prometheus.yml", "storage.tsdb.path=data", f"web.listen-address=127.0.0.1:{port}")
        with (folder / "log").open("w") as log:
            command = [program, *(f"--{flag}" for flag in flags)]
            running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            until(lambda: len(samples(port)) == 2, running)
            yield port
        finally:
            running.terminate()
            running.wait()


def samples(port: int) -> list[object]:
    """Return the processes that were scraped at least four times in the interval of a rate."""
    query = 'count_over_time(process_cpu_seconds_total{namespace="karmada-system"}[10s]) >= 4'
    try:
        return ask(port, query)["data"]["result"]
    except OSError:
        return []


def until(is_done: Callable[[], bool], running: "subprocess.Popen[bytes]") -> None:
    ends_at = time.monotonic() + 3 * LIMIT_SECONDS
    while not is_done():
        assert running.poll() is None, "prometheus has ended"
        assert time.monotonic() < ends_at, "prometheus scrapes nothing"
        time.sleep(0.2)


@pytest.mark.process
@pytest.mark.parametrize("query", QUERIES)
def test_prometheus_answers_each_query_with_samples(prometheus, query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    answer = ask(prometheus, query)
    assert answer["status"] == "success"
    assert answer["data"]["result"], query


def test_dashboard_is_generated():
    assert generate_dashboard.FILE.read_text() == generate_dashboard.text(), "run make reference"


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_rows_are_in_the_order_of_an_operators_questions():
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows[1:5] == ["Queues", "Reasons", "Clusters", "HyperJobs"]
