"""Quantities in Clusters and Jobs, valid and invalid."""

import gc
import json
import tracemalloc

import pytest

from controller.cache.store import Store
from controller.cache.translate.units import MAX_RESOURCES
from controller.engine.state.resources import EMPTY
from tests.cache.objects import DEPLOYMENTS, binding, cluster, deployment_binding, job

UNREADABLE = [
    pytest.param("eight", id="a-word"),
    pytest.param("9" * 5000, id="very-long"),
    pytest.param([8], id="a-list"),
    pytest.param(True, id="a-truth"),
]


@pytest.mark.parametrize("amount", UNREADABLE)
def test_cluster_with_invalid_quantity_has_no_summary(amount):
    decoded = Store().clusters.decode(cluster("m1", cpu=amount))
    assert not decoded.cluster.is_usable
    assert "status.resourceSummary.allocatable" in decoded.decode_error


def test_allocated_and_allocating_resources_are_used():
    document = json.loads(cluster("m1"))
    document["status"]["resourceSummary"] |= {"allocated": {"cpu": "2"}, "allocating": {"cpu": "500m", "pods": "1"}}
    assert Store().clusters.decode(json.dumps(document).encode()).cluster.used == {"cpu": 2500, "pods": 1000}
    del document["status"]["resourceSummary"]
    decoded = Store().clusters.decode(json.dumps(document).encode())
    assert (decoded.cluster.allocatable, decoded.cluster.used, decoded.decode_error) == (None, EMPTY, "")


@pytest.mark.parametrize("field", ["allocatable", "allocated"])
@pytest.mark.parametrize(("count", "is_known"), [(500, True), (501, False)])
def test_cluster_of_too_many_resources_has_no_summary(field, count, is_known):
    """Its agent writes them, and the fair shares of all queues are computed for each."""
    document = json.loads(cluster("m1"))
    document["status"]["resourceSummary"][field] = {f"example.com/{number}": "1" for number in range(count)}
    decoded = Store().clusters.decode(json.dumps(document).encode())
    assert (decoded.cluster.allocatable is not None) == is_known
    assert (f"{field} has 501 resources; at most 500 are read" in decoded.decode_error) != is_known


GRADES = [
    {
        "grade": 0,
        "ranges": [{"name": "cpu", "min": "0", "max": "8"}, {"name": "nvidia.com/gpu", "min": "0", "max": "4"}],
    },
    {
        "grade": 1,
        "ranges": [{"name": "cpu", "min": "8", "max": "16"}, {"name": "nvidia.com/gpu", "min": "4", "max": "8"}],
    },
    {
        "grade": 2,
        "ranges": [
            {"name": "cpu", "min": "16", "max": str(2**63 - 1)},
            {"name": "nvidia.com/gpu", "min": "8", "max": str(2**63 - 1)},
        ],
    },
]
LOW, MIDDLE = {"cpu": 8000, "nvidia.com/gpu": 4000}, {"cpu": 16000, "nvidia.com/gpu": 8000}


@pytest.mark.parametrize(
    ("counts", "nodes", "ends"),
    [
        pytest.param({0: 3, 1: 0, 2: 0}, 3, (LOW,), id="lowest-grade-only"),
        pytest.param({0: 3, 1: 1, 2: 0}, 4, (MIDDLE,), id="highest-populated-grade-bounds"),
        pytest.param({0: 3, 1: 1, 2: 1}, 5, (), id="unbounded-grade"),
        pytest.param({0: 0, 1: 0, 2: 0}, 0, (), id="no-node-counted"),
        pytest.param({0: 3, 1: 0, 2: 0}, 4, (), id="node-left-out-of-the-count"),
        pytest.param({0: 3, 1: 0, 2: 0}, None, (LOW,), id="number-of-nodes-not-told"),
        pytest.param({0: 3, 7: 1}, 4, (), id="grade-without-a-range"),
    ],
)
def test_grades_bound_the_free_resources_of_a_node(counts, nodes, ends):
    document = json.loads(cluster("m1"))
    document["spec"]["resourceModels"] = GRADES
    modelings = [{"grade": grade, "count": count} for grade, count in counts.items()]
    document["status"]["resourceSummary"]["allocatableModelings"] = modelings
    document["status"]["nodeSummary"] = {"totalNum": nodes} if nodes is not None else None
    assert Store().clusters.decode(json.dumps(document).encode()).cluster.grades == ends


@pytest.mark.parametrize(("grades", "bounds"), [(100, 100), (101, 0)])
def test_very_many_grades_bound_nothing(grades, bounds):
    """Each is compared with all others, and the pods of every workload with each."""
    document = json.loads(cluster("m1"))
    document["spec"]["resourceModels"] = [
        {"grade": number, "ranges": [{"name": "cpu", "max": number + 1}, {"name": "memory", "max": 200 - number}]}
        for number in range(grades)
    ]
    counted = [{"grade": number, "count": 1} for number in range(grades)]
    document["status"]["resourceSummary"]["allocatableModelings"] = counted
    assert len(Store().clusters.decode(json.dumps(document).encode()).cluster.grades) == bounds


