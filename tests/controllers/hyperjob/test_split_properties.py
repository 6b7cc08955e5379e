"""Properties of every split: pods are preserved, capacity is respected, and no solution has fewer parts."""

from itertools import combinations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import read_hyperjob
from controller.controllers.hyperjob.children import build_parts
from controller.controllers.hyperjob.pod_distribution import SplitError
from controller.controllers.hyperjob.split import split
from tests.controllers.hyperjob.objects import GPU, auto, document, gpus, hyperjob, replicated, task, template
from tests.webhook.reviews import decoded
from webhook.queue_cache import QueueCache
from webhook.review import Outcome
from webhook.validation.hyperjob import validate_hyperjob
from webhook.validation.job import JobPolicy, validate_job

free = st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 12), max_size=7)
jobs = st.tuples(st.integers(2, 16), st.integers(1, 3), st.booleans(), st.none() | st.integers(1, 5), st.integers(1, 3))


def built(workers, gpu, master, domains, least):
    tasks = [task("master", 1, gpu=1)] * master + [task("worker", workers, gpu=gpu)]
    more = {} if domains is None else {"maxDomains": domains}
    return auto(*tasks, policy={"minReplicas": least}, **more)


def exhaustive(clusters, job):
    """Return the fewest clusters that hold the job, tried one set after the other."""
    workers, gpu, master, domains, least = job
    for count in range(1, min(domains or len(clusters), len(clusters)) + 1):
        for chosen in combinations(sorted(clusters), count):
            for host in chosen:
                held = [(clusters[name] - (master and name == host)) // gpu for name in chosen]
                if clusters[host] >= master and min(held) >= least and sum(held) >= workers >= least * count:
                    return count
    return None


# No second cluster holds the pods that the master's cluster leaves.
@example(clusters={"a": 0, "b": 4, "d": 9}, job=(13, 1, True, 2, 2))
@given(clusters=free, job=jobs)
def test_split_has_the_fewest_parts_within_each_headroom(clusters, job):
    workers, gpu, master, _, least = job
    layout = split(built(*job), gpus(**clusters))
    assert (len(layout.parts) if layout.fits else None) == exhaustive(clusters, job)
    if not layout.parts:
        return
    assert sum(part.pods[-1] for part in layout.parts) == workers
    assert sum(part.pods[0] for part in layout.parts if master) == master
    for part in layout.parts:
        assert part.pods[-1] >= least
        assert part.pods[-1] * gpu + (part.pods[0] if master else 0) <= clusters[part.cluster]


@given(clusters=free, job=jobs, order=st.randoms())
def test_split_is_independent_of_cluster_order(clusters, job, order):
    shuffled = list(clusters.items())
    order.shuffle(shuffled)
    assert split(built(*job), gpus(**clusters)) == split(built(*job), gpus(**dict(shuffled)))


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    parts=st.integers(1, 6),
)
def test_distribution_preserves_pods_and_proportions(counts, parts):
    tasks = [task(f"t{place}", count + 1) for place, count in enumerate(counts)]
    total = sum(count + 1 for count in counts)
    parts = min(parts, total)
    job = replicated("t", *tasks, splitPolicy={"strategy": "ByReplicas", "parts": parts})
    layout = split(hyperjob(job), gpus())
    assert [sum(column) for column in zip(*(part.pods for part in layout.parts), strict=True)] == [
        count + 1 for count in counts
    ]
    sizes = [sum(part.pods) for part in layout.parts]
    assert max(sizes) - min(sizes) <= 1
    for part in layout.parts:
        for pods, count in zip(part.pods, counts, strict=True):
            assert abs(pods * total - (count + 1) * sum(part.pods)) <= len(counts) * total


# -- what its parts become ------------------------------------------------------


def made(parent, layout):
    """Return the Jobs that the parts become."""
    return [child.job["spec"] for child in build_parts(parent, layout.parts)]


def pods(job):
    return sum(job_task["replicas"] for job_task in job["tasks"])


@given(clusters=free, nodes=st.integers(1, 8), size=st.integers(1, 4), minimum=st.integers(1, 3))
def test_all_requested_accelerators_are_distributed(clusters, nodes, size, minimum):
    wanted = {"accelerators": nodes * size, "acceleratorType": GPU, "minReplicas": min(minimum, nodes)}
    parent = auto(task(replicas=1, gpu=size), policy=wanted)
    layout = split(parent, gpus(**clusters))
    if layout.parts:
        assert sum(pods(job) * size for job in made(parent, layout)) == nodes * size


tasks = st.lists(st.tuples(st.integers(2, 9), st.integers(0, 9) | st.none()), min_size=1, max_size=3)


def gang(tasks, whole):
    """Return tasks with their minimums, and a template's minimum that is possible for them."""
    built = [
        task(f"t{place}", count, **({} if least is None else {"minAvailable": min(least, count)}))
        for place, (count, least) in enumerate(tasks)
    ]
    return built, 1 + whole % sum(count for count, _ in tasks)


def least(job):
    """Return the sum of the minimums of a Job's tasks."""
    return sum(job_task.get("minAvailable", job_task["replicas"]) for job_task in job["tasks"])


