"""What `kubectl get` prints for HyperJobs, and the category that contains both API groups."""

from typing import Any

import pytest

from controller.api.hyperjobs import HYPERJOB_RESOURCES
from controller.kube.client import Api
from localup.controlplane import ControlPlane

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def read(api: Api, path: str, accept: str) -> Any:
    headers = {"Accept": accept, "Authorization": api.access.authorization or ""}
    async with api.session.get(f"{api.access.server}{path}", headers=headers, ssl=api.access.tls or True) as answer:
        return await answer.json()


@pytest.mark.parametrize("resource", HYPERJOB_RESOURCES, ids=lambda resource: resource.group)
async def test_hyperjobs_have_category_and_columns(plane: ControlPlane, resource):
    async with Api.connect(plane.kubeconfig("admin")) as api:
        served = (await read(api, f"/apis/{resource.api_version}", "application/json"))["resources"]
        assert next(item for item in served if item["name"] == "hyperjobs")["categories"] == ["volcano"]
        columns = (await read(api, resource.path, TABLE))["columnDefinitions"]
    assert [column["name"] for column in columns] == ["Name", "PHASE", "RUNNING", "QUEUE", "REASON", "CLUSTERS", "AGE"]
