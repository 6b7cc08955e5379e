import pytest

from controller.api.hyperjobs import read_hyperjob
from controller.controllers.hyperjob.observed import PendingReason
from controller.controllers.hyperjob.pod_distribution import SplitError
from controller.controllers.hyperjob.split import split
from controller.engine.state.clusters import NodeShape
from tests.controllers.hyperjob.objects import GPU, auto, capacity, cluster, gpus, hyperjob, replicated, task
from tests.files import EXAMPLES, read_object


def places(layout):
    return [(part.name, part.cluster, part.pods) for part in layout.parts]


def policy(**more):
    return replicated("trainer", task(replicas=64), splitPolicy=more)


def counted(job, *, clusters=None):
    layout = split(hyperjob(job), clusters or gpus())
    return [(part.cluster, part.pods[0]) for part in layout.parts]


def test_documented_hyperjob_becomes_two_jobs_of_32_replicas():
    found = read_object(EXAMPLES / "hyperjob-conceptual.yaml")
    assert places(split(read_hyperjob(found), gpus())) == [
        ("llm-train-hyperjob-0", "cluster-a", (32,)),
        ("llm-train-hyperjob-1", "cluster-b", (32,)),
    ]


def test_copies_without_split_policy_are_not_pinned():
    layout = split(hyperjob(replicated("trainer", task(replicas=128), replicas=2)), gpus())
    assert places(layout) == [("llm-trainer-0", "", (128,)), ("llm-trainer-1", "", (128,))]


def test_replicas_by_cluster_are_used_unchanged():
    clusters = [{"name": "a", "replicas": 40}, {"name": "b", "replicas": 24}]
    assert counted(policy(strategy="ByCluster", clusters=clusters)) == [("a", 40), ("b", 24)]


def test_remainder_of_equal_parts_goes_to_the_first():
    assert counted(policy(strategy="ByReplicas", parts=3)) == [("", 22), ("", 21), ("", 21)]


def test_weighted_parts_are_rounded_by_largest_remainder():
    clusters = [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}, {"name": "c", "weight": 4}]
    assert counted(policy(strategy="ByReplicas", clusters=clusters)) == [("a", 9), ("b", 18), ("c", 37)]


def test_static_split_divides_accelerators_equally():
    job = replicated(
        "trainer",
        task(replicas=1, gpu=8),
        replicas=2,
        splitPolicy={"mode": "static", "accelerators": 256, "acceleratorType": GPU},
    )
    assert counted(job) == [("", 16), ("", 16)]


def test_by_resources_fills_clusters_in_order():
    found = counted(
        policy(strategy="ByResources", clusters=[{"name": "small"}, {"name": "big"}]), clusters=gpus(big=100, small=10)
    )
    assert found == [("small", 10), ("big", 54)]


def test_256_gpus_over_128_64_48_and_100_free_take_three_parts():
    layout = split(auto(task(replicas=256), maxDomains=3), gpus(a=128, b=64, c=48, d=100))
    assert [(part.cluster, part.pods) for part in layout.parts] == [("a", (128,)), ("d", (100,)), ("c", (28,))]
    assert layout.fits


def test_split_respects_max_domains():
    layout = split(auto(task(replicas=256), maxDomains=2), gpus(a=128, b=64, c=48, d=100))
    assert layout.parts == ()
    assert layout.pending_reason.reason == "ExceedsEveryCluster"
    assert "at most 2 clusters" in layout.pending_reason.message


def test_split_that_does_not_fit_now_uses_empty_clusters():
    layout = split(auto(task(replicas=100)), capacity(cluster("a", 80, used=50), cluster("b", 40)))
    assert [(part.cluster, part.pods) for part in layout.parts] == [("a", (80,)), ("b", (20,))]
    assert layout.pending_reason == PendingReason(
        "InsufficientCapacity", "its candidate clusters have 70 nvidia.com/gpu of 100 free"
    )


def test_split_without_solution_has_no_parts():
    layout = split(auto(task(replicas=100)), gpus(a=8))
    assert layout.parts == ()
    assert layout.pending_reason.message == "even while empty, its candidate clusters have 8 nvidia.com/gpu of 100 free"


def test_preferred_clusters_are_filled_first():
    job = auto(task(replicas=64), job={"clusterNames": ["small", "other"]})
    layout = split(job, gpus(big=60, huge=60, small=30, other=20))
    assert [(part.cluster, part.pods[0]) for part in layout.parts] == [("small", 30), ("big", 34)]


def test_fewer_parts_come_before_preference():
    job = auto(task(replicas=64), job={"clusterNames": ["small"]})
    assert [part.cluster for part in split(job, gpus(big=64, small=30)).parts] == ["big"]


def test_parts_respect_the_cluster_affinity():
    job = auto(
        task(replicas=64),
        clusterAffinity={
            "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}
        },
    )
    clusters = capacity(cluster("a", 100, region="us"), cluster("b", 40, region="eu"), cluster("c", 30, region="eu"))
    assert [part.cluster for part in split(job, clusters).parts] == ["b", "c"]