@pytest.mark.parametrize("amount", UNREADABLE)
def test_job_with_invalid_quantity_has_unknown_requests(amount):
    decoded = Store().jobs.decode(job("j1", requests={"cpu": amount}))
    assert decoded.key.name == "j1"
    assert decoded.queue == "a"
    assert decoded.requests is None
    assert decoded.decode_error.startswith("spec.tasks[0].template.spec.containers[0].resources.requests")


@pytest.mark.parametrize(
    ("spec", "flaw"),
    [
        pytest.param({"tasks": []}, "spec.tasks is empty", id="no-tasks"),
        pytest.param({"tasks": None}, "spec.tasks is empty", id="null-tasks"),
        pytest.param({"minAvailable": -1}, "spec.minAvailable is -1", id="negative-gang"),
        pytest.param({"minAvailable": "all"}, "spec.minAvailable: Expected", id="a-word"),
        pytest.param({"tasks": [{"replicas": -1}]}, "spec.tasks[0].replicas is -1", id="negative-replicas"),
        pytest.param({"tasks": ["x"]}, "spec.tasks[0]: Expected", id="no-task"),
    ],
)
def test_invalid_job_has_a_decode_error(spec, flaw):
    decoded = Store().jobs.decode(job("j1", spec=spec))
    assert decoded.requests is None
    assert flaw in decoded.decode_error


@pytest.mark.parametrize(("count", "is_known"), [(MAX_RESOURCES - 1, True), (MAX_RESOURCES, False)])
def test_job_with_too_many_resources_has_unknown_requests(count, is_known):
    """The pod itself is one more resource."""
    decoded = Store().jobs.decode(job("j1", requests={f"example.com/{number}": "1" for number in range(count)}))
    assert (decoded.requests is not None) == is_known
    assert ("use at most 100" in decoded.decode_error) != is_known


def test_overlong_names_are_cut_or_make_requests_unknown():
    """Messages and log lines contain them. A queue cannot have the name that remains."""
    decoded = Store().jobs.decode(job("j1", queue="q" * 100_000, priority="c" * 100_000, requests={"r" * 318: "1"}))
    assert (decoded.queue, decoded.priority_class) == ("q" * 254, "c" * 254)
    assert decoded.has_invalid_requests
    assert "has 318 characters; use at most 317" in decoded.decode_error


@pytest.mark.parametrize("components", [False, True])
def test_binding_with_too_many_resources_has_unknown_requests(components):
    needs = {"resourceRequest": {f"example.com/{number}": "1" for number in range(MAX_RESOURCES)}}
    counted = {"replicaRequirements": needs, "replicas": 1}
    spec = {"components": [{"name": "a", **counted}], "replicas": 0, "replicaRequirements": None}
    decoded = Store(DEPLOYMENTS).bindings.decode(deployment_binding(spec=spec if components else counted))
    assert decoded.requests is None
    assert "use at most 100" in decoded.decode_error


@pytest.mark.parametrize("field", ["resourceClaimTemplateName", "resourceClaimName"])
def test_overlong_name_of_a_resource_claim_is_cut(field):
    pods = {"spec": {"resourceClaims": [{"name": "device", field: "c" * 100_000}]}}
    decoded = Store().jobs.decode(job("j1", spec={"tasks": [{"replicas": 1, "template": pods}]}))
    assert [len(name) for name in decoded.requests.claims] == [254]


MANY = {f"example.com/{number}": "1" for number in range(3_000)}
TOLERATIONS = [{"key": f"k{number}", "operator": "Exists"} for number in range(3_000)]


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        pytest.param("jobs", job("j1", requests=MANY), id="job"),
        pytest.param(
            "bindings",
            deployment_binding(spec={"replicaRequirements": {"resourceRequest": MANY}}),
            id="requests-of-a-binding",
        ),
        pytest.param("bindings", binding(spec={"placement": {"clusterTolerations": TOLERATIONS}}), id="placement"),
    ],
)
def test_refused_object_is_not_retained(kind, written):
    """Thousands of them are cached, and a tenant writes megabytes."""
    first, collection = (getattr(Store(DEPLOYMENTS), kind) for _ in range(2))
    first.decode(written)  # fills the caches of amounts
    tracemalloc.start()
    try:
        decoded = collection.decode(written)
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert "use at most" in decoded.decode_error
    assert retained < len(written) // 2


def test_component_without_replicas_has_no_pod():
    components = [
        {"name": name, "replicas": count, "replicaRequirements": {"resourceRequest": {"cpu": cpu}}}
        for name, count, cpu in (("head", 1, "1"), ("workers", 0, "64"))
    ]
    spec = {"components": components, "replicas": 0, "replicaRequirements": None}
    decoded = Store(DEPLOYMENTS).bindings.decode(deployment_binding(spec=spec))
    assert decoded.requests.pods == ({"cpu": 1000, "pods": 1000},)


def test_huge_number_of_replicas_is_counted_exactly():
    decoded = Store().jobs.decode(job("j1", replicas=10**30))
    assert decoded.requests is not None
    assert decoded.requests.total["cpu"] == 10**33
