import base64
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.controllers.webhook_config.comparison import diff, validate

FILE = Path(__file__).parents[3] / "charts" / "volcano-global" / "files" / "webhooks.yaml"
BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n...").decode()
WANTED = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(FILE.read_text())}
MUTATING = WANTED["MutatingWebhookConfiguration"]


def stored(**changes: Any) -> dict[str, Any]:
    """Return the mutating configuration as stored, with changes in its first webhook."""
    configuration = copy.deepcopy(MUTATING)
    for webhook in configuration["webhooks"]:
        webhook["clientConfig"]["caBundle"] = BUNDLE
        webhook |= {"namespaceSelector": {}, "objectSelector": {}}
        webhook.setdefault("matchConditions", [])
    first = configuration["webhooks"][0]
    client = changes.pop("clientConfig", {})
    configuration["webhooks"][0] = {**first, **changes, "clientConfig": {**first["clientConfig"], **client}}
    return configuration


def test_defaults_and_ca_bundle_are_no_difference():
    assert diff(MUTATING, stored()) == []
    assert validate(stored()) == []
    renewed = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nanother").decode()
    assert diff(MUTATING, stored(clientConfig={"caBundle": renewed})) == []


RULE = MUTATING["webhooks"][0]["rules"][0]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        pytest.param("failurePolicy", {"failurePolicy": "Ignore"}, id="ignore"),
        pytest.param("timeoutSeconds", {"timeoutSeconds": 1}, id="timeout"),
        pytest.param("matchPolicy", {"matchPolicy": "Exact"}, id="exact"),
        pytest.param("sideEffects", {"sideEffects": "NoneOnDryRun"}, id="side-effects"),
        pytest.param("reinvocationPolicy", {"reinvocationPolicy": "Never"}, id="reinvocation"),
        pytest.param("admissionReviewVersions", {"admissionReviewVersions": ["v1beta1"]}, id="versions"),
        pytest.param("matchConditions", {"matchConditions": [{"name": "never", "expression": "false"}]}, id="never"),
        pytest.param("namespaceSelector", {"namespaceSelector": {"matchLabels": {"a": "b"}}}, id="namespaces"),
        pytest.param("objectSelector", {"objectSelector": {"matchLabels": {"a": "b"}}}, id="objects"),
        pytest.param("rules", {"rules": [{**RULE, "resources": ["resourcebindings"]}]}, id="one-resource-less"),
        pytest.param("rules", {"rules": [{**RULE, "operations": ["UPDATE"]}]}, id="other-operation"),
        pytest.param("rules", {"rules": [{**RULE, "scope": "Namespaced"}]}, id="scope"),
        pytest.param("clientConfig", {"clientConfig": {"url": "https://elsewhere.invalid/"}}, id="url"),
        pytest.param("caBundle", {"clientConfig": {"caBundle": ""}}, id="no-bundle"),
        pytest.param("caBundle", {"clientConfig": {"caBundle": "!"}}, id="no-base64"),
    ],
)
def test_each_changed_field_is_named(field, changes):
    (said,) = diff(MUTATING, stored(**changes))
    assert said.startswith(f"webhook resourcebindings.volcano-global.io: {field} is")


def test_missing_and_unexpected_webhooks_are_named():
    assert diff(MUTATING, None) == validate(None) == ["it is not there"]
    configuration = stored()
    gone = configuration["webhooks"].pop(0)
    configuration["webhooks"].append({**gone, "name": "stranger.example.com"})
    said = diff(MUTATING, configuration)
    assert said == [
        "webhook resourcebindings.volcano-global.io is missing",
        "webhook stranger.example.com is unexpected",
    ]
    assert validate(configuration) == ["webhook resourcebindings.volcano-global.io is missing"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"failurePolicy": "Ignore"}, id="ignore"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "b"}}}, id="objects"),
        pytest.param({"rules": []}, id="no-rules"),
        pytest.param({"rules": [{**RULE, "resources": ["resourcebindings"]}]}, id="cluster-wide-ones-pass"),
        pytest.param({"clientConfig": {"caBundle": ""}}, id="no-bundle"),
    ],
)
def test_validation_without_desired_names_gaps(changes):
    assert len(validate(stored(**changes))) == 1
