"""Creates and deletes namespaces with edit permissions for their tenants."""

import contextlib
from collections.abc import Iterable

from localup.api import Api, ApiError


def create_namespace(api: Api, name: str, *, tenants: Iterable[str] = ("tenant",)) -> None:
    """Create a namespace in which *tenants* have Kubernetes' ClusterRole `edit`."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant} for tenant in tenants]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
    api.create(path, {"metadata": {"name": "tenants"}, "roleRef": role, "subjects": subjects})


def delete_namespace(api: Api, name: str) -> None:
    """Delete a namespace with its objects; deletion continues in the background."""
    with contextlib.suppress(ApiError):
        api.delete(f"/api/v1/namespaces/{name}")
