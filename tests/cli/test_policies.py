"""Selection of the propagation policy for a job without a binding."""

import pytest

from tests.cli.manifests import (
    VOLCANO_JOB,
    cluster_policy,
    job,
    policy,
    queue,
)

CPU = {"cpu": 1}
EAST = {"clusterAffinity": {"clusterNames": ["east"]}}
WEST = {"clusterAffinity": {"clusterNames": ["west"]}}


def selecting(**more):
    return {"apiVersion": VOLCANO_JOB, "kind": "Job", **more}


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([policy("p", EAST, selecting(name="j")), policy("a", WEST)], id="name-before-all"),
        pytest.param(
            [
                policy("p", EAST, selecting(name="j")),
                policy("a", WEST, selecting(labelSelector={"matchLabels": {"team": "x"}})),
            ],
            id="name-before-labels",
        ),
        pytest.param(
            [policy("p", EAST, selecting(labelSelector={"matchLabels": {"team": "x"}})), policy("a", WEST)],
            id="labels-before-all",
        ),
        pytest.param(
            [
                policy("p", EAST),
                policy(
                    "a",
                    WEST,
                    selecting(labelSelector={"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}),
                ),
            ],
            id="labels-that-do-not-match",
        ),
        pytest.param([policy("a", EAST), policy("b", WEST)], id="name-of-the-policy"),
        pytest.param([policy("z", EAST, priority=1), policy("a", WEST, selecting(name="j"))], id="explicit-priority"),
        pytest.param(
            [policy("z", EAST), cluster_policy("a", WEST, selecting(name="j"), priority=9)], id="namespace-first"
        ),
        pytest.param([cluster_policy("z", EAST), policy("a", WEST, selecting(name="other"))], id="cluster-policy"),
        pytest.param(
            [
                cluster_policy("z", EAST, selecting(namespace="ml")),
                cluster_policy("a", WEST, selecting(namespace="lab")),
            ],
            id="selector-namespace",
        ),
        pytest.param(
            [policy("z", EAST), policy("a", WEST, {"apiVersion": "batch/v1", "kind": "Job"})], id="other-group"
        ),
        pytest.param(
            [policy("z", EAST), policy("a", WEST) | {"metadata": {"name": "a", "namespace": "lab"}}],
            id="other-namespace",
        ),
        pytest.param(
            [
                policy("z", EAST),
                policy("a", WEST)
                | {"metadata": {"name": "a", "namespace": "ml", "deletionTimestamp": "2026-03-01T09:00:00Z"}},
            ],
            id="being-deleted",
        ),
    ],
)
def test_placement_is_that_of_karmadas_preferred_policy(plan, east_and_west, policies):
    ended = plan(*east_and_west, queue("a"), job("j", CPU, queue="a", labels={"team": "x"}), *policies)
    assert ended.clusters() == {"j": ["east"]}
