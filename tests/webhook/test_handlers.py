"""Tests what the handlers have in common: wrong targets, the configuration, and objects that cannot be decoded."""

import pytest

from tests.controllers.hyperjob.objects import document
from tests.webhook.conftest import CONFIGURATION
from tests.webhook.reviews import (
    binding,
    cached_queues,
    data_source_claim,
    decoded,
    job_binding,
    volcano_job,
    volcano_queue,
)
from webhook.app import Configuration, admission_handlers
from webhook.review import Outcome

CREATE, WRITE = {"CREATE"}, {"CREATE", "UPDATE"}
#: The object that the handler of each path reviews, and the operations.
REVIEWED = {
    "/resourcebindings/mutate": (job_binding(), CREATE),
    "/jobs/mutate": (volcano_job(), WRITE),
    "/jobs/validate": (volcano_job(), WRITE),
    "/hyperjobs/mutate": (document(), WRITE),
    "/hyperjobs/validate": (document(), WRITE),
    "/datasourceclaims/validate": (data_source_claim(), WRITE),
    "/queues/mutate": (volcano_queue(), WRITE),
    "/queues/validate": (volcano_queue(), WRITE | {"DELETE"}),
}
HANDLERS = admission_handlers(Configuration(None), cached_queues("a"))


def test_every_handler_is_tested():
    assert set(REVIEWED) == set(HANDLERS)


INVALID = {
    "/jobs/validate": volcano_job(tasks="none"),
    "/jobs/mutate": volcano_job(tasks="none"),
    "/hyperjobs/validate": document() | {"spec": {"replicatedJobs": [{"name": "a", "replicas": -1}]}},
    "/queues/validate": volcano_queue(weight=-1),
    "/datasourceclaims/validate": data_source_claim(workload="train"),
}
"""Objects that may have been stored before the webhook was installed."""


@pytest.mark.parametrize("path", INVALID)
def test_invalid_stored_object_may_lose_a_finalizer(path):
    """Otherwise neither the object nor its namespace could be deleted."""
    new = INVALID[path]
    old = new | {"metadata": new["metadata"] | {"finalizers": ["foregroundDeletion"]}}
    changed = new | {"spec": new["spec"] | {"changed": 1}}
    assert HANDLERS[path](decoded(new)).outcome is Outcome.DENIED
    assert HANDLERS[path](decoded(new, old=old)).outcome is Outcome.ALLOWED
    assert HANDLERS[path](decoded(changed, old=old)).outcome is Outcome.DENIED


def is_wrong_target(path, expected, **request) -> bool:
    """Return whether the answer is that the webhook does not review *expected*, and what to do."""
    new, _ = REVIEWED[path]
    response = HANDLERS[path](decoded(new, old=new, **request))
    if response.code != 400:
        return False
    assert response.outcome is Outcome.DENIED
    assert expected in response.message
    assert "correct the rules" in response.message
    return True


@pytest.mark.parametrize("path", REVIEWED)
def test_review_of_another_target_names_the_rules(path):
    new, operations = REVIEWED[path]
    for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT", "create"):
        assert is_wrong_target(path, f"not '{operation}'", operation=operation) is (operation not in operations)
    group, name = new["apiVersion"].partition("/")[0], f"{new['kind'].lower()}s"
    assert is_wrong_target(path, f"not 'apps/{name}'", resource={"group": "apps", "version": "v1", "resource": name})
    assert is_wrong_target(path, f"not '{group}/x'", resource={"group": group, "version": "v1", "resource": "x"})
    assert is_wrong_target(path, f"not '{group}/{name}/status'", subResource="status")


@pytest.fixture
def file(tmp_path):
    """Return a configuration file with gated kinds and an exempt namespace."""
    file = tmp_path / "configuration.yaml"
    integrations = "integrations: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Pod}]"
    file.write_text(f"{CONFIGURATION}, {integrations}, exemptNamespaces: [ml]}}")
    return file


@pytest.mark.parametrize("path", [path for path in REVIEWED if not path.startswith(("/queues", "/resourcebindings"))])
def test_exempt_namespace_is_not_reviewed(file, path):
    handler, invalid = admission_handlers(Configuration(file), cached_queues())[path], REVIEWED[path][0] | {"spec": 7}
    assert handler(decoded(invalid)).outcome is Outcome.EXEMPT
    assert handler(decoded(invalid, namespace="other")).outcome is Outcome.DENIED


@pytest.mark.parametrize(
    ("new", "is_gated"),
    [
        pytest.param(job_binding(), True, id="volcano-job"),
        pytest.param(binding("apps/v1", "Deployment"), True, id="integration"),
        pytest.param(binding("v1", "Pod"), True, id="integration-of-the-core-group"),
        pytest.param(binding("batch/v1", "Job"), False, id="other-kind"),
    ],
)
def test_configured_kinds_are_gated_but_in_exempt_namespaces(file, new, is_gated):
    configuration = Configuration(file)
    review = admission_handlers(configuration, cached_queues())["/resourcebindings/mutate"]
    for text in (None, "exemptNamespaces: 7"):
        if text is not None:
            file.write_text(text)
            configuration.refresh()  # an invalid file leaves the previous one in force
        assert review(decoded(new, namespace="other")).outcome is (Outcome.PATCHED if is_gated else Outcome.ALLOWED)
        assert review(decoded(new)).outcome is (Outcome.EXEMPT if is_gated else Outcome.ALLOWED)
    file.write_text(f"{CONFIGURATION}}}")
    configuration.refresh()
    is_volcano_job = new == job_binding()
    assert review(decoded(new)).outcome is (Outcome.PATCHED if is_volcano_job else Outcome.ALLOWED)


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        *(("/jobs", spec) for spec in (7, [], "x", {"tasks": 7}, {"tasks": [{"replicas": "x"}]}, {"queue": []})),
        *(("/queues", spec) for spec in (7, [], {"weight": "x"}, {"capability": 3}, {"parent": {}})),
    ],
)
def test_undecodable_object_is_denied_with_a_message(path, spec):
    mutate, validate, (valid, _) = HANDLERS[f"{path}/mutate"], HANDLERS[f"{path}/validate"], REVIEWED[f"{path}/mutate"]
    new = decoded(valid | {"spec": spec})
    for response in (
        mutate(new),
        validate(new),
        validate(decoded(valid | {"spec": spec}, old=valid)),
        validate(decoded(valid, old=valid | {"spec": spec})),
    ):
        assert (response.outcome, response.code) == (Outcome.DENIED, 422)
        assert "cannot be decoded" in response.message
