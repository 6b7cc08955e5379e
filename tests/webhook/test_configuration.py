"""The webhook's part of the AdmissionConfiguration."""

import pytest

from webhook.configuration import Configuration, ConfigurationError, parse_gate
from webhook.resourcebindings import VOLCANO_JOB, Gate, GroupKind

HEAD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: AdmissionConfiguration\n"


def test_without_a_file_volcano_jobs_are_gated():
    assert Configuration(None).gate == Gate(frozenset({VOLCANO_JOB}), frozenset())


def test_further_kinds_and_exempt_namespaces_are_read_and_the_rest_is_not():
    gate = parse_gate(
        HEAD
        + """
defaultQueue: default
reclaim: {enabled: true}
workloads:
- {group: apps, kind: Deployment, queue: metadata.labels}
- {group: '', kind: Pod}
exemptNamespaces: [kube-system, sandbox]
"""
    )
    assert gate.kinds == {VOLCANO_JOB, GroupKind("apps", "Deployment"), GroupKind("", "Pod")}
    assert gate.exempt_namespaces == {"kube-system", "sandbox"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "document", id="empty"),
        pytest.param("[]", "document", id="list"),
        pytest.param("a: [", "no YAML", id="no-yaml"),
        pytest.param("kind: AdmissionConfiguration", "apiVersion", id="no-version"),
        pytest.param(HEAD.replace("v1alpha1", "v9"), "apiVersion", id="other-version"),
        pytest.param(HEAD + "workloads: [{group: apps}]", "workloads.0.kind", id="no-kind"),
        pytest.param(HEAD + "workloads: Deployment", "workloads", id="workloads-string"),
        pytest.param(HEAD + "exemptNamespaces: {a: b}", "exemptNamespaces", id="namespaces-map"),
    ],
)
def test_a_bad_file_is_refused_by_field(text, says):
    with pytest.raises(ConfigurationError, match=says):
        parse_gate(text)


def test_a_changed_file_takes_effect_and_a_bad_one_does_not(tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(HEAD)
    configuration = Configuration(file)
    file.write_text(HEAD + "exemptNamespaces: [sandbox]")
    configuration.refresh()
    assert configuration.gate.exempt_namespaces == {"sandbox"}
    for text in ("exemptNamespaces: 7", HEAD + "workloads: 1"):
        file.write_text(text)
        configuration.refresh()
        assert configuration.gate.exempt_namespaces == {"sandbox"}
    file.unlink()
    configuration.refresh()
    assert configuration.gate.exempt_namespaces == {"sandbox"}


def test_a_file_that_is_bad_from_the_start_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Configuration(tmp_path / "none.yaml")
