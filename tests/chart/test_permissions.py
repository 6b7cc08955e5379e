"""Tests least privilege (TC2): the processes use every granted permission, and need no other."""

from pathlib import Path

import pytest

from localup.apply import apply_files, read_manifests
from localup.stack import WEBHOOK_CONFIGURATIONS, ProcessOptions, Stack
from tests.chart.permissions import OURS, Permission, granted, refused, used
from tests.chart.site import AUDIT
from tests.chart.smoke import Smoke

FILES = Path(__file__).parents[2] / "charts" / "volcano-global" / "files"
#: The last three are optional.
FILED = [FILES / f"{name}.yaml" for name in ("rbac", "hyperjobs", "integrations", "repair", "data-sources")]
#: An apply that creates an object needs them, but the audit log has only the patch.
BY_APPLYING = {
    Permission("volcano-global-hyperjobs", "batch.volcano.sh", "jobs", "create"),
    Permission("volcano-global-hyperjobs", "policy.karmada.io", "propagationpolicies", "create"),
}
CONFIGURATION = """\
apiVersion: config.volcano-global.io/v1alpha1
kind: VolcanoGlobalConfiguration
clusterStatusSettlePeriod: 1s
preemption: {enabled: true, minRuntime: 0s, gracePeriod: 0s}
repair: {webhookConfiguration: true}
dataSources:
  reclaimPolicy: Delete
  static: [{system: lake, name: text, clusters: [member1]}]
integrations:
- {apiVersion: apps/v1, kind: Deployment}
- {apiVersion: apps/v1, kind: StatefulSet}
- {apiVersion: batch/v1, kind: Job}
"""


@pytest.mark.long
def test_tc2_granted_permissions_are_used(fresh_control_plane, tmp_path):
    policy, configuration = tmp_path / "audit.yaml", tmp_path / "admission.yaml"
    policy.write_text(AUDIT)
    configuration.write_text(CONFIGURATION)
    plane = fresh_control_plane(audit=True, flags=[f"--audit-policy-file={policy}"])
    apply_files(plane.admin, *FILED)
    registration = tmp_path / "webhooks.yaml"
    flags = ["--admission-configuration", configuration, "--webhook-registration", registration]

    def check() -> None:
        assert not (denied := refused(plane.audit_log)), sorted(map(str, denied))

    stack = Stack(plane, options={"controller": ProcessOptions(flags=flags)})
    registration.write_text(WEBHOOK_CONFIGURATIONS.read_text().replace("https://webhook.invalid", stack.webhook_url))
    try:
        Smoke(plane, stack, check).run()
    finally:
        stack.stop()
    check()
    ours = {permission for permission in granted(read_manifests(*FILED)) if permission.user.startswith(OURS)}
    done = {permission for permission in used(plane.audit_log) if permission.user.startswith(OURS)}
    # Discovery is allowed for every user.
    assert not done - ours, sorted(map(str, done - ours))
    never = ", ".join(sorted(map(str, ours - done - BY_APPLYING)))
    assert not never, f"granted and never done: {never}"
