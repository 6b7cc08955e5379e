"""Tests threats to the webhook (docs/operations/threats.md) while a real API server calls it."""

import asyncio
import base64
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localup.api import ApiError
from localup.apply import apply, wait_until
from tests.webhook.conftest import CONFIGURATION, ensure_certificates, exchange, trust_context
from tests.webhook.fuzz import answer_to
from tests.webhook.installation import BINDINGS, JOBS, QUEUES, fresh, is_suspended, register, registration
from tests.webhook.process import WebhookProcess
from tests.webhook.reviews import GOOD, HEAD, binding, job_binding, review, volcano_job, volcano_queue, wire
from tests.webhook.test_review import BOMBS
from tests.work import work_of
from webhook import review as wires

CLUSTER_BINDINGS = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONNECTION = 128 << 10
SLACK = 16 << 20


@pytest.fixture
def strangers(plane, karmada, webhook):
    """Yield a function that registers other webhooks until the end of the test."""

    def registered(port, *, seconds=5):
        mutating = registration(f"https://127.0.0.1:{port}")[0]
        for registered_webhook in mutating["webhooks"]:
            registered_webhook["timeoutSeconds"] = seconds
        apply(plane.admin, [mutating])

    yield registered
    register(plane, webhook.port)
    wait_until(lambda: is_suspended(karmada), "webhook at work again")


