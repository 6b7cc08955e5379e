"""What the detector of the stand-in keeps of a binding; tests/karmada compares bindings with a real Karmada's."""

import pytest

from localup.karmada.detector import binding_for, updated_binding
from localup.karmada.workloads import TemplateError

JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "single", "namespace": "team-a", "uid": "t1", "resourceVersion": "5"},
    "spec": {"tasks": []},
}


def made(**spec):
    """Return the binding of a job with a policy of this specification."""
    metadata = {"name": "vcjobs", "namespace": "team-a", "labels": {"propagationpolicy.karmada.io/permanent-id": "p1"}}
    policy = {"kind": "PropagationPolicy", "metadata": metadata, "spec": {"placement": {}, **spec}}
    return binding_for(JOB, policy, permanent_id="b1")


@pytest.mark.parametrize(
    ("existing", "wanted", "merged"),
    [
        pytest.param({"scheduling": True}, None, {"scheduling": True}, id="scheduling-is-kept"),
        pytest.param(None, {"dispatching": True}, {"dispatching": True}, id="dispatching-comes-from-the-policy"),
        pytest.param(
            {"scheduling": False, "dispatching": True}, None, {"scheduling": False}, id="dispatching-goes-with-it"
        ),
        pytest.param(
            {"scheduling": True, "dispatching": True},
            {"dispatchingOnClusters": {"clusterNames": ["m"]}},
            {"scheduling": True, "dispatchingOnClusters": {"clusterNames": ["m"]}},
            id="dispatching-is-replaced-whole",
        ),
        pytest.param({"dispatching": True}, None, None, id="nothing-is-left"),
    ],
)
def test_suspension_is_merged_field_by_field(existing, wanted, merged):
    before = made()
    before |= {"spec": before["spec"] | ({"suspension": existing} if existing else {})}
    after = updated_binding(before, made(**({"suspension": wanted} if wanted else {})))
    assert after["spec"].get("suspension") == merged


@pytest.mark.parametrize("cpu", ["abc", {"cpu": 1}], ids=["no-quantity", "no-text"])
def test_template_that_cannot_be_interpreted_is_no_failure(cpu):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    task = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    policy = {"kind": "PropagationPolicy", "metadata": {"name": "p", "namespace": "team-a"}, "spec": {"placement": {}}}
    with pytest.raises(TemplateError, match="template"):
        binding_for({**JOB, "spec": {"tasks": [task]}}, policy, permanent_id="b1")
