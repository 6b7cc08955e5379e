"""Creates a team with namespace, queue, policy and cluster, and runs jobs through an installation."""

import json
from pathlib import Path

from localup.api import ApiError
from localup.apply import apply_files, create_namespace
from localup.demo.scenario import volcano_job
from tests.chart.site import Site

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
BINDINGS = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings"


def create_objects(site: Site) -> None:
    """Create a team, a queue, a policy and a member cluster."""
    create_namespace(site.api, "team")
    apply_files(site.api, Path(__file__).with_suffix(".yaml"))


def job(name: str, queue: str = "q") -> dict:
    return volcano_job(f"team/{name}", queue, pods=1, cpu=3, memory="1Gi", runtime="1s")


def phase(site: Site, name: str) -> str:
    return site.api.get(f"{JOBS}/{name}").get("status", {}).get("state", {}).get("phase", "")


def run_through(site: Site, *names: str) -> None:
    """Submit jobs and wait until each was suspended, admitted and finished."""
    for name in names:
        site.api.create(JOBS, job(name))
    for name in names:
        site.until(lambda name=name: phase(site, name) == "Completed", f"job {name} done")
        resource_binding = site.api.get(f"{BINDINGS}/{name}-job")
        record = json.loads(resource_binding["metadata"]["annotations"]["volcano-global.io/admission"])
        assert record["queue"] == "q"
        assert resource_binding["spec"]["suspension"]["scheduling"] is False


def binding(site: Site, name: str) -> dict:
    try:
        return site.api.get(f"{BINDINGS}/{name}-job")
    except ApiError:
        return {}
