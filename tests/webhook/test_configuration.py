"""Tests the webhook's part of the VolcanoGlobalConfiguration."""

from controller.api.configuration import load_configuration
from webhook.app import Configuration, gated_kinds
from webhook.bindings import VOLCANO_JOB, GatedKinds, GroupKind

HEAD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"


def test_volcano_jobs_are_gated_without_a_file():
    assert Configuration(None).gated_kinds == GatedKinds(frozenset({VOLCANO_JOB}), frozenset())


def test_integrations_and_exempt_namespaces_are_loaded():
    integrations = "integrations: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Pod}]"
    gated = gated_kinds(load_configuration(f"{HEAD}{integrations}\nexemptNamespaces: [kube-system, sandbox]"))
    assert gated.kinds == {VOLCANO_JOB, GroupKind("apps", "Deployment"), GroupKind("", "Pod")}
    assert gated.exempt_namespaces == {"kube-system", "sandbox"}


def test_changed_file_applies_and_invalid_one_does_not(tmp_path):
    file = tmp_path / "admission.yaml"
    file.write_text(HEAD)
    configuration = Configuration(file)
    file.write_text(HEAD + "exemptNamespaces: [sandbox]")
    configuration.refresh()
    assert configuration.gated_kinds.exempt_namespaces == {"sandbox"}
    for text in ("exemptNamespaces: 7", HEAD + "integrations: 1"):
        file.write_text(text)
        configuration.refresh()
        assert configuration.gated_kinds.exempt_namespaces == {"sandbox"}
    file.unlink()
    configuration.refresh()
    assert configuration.gated_kinds.exempt_namespaces == {"sandbox"}
