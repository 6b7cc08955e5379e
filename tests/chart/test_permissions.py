"""Tests least privilege (TC2): the processes use every granted permission, and fail without any of them."""

from pathlib import Path
from typing import Any

import pytest

from localup.apply import apply_files, read_manifests
from localup.controlplane import ControlPlane
from localup.processes import ProcessError
from localup.stack import WEBHOOK_CONFIGURATIONS, ProcessOptions, Stack
from tests.chart.permissions import OURS, Permission, granted, grants, refused, used, without
from tests.chart.site import AUDIT
from tests.chart.smoke import RefusedError, Smoke

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
#: The last three are optional.
FILED = [FILES / f"{name}.yaml" for name in ("rbac", "hyperjobs", "integrations", "repair", "data-sources")]
ROLES = list(read_manifests(*FILED))
GRANTED = {each for each in granted(ROLES) if each.user.startswith(OURS)}
#: An apply that creates an object needs them, but the audit log has only the patch; the test below verifies them.
BY_APPLYING = {
    Permission("volcano-global-hyperjobs", "batch.volcano.sh", "jobs", "create"),
    Permission("volcano-global-hyperjobs", "policy.karmada.io", "propagationpolicies", "create"),
}
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def plane(fresh_control_plane, tmp_path) -> ControlPlane:
    policy = tmp_path / "audit.yaml"
    policy.write_text(AUDIT)
    plane = fresh_control_plane(audit=True, flags=[f"--audit-policy-file={policy}"])
    apply_files(plane.admin, *FILED)
    return plane


def run_smoke(plane: ControlPlane, folder: Path, without_right: Permission | None = None) -> None:
    configuration = folder / "admission.yaml"
    configuration.write_text(
        "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"
        "clusterStatusSettlePeriod: 1s\n"
        "preemption: {enabled: true, minRuntime: 0s, gracePeriod: 0s}\n"
        "repair: {webhookConfiguration: true}\n"
        "dataSources:\n"
        "  reclaimPolicy: Delete\n"
        "  static: [{system: lake, name: text, clusters: [member1]}]\n"
        "integrations:\n"
        "- {apiVersion: apps/v1, kind: Deployment}\n"
        "- {apiVersion: apps/v1, kind: StatefulSet}\n"
        "- {apiVersion: batch/v1, kind: Job}\n"
    )
    registration = folder / "webhooks.yaml"
    flags = ["--admission-configuration", configuration, "--webhook-registration", registration]

    def check() -> None:
        found = refused(plane.audit_log)
        if without_right in found:
            raise RefusedError(str(without_right))
        assert not found, sorted(map(str, found))

    stack = Stack(plane, options={"controller": ProcessOptions(flags=flags)})
    registration.write_text(WEBHOOK_CONFIGURATIONS.read_text().replace("https://webhook.invalid", stack.webhook_url))
    try:
        Smoke(plane, stack, check).run()
    finally:
        stack.stop()
    check()


@pytest.mark.long
def test_tc2_granted_permissions_are_used(plane, tmp_path):
    run_smoke(plane, tmp_path)
    done = {each for each in used(plane.audit_log) if each.user.startswith(OURS)}
    # Discovery is allowed for every user.
    assert not done - GRANTED, sorted(map(str, done - GRANTED))
    never = ", ".join(sorted(map(str, GRANTED - done - BY_APPLYING)))
    assert not never, f"granted and never done: {never}"


@pytest.mark.long
@pytest.mark.parametrize("right", [pytest.param(each, id=str(each)) for each in sorted(GRANTED)])
def test_tc2_each_permission_is_necessary(plane, tmp_path, right):
    for role in ROLES:
        if role["kind"] in {"ClusterRole", "Role"} and _is_of(role, right):
            plane.admin.request("PUT", _path(role), without(role, right))
    with pytest.raises((RefusedError, AssertionError, ProcessError)) as ended:
        run_smoke(plane, tmp_path, right)
    assert right in refused(plane.audit_log), ended.value


def _is_of(role: dict[str, Any], right: Permission) -> bool:
    return grants(role, right) and any(
        each["roleRef"]["name"] == role["metadata"]["name"] and each["subjects"][0]["name"] == right.user
        for each in ROLES
        if each["kind"].endswith("Binding")
    )


def _path(role: dict[str, Any]) -> str:
    name = role["metadata"]["name"]
    if role["kind"] == "Role":
        return f"{RIGHTS}/namespaces/{role['metadata']['namespace']}/roles/{name}"
    return f"{RIGHTS}/clusterroles/{name}"
