"""Tests rotations and restarts under load, with a real API server: no call fails, no binding stays unsuspended."""

import asyncio
import base64
import itertools
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta

import aiohttp
import msgspec
import pytest

from certs.authority import create_authority, issue, load_bundle
from certs.reconciler import CertificateReconciler, served_certificates
from certs.settings import CertificateSettings
from certs.store import AUTHORITY, SERVING, DirectoryStore
from controller.kube.client import Api
from controller.kube.errors import ApiError
from localup.apply import wait_until
from tests.webhook.installation import BINDINGS, fresh, is_suspended, register
from tests.webhook.process import WebhookProcess
from tests.webhook.reviews import GOOD, job_binding

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global"
PER_SECOND = 25


class Balancer:
    """Balances TCP connections over the ready ones of *replicas*, like a Service."""

    def __init__(self, replicas: list[WebhookProcess]) -> None:
        self._replicas = replicas
        self._ready: list[int] = []
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._start(self._poll())
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, coroutine) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _poll(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as client:
            while True:
                self._ready = [
                    replica.port for replica in list(self._replicas) if await is_ready(client, replica.plain_port)
                ]
                await asyncio.sleep(0.05)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._ready:
            self._start(self._forward(self._ready[next(self._turn) % len(self._ready)], reader, writer))
        else:
            self.refused += 1
            writer.close()

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError), closing(writer):
            answers, requests = await asyncio.open_connection("127.0.0.1", port)
            with closing(requests):
                await asyncio.gather(pipe(reader, requests), pipe(answers, writer))


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError), closing(writer):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()


async def is_ready(client: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with client.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


class Site:
    """Replicas of the webhook, and the rotation of their certificates; all methods block."""

    def __init__(self, plane, folder, stack: ExitStack) -> None:
        self.plane = plane
        self.folder = folder
        self.store = DirectoryStore(folder)
        self._stack = stack
        self.reconciler(settle_seconds=0).run()
        self.replicas: list[WebhookProcess] = []

    def start(self) -> WebhookProcess:
        """Start another replica, which the balancer uses as soon as it is ready."""
        kubeconfig = self.plane.kubeconfig("volcano-global-webhook")
        # Enough time for callers to observe it on a busy machine; the default is longer.
        flags = ("--poll-seconds", 0.1, "--drain-seconds", 3, "--kubeconfig", kubeconfig)
        replica = self._stack.enter_context(WebhookProcess(self.folder / "serving", *flags))
        self.replicas.append(replica)
        return replica

    def restart(self) -> None:
        """Replace the oldest replica, and wait until the new one is ready."""
        oldest = self.replicas[0]
        oldest.send(signal.SIGTERM)
        assert oldest.end() == 0
        self.replicas.remove(oldest)
        self.start().wait_for("webhook ready")

    def reconciler(self, *, authority: bool = False, **more) -> CertificateReconciler:
        """Return the reconciler of the certificates, with short delays."""
        options = {
            "directory": self.folder,
            "dns": ("localhost",),
            "ip": ("127.0.0.1",),
            "kubeconfig": self.plane.kubeconfig("volcano-global-certs"),
            "overlap_seconds": 0,
            "settle_seconds": 1,
        }
        return CertificateReconciler(
            self.store, CertificateSettings(command="ensure", authority=authority, **options | more)
        )

    def publishing(self) -> dict[str, tuple[str, ...]]:
        """Return the options for publishing the bundle."""
        return {
            "webhook_configuration": ("volcano-global",),
            "replica": tuple(f"127.0.0.1:{replica.port}" for replica in self.replicas),
        }

    def rotate(self, *, authority: bool) -> None:
        """Rotate once, and wait until every replica serves the new certificate and old CAs have left the bundle."""
        options = self.publishing()
        self.reconciler(authority=authority, **options).run(rotate=True)
        leaf = load_bundle(self.store.read(SERVING).files["tls.crt"])[0]
        wait_until(lambda: set(served_certificates(options["replica"]).values()) == {leaf}, "the new certificate")
        wait_until(lambda: self._is_alone(options), "old CAs removed")

    def _is_alone(self, options) -> bool:
        self.reconciler(**options).run()
        return len(load_bundle(self.store.read(AUTHORITY).files["ca.crt"])) == 1

    def trusted(self) -> ssl.SSLContext:
        """Return a context that trusts the published bundle."""
        return ssl.create_default_context(cadata=self.bundle().decode())

    def bundle(self) -> bytes:
        """Return the published bundle."""
        return base64.b64decode(self.plane.admin.get(CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"])


@asynccontextmanager
async def repeated(one: Callable[[], Awaitable[None]]) -> AsyncIterator[Counter[str]]:
    """Call *one* at a constant rate until the end of the block; yield the counts of errors, "" for none."""
    outcomes: Counter[str] = Counter()
    stop = asyncio.Event()

    async def call() -> None:
        try:
            await one()
            outcomes[""] += 1
        except (ApiError, OSError, aiohttp.ClientError, TimeoutError, AssertionError) as error:
            outcomes[f"{type(error).__name__}: {error}"[:300]] += 1

    async def run() -> None:
        due = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                tasks.create_task(call())
                due += 1 / PER_SECOND
                await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))

    running = asyncio.create_task(run())
    try:
        yield outcomes
    finally:
        stop.set()
        await running


async def under_load(plane, karmada, folder, work: Callable[[Site], None]) -> None:
    """Do *work* while bindings are created and reviews are posted over new connections; no call may fail."""
    plane.admin.delete(BINDINGS)
    with ExitStack() as stack:
        site = await asyncio.to_thread(Site, plane, folder, stack)
        balancer = Balancer(site.replicas)
        async with balancer.serving(), Api.connect(plane.kubeconfig("karmada")) as api:
            for _ in range(2):
                await asyncio.to_thread(site.start)
            register(plane, balancer.port)
            publishing = site.reconciler(webhook_configuration=("volcano-global",), settle_seconds=0)
            await asyncio.to_thread(publishing.run)
            for replica in site.replicas:
                await asyncio.to_thread(replica.wait_for, "webhook ready")
            await asyncio.to_thread(wait_until, lambda: is_suspended(karmada), "webhook at work")

            async def create() -> None:
                await api.create(BINDINGS, msgspec.json.encode(fresh(job_binding())))

            async def post() -> None:
                """Post a review over a connection of its own, like an API server that trusts the present bundle."""
                url = f"https://127.0.0.1:{balancer.port}/resourcebindings/mutate"
                trusted, headers = await asyncio.to_thread(site.trusted), {"Content-Type": "application/json"}
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as client,
                    client.post(url, data=GOOD, headers=headers, ssl=trusted) as answer,
                ):
                    assert answer.status == 200
                    assert (await answer.json())["response"]["allowed"]

            async with repeated(create) as created, repeated(post) as posted:
                await asyncio.to_thread(work, site)
    assert [set(created), set(posted)] == [{""}, {""}], (created, posted)
    assert min(created[""], posted[""]) > PER_SECOND
    assert balancer.refused == 0
    stored = plane.admin.get(BINDINGS)["items"]
    assert len(stored) == created[""]
    assert all(binding["spec"].get("suspension") == {"scheduling": True} for binding in stored)
    plane.admin.delete(BINDINGS)


