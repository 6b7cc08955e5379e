"""Runs an installation with Helm on two clusters, of which only the nodes are simulated."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from localup.api import Api, ApiError
from localup.controlplane import ControlPlane
from localup.stack import Stack
from tests.chart.helm import CHART, NAMESPACE, RELEASE, Helm
from tests.chart.host import Host
from tests.chart.relay import Endpoint

PREFIX = f"{RELEASE}-volcano-global"
#: Audit policy that logs requests without their contents, for counting verbs.
AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""
#: Objects of the test control plane that an installation must create itself.
OURS = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hyperjobs.batch.volcano.sh",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hyperjobs.training.volcano.sh",
    *(
        f"/apis/rbac.authorization.k8s.io/v1/{kind}/volcano-global-{name}"
        for kind in ("clusterroles", "clusterrolebindings")
        for name in ("controller", "webhook", "certs", "hyperjobs", "hyperjobs-edit", "integrations")
    ),
    *(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-system/{kind}/volcano-global-controller"
        for kind in ("roles", "rolebindings")
    ),
)


@dataclass
class Site:
    """The host cluster and the Karmada control plane of an installation."""

    helm: Helm
    host: Host
    karmada: ControlPlane
    kubeconfig: Path
    webhook_port: int

    @property
    def api(self) -> Api:
        """Client of the Karmada API server as administrator."""
        return self.karmada.admin

    def values(self, **more: Any) -> dict[str, Any]:
        """Return the values of an installation on these clusters."""
        webhook = {"url": f"https://127.0.0.1:{self.webhook_port}", "drainSeconds": 1, **more.pop("webhook", {})}
        return {"webhook": webhook, "install": {"waitSeconds": 300, "backoffLimit": 1}, **more}

    def run(self, *arguments: str, **more: Any) -> str:
        """Run Helm against the host cluster."""
        flags = ("--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig))
        return self.helm.run(*arguments, *flags, **more)

    def install(self, **values: Any) -> str:
        wait = ("--wait", "--wait-for-jobs", "--timeout", "600s")
        return self.run("upgrade", "--install", RELEASE, str(CHART), *wait, values=self.values(**values))

    def uninstall(self) -> str:
        return self.run("uninstall", RELEASE, "--wait", "--timeout", "600s")

    def run_job_of(self, cronjob: str, name: str) -> None:
        """Run the Job of a CronJob, like `kubectl create job --from`, and wait until it succeeds."""
        batch = f"/apis/batch/v1/namespaces/{NAMESPACE}"
        manifest = self.host.api.get(f"{batch}/cronjobs/{PREFIX}-{cronjob}")
        template = manifest["spec"]["jobTemplate"]
        head = {"name": name, "labels": template["metadata"].get("labels", {})}
        self.host.api.create(f"{batch}/jobs", {"metadata": head, "spec": template["spec"]})
        self.until(lambda: self.host.api.get(f"{batch}/jobs/{name}").get("status", {}).get("conditions"), name)
        assert self.host.api.get(f"{batch}/jobs/{name}")["status"]["succeeded"] == 1, self.host.log()
        self.host.api.delete(f"{batch}/jobs/{name}?propagationPolicy=Background")

    def until(self, condition: Callable[[], Any], what: str, *, seconds: float = 180) -> Any:
        """Wait until the condition is truthy; on a timeout show the output of the pods."""
        ends = time.monotonic() + seconds
        while not (answer := condition()):
            assert time.monotonic() < ends, f"{what}: not within {seconds:g} s\n{self.host.log()}\n{self.host.errors}"
            time.sleep(0.1)
        return answer


@contextmanager
def opened(
    start: Callable[..., ControlPlane], helm: Helm, image: Path, folder: Path, **karmada_options: Any
) -> Iterator[Site]:
    """Start both clusters, with simulated Karmada and member clusters."""
    policy = folder / "audit.yaml"
    policy.write_text(AUDIT)
    host = start()
    karmada = start(audit=True, flags=[f"--audit-policy-file={policy}"], **karmada_options)
    _bare(karmada.admin)
    _bare(host.admin)
    data = {"stringData": {"kubeconfig": karmada.kubeconfig("admin").read_text()}}
    host.admin.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": "karmada-kubeconfig"}, **data})
    cluster = Host(host, karmada, namespace=NAMESPACE, image=image, folder=folder)
    port = cluster.relay.listen(lambda: [Endpoint(8443, pod.sandbox.network) for pod in cluster.ready("webhook")])
    try:
        with Stack(karmada, webhook=False, controller=False):
            yield Site(helm, cluster, karmada, host.kubeconfig("admin"), port)
    finally:
        cluster.close()


def list_all(api: Api) -> set[str]:
    """Return the paths of all objects of an API server, except those that it creates itself."""
    groups = [("/api/v1", "v1")] + [
        (f"/apis/{group['preferredVersion']['groupVersion']}", group["name"]) for group in api.get("/apis")["groups"]
    ]
    paths: set[str] = set()
    for root, _ in groups:
        for resource in api.get(root)["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or "/" in name or name in {"events", "componentstatuses"}:
                continue
            for item in _items(api, f"{root}/{name}"):
                metadata = item["metadata"]
                paths.add(f"{root}/{metadata.get('namespace', '')}/{name}/{metadata['name']}")
    return paths


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    for _ in range(100):
        try:
            items: list[dict[str, Any]] = api.get(path)["items"]
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            time.sleep(0.1)  # a definition is not served yet
        else:
            return items
    raise AssertionError(f"{path} is never served")


def _bare(api: Api) -> None:
    for path in OURS:
        with contextlib.suppress(ApiError):  # this version of the control plane has no such object
            api.delete(path)
