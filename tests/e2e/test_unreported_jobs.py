"""A Karmada that leaves the status of Volcano Jobs in the members, as 1.15 and older do."""

from collections.abc import Callable, Iterator

import pytest

from controller.api.keys import HYPERJOBS, JOBS
from localup.controlplane import ControlPlane
from localup.processes import ProcessOptions
from localup.stack import Stack
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment
from tests.rig.objects import RUNTIME
from tests.waiting import poll


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield the running system with such a stand-in."""
    options = {"karmada": ProcessOptions(flags=["--status-period", "200ms", "--unreported-jobs"])}
    with Stack(fresh_control_plane(), options=options) as running:
        yield running


async def test_hyperjob_ends_though_its_jobs_show_no_status(environment: Environment):
    for name in ("a", "b"):
        await environment.member(name, cpu="8")
    await environment.queue("ml")
    parts = document(replicated("t", task(replicas=2, gpu=0), replicas=2))
    parts["metadata"] = {"name": "llm", "annotations": {RUNTIME: "3s"}}
    await environment.create(environment.folder(HYPERJOBS), parts)
    path = HYPERJOBS.item_path(environment.namespace, "llm")

    async def phase() -> str:
        return (await environment.read(path)).get("status", {}).get("phase", "")

    await poll(phase, "its parts run", until=lambda seen: seen == "Running")
    await poll(phase, "its parts have completed", until=lambda seen: seen == "Completed")
    shown = (await environment.read(JOBS.item_path(environment.namespace, "llm-t-0")))["status"]["state"]
    assert (shown["phase"], shown["reason"]) == ("Pending", "Admitted")