@contextmanager
def fake_webhook(folder: Path, answer: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """Serve *answer* with the certificate in *folder* and yield the port; ``None`` sends no answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = answer(self.rfile.read(int(self.headers["Content-Length"])))
            if body is None:
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore callers that have disconnected."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "serving" / "tls.crt", folder / "serving" / "tls.key")
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def patching(*operations, unless="", uid=None):
    """Return an answer with a patch, except for an object that contains *unless*."""

    def answer(sent: bytes) -> bytes:
        asked = json.loads(sent)["request"]
        patch = [] if unless and unless in json.dumps(asked["object"]) else list(operations)
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        response = {"uid": uid or asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        return wire({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    return answer


def add(path, value):
    return {"op": "add", "path": path, "value": value}


def send(webhook, folder, *pieces) -> bytes:
    """Send *pieces* and return the answer."""
    return asyncio.run(exchange(webhook.port, trust_context(folder), *pieces))


def call(webhook, folder, body, head=HEAD) -> bytes:
    """Send *body* with its length and return the answer."""
    return send(webhook, folder, head, b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body), body)


def refusal(karmada) -> str:
    """Return why the API server refuses a new binding, or an empty string."""
    try:
        karmada.create(f"{BINDINGS}?dryRun=All", fresh(job_binding()))
    except ApiError as error:
        return error.message
    return ""


def tried(karmada):
    return karmada.create(f"{BINDINGS}?dryRun=All", fresh(job_binding()))["spec"]


def test_ta2_webhook_with_another_ca_stores_nothing(plane, karmada, strangers, tmp_path):
    ensure_certificates(tmp_path)
    with fake_webhook(tmp_path, patching()) as port:
        strangers(port)
        new = job_binding()
        wait_until(lambda: "unknown authority" in refusal(karmada), "the impostor")
        with pytest.raises(ApiError, match="certificate signed by unknown authority"):
            karmada.create(BINDINGS, fresh(new))
    assert not [
        stored for stored in plane.admin.get(BINDINGS)["items"] if stored["metadata"]["name"] == new["metadata"]["name"]
    ]


def test_ta3_oversized_bodies_are_refused_in_little_memory(karmada, webhook, folder):
    before = webhook.memory()
    chunk = b"10000\r\n" + b"[" * 0x10000 + b"\r\n"
    chunked = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 1024]
    bomb = gzip.compress(b"[" * (64 << 20))
    encoded = HEAD + b"Content-Encoding: gzip\r\n"
    for _ in range(3):
        announced = send(webhook, folder, HEAD + b"Content-Length: 67108864\r\n\r\n", *[b"[" * 0x10000] * 1024)
        assert announced == b"" or announced.startswith(b"HTTP/1.1 413 ")
        endless = send(webhook, folder, *chunked)
        assert endless == b"" or endless.startswith(b"HTTP/1.1 413 ")
        packed = call(webhook, folder, bomb, encoded)
        assert packed == b"" or packed.startswith(b"HTTP/1.1 415 ")
        assert is_suspended(karmada)
    assert webhook.memory("VmHWM") - before < SLACK


def test_ta3_largest_accepted_binding_is_suspended(karmada, webhook):
    assert webhook.pid
    large = job_binding(schedulerName="x", note="n" * 1_400_000)
    assert is_suspended(karmada, large)


def test_ta4_json_bombs_are_answered_400(karmada, webhook, folder):
    bombs = [bomb.values[0] for bomb in BOMBS]
    for bomb in bombs:
        assert call(webhook, folder, bomb).startswith(b"HTTP/1.1 400 ")
    before = webhook.memory()
    for bomb in bombs * 5:
        call(webhook, folder, bomb)
    assert webhook.memory() - before < SLACK
    assert is_suspended(karmada)


def test_api_server_reviews_are_decoded_by_the_fast_path(plane, karmada, folder, strangers):
    received: list[bytes] = []
    noting = patching(add("/spec/note", "x"))
    with fake_webhook(folder, lambda sent: received.append(sent) or noting(sent)) as port:
        strangers(port)
        wait_until(lambda: "note" in tried(karmada) and received, "the other webhook")
        plane.admin.create(f"{QUEUES}?dryRun=All", volcano_queue("received"))
        plane.admin.create(f"{JOBS}?dryRun=All", volcano_job())
    read = [wires.read(body) for body in received]
    assert {request.resource.resource for request in read} == {"resourcebindings", "queues", "jobs"}
    assert all(isinstance(request.sent, dict) for request in read)


def test_ta6_adversarial_names_take_no_longer_than_others(karmada, webhook, folder):
    def work(name):
        body = wire(review(job_binding(), name=name, namespace=name))
        assert b" 200 OK" in call(webhook, folder, body)
        answer_to("/resourcebindings/mutate", body)
        return work_of(lambda: answer_to("/resourcebindings/mutate", body))

    plain = work("train-job" * 28)
    for name in ("a" * 253, "a-" * 126, "a." * 126 + "a", "-" * 253, "0" * 252 + "!", "\u0430" * 120):
        assert work(name) < 2 * plain
    assert is_suspended(karmada)


async def test_ta7_slow_connections_do_not_delay_other_callers(plane, karmada, webhook, folder):
    before = webhook.memory()
    with ExitStack() as stack:
        for number in range(800):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", webhook.port)))
            if number % 2:
                connection.setblocking(False)
                connection.send(b"\x16\x03\x01")  # an incomplete handshake
        for _ in range(200):
            plain_connection = socket.create_connection(("127.0.0.1", webhook.port))
            slow = stack.enter_context(trust_context(folder).wrap_socket(plain_connection, server_hostname="localhost"))
            slow.sendall(HEAD[:40])  # an incomplete request
        assert webhook.memory() - before < 1000 * CONNECTION
        for _ in range(20):
            assert await asyncio.to_thread(is_suspended, karmada)
            assert b" 200 OK" in await asyncio.to_thread(call, webhook, folder, GOOD)


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("path", [BINDINGS, CLUSTER_BINDINGS])
@pytest.mark.parametrize(
    ("api_version", "template", "gated"),
    [
        ("batch.volcano.sh/v1alpha1", "Job", True),
        ("batch.volcano.sh/v9", "Job", True),
        ("batch/v1", "Job", False),
        ("v1", "Pod", False),
        ("batch.volcano.sh/v1alpha1", "CronJob", False),
        ("batch.volcano.sh.evil.io/v1", "Job", False),
    ],
)
def test_tb1_kinds_are_gated_in_every_version_and_scope(karmada, path, api_version, template, gated):
    new = binding(api_version, template, clusters=[{"name": "m"}])
    kind = "ResourceBinding" if path == BINDINGS else "ClusterResourceBinding"
    spec = karmada.create(path, fresh(new | {"kind": kind}))["spec"]
    assert (spec.get("suspension"), "clusters" in spec) == (({"scheduling": True}, False) if gated else (None, True))


@pytest.mark.usefixtures("strangers")
def test_tb1_configured_kinds_are_gated_by_rule_and_webhook(plane, karmada, folder, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(
        f"{CONFIGURATION}, integrations: [{{apiVersion: apps/v1, kind: Deployment}}, {{apiVersion: v1, kind: Pod}}]}}"
    )
    flags = ("--drain-seconds", "0", "--admission-configuration", str(file))
    with WebhookProcess(folder / "serving", *flags) as other:
        register(plane, other.port, "apps/Deployment", "/Pod")
        wait_until(lambda: is_suspended(karmada, binding("apps/v1", "Deployment")), "the other webhook")
        assert is_suspended(karmada, binding("v1", "Pod"))
        assert is_suspended(karmada, job_binding())
        assert not is_suspended(karmada, binding("apps/v1", "StatefulSet"))


@pytest.mark.usefixtures("webhook")
def test_tb1_binding_without_a_kind_is_refused(karmada):
    new = job_binding()
    del new["spec"]["resource"]
    with pytest.raises(ApiError):
        karmada.create(BINDINGS, fresh(new))


@pytest.mark.usefixtures("webhook")
def test_tb2_preset_clusters_are_removed_for_every_user(plane):
    created = plane.admin.create(
        BINDINGS, fresh(job_binding(clusters=[{"name": "m"}], suspension={"scheduling": False}))
    )
    assert created["spec"]["suspension"] == {"scheduling": True}
    assert "clusters" not in created["spec"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(lambda _: time.sleep(2), "deadline exceeded", id="slow"),
        pytest.param(lambda _: None, "failed calling webhook", id="hangs-up"),
        pytest.param(lambda _: b"<html>garbage</html>", "failed calling webhook", id="garbage"),
        pytest.param(patching(uid="another-uid"), "expected response.uid", id="wrong-uid"),
    ],
)
def test_f18_faulty_webhook_refuses_only_gated_kinds(karmada, folder, strangers, answer, says):
    with fake_webhook(folder, answer) as port:
        strangers(port, seconds=1)
        wait_until(lambda: says in refusal(karmada), "the misbehaving webhook")
        with pytest.raises(ApiError):
            karmada.create(BINDINGS, fresh(job_binding()))
        assert "suspension" not in karmada.create(BINDINGS, fresh(binding("apps/v1", "Deployment")))["spec"]


@contextmanager
def other_webhook(plane, folder, name, answer):
    """Register another mutating webhook until the end of the block."""
    with fake_webhook(folder, answer) as port:
        rule = {"apiGroups": ["work.karmada.io"], "apiVersions": ["*"], "operations": ["CREATE"]}
        bundle = base64.b64encode((folder / "serving" / "ca.crt").read_bytes()).decode()
        webhook = {
            "name": f"{name}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [rule | {"resources": ["resourcebindings"]}],
        }
        manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        apply(plane.admin, [manifest | {"metadata": {"name": name}, "webhooks": [webhook]}])
        yield
        plane.admin.delete(f"{CONFIGURATIONS}/{name}")


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("name", ["a-before", "z-behind"])
def test_f22_webhook_is_reinvoked_after_a_later_one(plane, karmada, folder, name):
    """Neither an earlier nor a later webhook of others can resume a binding or set its clusters."""
    resumed = add("/spec/suspension", {"scheduling": False, "dispatching": True})
    answer = patching(resumed, add("/spec/clusters", [{"name": "m"}]), unless='"dispatching"')
    with other_webhook(plane, folder, name, answer):
        wait_until(lambda: "dispatching" in json.dumps(tried(karmada)), "the other webhook")
        spec = karmada.create(BINDINGS, fresh(job_binding()))["spec"]
    assert spec["suspension"] == {"dispatching": True, "scheduling": True}
    assert "clusters" not in spec
