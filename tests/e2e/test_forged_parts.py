"""A tenant with the role `edit` forges the annotation of HyperJob parts, without the policy that reserves it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from controller.api.keys import HYPERJOBS
from controller.kube.client import Api
from localup.api import ApiError
from localup.apply import wait_until
from localup.controlplane import ControlPlane
from localup.stack import Stack
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.e2e.environment import Environment, job
from tests.rig.objects import RUNTIME

GROUP = "volcano-global.io/group"
POLICY = "volcano-global-hyperjob-parts"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
FUTURE, PAST = "2999-01-01T00:00:00Z", "1970-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def stack(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[Stack]:
    """Yield the running system without the policy that reserves the annotation."""
    plane = fresh_control_plane()
    with Stack(plane) as running:
        plane.admin.delete(f"{_BINDINGS}/{POLICY}")
        with plane.client("tenant") as tenant:

            def is_removed() -> bool:
                try:
                    tenant.create(f"{_JOBS.format('localup-probe')}?dryRun=All", _forged("probe", {"uid": "u"}))
                except ApiError as error:
                    return POLICY not in error.message
                return True

            wait_until(is_removed, "policy removed")
        yield running


@pytest.fixture
async def tenant(environment: Environment, stack: Stack) -> AsyncIterator[Environment]:
    """Yield the environment with the tenant's client; its objects are deleted before the environment is cleared."""
    async with Api.connect(stack.plane.kubeconfig("tenant")) as api:
        tenant = Environment(api, environment.namespace, environment.history)
        yield tenant
        await tenant.delete_made()


def _forged(name: str, claim: dict[str, Any], owner: dict[str, Any] | None = None) -> dict[str, Any]:
    made = job(name, "ml")
    made["metadata"]["annotations"][GROUP] = json.dumps(claim)
    if owner is not None:
        made["metadata"]["ownerReferences"] = [owner]
    return made


async def test_forged_part_stays_pending_and_keeps_its_age(environment: Environment, tenant: Environment):
    """Neither a Job that its HyperJob does not list nor a claimed age is believed."""
    await environment.queue("ml")
    await environment.policy()
    manifest = document(replicated("t", task(replicas=1, gpu=0, cpu="8")))
    manifest["metadata"] = {"name": "llm", "annotations": {RUNTIME: "60s"}}
    path = HYPERJOBS.item_path(tenant.namespace, "llm")
    await tenant.create(path.rpartition("/")[0], manifest)
    await tenant.until(lambda seen: "llm-t-0" in seen, "binding of the part")
    part = await tenant.read(f"{_JOBS.format(tenant.namespace)}/llm-t-0")
    owner, claim = part["metadata"]["ownerReferences"][0], json.loads(part["metadata"]["annotations"][GROUP])
    assert owner["uid"] == (await tenant.read(path))["metadata"]["uid"]
    not_controlling = {**owner, "controller": False}
    await tenant.manifest(_forged("forged", claim, owner))
    await tenant.manifest(_forged("a-future", {**claim, "since": FUTURE}, not_controlling))
    await tenant.job("b-plain", "ml")
    await tenant.manifest(_forged("c-past", {**claim, "since": PAST}, not_controlling))
    # Where two were created in the same second, their names decide as their creation does.
    names = ["a-future", "b-plain", "c-past"]
    await environment.until(lambda seen: {"forged", *names} <= seen.keys(), "all bindings")
    await environment.member("c1", cpu="1")
    await environment.until(lambda _: environment.finished() == names, "all three, one after the other")
    assert environment.order() == names
    assert environment.bindings()["forged"].suspended
