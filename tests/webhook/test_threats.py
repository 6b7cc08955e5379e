"""Tests threats to the webhook (docs/operations/threats.md) while a real API server calls it."""

import asyncio
import base64
import gzip
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from localup.api import ApiError
from localup.apply import apply, wait_until
from tests.webhook.conftest import ensure_certificates, trust_context
from tests.webhook.fake_webhooks import fake_webhook, patching, slowly, with_uid
from tests.webhook.installation import BINDINGS, JOBS, QUEUES, ensure, fresh, is_suspended, register
from tests.webhook.process import WebhookProcess
from tests.webhook.registration import registration
from tests.webhook.reviews import UID, binding, job_binding, review, volcano_job, volcano_queue, wire
from webhook import review as wires

CLUSTER_BINDINGS = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
GOOD = wire(review(job_binding()))
HEAD = b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SLACK = 16 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def webhook(plane, karmada, folder) -> Iterator[WebhookProcess]:
    kubeconfig = plane.kubeconfig("volcano-global-webhook")
    flags = ("--drain-seconds", 0, "--poll-seconds", 0.2, "--header-seconds", 2, "--kubeconfig", kubeconfig)
    with WebhookProcess(folder / "serving", *flags) as running:
        register(plane, running.port)
        ensure(plane, folder)
        wait_until(lambda: is_suspended(karmada), "webhook at work")
        yield running


@pytest.fixture
def strangers(plane, karmada, webhook):
    """Yield a function that registers other webhooks until the end of the test."""

    def registered(port, *, seconds=5):
        mutating = registration(f"https://127.0.0.1:{port}")[0]
        for each in mutating["webhooks"]:
            each["timeoutSeconds"] = seconds
        apply(plane.admin, [mutating])

    yield registered
    register(plane, webhook.port)
    wait_until(lambda: is_suspended(karmada), "webhook at work again")


def call(webhook, folder, body, head=HEAD) -> bytes:
    """Send *body* with its length and return the answer."""
    return send(webhook, folder, head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body), body)


