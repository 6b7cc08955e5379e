import pytest
import yaml

from localup.controlplane import RBAC
from localup.credentials import IDENTITIES

OURS = {
    "rbac": {f"volcano-global-{process}" for process in ("controller", "webhook", "certs")},
    "hyperjobs": {"volcano-global-hyperjobs"},
}
FILES = {path.stem: path for path in RBAC if path.stem in OURS}
SYSTEM = "karmada-system"
HOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"

# identity, verbs, resource with its group, where (namespace, name); the other tests use what is granted
DENIED = [
    ("controller", "create update delete", "resourcebindings.work.karmada.io"),
    ("controller", "update", "queues.scheduling.volcano.sh"),
    ("controller", "create", "commands.bus.volcano.sh"),
    ("controller", "create update patch delete", "jobs.batch.volcano.sh"),
    ("controller", "update", "jobs/status.batch.volcano.sh"),
    ("controller", "create patch", "propagationpolicies.policy.karmada.io"),
    ("controller", "patch", "hyperjobs/status.training.volcano.sh"),
    ("controller", "list", "secrets"),
    ("controller", "create", "leases.coordination.k8s.io"),
    ("controller", "patch", "leases.coordination.k8s.io", SYSTEM, "somebody-else"),
    ("controller", "get", "configmaps", SYSTEM, "volcano-global-admission"),
    ("controller", "create", "configmaps"),
    ("hyperjobs", "admit patch list", "resourcebindings.work.karmada.io"),
    ("hyperjobs", "patch", "resourcebindings/status.work.karmada.io"),
    ("hyperjobs", "patch", "jobs/status.batch.volcano.sh"),
    ("hyperjobs", "patch", "queues.scheduling.volcano.sh"),
    ("hyperjobs", "patch", "hyperjobs.training.volcano.sh"),
    ("hyperjobs", "patch", "leases.coordination.k8s.io", SYSTEM, "volcano-global-controller"),
    ("hyperjobs", "list", "secrets"),
    ("console", "patch admit", "resourcebindings.work.karmada.io"),
    ("console", "patch", "queues.scheduling.volcano.sh"),
    ("console", "create", "jobs.batch.volcano.sh"),
    ("console", "list", "secrets"),
    ("console", "get", "configmaps", SYSTEM, "volcano-global-admission"),
    ("webhook", "list admit", "resourcebindings.work.karmada.io"),
    ("webhook", "get", HOOKS, "", "karmada"),
    ("webhook", "patch", HOOKS, "", "volcano-global"),
    ("certs", "patch", HOOKS, "", "karmada"),
    ("certs", "list", HOOKS),
    ("certs", "list", "secrets"),
    ("certs", "admit", "resourcebindings.work.karmada.io"),
    ("karmada", "list", "secrets"),
    ("tenant", "admit", "resourcebindings.work.karmada.io", "own"),
    ("tenant", "create", "jobs.batch.volcano.sh", "default"),
    ("tenant", "patch", "queues.scheduling.volcano.sh"),
    ("tenant", "patch", "clusterresourcebindings.work.karmada.io"),
    ("tenant", "create", "rolebindings.rbac.authorization.k8s.io", "own"),
    ("tenant", "get", "configmaps", SYSTEM, "volcano-global-configuration"),
]


@pytest.mark.parametrize("identity", sorted({row[0] for row in DENIED}))
def test_identity_has_only_the_needed_permissions(control_plane, namespace, identity):
    user = identity if identity in IDENTITIES else f"volcano-global-{identity}"
    rows = [row for row in DENIED if row[0] == identity]
    with control_plane.client(user) as api:
        allowed = [
            (verb, target, *place)
            for _, verbs, target, *place in rows
            for verb in verbs.split()
            if is_allowed(api, verb, target, [namespace if part == "own" else part for part in place])
        ]
    assert allowed == []


def is_allowed(api, verb, target, place):
    """Return whether the user of *api* is allowed a request, by a SelfSubjectAccessReview."""
    resource, _, group = target.partition(".")
    resource, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": resource, "subresource": subresource, "group": group}
    attributes |= dict(zip(("namespace", "name"), place, strict=False))
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]


@pytest.mark.parametrize("file", OURS)
def test_role_subjects_are_the_processes(file):
    documents = list(yaml.safe_load_all(FILES[file].read_text()))
    users = {subject["name"] for document in documents for subject in document.get("subjects", ())}
    assert users == OURS[file]
