import pytest
import yaml

from docs.generate_crds import crd_files, outdated_crds
from localup.api import ApiError
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.files import EXAMPLES, read_object

TRAINING = "/apis/training.volcano.sh/v1alpha1/namespaces/{}/hyperjobs"
BATCH = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/hyperjobs"


def spec_schema(text):
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def fields(schema, path=""):
    """Yield every field of a schema with its type, down to where anything is allowed."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field.get("type")
        if name != "template":
            yield from fields(field, f"{path}.{name}")
            yield from fields(field.get("items", {}), f"{path}.{name}[]")


def test_crds_in_the_chart_are_up_to_date():
    assert outdated_crds() == [], "run python docs/generate_crds.py"


def test_crd_has_every_upstream_field_with_its_type(real_definitions):
    upstream = spec_schema((real_definitions / "training.volcano.sh_hyperjobs.yaml").read_text())
    ours = dict(fields({"properties": spec_schema(crd_files()["training.volcano.sh_hyperjobs.yaml"])}))
    missing = [(path, kind) for path, kind in fields({"properties": upstream}) if ours.get(path) != kind]
    # A claim is opaque to us; the Job's definition says what is in it.
    assert [path for path, _ in missing if ".volumeClaim." not in path] == []


def test_fields_of_all_versions_are_stored_unchanged(control_plane, namespace):
    jobs = replicated("trainer", task(subGroup="new"), spec={"newField": {"a": [1]}}, splitPolicy={"mode": "auto"})
    newer = document(jobs, minAvailable=1, maxDomains=2, plugins={"ssh": []}, suspend=True)
    newer["metadata"] = {"name": "llm"}
    documented = read_object(EXAMPLES / "hyperjob-conceptual.yaml")
    for path, written in ((TRAINING, newer), (BATCH, documented)):
        assert control_plane.admin.create(path.format(namespace), written)["spec"] == written["spec"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"minAvailable": 0}, "minAvailable is one or more", id="minimum"),
        pytest.param({"maxDomains": 0}, "maxDomains is one or more", id="domains"),
        pytest.param({"cleanupPolicy": "Some"}, "supported values", id="enum"),
        pytest.param(
            {"replicatedJobs": [replicated("t", splitPolicy={"accelerators": 4})]}, "needs acceleratorType", id="type"
        ),
        pytest.param({"replicatedJobs": [replicated("t"), replicated("t")]}, "Duplicate value", id="twice"),
    ],
)
def test_api_server_rejects_invalid_hyperjobs(control_plane, namespace, change, message):
    manifest = document(**change) if "replicatedJobs" not in change else document(*change["replicatedJobs"])
    manifest["metadata"] = {"name": "llm"}
    with pytest.raises(ApiError, match=message):
        control_plane.admin.create(TRAINING.format(namespace), manifest)
