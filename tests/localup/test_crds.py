import pytest

from localup.apply import apply, read_manifests
from localup.controlplane import CRDS
from tests.clusters import default_models
from tests.files import DATA, read_object

SHORT = sorted(CRDS.glob("*.yaml"))


def definition(file):
    (manifest,) = read_manifests(file)
    return manifest


def outline(manifest):
    """Return the names of a CRD and how its storage version is served."""
    spec = manifest["spec"]
    (stored,) = [version for version in spec["versions"] if version["storage"]]
    names = {key: sorted(value) if isinstance(value, list) else value for key, value in spec["names"].items()}
    subresources = stored.get("subresources") or {}
    return spec["group"], spec["scope"], names, stored["name"], sorted(subresources)


@pytest.mark.parametrize("file", SHORT, ids=lambda file: file.stem)
def test_short_crd_is_served_like_the_real_one(file, real_definitions):
    if not (real_definitions / file.name).exists():
        pytest.skip(f"no real definition of {file.stem}")
    assert outline(definition(file)) == outline(definition(real_definitions / file.name))


@pytest.mark.parametrize("file", sorted(DATA.glob("[bcw]*-*.yaml")), ids=lambda file: file.stem)
def test_binding_cluster_and_work_are_stored_unchanged(control_plane, file):
    assert_stored(control_plane, read_object(file))


def test_captured_object_is_stored_unchanged(captured_objects, control_plane):
    for captured in captured_objects("*"):
        assert_stored(control_plane, captured)


def assert_stored(plane, captured):
    defaults = {"resourceModels": default_models()} if captured["kind"] == "Cluster" else {}
    assert stored(plane.admin, captured)["spec"] == defaults | captured["spec"]


def test_real_crds_replace_the_short_ones(real_definitions, captured_objects, fresh_control_plane):
    plane = fresh_control_plane(crds=real_definitions)
    for captured in captured_objects("*"):
        assert stored(plane.admin, captured)["spec"] == captured["spec"]


def stored(api, captured):
    """Create a captured object without server-set fields, and return it as stored."""
    kept = ("name", "namespace", "labels", "annotations", "finalizers")
    metadata = {key: value for key, value in captured["metadata"].items() if key in kept and key != "finalizers"}
    body = {key: value for key, value in captured.items() if key != "status"} | {"metadata": metadata}
    where = metadata.get("namespace")
    if where:
        apply(api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}}])
    version, plural = captured["apiVersion"], captured["kind"].lower() + "s"
    folder = f"/apis/{version}/namespaces/{where}/{plural}" if where else f"/apis/{version}/{plural}"
    return api.create(f"{folder}?dryRun=All", body)
