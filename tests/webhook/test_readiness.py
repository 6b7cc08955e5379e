"""Tests the readiness of the running process (F20): it names the reason, logs the remedy, and recovers."""

import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from certs.rotation import Lifetimes
from localup.apply import apply, wait_until
from tests.webhook.conftest import ensure_certificates, trust_context
from tests.webhook.installation import ensure, register, registration
from tests.webhook.process import WebhookProcess

REMEDY = "python -m certs ensure"


def readiness(webhook) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{webhook.plain_port}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


def becomes(webhook, status: int, says: str) -> None:
    wait_until(lambda: (answer := readiness(webhook))[0] == status and says in answer[1], f"{status} {says!r}")


def is_answered(webhook, folder) -> bool:
    url = f"https://127.0.0.1:{webhook.port}/healthz"
    with urllib.request.urlopen(url, timeout=5, context=trust_context(folder)) as answer:
        return answer.status == 200


def test_process_starts_without_a_certificate_and_recovers(tmp_path):
    with WebhookProcess(tmp_path / "serving", "--drain-seconds", 0, "--poll-seconds", 0.1) as webhook:
        becomes(webhook, 503, REMEDY)
        ensure_certificates(tmp_path)
        webhook.wait_for("certificate loaded")
        assert is_answered(webhook, tmp_path)
        becomes(webhook, 200, "ok")


def test_f20_expired_certificate_makes_the_webhook_unready(tmp_path):
    # Twenty seconds are left: long enough for the process to start on a busy machine.
    past, lifetimes = datetime.now(UTC) - timedelta(minutes=2), Lifetimes(leaf=timedelta(minutes=2, seconds=20))
    ensure_certificates(tmp_path, now=past, lifetimes=lifetimes)
    with WebhookProcess(tmp_path / "serving", "--drain-seconds", 0, "--poll-seconds", 0.1) as webhook:
        becomes(webhook, 200, "ok")
        becomes(webhook, 503, "the certificate expired at ")
        said = webhook.wait_for("webhook not ready")
        assert REMEDY in said["reason"]
        assert said["level"] == "warning"
        ensure_certificates(tmp_path)
        webhook.wait_for("webhook ready")
        assert is_answered(webhook, tmp_path)


@pytest.fixture(scope="module")
def plane(fresh_control_plane):
    return fresh_control_plane(controllers=False)


def test_readiness_requires_a_bundle_that_covers_the_leaf(plane, tmp_path):
    folder, other = tmp_path / "own", tmp_path / "other"
    ensure_certificates(folder)
    ensure_certificates(other)
    kubeconfig = plane.kubeconfig("volcano-global-webhook")
    flags = ("--drain-seconds", 0, "--poll-seconds", 0.1, "--kubeconfig", kubeconfig)
    with WebhookProcess(folder / "serving", *flags) as webhook:
        becomes(webhook, 503, "webhook configuration 'volcano-global' does not exist or has no webhooks: install it")
        register(plane, webhook.port)
        becomes(webhook, 503, "does not cover the served certificate: run `python -m certs ensure`")
        ensure(plane, folder)
        becomes(webhook, 200, "ok")
        ensure(plane, other)
        becomes(webhook, 503, "the bundle published for resourcebindings.volcano-global.io")
        while REMEDY not in webhook.wait_for("webhook not ready")["reason"]:
            pass
        ensure(plane, folder)
        becomes(webhook, 200, "ok")
        narrowed = registration(f"https://127.0.0.1:{webhook.port}")
        narrowed[1]["webhooks"][0]["clientConfig"]["caBundle"] = ""
        apply(plane.admin, narrowed)
        becomes(webhook, 503, "(validatingwebhookconfigurations) does not cover")


def test_unreachable_api_server_does_not_change_readiness(plane, tmp_path):
    ensure_certificates(tmp_path)
    kubeconfig = plane.kubeconfig("volcano-global-webhook")
    flags = ("--drain-seconds", 0, "--poll-seconds", 0.1, "--kubeconfig", kubeconfig)
    with WebhookProcess(tmp_path / "serving", *flags) as webhook:
        register(plane, webhook.port)
        ensure(plane, tmp_path)
        becomes(webhook, 200, "ok")
        plane.kill()
        try:
            webhook.wait_for("webhook configuration read failed")
            time.sleep(0.3)
            assert readiness(webhook) == (200, "ok")
        finally:
            plane.restart()
