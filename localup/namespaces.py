"""Namespaces of a test or of a team, with the rights its people have there."""

import contextlib
from collections.abc import Iterable

from localup.api import Api, ApiError


def create_namespace(api: Api, name: str, *, tenants: Iterable[str] = ("tenant",)) -> None:
    """Create a namespace in which *tenants* may edit, as Kubernetes' stock role has it."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant} for tenant in tenants]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    api.create(path, {"metadata": {"name": "tenants"}, "roleRef": role, "subjects": subjects})


def delete_namespace(api: Api, name: str) -> None:
    """Delete a namespace with all that is in it; that goes on in the background."""
    with contextlib.suppress(ApiError):
        api.delete(f"/api/v1/namespaces/{name}")