def send(webhook, folder, *pieces) -> bytes:
    """Send *pieces* as far as they are accepted, and return the answer."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", webhook.port), timeout=10) as plain,
        trust_context(folder).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        try:
            for piece in pieces:
                connection.sendall(piece)
            while found := connection.recv(1 << 16):
                answer += found
        except OSError:
            pass  # the body was not read completely
    return answer


def test_ta2_webhook_with_another_ca_stores_nothing(plane, karmada, strangers, tmp_path):
    ensure_certificates(tmp_path)
    with fake_webhook(tmp_path, patching()) as port:
        strangers(port)
        new = job_binding()
        wait_until(lambda: "unknown authority" in refusal(karmada), "the impostor")
        with pytest.raises(ApiError, match="certificate signed by unknown authority"):
            karmada.create(BINDINGS, fresh(new))
    assert not [
        each for each in plane.admin.get(BINDINGS)["items"] if each["metadata"]["name"] == new["metadata"]["name"]
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


BOMBS = [
    pytest.param(b"[" * 100_000, id="deep"),
    pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="deep-objects"),
    pytest.param(GOOD.replace(b'"dryRun":false', b'"dryRun":' + b"9" * 1_000_000), id="a-million-digits"),
    pytest.param(GOOD.replace(b'"dryRun":false', b'"dryRun":false,"uid":"other"'), id="two-uids"),
    pytest.param(b"\xef\xbb\xbf" + GOOD, id="byte-order-mark"),
    pytest.param(GOOD.replace(b"train", b"tr\xff\xfein"), id="invalid-utf-8"),
    pytest.param(GOOD.replace(b'"dryRun":false', b'"dryRun":NaN'), id="not-a-number"),
    pytest.param(GOOD.replace(b'"dryRun":false', b'"dryRun":1e999'), id="infinity"),
    pytest.param(b"{" + b'"a":1,' * 500_000 + b'"b":1}', id="half-a-million-keys"),
    pytest.param(b'"' + b"\\ud800" * 100_000 + b'"', id="lone-surrogates"),
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_ta4_json_bombs_are_answered_400(karmada, webhook, folder, bomb):
    assert call(webhook, folder, bomb).startswith(b"HTTP/1.1 400 ")
    assert is_suspended(karmada)


def test_ta4_json_bombs_leak_no_memory(webhook, folder):
    for bomb in BOMBS:
        call(webhook, folder, bomb.values[0])
    before = webhook.memory()
    for _ in range(5):
        for bomb in BOMBS:
            call(webhook, folder, bomb.values[0])
    assert webhook.memory() - before < SLACK


@pytest.mark.usefixtures("webhook")
def test_ta5_dry_run_has_no_side_effect(plane, karmada):
    count = len(plane.admin.get(BINDINGS)["items"])
    new = karmada.create(f"{BINDINGS}?dryRun=All", fresh(job_binding(clusters=[{"name": "m"}])))
    assert new["spec"]["suspension"] == {"scheduling": True}
    assert "clusters" not in new["spec"]
    assert len(plane.admin.get(BINDINGS)["items"]) == count


def test_ta5_invalid_review_is_answered_with_its_uid(webhook, folder):
    for member in ("object", "resource", "operation"):
        broken = review(job_binding())
        broken["request"][member] = 7
        answer = call(webhook, folder, wire(broken))
        assert UID.encode() in answer
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 200 "))
        assert b'"patch"' not in answer


def test_api_server_reviews_are_decoded_by_the_fast_path(plane, karmada, folder, strangers):
    received: list[bytes] = []
    with fake_webhook(folder, patching(add("/spec/note", "x")), received=received) as port:
        strangers(port)
        wait_until(lambda: "note" in tried(karmada) and received, "the other webhook")
        plane.admin.create(f"{QUEUES}?dryRun=All", volcano_queue("received"))
        plane.admin.create(f"{JOBS}?dryRun=All", volcano_job())
    read = [wires.read(body) for body in received]
    assert {each.resource.resource for each in read} == {"resourcebindings", "queues", "jobs"}
    assert all(isinstance(each.sent, dict) for each in read)


def test_ta6_adversarial_names_take_no_longer_than_others(karmada, webhook, folder):
    def seconds(name):
        return timed(webhook, folder, wire(review(job_binding(), name=name, namespace=name)))

    plain = seconds("train-job")
    for name in ("a" * 253, "a-" * 126, "a." * 126 + "a", "-" * 253, "0" * 252 + "!", "\u0430" * 120):
        assert seconds(name) < plain + 0.02
    assert is_suspended(karmada)


def timed(webhook, folder, body) -> float:
    """Return the least seconds that an answer to *body* takes in several requests on one connection."""
    taken = []
    with (
        socket.create_connection(("127.0.0.1", webhook.port), timeout=10) as plain,
        trust_context(folder).wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        for _ in range(5):
            began = time.perf_counter()
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert connection.recv(1 << 16)
            taken.append(time.perf_counter() - began)
    return min(taken)


async def test_ta7_slow_connections_do_not_delay_other_callers(plane, karmada, webhook, folder):
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
        for _ in range(20):
            assert await asyncio.to_thread(is_suspended, karmada)
            taken = await asyncio.to_thread(timed, webhook, folder, GOOD)
            assert taken < 0.1


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("kind", ["ResourceBinding", "ClusterResourceBinding"])
@pytest.mark.parametrize(
    ("api_version", "template", "gated"),
    [
        ("batch.volcano.sh/v1alpha1", "Job", True),
        ("batch.volcano.sh/v1beta1", "Job", True),
        ("batch.volcano.sh/v9", "Job", True),
        ("batch/v1", "Job", False),
        ("apps/v1", "Deployment", False),
        ("apps/v1", "StatefulSet", False),
        ("v1", "Pod", False),
        ("batch.volcano.sh/v1alpha1", "CronJob", False),
        ("batch.volcano.sh.evil.io/v1", "Job", False),
    ],
)
def test_tb1_kinds_are_gated_in_every_version_and_scope(karmada, kind, api_version, template, gated):
    new = binding(api_version, template, clusters=[{"name": "m"}]) | {"kind": kind}
    path = BINDINGS if kind == "ResourceBinding" else CLUSTER_BINDINGS
    spec = karmada.create(path, fresh(new))["spec"]
    assert (spec.get("suspension"), "clusters" in spec) == (({"scheduling": True}, False) if gated else (None, True))


@pytest.mark.usefixtures("strangers")
def test_tb1_configured_kinds_are_gated_by_rule_and_webhook(plane, karmada, folder, tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(
        "{apiVersion: config.volcano-global.io/v1alpha1, kind: VolcanoGlobalConfiguration,"
        " integrations: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Pod}]}"
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
    found = plane.admin.create(BINDINGS, fresh(job_binding(clusters=[{"name": "m"}], suspension={"scheduling": False})))
    assert found["spec"]["suspension"] == {"scheduling": True}
    assert "clusters" not in found["spec"]


def refusal(karmada, new=None) -> str:
    try:
        karmada.create(f"{BINDINGS}?dryRun=All", fresh(new or job_binding()))
    except ApiError as error:
        return error.message
    return ""


MISBEHAVIOURS = {
    "slow": (slowly(2), 200, "deadline exceeded"),
    "500": (patching(), 500, "failed calling webhook"),
    "garbage": (lambda _: b"<html>garbage</html>", 200, "failed calling webhook"),
    "no-review": (lambda _: b"{}", 200, "failed calling webhook"),
    "wrong-uid": (with_uid("another-uid"), 200, "expected response.uid"),
    "hangs-up": (lambda _: None, 200, "failed calling webhook"),
}


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS)
def test_f18_faulty_webhook_refuses_only_gated_kinds(karmada, folder, strangers, misbehaviour):
    answer, status, says = MISBEHAVIOURS[misbehaviour]
    with fake_webhook(folder, answer, status=status) as port:
        strangers(port, seconds=1)
        wait_until(lambda: says in refusal(karmada), "the misbehaving webhook")
        with pytest.raises(ApiError):
            karmada.create(BINDINGS, fresh(job_binding()))
        assert "suspension" not in karmada.create(BINDINGS, fresh(binding("apps/v1", "Deployment")))["spec"]


@pytest.fixture
def others(plane, karmada, folder):
    """Yield a function that registers another mutating webhook until the end of the test."""
    with ExitStack() as stack:

        def register_other(name, answer):
            port = stack.enter_context(fake_webhook(folder, answer))
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
            stack.callback(plane.admin.delete, f"{CONFIGURATIONS}/{name}")

        yield register_other


def add(path, value):
    return {"op": "add", "path": path, "value": value}


@pytest.mark.usefixtures("webhook")
def test_f22_earlier_webhook_cannot_unsuspend_a_binding(karmada, others):
    others("a-before", patching(add("/spec/suspension", {"dispatching": True}), add("/spec/clusters", [{"name": "m"}])))
    wait_until(lambda: "dispatching" in json.dumps(tried(karmada)), "the other webhook")
    found = karmada.create(BINDINGS, fresh(job_binding()))["spec"]
    assert found["suspension"] == {"dispatching": True, "scheduling": True}
    assert "clusters" not in found


@pytest.mark.usefixtures("webhook")
def test_f22_webhook_is_reinvoked_after_a_later_one(karmada, others):
    resumed = add("/spec/suspension", {"scheduling": False, "dispatching": True})
    others("z-behind", patching(resumed, add("/spec/clusters", [{"name": "m"}]), unless='"dispatching"'))
    wait_until(lambda: "dispatching" in json.dumps(tried(karmada)), "the other webhook")
    found = karmada.create(BINDINGS, fresh(job_binding()))["spec"]
    assert found["suspension"] == {"dispatching": True, "scheduling": True}
    assert "clusters" not in found


def tried(karmada):
    return karmada.create(f"{BINDINGS}?dryRun=All", fresh(job_binding()))["spec"]
