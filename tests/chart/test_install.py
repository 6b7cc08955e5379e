"""Tests an installation with Helm: jobs run, values change, certificates rotate, and it is uninstalled."""

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from controller.reporting.decision_log.replay import replay
from localup.api import ApiError
from localup.apply import read_manifests
from tests.chart import sandbox
from tests.chart.helm import CHART
from tests.chart.permissions import granted, refused, used
from tests.chart.site import Site, list_all, opened
from tests.chart.team import BINDINGS, JOBS, binding, create_objects, job, phase, run_through
from tests.image.tree import build_tree

pytestmark = pytest.mark.skipif(sandbox.reason_not_possible() is not None, reason=str(sandbox.reason_not_possible()))


@pytest.fixture(scope="module")
def site(fresh_control_plane, helm, tmp_path_factory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with opened(fresh_control_plane, helm, build_tree(folder / "image"), folder) as site:
        create_objects(site)
        yield site


def webhooks(site: Site) -> list[dict[str, Any]]:
    configuration = site.api.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global")
    return configuration["webhooks"]


def bundles(site: Site) -> set[str]:
    return {webhook["clientConfig"]["caBundle"] for webhook in webhooks(site)}


class Creating:
    """Creates jobs continuously as dry runs and records those that were refused."""

    def __init__(self, site: Site) -> None:
        self.refused: list[str] = []
        self.created = 0
        self._api = site.karmada.client("admin")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._api.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._api.create(f"{JOBS}?dryRun=All", job(f"dry-{self.created}"))
                self.created += 1
            except ApiError as error:
                self.refused.append(str(error))
            time.sleep(0.02)


def test_install_upgrade_and_uninstall(site):
    host_before, karmada_before = list_all(site.host.api), list_all(site.api)

    site.install()
    assert list_all(site.api) > karmada_before
    assert len(bundles(site)) == 1
    site.run("test", "vg")
    run_through(site, "a", "b", "c")

    # No job is refused during a change.
    with Creating(site) as creating:
        site.install(
            admission={"queueValidation": "Deny"},
            webhook={"extraArgs": ["--max-connections", "1000"]},
            controller={"decisionLog": {"enabled": True}},
        )
        before = bundles(site)
        site.run_job_of("rotate", "rotate-1")
        site.until(lambda: not before & bundles(site), "a new bundle published")
        run_through(site, "d")
    site.until(lambda: "d" in admitted(site), "the last job in the leader's decision log")
    assert creating.created > 50
    assert creating.refused == []
    site.until(lambda: _is_denied(site), "the changed configuration in force")

    # Bindings that are still suspended are resumed, as configured.
    site.install(uninstall={"resumeSuspended": True})
    site.api.create(JOBS, job("stranded", queue="missing"))
    site.until(lambda: binding(site, "stranded"), "a binding")
    assert binding(site, "stranded")["spec"]["suspension"]["scheduling"] is True
    site.uninstall()
    assert binding(site, "stranded")["spec"]["suspension"]["scheduling"] is False
    site.until(lambda: phase(site, "stranded") == "Completed", "the stranded job done")

    for name in ("a", "b", "c", "d", "stranded"):
        site.api.delete(f"{JOBS}/{name}?propagationPolicy=Background")
    site.until(lambda: not site.api.get(BINDINGS)["items"], "all bindings gone")
    # The definition was in use during the uninstallation, and is removed by the next one.
    assert list_all(site.api) - karmada_before == {"/apis/scheduling.volcano.sh/v1beta1//queues/default"}
    assert list_all(site.host.api) - host_before == set()

    # With repair, an upgraded registration is not reverted.
    repair = {"repair": {"webhookConfiguration": True}}
    site.install(admission=repair)
    site.install(admission={**repair, "integrations": [{"apiVersion": "apps/v1", "kind": "Deployment"}]})
    # The leader may revert it until it has reloaded the file of the upgrade; any replica may lead.
    site.until(lambda: _have_reloaded(site), "the file read again by all replicas")
    site.until(lambda: "apps/Deployment" in conditions(site), "the new kind gated")
    time.sleep(3)
    assert "apps/Deployment" in conditions(site)
    site.run("test", "vg")
    site.uninstall()
    assert list_all(site.api) - karmada_before == set()
    assert list_all(site.host.api) - host_before == set()
    assert site.host.errors == []


def admitted(site: Site) -> set[str]:
    """Return the jobs that were admitted by the decision logs, whose replay must give the same decisions."""
    names = set()
    for path in site.host.folder.glob("*/volumes/decision-log/decisions.jsonl"):
        with path.open("rb") as lines:
            findings, passages = replay(lines)
        assert findings.is_identical
        names |= {decision.fields["name"] for decision in passages if decision.fields["action"] == "Admit"}
    return names


def conditions(site: Site) -> str:
    return webhooks(site)[0]["matchConditions"][0]["expression"]


def _have_reloaded(site: Site) -> bool:
    controllers = site.host.ready("controller")
    return bool(controllers) and all("webhook registration loaded" in pod.log() for pod in controllers)


def _is_denied(site: Site) -> bool:
    try:
        site.api.create(f"{JOBS}?dryRun=All", job("denied", queue="missing"))
    except ApiError as error:
        return "missing" in error.message
    return False


CONSOLE = {
    "console": {"enabled": True, "history": {"claimName": "decisions"}},
    "controller": {"decisionLog": {"enabled": True}},
}
CHANGES = """\
queue/q.spec.weight=2
cluster/member1.spec.syncMode=Push
job/team/later.spec.minAvailable=1
resourcebinding/team/later-job.spec.schedulerName=default-scheduler
"""
CONSOLE_HOST = "vg-volcano-global-console.karmada-system.svc"


class Browser:
    """Reads the console through its Service, and verifies its certificate."""

    def __init__(self, site: Site) -> None:
        ca = site.host.api.get("/api/v1/namespaces/karmada-system/secrets/vg-volcano-global-webhook-tls")["data"][
            "ca.crt"
        ]
        self._trust = ssl.create_default_context(cadata=base64.b64decode(ca).decode())
        self._port = site.host.relay.listen(lambda: [pod.endpoint(8443) for pod in site.host.ready("console")])

    def get(self, path: str, token: str = "") -> tuple[int, Any]:
        with (
            socket.create_connection(("127.0.0.1", self._port), timeout=60) as plain,
            self._trust.wrap_socket(plain, server_hostname=CONSOLE_HOST) as encrypted,
        ):
            connection = http.client.HTTPConnection(CONSOLE_HOST)
            connection.sock = encrypted
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            with connection.getresponse() as answer:
                text = answer.read()
        return answer.status, json.loads(text) if path.startswith("/api/") else text.decode()

    def admitted(self, token: str) -> set[str]:
        """Return the jobs whose admissions are on the page of past decisions."""
        status, page = self.get("/api/v1/decisions?action=Admit", token)
        return {decision.get("name", "") for decision in page["decisions"]} if status == 200 else set()


def token_of(site: Site, account: str, role: str = "") -> str:
    """Return the token of a new service account of the team, which may have a ClusterRole."""
    folder = "/api/v1/namespaces/team/serviceaccounts"
    site.api.create(folder, {"metadata": {"name": account}})
    if role:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "team"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        body = {"metadata": {"name": f"team-{account}"}, "roleRef": reference, "subjects": [subject]}
        site.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
    return site.api.create(f"{folder}/{account}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]


def test_console_shows_the_history_of_all_replicas(site):
    begun = site.karmada.audit_log.stat().st_size
    site.install(**CONSOLE, networkPolicy={"enabled": True})
    try:
        site.run("test", "vg")
        policies = site.host.api.get("/apis/networking.k8s.io/v1/namespaces/karmada-system/networkpolicies")["items"]
        assert "vg-volcano-global-console" in {policy["metadata"]["name"] for policy in policies}
        operator, tenant = token_of(site, "operator", "volcano-global-console-operator"), token_of(site, "tenant")
        browser = Browser(site)
        run_through(site, "seen")
        site.until(lambda: "seen" in browser.admitted(operator), "the admission on the page of decisions")
        assert browser.get("/api/v1/overview")[0] == 401
        assert browser.get("/healthz")[0] != 200
        assert "seen" not in browser.get("/decisions", tenant)[1]

        # All pods are replaced, and their logs end; the decisions stay.
        values = {**CONSOLE, "controller": {**CONSOLE["controller"], "extraArgs": ["--retry-seconds", "3"]}}
        values["console"] = {**CONSOLE["console"], "podAnnotations": {"changed": "yes"}}
        site.install(**values)
        run_through(site, "later")
        site.until(lambda: {"seen", "later"} <= browser.admitted(operator), "the decisions of all replicas")
        # An API server knows a new role only after a moment, so that the first request of a pod may be refused.
        assert refused(site.karmada.audit_log, since=begun) <= used(site.karmada.audit_log, since=begun)
        # A what-if plan reads the objects that it changes.
        path = f"/api/v1/what-if?{urlencode({'change': CHANGES})}"
        site.until(lambda: browser.get(path, operator)[1].get("isPlanned"), "a what-if plan")
        unused = granted(read_manifests(CHART / "files" / "console.yaml")) - used(site.karmada.audit_log, since=begun)
        # No request uses the permission to list decisions: the history endpoint asks whether its caller has it.
        assert {(permission.resource, permission.verb) for permission in unused} == {("decisions", "list")}
    finally:
        site.uninstall()
