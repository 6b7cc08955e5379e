"""Fixtures: the webhook in the test's event loop, on real ports with a real certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certs.rotation import Lifetimes, ensure_authority, ensure_leaf
from certs.store import DirectoryStore
from controller.kube.serving_certificate import Certificate
from localup.api import Api
from localup.apply import create_namespace, wait_until
from localup.controlplane import ControlPlane
from tests.waiting import LIMIT_SECONDS
from tests.webhook.installation import ensure, is_suspended, register
from tests.webhook.process import WebhookProcess
from webhook.app import App, Configuration, admission_handlers
from webhook.queue_cache import QueueCache
from webhook.server import listen, listen_tls
from webhook.settings import WebhookSettings

MUTATE = "/resourcebindings/mutate"
CONFIGURATION = "{apiVersion: config.volcano-global.io/v1alpha1, kind: VolcanoGlobalConfiguration"


@dataclass
class Running:
    """A running webhook with a client that trusts it."""

    app: App
    certificate: Certificate
    trust: ssl.SSLContext
    port: int
    plain_port: int
    client: aiohttp.ClientSession
    folder: Path
    queues: QueueCache

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def post(self, data, path=MUTATE, **options):
        headers = {"Content-Type": "application/json"} | options.pop("headers", {})
        return self.client.post(self.url + path, data=data, headers=headers, ssl=self.trust, **options)


@pytest.fixture(scope="session")
def plane(etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with a namespace `ml`; each module installs its own webhook."""
    with ControlPlane(etcd, prefix="/registry-webhook") as running:
        create_namespace(running.admin, "ml")
        yield running


@pytest.fixture(scope="module")
def karmada(plane) -> Iterator[Api]:
    with plane.client("karmada") as api:
        yield api


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with certificates for all tests of a module."""
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def configuration(tmp_path_factory) -> Path:
    """Return the VolcanoGlobalConfiguration of the webhook of a module."""
    file = tmp_path_factory.mktemp("configuration") / "admission.yaml"
    file.write_text(CONFIGURATION + "}")
    return file


@pytest.fixture(scope="module")
def webhook(plane, karmada, folder, configuration) -> Iterator[WebhookProcess]:
    """Yield the process of a webhook that the API server calls."""
    flags = ("--drain-seconds", 0, "--poll-seconds", 0.2, "--header-seconds", 2)
    flags += ("--admission-configuration", configuration, "--kubeconfig", plane.kubeconfig("volcano-global-webhook"))
    with WebhookProcess(folder / "serving", *flags) as running:
        register(plane, running.port)
        ensure(plane, folder)
        running.wait_for("webhook ready")
        wait_until(lambda: is_suspended(karmada), "webhook at work")
        yield running


@pytest.fixture
def certificates(tmp_path) -> Path:
    """Return a folder with a CA, and with a certificate for this machine in `serving`."""
    ensure_certificates(tmp_path)
    return tmp_path


def ensure_certificates(folder: Path, *, now: datetime | None = None, lifetimes: Lifetimes | None = None) -> None:
    now, lifetimes, store = now or datetime.now(UTC), lifetimes or Lifetimes(), DirectoryStore(folder)
    ensure_authority(store, now, lifetimes)
    ensure_leaf(store, ["localhost", "127.0.0.1"], now=now, lifetimes=lifetimes)


def trust_context(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "serving" / "ca.crt")


async def exchange(port: int, trust: ssl.SSLContext, *pieces: bytes) -> bytes:
    """Send *pieces* unchanged as far as they are accepted, and return the answer until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    try:
        with suppress(OSError):  # the server may close before it has read everything
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        return await until_closed(reader)
    finally:
        writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Return what is received until the connection is closed, or nothing if it is reset."""
    async with asyncio.timeout(LIMIT_SECONDS):
        with suppress(OSError):
            return await reader.read()
        return b""


@pytest.fixture
async def running(certificates) -> AsyncIterator[Running]:
    async with serve(certificates) as running:
        yield running


@asynccontextmanager
async def serve(folder: Path, **changed: Any) -> AsyncIterator[Running]:
    """Serve all paths with the certificates in *folder* until the end of the block."""
    address = {"host": "127.0.0.1", "port": 0, "plain_host": "127.0.0.1", "plain_port": 0}
    settings = WebhookSettings(certificate_directory=folder / "serving", **address, **changed)
    certificate = Certificate(settings.certificate_directory, settings.client_ca)
    certificate.refresh()
    queues = QueueCache()
    app = App(
        settings,
        admission_handlers(Configuration(None), queues),
        lambda: certificate.not_ready_reason(datetime.now(UTC)),
    )
    secure = await listen_tls(app.answer_review, settings, certificate.context)
    plain = await listen(app.answer_plain, settings)
    async with aiohttp.ClientSession() as client:
        yield Running(app, certificate, trust_context(folder), secure.port, plain.port, client, folder, queues)
    await secure.close(seconds=1)
    await plain.close(seconds=1)