def test_cluster_without_the_accelerator_gets_no_part():
    tasks = task(replicas=8, gpu=0)
    tasks["template"]["spec"]["containers"][0]["resources"]["requests"]["huawei.com/ascend910b"] = "1"
    assert split(auto(tasks), gpus(a=100)).parts == ()


def test_master_is_only_in_the_first_part():
    job = auto(task("master", 1), task("worker", 63), policy={})
    layout = split(job, gpus(a=40, b=24))
    assert [(part.cluster, part.pods) for part in layout.parts] == [("a", (1, 39)), ("b", (0, 24))]


def test_named_master_is_only_in_the_first_part():
    job = auto(task("chief", 2, gpu=0), task("worker", 4))
    named = replicated(
        "trainer",
        task("chief", 2, gpu=0),
        task("worker", 4),
        spec={"plugins": {"pytorch": ["--master=chief"]}},
        splitPolicy={"strategy": "ByReplicas", "parts": 2},
    )
    assert len(split(job, gpus(a=8)).parts) == 1
    assert [part.pods for part in split(hyperjob(named), gpus()).parts] == [(2, 2), (0, 2)]


def test_several_tasks_are_divided_in_proportion():
    clusters = [{"name": "a", "replicas": 10}, {"name": "b", "replicas": 10}]
    job = replicated(
        "t", task("ps", 4), task("worker", 16), splitPolicy={"strategy": "ByCluster", "clusters": clusters}
    )
    assert [part.pods for part in split(hyperjob(job), gpus()).parts] == [(2, 8), (2, 8)]


def test_partitions_are_not_divided():
    partitions = {"partitionPolicy": {"totalPartitions": 4, "partitionSize": 8}}
    job = auto(task(replicas=32, **partitions))
    assert [part.pods[0] for part in split(job, gpus(a=20, b=20)).parts] == [16, 16]


def test_parts_without_pods_are_rejected():
    partitions = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 8}}
    job = replicated("t", task(replicas=16, **partitions), splitPolicy={"strategy": "ByReplicas", "parts": 4})
    with pytest.raises(SplitError, match="partitions cannot be divided"):
        split(hyperjob(job), gpus())


def test_two_jobs_share_the_clusters_within_max_domains():
    jobs = [replicated(name, task(replicas=8), splitPolicy={"mode": "auto"}) for name in ("x", "y")]
    layout = split(hyperjob(*jobs, maxDomains=1), gpus(a=16, b=100))
    assert places(layout) == [("llm-x-0", "a", (8,)), ("llm-y-0", "a", (8,))]


def test_queue_limit_is_the_pending_reason():
    clusters = capacity(
        cluster("a", 64), quota=lambda queue, demand: PendingReason("QueueLimitReached", f"{queue} is full")
    )
    layout = split(auto(task(replicas=8)), clusters)
    assert (len(layout.parts), layout.pending_reason) == (1, PendingReason("QueueLimitReached", "ml is full"))


@pytest.mark.parametrize("least", [1, 3])
def test_part_has_at_least_min_replicas(least):
    job = auto(task(replicas=10), policy={"minReplicas": least})
    assert [part.pods[0] for part in split(job, gpus(a=9, b=9)).parts] == [10 - least, least]


def test_shortage_names_the_scarcest_resource():
    layout = split(auto(task(replicas=100, cpu="20000")), gpus(a=8))
    assert layout.pending_reason.message == "even while empty, its candidate clusters have 8 nvidia.com/gpu of 100 free"


@pytest.mark.parametrize("strategy", ["Auto", "ByResources"])
def test_parts_are_limited_by_the_described_nodes(strategy):
    nodes = (NodeShape(4, ((GPU, 8_000),)),)
    clusters = capacity(*(cluster(name, 32, nodes=nodes) for name in "ab"))
    layout = split(auto(task(replicas=6, gpu=5), policy={"strategy": strategy}), clusters)
    assert [(part.cluster, part.pods) for part in layout.parts] == [("a", (4,)), ("b", (2,))]


def test_leader_cluster_fits_single_tasks_on_its_nodes():
    nodes = (NodeShape(2, ((GPU, 8_000),)),)
    clusters = capacity(*(cluster(name, 16, nodes=nodes) for name in "ab"))
    layout = split(auto(task("master", 1, gpu=5), task(replicas=3, gpu=5)), clusters)
    assert [(part.cluster, part.pods) for part in layout.parts] == [("a", (1, 1)), ("b", (0, 2))]


def test_pod_larger_than_every_node_has_no_parts():
    clusters = capacity(cluster("a", 32, nodes=(NodeShape(4, ((GPU, 8_000),)),)))
    layout = split(auto(task(replicas=2, gpu=9)), clusters)
    assert layout.parts == ()
    assert layout.pending_reason == PendingReason(
        "ExceedsEveryCluster",
        "even while empty, its candidate clusters have enough capacity together, but not in parts that fit",
    )
