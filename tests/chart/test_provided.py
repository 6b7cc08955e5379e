"""Tests an installation with Karmada's real CRDs, provided credentials and certificates, and all options."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.rotation import Lifetimes, ensure_authority, ensure_leaf
from certs.store import DirectoryStore
from localup.api import ApiError
from localup.apply import apply_files
from localup.controlplane import CRDS
from tests.chart import sandbox
from tests.chart.helm import NAMESPACE
from tests.chart.site import Site, list_all, opened
from tests.chart.team import create_objects, run_through
from tests.image.tree import build_tree

POLICY = "/apis/policy.karmada.io/v1alpha1"
INTERPRETER = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations/volcano-global-jobs"
PROCESSES = ("controller", "webhook", "certs", "hyperjobs")
REASON = sandbox.reason_not_possible()

pytestmark = [pytest.mark.long, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.fixture(scope="module")
def site(real_definitions, fresh_control_plane, helm, tmp_path_factory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with opened(fresh_control_plane, helm, build_tree(folder / "image"), folder, crds=real_definitions) as site:
        # Karmada's own definitions are not needed in ``--real-definitions``.
        for name in ("clusteroverridepolicies", "clustertaintpolicies"):
            apply_files(site.api, CRDS / f"policy.karmada.io_{name}.yaml")
        create_objects(site)
        yield site


def provide_secrets(site: Site, folder: Path) -> dict:
    """Create the operator's Secrets and return the values that name them."""
    for name in PROCESSES:
        text = site.karmada.kubeconfig(f"volcano-global-{name}").read_text()
        secret(site, f"brought-{name}", {"karmada.config": text.encode()})
    store = DirectoryStore(folder)
    ensure_authority(store, datetime.now(UTC), Lifetimes())
    ensure_leaf(store, ["127.0.0.1"], now=datetime.now(UTC), lifetimes=Lifetimes())
    secret(site, "brought-tls", store.read("serving").files)
    provided = {name: {"secretName": f"brought-{name}", "key": "karmada.config"} for name in PROCESSES}
    return {
        "credentials": {"mode": "Provided", "provided": provided},
        "certs": {"mode": "External", "secretName": "brought-tls"},
    }


def secret(site: Site, name: str, files) -> None:
    data = {key: base64.b64encode(value).decode() for key, value in files.items()}
    site.host.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", {"metadata": {"name": name}, "data": data})


def is_there(site: Site, path: str) -> bool:
    try:
        site.api.get(path)
    except ApiError as error:
        return error.status != 404
    return True


def test_provided_credentials_and_toggled_options(site, tmp_path):
    brought = provide_secrets(site, tmp_path / "certificates")
    host_before, karmada_before = list_all(site.host.api), list_all(site.api)
    site.install(**brought, queues={"propagate": True}, interpreter={"enabled": True})
    site.run("test", "vg")
    run_through(site, "a")
    for path in (INTERPRETER, f"{POLICY}/clusterpropagationpolicies/volcano-global-queues"):
        assert is_there(site, path), path
    # The installation creates neither Secrets nor service accounts.
    made = list_all(site.host.api) - host_before | list_all(site.api) - karmada_before
    made = {path for path in made if "sh.helm" not in path}
    assert not [path for path in made if "/secrets/" in path or "/serviceaccounts/volc" in path]

    site.run_job_of("renew", "renew-1")
    site.install(**brought, hyperjobs={"enabled": False})
    assert not is_there(site, INTERPRETER)
    assert not is_there(site, f"{POLICY}/clusterpropagationpolicies/volcano-global-queues")
    assert not is_there(site, f"{POLICY}/clusteroverridepolicies/volcano-global-queues")
    assert not is_there(site, "/apis/rbac.authorization.k8s.io/v1/clusterroles/volcano-global-hyperjobs")
    run_through(site, "b")
    site.uninstall()
    assert list_all(site.host.api) == host_before
