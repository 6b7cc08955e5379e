"""The chart installed for real: jobs run through it, it is changed, its certificates are rotated, and it goes."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from localup.api import ApiError
from localup.namespaces import open_namespace
from tests.chart import sandbox
from tests.chart.site import Site, everything, opened
from tests.image.tree import lay_out

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"

pytestmark = pytest.mark.skipif(sandbox.reason_not_possible() is not None, reason=str(sandbox.reason_not_possible()))


@pytest.fixture(scope="module")
def site(fresh_control_plane, helm, tmp_path_factory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with opened(fresh_control_plane, helm, lay_out(folder / "image"), folder) as site:
        _furnish(site)
        yield site


def _furnish(site: Site) -> None:
    """Make a team, a queue and a member cluster."""
    open_namespace(site.api, "team")
    site.api.create(
        QUEUES,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"weight": 1},
        },
    )
    capacity = {"standin.volcano-global.io/allocatable": json.dumps({"cpu": "8", "memory": "64Gi", "pods": "100"})}
    head = {"name": "member1", "annotations": capacity}
    spec = {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"}
    site.api.create(
        CLUSTERS, {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": head, "spec": spec}
    )
    policy = {
        "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        "placement": {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]},
    }
    head = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "jobs"}}
    site.api.create("/apis/policy.karmada.io/v1alpha1/namespaces/team/propagationpolicies", {**head, "spec": policy})


def job(name: str, queue: str = "q") -> dict:
    resources = {"requests": {"cpu": "3", "memory": "1Gi"}}
    pod = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", "resources": resources}]}
    }
    spec = {"minAvailable": 1, "queue": queue, "tasks": [{"name": "main", "replicas": 1, "template": pod}]}
    head = {"name": name, "annotations": {"volcano-global.io/runtime": "1s"}}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": head, "spec": spec}


def phase(site: Site, name: str) -> str:
    return site.api.get(f"{JOBS}/{name}").get("status", {}).get("state", {}).get("phase", "")


def run_through(site: Site, *names: str) -> None:
    """Submit jobs and see all of them through, each paused first and then admitted."""
    for name in names:
        site.api.create(JOBS, job(name))
    for name in names:
        site.until(lambda name=name: phase(site, name) == "Completed", f"job {name} done")
        binding = site.api.get(f"{BINDINGS}/{name}-job")
        record = json.loads(binding["metadata"]["annotations"]["volcano-global.io/admission"])
        assert record["queue"] == "q"
        assert binding["spec"]["suspension"]["scheduling"] is False


def bundles(site: Site) -> set[str]:
    found = site.api.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global")
    return {each["clientConfig"]["caBundle"] for each in found["webhooks"]}


class Creating:
    """Creates jobs all the time, as dry runs, and remembers what was refused."""

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


def test_an_installation_from_its_first_day_to_its_last(site):
    host_before, karmada_before = everything(site.host.api), everything(site.api)

    site.install()
    assert everything(site.api) > karmada_before
    assert len(bundles(site)) == 1
    site.run("test", "vg")
    run_through(site, "a", "b", "c")

    # Changed while jobs are created: none of them is refused.
    with Creating(site) as creating:
        site.install(admission={"queueCheck": "Deny"}, webhook={"extraArgs": ["--max-connections", "1000"]})
        before = bundles(site)
        site.run_job_of("rotate", "rotate-1")
        site.until(lambda: not before & bundles(site), "a new bundle published")
        run_through(site, "d")
    assert creating.created > 50
    assert creating.refused == []
    site.until(lambda: _is_denied(site), "the changed configuration in force")

    # What is still paused when it goes is let run, because that is asked for.
    site.install(uninstall={"resumePaused": True})
    site.api.create(JOBS, job("stranded", queue="missing"))
    site.until(lambda: _binding(site, "stranded"), "a binding")
    assert _binding(site, "stranded")["spec"]["suspension"]["scheduling"] is True
    site.uninstall()
    assert _binding(site, "stranded")["spec"]["suspension"]["scheduling"] is False
    site.until(lambda: phase(site, "stranded") == "Completed", "the stranded job done")

    for name in ("a", "b", "c", "d", "stranded"):
        site.api.delete(f"{JOBS}/{name}?propagationPolicy=Background")
    site.until(lambda: not site.api.get(BINDINGS)["items"], "all bindings gone")
    # It was in use when all else went, and goes with the next one.
    assert everything(site.api) - karmada_before == {"/apis/scheduling.volcano.sh/v1beta1//queues/default"}
    assert everything(site.host.api) - host_before == set()

    site.install()
    site.uninstall()
    assert everything(site.api) - karmada_before == set()
    assert everything(site.host.api) - host_before == set()
    assert site.host.errors == []


def _is_denied(site: Site) -> bool:
    try:
        site.api.create(f"{JOBS}?dryRun=All", job("denied", queue="missing"))
    except ApiError as error:
        return "missing" in error.message
    return False


def _binding(site: Site, name: str) -> dict:
    try:
        return site.api.get(f"{BINDINGS}/{name}-job")
    except ApiError:
        return {}
