"""Fixtures: the webhook in the test's event loop, on real ports with a real certificate."""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from certs.rotation import Lifetimes, ensure_authority, ensure_leaf
from certs.store import DirectoryStore
from controller.kube.serving_certificate import Certificate
from localup.api import Api
from localup.apply import create_namespace
from localup.controlplane import ControlPlane
from webhook.app import App, Configuration, admission_handlers
from webhook.queue_cache import QueueCache
from webhook.server import listen, listen_tls
from webhook.settings import WebhookSettings

MUTATE = "/resourcebindings/mutate"


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


@pytest.fixture
def examples():
    """Return a function that reads an example job."""
    folder = Path(__file__).parents[2] / "examples"

    def read(name):
        (file,) = folder.rglob(f"{name}.yaml")
        return next(each for each in yaml.safe_load_all(file.read_text()) if each["kind"] == "Job")

    return read


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


@pytest.fixture
async def running(certificates) -> AsyncIterator[Running]:
    async with serve(certificates, header_seconds=0.25, body_seconds=0.2) as running:
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
