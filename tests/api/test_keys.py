"""Paths of API resources."""

from controller.api.keys import CLUSTERS, RESOURCE_BINDINGS, Resource


def test_path_of_a_namespaced_object():
    expected = "/apis/work.karmada.io/v1alpha2/namespaces/ml/resourcebindings/j1-job"
    assert RESOURCE_BINDINGS.item_path("ml", "j1-job") == expected


def test_path_of_a_cluster_scoped_object():
    assert CLUSTERS.item_path("", "m1") == "/apis/cluster.karmada.io/v1alpha1/clusters/m1"


def test_path_of_the_core_group():
    assert Resource("", "v1", "pods", "Pod").item_path("ml", "p") == "/api/v1/namespaces/ml/pods/p"
