"""Devices requested by dynamic resource allocation: counted as configured, otherwise unknown."""

import pytest

from controller.api.configuration import (
    ConfigurationError,
    VolcanoGlobalConfiguration,
    check_configuration,
)
from controller.cache.objects import BindingCondition
from controller.cache.store import Store
from controller.engine.reasons import Reason
from controller.engine.state.workloads import WorkloadState
from tests.cache.fake_event_handler import received
from tests.cache.objects import (
    DEPLOYMENT,
    DEPLOYMENTS,
    admission_record,
    binding,
    deployment,
    deployment_binding,
    job,
)

MAPPED = VolcanoGlobalConfiguration.model_validate(
    {"resourceClaimTemplates": [{"name": "two-gpus", "requests": {"nvidia.com/gpu": 2}}]}
)
BY_TEMPLATE = {"name": "gpus", "resourceClaimTemplateName": "two-gpus"}
SHARED_CLAIM = {"name": "gpus", "resourceClaimName": "two-gpus"}


def claiming(*claims, replicas=3):
    """Return a job whose pods ask for one CPU and the devices of *claims*."""
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "resourceClaims": list(claims)}
    return job("j1", spec={"tasks": [{"name": "worker", "replicas": replicas, "template": {"spec": pod}}]})


def workload_of(store, template, **bound):
    return received(store, ("bindings", binding("j1", **bound)), ("jobs", template)).workloads["rb-j1"]


def test_job_with_unmapped_claims_has_unknown_requests():
    workload = workload_of(Store(), claiming(BY_TEMPLATE))
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN
    assert "'two-gpus'" in workload.hold.subject
    assert "resourceClaimTemplates" in workload.hold.subject


def test_claims_are_counted_as_configured():
    workload = workload_of(Store(MAPPED), claiming(BY_TEMPLATE, BY_TEMPLATE | {"name": "more"}))
    assert workload.hold is None
    assert workload.requirements.requests == {"cpu": 3000, "nvidia.com/gpu": 12000, "pods": 3000}
    assert workload.requirements.gang_requests == workload.requirements.requests
    assert workload.requirements.pods == ({"cpu": 1000, "nvidia.com/gpu": 4000, "pods": 1000},)


@pytest.mark.parametrize(
    "claim", [SHARED_CLAIM, {"name": "gpus"}, BY_TEMPLATE | {"resourceClaimTemplateName": "other"}]
)
def test_claim_without_mapped_template_is_unknown(claim):
    assert workload_of(Store(MAPPED), claiming(BY_TEMPLATE, claim)).hold.reason is Reason.REQUESTS_UNKNOWN


def test_changed_mapping_applies_at_once():
    store = Store()
    assert workload_of(store, claiming(BY_TEMPLATE)).hold is not None
    store.configure(MAPPED)
    assert received(store).workloads["rb-j1"].hold is None


def test_admitted_workload_with_unmapped_claims_is_resized():
    record = admission_record("rb-j1", queue="a", charge={"cpu": "3", "pods": "3"}, clusters=("m1",))
    workload = workload_of(Store(), claiming(BY_TEMPLATE), record=record, paused=False, clusters=["m1"])
    assert workload.state is WorkloadState.ADMITTED
    assert workload.has_resized
    assert workload.hold.reason is Reason.REQUESTS_UNKNOWN


@pytest.mark.parametrize(("claim", "is_counted"), [(BY_TEMPLATE, True), (SHARED_CLAIM, False)])
def test_claims_of_a_managed_deployment_are_counted(claim, is_counted):
    container = {"name": "c", "resources": {"requests": {"cpu": "500m"}}}
    pod = {"spec": {"containers": [container], "resourceClaims": [claim]}}
    template = deployment(spec={"replicas": 4, "template": pod}, labels={"volcano.sh/queue-name": "a"})
    store = Store(MAPPED.model_copy(update={"integrations": DEPLOYMENTS.integrations}))
    workload = received(store, ("bindings", deployment_binding()), (DEPLOYMENT, template)).workloads["rb-web"]
    if is_counted:
        assert workload.requirements.requests == {"cpu": 2000, "nvidia.com/gpu": 8000, "pods": 4000}
        assert BindingCondition.UNREADABLE not in store.conditions["rb-web"]
    else:
        assert workload.hold.reason is Reason.REQUESTS_UNKNOWN


def test_redivided_deployment_with_unmapped_claims_has_not_moved():
    """Karmada divides replicas again by itself, so that no warning says that another client changed the clusters."""
    pod = {"spec": {"containers": [{"name": "c"}], "resourceClaims": [BY_TEMPLATE]}}
    template = deployment(spec={"replicas": 4, "template": pod}, labels={"volcano.sh/queue-name": "a"})
    placed = deployment_binding(
        paused=False,
        clusters=[{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}],
        record=admission_record("rb-web", queue="a", charge={"cpu": "2", "pods": "4"}, clusters=("m1",)),
        spec={"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}},
    )
    store = Store(DEPLOYMENTS)
    assert received(store, ("bindings", placed), (DEPLOYMENT, template)).workloads["rb-web"].has_resized
    assert store.conditions["rb-web"] == {BindingCondition.RESIZED, BindingCondition.REPLICAS_REDIVIDED}


def test_claims_count_beyond_the_components_of_karmada():
    pod = {"spec": {"containers": [{"name": "c"}], "resourceClaims": [BY_TEMPLATE]}}
    template = deployment(spec={"replicas": 2, "template": pod}, labels={"volcano.sh/queue-name": "a"})
    component = {"name": "main", "replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}
    component_binding = deployment_binding(spec={"replicas": 0, "replicaRequirements": None, "components": [component]})
    store = Store(MAPPED.model_copy(update={"integrations": DEPLOYMENTS.integrations}))
    requests = (
        received(store, ("bindings", component_binding), (DEPLOYMENT, template))
        .workloads["rb-web"]
        .requirements.requests
    )
    assert requests == {"cpu": 2000, "nvidia.com/gpu": 4000, "pods": 2000}


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        pytest.param([{"name": "x", "requests": {}}], "requests", id="nothing"),
        pytest.param([{"name": "x", "requests": {"cpu": "0"}}], "more than zero", id="zero"),
        pytest.param([{"name": "x", "requests": {"cpu": "one"}}], "one", id="no-quantity"),
        pytest.param([{"name": "X y", "requests": {"cpu": 1}}], "name", id="no-name"),
        pytest.param([{"name": "x", "requests": {"a": 1}}] * 2, "'x' twice", id="twice"),
    ],
)
def test_invalid_claim_mapping_is_rejected(entry, word):
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    with pytest.raises(ConfigurationError, match=word):
        check_configuration({**head, "resourceClaimTemplates": entry})
