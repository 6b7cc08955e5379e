"""The chart installed for real: jobs run through it, it is changed, its certificates are rotated, and it goes."""

import threading
import time
from collections.abc import Iterator

import pytest

from controller.decision_log.replay import replay
from localup.api import ApiError
from tests.chart import sandbox
from tests.chart.site import Site, everything, opened
from tests.chart.team import BINDINGS, JOBS, binding, furnish, job, phase, run_through
from tests.image.tree import lay_out

pytestmark = pytest.mark.skipif(sandbox.reason_not_possible() is not None, reason=str(sandbox.reason_not_possible()))


@pytest.fixture(scope="module")
def site(fresh_control_plane, helm, tmp_path_factory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with opened(fresh_control_plane, helm, lay_out(folder / "image"), folder) as site:
        furnish(site)
        yield site


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
        site.install(
            admission={"queueValidation": "Deny"},
            webhook={"extraArgs": ["--max-connections", "1000"]},
            controller={"journal": {"enabled": True}},
        )
        before = bundles(site)
        site.run_job_of("rotate", "rotate-1")
        site.until(lambda: not before & bundles(site), "a new bundle published")
        run_through(site, "d")
    site.until(lambda: "d" in admitted(site), "the journal of the leader telling of the last job")
    assert creating.created > 50
    assert creating.refused == []
    site.until(lambda: _is_denied(site), "the changed configuration in force")

    # What is still paused when it goes is let run, because that is asked for.
    site.install(uninstall={"resumePaused": True})
    site.api.create(JOBS, job("stranded", queue="missing"))
    site.until(lambda: binding(site, "stranded"), "a binding")
    assert binding(site, "stranded")["spec"]["suspension"]["scheduling"] is True
    site.uninstall()
    assert binding(site, "stranded")["spec"]["suspension"]["scheduling"] is False
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


def admitted(site: Site) -> set[str]:
    """Return who was let in as the journals of the controllers say, which must be decided alike again."""
    found = set()
    for path in site.host.folder.glob("*/volumes/journal/decisions.jsonl"):
        with path.open("rb") as lines:
            findings, passages = replay(lines)
        assert findings.is_same
        found |= {each.fields["name"] for each in passages if each.fields["action"] == "Admit"}
    return found


def conditions(site: Site) -> str:
    found = site.api.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global")
    return found["webhooks"][0]["matchConditions"][0]["expression"]


def test_what_an_upgrade_registers_stays_although_the_controller_puts_right_what_is_altered(site):
    before = everything(site.host.api), everything(site.api)
    site.install(admission={"repair": {"webhookConfiguration": True}})
    kinds = [{"apiVersion": "apps/v1", "kind": "Deployment"}]
    site.install(admission={"repair": {"webhookConfiguration": True}, "integrations": kinds})
    # The leader may undo it until it has read the file that the upgrade has changed, too.
    site.until(lambda: "webhook registration loaded" in site.host.log(), "the file read again")
    site.until(lambda: "apps/Deployment" in conditions(site), "the new kind gated")
    time.sleep(3)
    assert "apps/Deployment" in conditions(site)
    site.run("test", "vg")
    site.uninstall()
    assert (everything(site.host.api), everything(site.api)) == before


def _is_denied(site: Site) -> bool:
    try:
        site.api.create(f"{JOBS}?dryRun=All", job("denied", queue="missing"))
    except ApiError as error:
        return "missing" in error.message
    return False
