"""Reviews of DataSourceClaims: only for a workload of the same namespace, and within limits."""

import pytest

from tests.webhook.reviews import data_source_claim, decoded
from webhook.review import Outcome
from webhook.validation.data_source_claim import validate_claim


def validate(**spec):
    return validate_claim(decoded(data_source_claim(**spec)), frozenset())


def test_claim_for_its_own_namespace_is_allowed():
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-app", "namespace": "ml"}
    assert validate(workload=workload).outcome is Outcome.ALLOWED


def test_claim_for_another_namespace_is_refused():
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "test-app", "namespace": "other"}
    answer = validate(workload=workload)
    assert answer.outcome is Outcome.DENIED
    assert "spec.workload.namespace is 'other'" in answer.message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"system": ""}, "spec.system has 0 characters", id="no-system"),
        pytest.param({"dataSourceName": "x" * 600}, "write 1 to 512", id="long-name"),
        pytest.param({"workload": {}}, "write apiVersion, kind and name", id="no-workload"),
        pytest.param({"workload": 7}, "spec.workload", id="type"),
        pytest.param({"attributes": {str(number): "" for number in range(40)}}, "at most 32", id="many-attributes"),
        pytest.param({"attributes": {"a": "x" * 300}}, "is longer than 256", id="long-attribute"),
        pytest.param({"attributes": {"volcano-global.io/placement": "soft"}}, "Required or Preferred", id="placement"),
        pytest.param({"attributes": {"volcano-global.io/on-move": "Run"}}, "Keep or Requeue", id="on-move"),
    ],
)
def test_invalid_claim_is_refused(spec, message):
    answer = validate(**spec)
    assert (answer.outcome, message in answer.message) == (Outcome.DENIED, True)
