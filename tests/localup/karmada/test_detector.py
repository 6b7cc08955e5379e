"""Bindings of the stand-in compared with those of a real Karmada."""

import pytest

from localup.karmada import objects as names
from localup.karmada.detector import binding_for, updated_binding

ONE_CLUSTER = {"spreadByField": "cluster", "maxGroups": 1, "minGroups": 1}
WHOLE = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
BY_WEIGHT = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
}


def template(kind, name, *, api_version="batch.volcano.sh/v1alpha1", **spec):
    metadata = {"name": name, "namespace": "team-a", "uid": "t1", "resourceVersion": "5"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def pod(*, limits=None, node=None, tolerations=None, **requests):
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    spec = {"containers": [{"name": "c", "resources": resources}]}
    spec |= {"nodeSelector": node} if node else {}
    spec |= {"tolerations": tolerations} if tolerations else {}
    return {"spec": spec}


GPU = {"nvidia.com/gpu": "1"}
TEMPLATES = {
    "single-job": template(
        "Job", "single", tasks=[{"name": "worker", "replicas": 4, "template": pod(cpu="2", memory="4Gi", limits=GPU)}]
    ),
    "two-task-job": template(
        "Job",
        "two-task",
        minAvailable=5,
        tasks=[
            {"name": "ps", "replicas": 1, "template": pod(cpu="1", memory="1Gi")},
            {
                "name": "worker",
                "replicas": 4,
                "minAvailable": 2,
                "template": pod(
                    cpu="4",
                    memory="8Gi",
                    limits=GPU,
                    node={"pool": "gpu"},
                    tolerations=[{"key": "gpu", "operator": "Exists"}],
                ),
            },
        ],
    ),
    "web-deployment": template(
        "Deployment", "web", api_version="apps/v1", replicas=6, template=pod(cpu="500m", memory="256Mi")
    ),
}


def policy(*, name="vcjobs", namespace="team-a", clusters=("member1",), spread=True, strategy=WHOLE, **spec):
    placement = {"clusterAffinity": {"clusterNames": list(clusters)}, "replicaScheduling": strategy}
    placement |= {"spreadConstraints": [ONE_CLUSTER]} if spread else {}
    labels = {names.POLICY_ID: "p1"}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"placement": placement, **spec},
    }


def policy_behind(real):
    """Return the policy of a real binding."""
    placement = real["spec"]["placement"]
    return policy(
        name=real["metadata"]["annotations"][names.POLICY_NAME],
        namespace=real["metadata"]["namespace"],
        clusters=placement["clusterAffinity"]["clusterNames"],
        spread="spreadConstraints" in placement,
        strategy=WHOLE if "spreadConstraints" in placement else BY_WEIGHT,
    )


def template_behind(real):
    made = TEMPLATES[real["metadata"]["name"]]
    return made | {"metadata": made["metadata"] | {"namespace": real["metadata"]["namespace"]}}


def as_the_detector_made_it(real):
    """Return a real binding without fields of others, and with the ids of the test."""
    metadata = {
        "annotations": {k: v for k, v in real["metadata"]["annotations"].items() if k != names.APPLIED_PLACEMENT},
        "finalizers": real["metadata"]["finalizers"],
        "labels": dict.fromkeys(real["metadata"]["labels"], "p1") | {names.BINDING_ID: "b1"},
        "name": real["metadata"]["name"],
        "namespace": real["metadata"]["namespace"],
        "ownerReferences": [reference | {"uid": "t1"} for reference in real["metadata"]["ownerReferences"]],
    }
    spec = {k: v for k, v in real["spec"].items() if k not in {"clusters", "suspension"}}
    spec["resource"] = spec["resource"] | {"uid": "t1", "resourceVersion": "5"}
    return {"apiVersion": real["apiVersion"], "kind": real["kind"], "metadata": metadata, "spec": spec}


def test_bindings_equal_those_of_a_real_karmada(captured_objects):
    for real in captured_objects("rb-*"):
        gate = "components" in real["spec"]
        made = binding_for(template_behind(real), policy_behind(real), permanent_id="b1", multi_template=gate)
        assert made == as_the_detector_made_it(real)


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
    made = binding_for(TEMPLATES["single-job"], policy(), permanent_id="b1")
    before = made | {"spec": made["spec"] | ({"suspension": existing} if existing else {})}
    later = policy(**({"suspension": wanted} if wanted else {}))
    after = updated_binding(before, binding_for(TEMPLATES["single-job"], later, permanent_id="b1"))
    assert after["spec"].get("suspension") == merged
