"""Failed connections are described in words, without representations of objects."""

import pytest

from controller.kube.client import Api
from controller.kube.errors import Unreachable
from controller.kube.kubeconfig import KubeconfigError, load_access

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: x}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param("https://127.0.0.1:1", "cannot connect: 127.0.0.1:1: connection refused", id="refused"),
        pytest.param("https://no.invalid", "the host name no.invalid cannot be resolved", id="unknown-host"),
    ],
)
async def test_failed_connection_is_described(tmp_path, server, expected):
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server=server))
    async with Api.connect(path) as api:
        with pytest.raises(Unreachable) as failed:
            await api.get("/version")
    assert expected in str(failed.value)
    assert "<ssl" not in str(failed.value)


async def test_missing_context_is_named(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(server="https://127.0.0.1:1"))
    with pytest.raises(KubeconfigError, match=r"it has no context 'gone'$"):
        await load_access(path, "gone")


async def test_invalid_yaml_is_described(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("a: [")
    with pytest.raises(KubeconfigError, match=r"it is not valid YAML in line 1$"):
        await load_access(path)