@given(tasks=tasks, whole=st.integers(0, 30), parts=st.integers(1, 4))
def test_every_part_has_its_share_of_the_gang_minimum(tasks, whole, parts):
    built, wanted = gang(tasks, whole)
    parts = min(parts, sum(count for count, _ in tasks))
    job = replicated("t", *built, spec={"minAvailable": wanted}, splitPolicy={"strategy": "ByReplicas", "parts": parts})
    parent = hyperjob(job)
    jobs = made(parent, split(parent, gpus()))
    minimums = [part["minAvailable"] for part in jobs]
    assert all(1 <= minimum <= pods(part) for minimum, part in zip(minimums, jobs, strict=True))
    assert sum(minimums) >= wanted
    for place in range(len(tasks)):
        kept = [job_task for one in jobs for job_task in one["tasks"] if job_task["name"] == f"t{place}"]
        given_, asked = (
            sum(job_task.get("minAvailable", job_task["replicas"]) for job_task in some)
            for some in (kept, [built[place]])
        )
        assert given_ == asked
    if wanted >= least({"tasks": built}):
        assert all(minimum >= least(part) for minimum, part in zip(minimums, jobs, strict=True)), "or they do not count"


@given(tasks=st.lists(st.integers(1, 9), min_size=1, max_size=3), whole=st.integers(0, 30), parts=st.integers(1, 4))
def test_every_part_can_reach_its_share_of_min_success(tasks, whole, parts):
    built = [task(f"t{place}", count) for place, count in enumerate(tasks)]
    wanted = 1 + whole % sum(tasks)
    job = replicated("t", *built, spec={"minSuccess": wanted}, splitPolicy={"strategy": "ByReplicas", "parts": parts})
    parent = hyperjob(job)
    assume(not hyperjob_violations(parent))
    jobs = made(parent, split(parent, gpus()))
    shares = [part["minSuccess"] for part in jobs]
    assert all(1 <= share <= pods(part) for share, part in zip(shares, jobs, strict=True))
    assert wanted <= sum(shares) < wanted + len(jobs)


@given(count=st.integers(2, 8), size=st.integers(1, 4), least=st.integers(1, 8), parts=st.integers(2, 4))
def test_minimum_partitions_are_distributed_completely(count, size, least, parts):
    policy = {"totalPartitions": count, "partitionSize": size, "minPartitions": min(least, count)}
    job = replicated(
        "t",
        task(replicas=count * size, partitionPolicy=policy),
        splitPolicy={"strategy": "ByReplicas", "parts": min(parts, count)},
    )
    parent = hyperjob(job)
    told = [part["tasks"][0] for part in made(parent, split(parent, gpus())) if part["tasks"]]
    assert sum(job_task["partitionPolicy"]["totalPartitions"] for job_task in told) == count
    assert sum(job_task["partitionPolicy"]["minPartitions"] for job_task in told) == min(least, count)
    assert all(job_task.get("minAvailable", 0) == 0 for job_task in told)


@given(clusters=free, sizes=st.lists(st.integers(2, 10), min_size=2, max_size=3), domains=st.integers(1, 3))
def test_several_jobs_share_capacity_and_domains(clusters, sizes, domains):
    jobs = [
        replicated(f"j{number}", task(replicas=size), splitPolicy={"mode": "auto"}) for number, size in enumerate(sizes)
    ]
    layout = split(hyperjob(*jobs, maxDomains=domains), gpus(**clusters))
    possible = sum(sorted(clusters.values(), reverse=True)[:domains]) >= sum(sizes)
    assert layout.fits is possible
    if not possible:
        return
    assert sum(part.pods[0] for part in layout.parts) == sum(sizes)
    assert len({part.cluster for part in layout.parts}) <= domains
    for name, count in clusters.items():
        assert sum(part.pods[0] for part in layout.parts if part.cluster == name) <= count


@st.composite
def templates(draw):
    """Return a template with leaders, partitions, minimums and dependencies."""
    names = draw(st.lists(st.sampled_from(["master", "head", "worker", ""]), min_size=1, max_size=3, unique=True))
    drawn = []
    for name in names:
        size, count, minimum = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.integers(0, 4) | st.none())
        least = {} if minimum is None else {"minAvailable": min(minimum, count) * size}
        policy = {"totalPartitions": count, "partitionSize": size, "minPartitions": min(minimum or 0, count)}
        divided = {"partitionPolicy": policy} if count and draw(st.booleans()) else {}
        after = {"dependsOn": {"name": [names[0]]}} if name and names[0] not in {"", name} else {}
        drawn.append(task(name, size * count, gpu=draw(st.integers(0, 2)), **least, **divided, **after))
    plugins = {name: [] for name in draw(st.sets(st.sampled_from(["mpi", "pytorch", "ray", "tensorflow", "ssh"])))}
    whole = sum(job_task["replicas"] for job_task in drawn)
    return template(*drawn, plugins=plugins, minAvailable=draw(st.integers(0, whole)))


policies = st.one_of(
    st.integers(1, 4).map(lambda parts: {"strategy": "ByReplicas", "parts": parts}),
    st.integers(1, 24).map(lambda wanted: {"mode": "static", "accelerators": wanted, "acceleratorType": GPU}),
    st.just({"mode": "auto"}),
    st.none(),
)


@given(whole=templates(), policy=policies, copies=st.integers(1, 3), shared=st.sampled_from([{}, {"mpi": []}]))
def test_volcano_accepts_every_part_of_an_accepted_hyperjob(whole, policy, copies, shared):
    job = {"name": "t", "replicas": copies, "templateSpec": whole, "splitPolicy": policy}
    written = document(job, plugins=shared)
    assume(validate_hyperjob(decoded(written), JobPolicy(), QueueCache()).outcome is not Outcome.DENIED)
    parent = read_hyperjob(written)
    try:
        parts = split(parent, gpus(a=20, b=20)).parts
    except SplitError:
        return
    answers = [validate_job(decoded(child.job), JobPolicy(), QueueCache()) for child in build_parts(parent, parts)]
    assert [answer.message for answer in answers if answer.outcome is Outcome.DENIED] == []
