"""Tests rotations and restarts under load, with a real API server: no call fails, no binding stays unsuspended."""

import asyncio
import base64
import signal
import ssl
from contextlib import ExitStack, asynccontextmanager, contextmanager

import pytest

from certs.authority import load_bundle
from certs.reconciler import CertificateReconciler, served_certificates
from certs.settings import CertificateSettings
from certs.store import AUTHORITY, SERVING, DirectoryStore
from controller.kube.client import Api
from localup.apply import wait_until
from tests.webhook.balancer import Balancer
from tests.webhook.installation import BINDINGS, is_suspended, register
from tests.webhook.load import Load, creates, reviews
from tests.webhook.process import WebhookProcess

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global"


class Site:
    """Two replicas behind a balancer, installed on a control plane, with rotation of their certificates."""

    def __init__(self, plane, folder, stack: ExitStack) -> None:
        self.plane = plane
        self.folder = folder
        self._stack = stack
        self.reconciler(settle_seconds=0).run()
        self.balancer = Balancer()
        stack.callback(self.balancer.close)
        self.replicas = [self.start(), self.start()]

    def start(self) -> WebhookProcess:
        """Start another replica and wait until the balancer uses it."""
        kubeconfig = self.plane.kubeconfig("volcano-global-webhook")
        # Enough time for callers to observe it on a busy machine; the default is longer.
        flags = ("--poll-seconds", 0.1, "--drain-seconds", 3, "--kubeconfig", kubeconfig)
        replica = self._stack.enter_context(WebhookProcess(self.folder / "serving", *flags))
        self.balancer.replicas.append(replica)
        return replica

    def end(self, replica: WebhookProcess) -> None:
        """Stop a replica and wait for its end."""
        replica.send(signal.SIGTERM)
        assert replica.end() == 0
        self.balancer.replicas.remove(replica)

    def restart(self, place: int) -> None:
        """Replace one replica, and wait until the new one is ready."""
        self.end(self.replicas[place])
        self.replicas[place] = self.start()
        self.replicas[place].wait_for("webhook ready")

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
            DirectoryStore(self.folder), CertificateSettings(command="ensure", authority=authority, **options | more)
        )

    def rotate(self, *, authority: bool) -> None:
        """Rotate once, and wait until every replica serves the new certificate and old CAs have left the bundle."""
        options = {
            "webhook_configuration": ("volcano-global",),
            "replica": tuple(f"127.0.0.1:{each.port}" for each in self.replicas),
        }
        self.reconciler(authority=authority, **options).run(rotate=True)
        leaf = load_bundle(DirectoryStore(self.folder).read(SERVING).files["tls.crt"])[0]
        wait_until(
            lambda: set(served_certificates(options["replica"]).values()) == {leaf}, "the new certificate served"
        )
        wait_until(lambda: self._is_alone(options), "old CAs removed")

    def _is_alone(self, options) -> bool:
        self.reconciler(**options).run()
        return len(load_bundle(DirectoryStore(self.folder).read(AUTHORITY).files["ca.crt"])) == 1

    def published(self) -> bytes:
        """Return the published bundle."""
        found = self.plane.admin.get(CONFIGURATION)["webhooks"][0]["clientConfig"]
        return base64.b64decode(found.get("caBundle", ""))


@contextmanager
def site(plane, karmada, folder):
    with ExitStack() as stack:
        plane.admin.delete(BINDINGS)
        made = Site(plane, folder, stack)
        register(plane, made.balancer.port)
        made.reconciler(webhook_configuration=("volcano-global",), settle_seconds=0).run()
        for replica in made.replicas:
            replica.wait_for("webhook ready")
        wait_until(lambda: is_suspended(karmada), "webhook at work")
        yield made


@asynccontextmanager
async def under_load(place, plane, unsuspended, *, per_second):
    """Create bindings through the API server and post reviews over new connections, trusting the published bundle."""
    trusted = {"context": ssl.create_default_context(cadata=place.published().decode())}

    async def follow():
        while True:
            bundle = await asyncio.to_thread(place.published)
            trusted["context"] = ssl.create_default_context(cadata=bundle.decode())
            await asyncio.sleep(0.1)

    url = f"https://127.0.0.1:{place.balancer.port}/resourcebindings/mutate"
    async with Api.connect(plane.kubeconfig("karmada")) as api:
        through = Load(creates(api, unsuspended), per_second=per_second)
        directly = Load(reviews(url, lambda: trusted["context"]), per_second=per_second)
        following = asyncio.create_task(follow())
        async with through.running(), directly.running():
            yield through, directly
        following.cancel()


def rotate_under_load(plane, karmada, folder, *, leaves, authorities):
    unsuspended: list[str] = []
    every = max(leaves // max(authorities, 1), 1)

    async def rotate(place):
        async with under_load(place, plane, unsuspended, per_second=25) as loads:
            for number in range(1, leaves + 1):
                await asyncio.to_thread(place.rotate, authority=False)
                if number % every == 0 and number // every <= authorities:
                    await asyncio.to_thread(place.rotate, authority=True)
        return loads

    with site(plane, karmada, folder) as place:
        check_loads(asyncio.run(rotate(place)))
    check_stored(plane, unsuspended)


def restart_under_load(plane, karmada, folder, *, times):
    unsuspended: list[str] = []

    async def restart(place):
        async with under_load(place, plane, unsuspended, per_second=50) as loads:
            for number in range(times):
                await asyncio.to_thread(place.restart, number % 2)
                await asyncio.sleep(0.5)
        return loads

    with site(plane, karmada, folder) as place:
        check_loads(asyncio.run(restart(place)))
        assert place.balancer.refused == 0
    check_stored(plane, unsuspended)


def check_loads(loads):
    assert [dict(load.failures) for load in loads] == [{}, {}]
    assert all(load.calls > 25 for load in loads)


def check_stored(plane, unsuspended):
    stored = plane.admin.get(BINDINGS)["items"]
    assert stored
    assert unsuspended == [each for each in stored if each["spec"].get("suspension") != {"scheduling": True}] == []
    plane.admin.delete(BINDINGS)


def test_f20_rotations_under_load_fail_no_call(plane, karmada, tmp_path):
    rotate_under_load(plane, karmada, tmp_path, leaves=2, authorities=1)


def test_f19_rolling_restart_under_load_fails_no_create(plane, karmada, tmp_path):
    restart_under_load(plane, karmada, tmp_path, times=1)


@pytest.mark.long
def test_f20_many_rotations_under_load_fail_no_call(plane, karmada, tmp_path):
    rotate_under_load(plane, karmada, tmp_path, leaves=20, authorities=5)


@pytest.mark.long
def test_f19_ten_restarts_under_load_fail_no_create(plane, karmada, tmp_path):
    restart_under_load(plane, karmada, tmp_path, times=10)