@pytest.mark.parametrize(
    ("leaves", "authorities"),
    [pytest.param(2, 1, id="few"), pytest.param(20, 5, id="many", marks=pytest.mark.long)],
)
async def test_f20_rotations_under_load_fail_no_call(plane, karmada, tmp_path, leaves, authorities):
    def rotate(site):
        for number in range(1, leaves + 1):
            site.rotate(authority=False)
            if number % (leaves // authorities) == 0:
                site.rotate(authority=True)

    await under_load(plane, karmada, tmp_path, rotate)


async def test_f20_new_external_ca_under_load_fails_no_call(plane, karmada, tmp_path):
    """cert-manager replaces the CA together with the certificate; the CA is published later."""

    def replace(site):
        now, day = datetime.now(UTC), timedelta(days=1)
        authority = create_authority(now, 9 * day)
        leaf = issue(authority, ["localhost", "127.0.0.1"], now=now, validity=day)
        files = {"tls.crt": leaf.certificate_pem(), "tls.key": leaf.key_pem(), "ca.crt": authority.certificate_pem()}
        site.store.write(SERVING, files, expected=site.store.read(SERVING))
        for replica in site.replicas:
            assert "is not served yet" in replica.wait_for("certificate load failed")["reason"]
        options = site.publishing() | {"external": True}
        site.reconciler(**options).run()
        wait_until(lambda: set(served_certificates(options["replica"]).values()) == {leaf.certificate}, "served")
        site.reconciler(**options).run()
        assert site.bundle() == authority.certificate_pem()

    await under_load(plane, karmada, tmp_path, replace)


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.long)])
async def test_f19_rolling_restart_under_load_fails_no_create(plane, karmada, tmp_path, times):
    def restart(site):
        for _ in range(times):
            site.restart()

    await under_load(plane, karmada, tmp_path, restart)
