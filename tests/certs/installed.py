"""Runs `certs` with Secrets of a real API server and minimal permissions."""

import base64
import subprocess
import sys

import yaml

from certs.__main__ import main
from tests import commands

NAMESPACE = "volcano-global"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
#: Permissions of `certs` in the cluster with the Secrets.
RIGHTS = list(
    yaml.safe_load_all("""
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: volcano-global-certs, namespace: volcano-global}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [create]}
- apiGroups: ['']
  resources: [secrets]
  resourceNames: [volcano-global-webhook, volcano-global-webhook-authority]
  verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: volcano-global-certs, namespace: volcano-global}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: volcano-global-certs}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: volcano-global-certs}]
""")
)


def flags(plane, *more):
    """Return the arguments of the command *more[0]* for the Secrets."""
    kubeconfig = plane.kubeconfig("volcano-global-certs")
    storage = ["--secret-namespace", NAMESPACE, "--secret-name", "volcano-global-webhook"]
    storage += ["--host-kubeconfig", kubeconfig]
    publishing = ["--webhook-configuration", "volcano-global", "--kubeconfig", kubeconfig, "--dns", "localhost"]
    return [more[0], *storage, *publishing, *more[1:]]


def run(plane, *more):
    """Run a command in the test process."""
    return commands.run(main, *flags(plane, *more, "--settle-seconds", "0"))


def process(plane, *more):
    """Run a command in its own process."""
    command = [sys.executable, "-m", "certs", *flags(plane, *more)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def bundles(plane):
    """Return the published bundle of each webhook."""
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    configurations = [plane.admin.get(f"{CONFIGURATIONS}/{kind}/volcano-global")["webhooks"] for kind in kinds]
    return [
        base64.b64decode(item["clientConfig"].get("caBundle", "")) for webhooks in configurations for item in webhooks
    ]
