from pathlib import Path

import pytest

from localup.apply import apply, read_manifests
from localup.controlplane import CRDS
from localup.karmada.modeling import default_models

SHARED = Path(__file__).parents[3] / "shared"
REAL, OBJECTS = SHARED / "crds", SHARED / "objects"

needs_shared = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real definitions in {REAL}")
SHORT = sorted(CRDS.glob("*.yaml"))


def definition(file):
    (found,) = read_manifests(file)
    return found


def outline(manifest):
    """Return the names of a CRD and how its storage version is served."""
    spec = manifest["spec"]
    (stored,) = [version for version in spec["versions"] if version["storage"]]
    names = {key: sorted(value) if isinstance(value, list) else value for key, value in spec["names"].items()}
    subresources = stored.get("subresources") or {}
    return spec["group"], spec["scope"], names, stored["name"], sorted(subresources)


@needs_shared
@pytest.mark.parametrize("file", SHORT, ids=lambda file: file.stem)
def test_short_crd_is_served_like_the_real_one(file):
    if not (REAL / file.name).exists():
        pytest.skip(f"no real definition of {file.stem} in {REAL}")
    assert outline(definition(file)) == outline(definition(REAL / file.name))


@pytest.mark.parametrize("file", SHORT, ids=lambda file: file.stem)
def test_crd_file_has_the_name_of_its_crd(file):
    spec = definition(file)["spec"]
    assert file.stem == f"{spec['group']}_{spec['names']['plural']}"


def captured():
    return [pytest.param(file, id=file.stem) for file in sorted(OBJECTS.glob("*.yaml"))]


@needs_shared
@pytest.mark.parametrize("file", captured())
def test_captured_object_is_stored_unchanged(control_plane, file):
    (found,) = read_manifests(file)
    defaults = {"resourceModels": default_models()} if found["kind"] == "Cluster" else {}
    assert stored(control_plane.admin, found)["spec"] == defaults | found["spec"]


@needs_shared
def test_real_crds_replace_the_short_ones(fresh_control_plane):
    plane = fresh_control_plane(crds=REAL)
    for file in sorted(OBJECTS.glob("*.yaml")):
        (found,) = read_manifests(file)
        assert stored(plane.admin, found)["spec"] == found["spec"], file


def stored(api, found):
    """Create a captured object without server-set fields, and return it as stored."""
    kept = ("name", "namespace", "labels", "annotations", "finalizers")
    metadata = {key: value for key, value in found["metadata"].items() if key in kept and key != "finalizers"}
    body = {key: value for key, value in found.items() if key != "status"} | {"metadata": metadata}
    where = metadata.get("namespace")
    if where:
        apply(api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}}])
    version, plural = found["apiVersion"], found["kind"].lower() + "s"
    folder = f"/apis/{version}/namespaces/{where}/{plural}" if where else f"/apis/{version}/{plural}"
    return api.create(f"{folder}?dryRun=All", body)
