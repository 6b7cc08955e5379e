import tracemalloc

import pytest

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.cache.data_requirements import NO_DATA
from controller.controllers.hyperjob.capacity_split import ClusterBin, PackingRequest, pack, place_parts
from controller.controllers.hyperjob.observed import PendingReason
from controller.controllers.hyperjob.pod_distribution import SplitError
from controller.controllers.hyperjob.split import capacity_snapshot, split
from controller.engine.engine import Engine
from controller.engine.policy import Policy, Tenant
from controller.engine.state.clusters import NodeShape
from controller.engine.state.hierarchy import Queue, QueueName
from tests.controllers.hyperjob.objects import GPU, auto, capacity, cluster, gpus, hyperjob, replicated, task
from tests.work import work_of

FOUR = gpus(a=128, b=64, c=48, d=100)
EU = {"fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}}
REGIONS = capacity(cluster("a", 100, region="us"), cluster("b", 40, region="eu"), cluster("c", 30, region="eu"))
CHIEF = {"plugins": {"pytorch": ["--master=chief"]}}
STATIC = {"mode": "static", "accelerators": 256, "acceleratorType": GPU}


def policy(*tasks, more=None, **policy):
    return hyperjob(replicated("t", *(tasks or [task(replicas=64)]), splitPolicy=policy, **more or {}))


def by_cluster(**replicas):
    return {
        "strategy": "ByCluster",
        "clusters": [{"name": name, "replicas": count} for name, count in replicas.items()],
    }


def by_weight(**weights):
    return {
        "strategy": "ByReplicas",
        "clusters": [{"name": name, "weight": weight} for name, weight in weights.items()],
    }


def by_replicas(parts):
    return {"strategy": "ByReplicas", "parts": parts}


def partitions(count):
    return {"partitionPolicy": {"totalPartitions": count, "partitionSize": 8}}


def on_nodes(count, *names):
    """Return clusters of *count* nodes with eight GPUs."""
    return capacity(*(cluster(name, 8 * count, nodes=(NodeShape(count, ((GPU, 8_000),)),)) for name in names))


def two_jobs(**more):
    return hyperjob(*(replicated(name, task(replicas=8), splitPolicy={"mode": "auto"}) for name in "xy"), **more)


def shown(layout):
    """Return the parts as text: each with its cluster and the pods of each task."""
    return ", ".join(f"{part.cluster or 'any'} {'+'.join(map(str, part.pods))}" for part in layout.parts)


COPIES = hyperjob(replicated("t", task(replicas=128), replicas=2))
PREFERRED = {"clusterNames": ["small", "other"]}
WITH_CHIEF = (task("chief", 2, gpu=0), task("worker", 4))
IN_ORDER = {"strategy": "ByResources", "clusters": [{"name": "small"}, {"name": "big"}]}
BIG_PODS = task(replicas=6, gpu=5)


@pytest.mark.parametrize(
    ("job", "clusters", "parts"),
    [
        pytest.param(COPIES, gpus(), "any 128, any 128", id="copies-without-policy-are-not-pinned"),
        pytest.param(policy(**by_cluster(a=40, b=24)), gpus(), "a 40, b 24", id="replicas-by-cluster-are-kept"),
        pytest.param(
            policy(task("ps", 4), task("worker", 16), **by_cluster(a=10, b=10)), gpus(), "a 2+8, b 2+8", id="proportion"
        ),
        pytest.param(policy(**by_replicas(3)), gpus(), "any 22, any 21, any 21", id="remainder-to-the-first"),
        pytest.param(policy(**by_weight(a=1, b=2, c=4)), gpus(), "a 9, b 18, c 37", id="largest-remainder"),
        pytest.param(
            policy(task(replicas=1, gpu=8), more={"replicas": 2}, **STATIC), gpus(), "any 16, any 16", id="static"
        ),
        pytest.param(policy(**IN_ORDER), gpus(big=100, small=10), "small 10, big 54", id="by-resources-in-order"),
        pytest.param(auto(task(replicas=256), maxDomains=3), FOUR, "a 128, d 100, c 28", id="fewest-parts-first"),
        pytest.param(
            auto(task(replicas=64), job=PREFERRED),
            gpus(big=60, huge=60, small=30, other=20),
            "small 30, big 34",
            id="preferred-clusters-are-filled-first",
        ),
        pytest.param(auto(task(replicas=64), job=PREFERRED), gpus(big=64, small=30), "big 64", id="fewer-parts-first"),
        pytest.param(auto(task(replicas=64), clusterAffinity=EU), REGIONS, "b 40, c 24", id="cluster-affinity"),
        pytest.param(
            auto(task("master", 1), task("worker", 63)), gpus(a=40, b=24), "a 1+39, b 0+24", id="one-part-with-master"
        ),
        pytest.param(
            policy(*WITH_CHIEF, more={"spec": CHIEF}, **by_replicas(2)), gpus(), "any 2+2, any 0+2", id="named-master"
        ),
        pytest.param(
            auto(task(replicas=32, **partitions(4))), gpus(a=20, b=20), "a 16, b 16", id="partitions-are-not-divided"
        ),
        pytest.param(
            auto(task(replicas=10), policy={"minReplicas": 3}), gpus(a=9, b=9), "a 7, b 3", id="minimum-replicas"
        ),
        pytest.param(two_jobs(maxDomains=1), gpus(a=16, b=100), "a 8, a 8", id="two-jobs-share-the-domains"),
        pytest.param(auto(BIG_PODS), on_nodes(4, "a", "b"), "a 4, b 2", id="nodes-limit-auto"),
        pytest.param(
            auto(BIG_PODS, policy={"strategy": "ByResources"}),
            on_nodes(4, "a", "b"),
            "a 4, b 2",
            id="nodes-limit-by-resources",
        ),
        pytest.param(
            auto(task("master", 1, gpu=5), task(replicas=3, gpu=5)),
            on_nodes(2, "a", "b"),
            "a 1+1, b 0+2",
            id="nodes-limit-the-part-with-master",
        ),
    ],
)
def test_pods_are_divided_into_parts(job, clusters, parts):
    layout = split(job, clusters)
    assert (shown(layout), layout.fits) == (parts, True)


def full(_, queue, __):
    return PendingReason("QueueLimitReached", f"{queue} is full")


EMPTY = "even while empty, its candidate clusters have "
TOGETHER = f"{EMPTY}enough capacity together, but not in parts that fit"


@pytest.mark.parametrize(
    ("job", "clusters", "parts", "reason", "message"),
    [
        pytest.param(
            auto(task(replicas=256), maxDomains=2),
            FOUR,
            "",
            "ExceedsEveryCluster",
            f"{TOGETHER} on at most 2 clusters",
            id="max-domains",
        ),
        pytest.param(
            auto(task(replicas=100)),
            capacity(cluster("a", 80, used=50), cluster("b", 40)),
            "a 80, b 20",
            "InsufficientCapacity",
            "its candidate clusters have 70 nvidia.com/gpu of 100 free",
            id="parts-for-empty-clusters",
        ),
        pytest.param(
            auto(task(replicas=100, cpu="20000")),
            gpus(a=8),
            "",
            "ExceedsEveryCluster",
            f"{EMPTY}8 nvidia.com/gpu of 100 free",
            id="scarcest-resource",
        ),
        pytest.param(auto(task(gpu=9)), on_nodes(5, "a"), "", "ExceedsEveryCluster", TOGETHER, id="larger-than-a-node"),
        pytest.param(
            auto(task()), capacity(cluster("a", 9), quota=full), "a 4", "QueueLimitReached", "ml is full", id="queue"
        ),
    ],
)
def test_split_that_does_not_fit_says_why(job, clusters, parts, reason, message):
    layout = split(job, clusters)
    assert (shown(layout), layout.pending_reason) == (parts, PendingReason(reason, message))


@pytest.mark.parametrize(
    ("queues", "reason"),
    [pytest.param(("ml",), "QueueLimitReached", id="own"), pytest.param(("x",), "QueueNotAllowed", id="forbidden")],
)
def test_quota_of_a_forbidden_queue_is_not_disclosed(queues, reason):
    engine = Engine(Policy(tenants=(Tenant(("ml",), queues),)))
    engine.queue_changed(Queue(QueueName("ml"), capability={GPU: 1000}))
    engine.cluster_changed(cluster("a", 9), 0)
    engine.plan(0)
    snapshot = capacity_snapshot(engine, VolcanoGlobalConfiguration(), lambda _: NO_DATA)
    assert split(auto(task()), snapshot).pending_reason.reason == reason


def test_cluster_without_the_accelerator_gets_no_part():
    tasks = task(replicas=8, gpu=0)
    tasks["template"]["spec"]["containers"][0]["resources"]["requests"]["huawei.com/ascend910b"] = "1"
    assert split(auto(tasks), gpus(a=100)).parts == ()


def test_parts_without_pods_are_rejected():
    job = policy(task(replicas=16, **partitions(2)), **by_replicas(4))
    with pytest.raises(SplitError, match="partitions cannot be divided"):
        split(job, gpus())


def test_automatic_split_into_parts_of_too_many_bytes_is_refused():
    large = auto(task(replicas=100, note="x" * 2**20))
    with pytest.raises(SplitError, match=r"its 100 parts with \d+ bytes are too large"):
        split(large, gpus(**{f"c{index}": 1 for index in range(100)}))


@pytest.mark.parametrize(
    ("pods", "size", "subsets"),
    [pytest.param([1] * 900 + [5100], 1000, 1, id="jobs"), pytest.param([80_000, 30_000], 20_000, 3, id="pods")],
)
def test_work_of_a_split_with_max_domains_is_bounded(monkeypatch, pods, size, subsets):
    """A HyperJob that fits into no subset of the clusters must not stop the controller for minutes."""
    jobs = [
        replicated(f"j{i}", task(replicas=replicas), splitPolicy={"mode": "auto"}) for i, replicas in enumerate(pods)
    ]
    placed = []
    monkeypatch.setattr(
        "controller.controllers.hyperjob.split.place_parts",
        lambda *arguments: placed.append(arguments) or place_parts(*arguments),
    )
    layout = split(hyperjob(*jobs, maxDomains=5), gpus(**{f"c{index}": size for index in range(12)}))
    assert layout.pending_reason.reason == "ExceedsEveryCluster"
    assert len(placed) <= 2 * len(pods) * (1 + subsets), "with the free capacity, and with that of empty clusters"


def test_split_over_many_clusters_takes_little_work():
    """All of them are needed, so that the search has as many steps; with 1,000 clusters a cubic one takes 15 s."""
    clusters = capacity(*(cluster(f"c{number}", 10) for number in range(100)))
    wanted = auto(task(replicas=1000))
    assert work_of(lambda: split(wanted, clusters)) < 600_000
    assert len(split(wanted, clusters).parts) == 100


def test_leader_that_fits_beside_no_part_takes_no_search(monkeypatch):
    bins = [ClusterBin(f"c{i}", 100 if i < 50 else 1, 40 if i < 50 else -1) for i in range(100)]
    monkeypatch.setattr("controller.controllers.hyperjob.capacity_split._choose", None)
    assert pack(bins, PackingRequest(100 * 50, 100)) is None


def test_large_templates_are_not_kept_after_they_were_split():
    text, count = "x" * 100_000, 20
    tracemalloc.start()
    for number in range(count):
        container = {"name": "main", "args": [f"{number}{text}"], "resources": {"requests": {"cpu": "1"}}}
        large = {**task(), "template": {"spec": {"containers": [container]}}}
        split(policy(large, more={"replicas": 2}), REGIONS)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < count * len(text) / 2
