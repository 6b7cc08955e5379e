"""Tests reviews of jobs against a table of jobs with the answers of Volcano's own webhook."""

import copy
import json

import pytest

from controller.api.configuration import Resize, Tenant
from controller.api.meta import ObjectMeta
from controller.api.queues import QueueSpec
from tests.webhook.reviews import apply, container, review_of, task, volcano_job, wire
from webhook import review as wire_review
from webhook.queue_cache import QueueCache, ReviewedQueue, ReviewedQueueStatus, to_cached
from webhook.review import Outcome, review_response
from webhook.validation.job import JobPolicy, mutate_job, validate_job

POLICY = JobPolicy()


def queue(name, *, parent="", state="Open"):
    return to_cached(ReviewedQueue(ObjectMeta(name), spec=QueueSpec(parent=parent), status=ReviewedQueueStatus(state)))


def queue_cache(*queues):
    cache = QueueCache()
    cache.replace(list(queues) or [queue("a"), queue("default")])
    return cache


def make_request(new, *, old=None, **request):
    return wire_review.read(wire(review_of(new, old=old, operation="UPDATE" if old else "CREATE", **request)))


def validate(new, *, old=None, policy=POLICY, queues=None, **request):
    return validate_job(make_request(new, old=old, **request), policy, queues or queue_cache())


def mutated(new, policy=POLICY, **request):
    """Return *new* with the defaults of the webhook, and the paths of the patch."""
    response = mutate_job(make_request(new, **request), policy)
    answer = json.loads(wire_review.write(review_response(response, "u")))["response"]
    assert answer["allowed"]
    return apply(answer, new), [operation.path for operation in response.patch]


def pod(**members):
    return {"spec": {"containers": [container()], "restartPolicy": "OnFailure"} | members}


def amounts(**resources):
    return {"template": pod(containers=[container(resources=resources)])}


GOOD = [
    pytest.param(volcano_job(), id="plain"),
    pytest.param(volcano_job(task("master", 1), task("worker", 8)), id="two-tasks"),
    pytest.param(volcano_job(task(replicas=4, minAvailable=2), minAvailable=2), id="gang-minimum"),
    pytest.param(volcano_job(task(replicas=4, minAvailable=0)), id="task-minimum-0"),
    pytest.param(volcano_job(task(replicas=0)), id="no-replicas"),
    pytest.param(volcano_job(task("master"), task("worker", 2), plugins={"mpi": []}), id="mpi-with-its-tasks"),
    pytest.param(
        volcano_job(task("a"), task("b"), plugins={"mpi": ["--master=a", "--worker=b"]}), id="mpi-with-named-tasks"
    ),
    pytest.param(volcano_job(plugins={"env": [], "svc": None, "ssh": ["--x"]}), id="plugins"),
    pytest.param(volcano_job(plugins={"pytorch": [], "tensorflow": [], "ray": [], "hcclrank": []}), id="frameworks"),
    pytest.param(volcano_job(policies=[{"event": "PodEvicted", "action": "RestartJob"}]), id="policy-of-an-event"),
    pytest.param(volcano_job(policies=[{"events": ["PodFailed"], "action": "AbortJob"}]), id="policy-of-events"),
    pytest.param(volcano_job(policies=[{"exitCode": 3, "action": "AbortJob"}]), id="policy-of-an-exit-code"),
    pytest.param(volcano_job(policies=[{"event": "*", "action": "TerminateJob"}]), id="policy-of-any-event"),
    pytest.param(
        volcano_job(task(policies=[{"event": "TaskCompleted", "action": "CompleteJob"}])), id="policy-of-a-task"
    ),
    pytest.param(volcano_job(volumes=[{"mountPath": "/d", "volumeClaimName": "data"}]), id="volume-that-exists"),
    pytest.param(volcano_job(volumes=[{"mountPath": "/d", "volumeClaim": {}}]), id="volume-to-be-made"),
    pytest.param(volcano_job(task("a"), task("b", dependsOn={"name": ["a"]})), id="depends-on"),
    pytest.param(volcano_job(task(cpu="2", topologyPolicy="single-numa-node")), id="topology-with-whole-cpus"),
    pytest.param(volcano_job(task(cpu="500m", topologyPolicy="none")), id="no-topology-with-half-a-cpu"),
    pytest.param(
        volcano_job(task(replicas=8, partitionPolicy={"totalPartitions": 4, "partitionSize": 2})), id="partitions"
    ),
    pytest.param(volcano_job(networkTopology={"mode": "hard", "highestTierAllowed": 2}), id="network-topology"),
    pytest.param(
        volcano_job(task(**amounts(requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": "1"}))), id="devices"
    ),
    pytest.param(volcano_job(task(**amounts(limits={"nvidia.com/gpu": 8}))), id="devices-in-limits-alone"),
    pytest.param(volcano_job(task(**amounts(requests={"hugepages-2Mi": "4Mi"}))), id="huge-pages"),
    pytest.param(volcano_job(ttlSecondsAfterFinished=0, maxRetry=0), id="time-to-live-0"),
    pytest.param(volcano_job(name="n" * 54), id="names-as-long-as-may-be"),
]


@pytest.mark.parametrize("job", GOOD)
def test_valid_job_is_allowed(job):
    assert validate(job).outcome is Outcome.ALLOWED


BAD = [
    pytest.param(volcano_job(tasks=[]), "No task specified in job spec", id="no-task"),
    pytest.param(volcano_job(tasks=None), "No task specified in job spec", id="tasks-null"),
    pytest.param(volcano_job(plugins={"mpi": []}), "specified mpi master task was not found", id="mpi-without-master"),
    pytest.param(
        volcano_job(task("master"), plugins={"mpi": []}), "mpi worker task was not found", id="mpi-without-worker"
    ),
    pytest.param(
        volcano_job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
        "must not specify highestTierAllowed and highestTierName simultaneously",
        id="tier-twice",
    ),
    pytest.param(
        volcano_job(task(replicas=2, minAvailable=3)),
        "'minAvailable' is greater than 'replicas' in task: worker, job: train",
        id="task-minimum-above-replicas",
    ),
    pytest.param(volcano_job(task(replicas=-1)), "'replicas' < 0 in task: worker", id="negative-replicas"),
    pytest.param(volcano_job(task(minAvailable=-1)), "'minAvailable' < 0 in task: worker", id="negative-task-minimum"),
    pytest.param(volcano_job(task("a"), task("a")), "duplicated task name a", id="task-twice"),
    pytest.param(volcano_job(task("Worker_1")), "task name 'Worker_1'", id="task-name"),
    pytest.param(volcano_job(task("t" * 64)), "task name", id="task-name-too-long"),
    pytest.param(volcano_job(task("")), "task name ''", id="task-name-empty"),
    pytest.param(volcano_job(name="n" * 55), "create pod with name", id="pod-name-too-long"),
    pytest.param(volcano_job(name="n" * 64), "create job with name", id="job-name-too-long"),
    pytest.param(volcano_job(name="-x"), "create job with name", id="job-name"),
    pytest.param(
        volcano_job(minAvailable=2), "job 'minAvailable' should not be greater than total replicas", id="minimum"
    ),
    pytest.param(volcano_job(minAvailable=-1), "job 'minAvailable' must be >= 0", id="negative-minimum"),
    pytest.param(volcano_job(maxRetry=-1), "'maxRetry' cannot be less than zero", id="negative-retries"),
    pytest.param(volcano_job(ttlSecondsAfterFinished=-1), "'ttlSecondsAfterFinished' cannot be", id="negative-ttl"),
    pytest.param(
        volcano_job(policies=[{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]),
        "must not specify event and exitCode simultaneously",
        id="event-and-exit-code",
    ),
    pytest.param(
        volcano_job(policies=[{"action": "AbortJob"}]),
        "either event and exitCode should be specified",
        id="neither-event-nor-exit-code",
    ),
    pytest.param(
        volcano_job(policies=[{"event": "OutOfSync", "action": "AbortJob"}]), "invalid policy event", id="own-event"
    ),
    pytest.param(
        volcano_job(policies=[{"event": "CommandIssued", "action": "AbortJob"}]),
        "invalid policy event 'CommandIssued'",
        id="command-issued",
    ),
    pytest.param(
        volcano_job(policies=[{"event": "PodRunning", "action": "AbortJob"}]), "invalid policy event", id="pod-running"
    ),
    pytest.param(
        volcano_job(policies=[{"event": "PodFailed", "action": "SyncJob"}]), "invalid policy action", id="own-action"
    ),
    pytest.param(
        volcano_job(policies=[{"event": "PodFailed"}]), "valid actions are [AbortJob RestartJob", id="no-action"
    ),
    pytest.param(
        volcano_job(
            policies=[{"event": "PodFailed", "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]
        ),
        "duplicate event PodFailed across different policy",
        id="event-twice",
    ),
    pytest.param(
        volcano_job(policies=[{"exitCode": 0, "action": "AbortJob"}]), "0 is not a valid error code", id="exit-code-0"
    ),
    pytest.param(
        volcano_job(policies=[{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 3, "action": "RestartJob"}]),
        "duplicate exitCode 3",
        id="exit-code-twice",
    ),
    pytest.param(
        volcano_job(policies=[{"event": "*", "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartJob"}]),
        "if there's * here, no other policy should be here",
        id="any-event-and-another",
    ),
    pytest.param(
        volcano_job(task(policies=[{"event": "x", "action": "AbortJob"}])), "spec.tasks[0].policies: inv", id="of-task"
    ),
    pytest.param(volcano_job(plugins={"telepathy": []}), "unable to find job plugin: telepathy", id="plugin"),
    pytest.param(volcano_job(volumes=[{"volumeClaimName": "x"}]), "mountPath is required", id="no-mount-path"),
    pytest.param(
        volcano_job(volumes=[{"mountPath": "/d", "volumeClaimName": "x"}, {"mountPath": "/d", "volumeClaim": {}}]),
        "duplicated mountPath: /d",
        id="mount-path-twice",
    ),
    pytest.param(volcano_job(volumes=[{"mountPath": "/d"}]), "either VolumeClaim or VolumeClaimName", id="no-claim"),
    pytest.param(
        volcano_job(volumes=[{"mountPath": "/d", "volumeClaimName": "x", "volumeClaim": {}}]), "conflict", id="claims"
    ),
    pytest.param(
        volcano_job(volumes=[{"mountPath": "/d", "volumeClaimName": "X_"}]), "invalid VolumeClaimName", id="claim-name"
    ),
    pytest.param(
        volcano_job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
        "doesn't form a directed acyclic graph(DAG)",
        id="circle",
    ),
    pytest.param(volcano_job(task("a", dependsOn={"name": ["b"]})), "(DAG)", id="depends-on-a-missing-task"),
    pytest.param(volcano_job(task("a", dependsOn={"name": ["a"]})), "(DAG)", id="depends-on-itself"),
    pytest.param(
        volcano_job(task(cpu="1500m", topologyPolicy="restricted")),
        "the cpu request isn't an integer in spec.task[0] container[0]",
        id="topology-with-half-a-cpu",
    ),
    pytest.param(
        volcano_job(task(topologyPolicy="best-effort", **amounts())), "isn't an integer", id="topology-without-cpu"
    ),
    pytest.param(volcano_job(task(topologyPolicy="any")), "topologyPolicy: use one of", id="topology-policy"),
    pytest.param(
        volcano_job(task(replicas=7, partitionPolicy={"totalPartitions": 4, "partitionSize": 2})),
        "'replicas' must be equal to 'totalPartitions' * 'partitionSize'",
        id="partitions-and-replicas",
    ),
    pytest.param(
        volcano_job(task(replicas=0, partitionPolicy={"totalPartitions": 0, "partitionSize": 2})),
        "'totalPartitions' must be greater than 0",
        id="no-partitions",
    ),
    pytest.param(
        volcano_job(task(replicas=0, partitionPolicy={"totalPartitions": 2, "partitionSize": 0})),
        "'partitionSize' must be greater than 0",
        id="empty-partitions",
    ),
    pytest.param(
        volcano_job(
            task(
                replicas=8,
                minAvailable=3,
                partitionPolicy={"totalPartitions": 4, "partitionSize": 2, "minPartitions": 2},
            )
        ),
        "'minAvailable' must be equal to 'minPartitions' * 'partitionSize'",
        id="partitions-and-minimum",
    ),
    pytest.param(
        volcano_job(
            task(
                replicas=2,
                partitionPolicy={
                    "totalPartitions": 1,
                    "partitionSize": 2,
                    "networkTopology": {"highestTierAllowed": 1, "highestTierName": "x"},
                },
            )
        ),
        "simultaneously",
        id="partition-tier-twice",
    ),
    pytest.param(volcano_job(task(template={})), "spec.task[0].template.spec.containers: Required", id="no-container"),
    pytest.param(
        volcano_job(task(template=pod(containers=[container(), container()]))), "Duplicate value 'main'", id="twice"
    ),
    pytest.param(
        volcano_job(task(template=pod(containers=[container("Main")]))), "name: Invalid value", id="container-name"
    ),
    pytest.param(
        volcano_job(task(template=pod(containers=[container(image="")]))), "image: Required value", id="no-image"
    ),
    pytest.param(
        volcano_job(task(template=pod(restartPolicy="Sometimes"))), "restartPolicy: Unsupported", id="restart-policy"
    ),
    pytest.param(volcano_job(task(template=pod(dnsPolicy="Mine"))), "dnsPolicy: Unsupported value", id="dns-policy"),
    pytest.param(volcano_job(task(cpu="-1")), "must be greater than or equal to 0", id="negative-cpu"),
    pytest.param(volcano_job(task(cpu="many")), "is not a quantity", id="no-quantity"),
    pytest.param(
        volcano_job(task(**amounts(requests={"cpu": 2}, limits={"cpu": 1}))),
        "less than or equal to cpu limit",
        id="lim",
    ),
    pytest.param(
        volcano_job(task(**amounts(requests={"nvidia.com/gpu": 1}))),
        "an extended resource needs an equal limit",
        id="no-limit",
    ),
    pytest.param(
        volcano_job(task(**amounts(limits={"nvidia.com/gpu": "500m"}))), "must be an integer", id="half-a-device"
    ),
    pytest.param(
        volcano_job(task(**amounts(requests={"gpu": 1}))), "must be a standard resource for containers", id="resource"
    ),
]


@pytest.mark.parametrize(("job", "expected"), BAD)
def test_invalid_job_is_denied(job, expected):
    response = validate(job)
    assert (response.outcome, response.code) == (Outcome.DENIED, 422)
    assert expected in response.message
    assert response.message.startswith(f"job ml/{job['metadata']['name']}: ")


def test_all_violations_are_reported_together():
    message = validate(volcano_job(task("A", replicas=-1), plugins={"x": []})).message
    assert all(expected in message for expected in ("task name 'A'", "'replicas' < 0", "plugin: x"))


def test_generated_name_is_validated_with_its_suffix():
    job = volcano_job()
    job["metadata"] = {"generateName": "n" * 50, "namespace": "ml"}
    assert "create pod with name" in validate(job, name="").message
    job["metadata"]["generateName"] = "n-"
    assert validate(job, name="").outcome is Outcome.ALLOWED


QUEUES = [
    pytest.param("gone", [], "unable to find job queue: queue 'gone' does not exist", id="missing"),
    pytest.param("c", [queue("c", state="Closed")], "state `Open`, queue 'c' status is `Closed`", id="closed"),
    pytest.param("c", [queue("c", state="Closing")], "queue 'c' status is `Closing`", id="closing"),
    pytest.param("c", [queue("c", state="Unknown")], "queue 'c' status is `Unknown`", id="unknown"),
    pytest.param("root", [queue("root")], "can not submit job to root queue", id="root"),
    pytest.param("p", [queue("p"), queue("c", parent="p")], "leaf queue, queue 'p' has 1 child queue", id="parent"),
    pytest.param(
        "c", [queue("p", state="Closed"), queue("c", parent="p")], "queue 'p', an ancestor of 'c'", id="below-closed"
    ),
]


@pytest.mark.parametrize(("name", "queues", "expected"), QUEUES)
def test_unusable_queue_is_a_warning(name, queues, expected):
    response = validate(volcano_job(queue=name), queues=queue_cache(*queues, queue("other")))
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert expected in warning
    assert warning.endswith("; until then the job waits")


@pytest.mark.parametrize(("name", "queues", "expected"), QUEUES)
def test_unusable_queue_is_a_denial_when_configured(name, queues, expected):
    response = validate(
        volcano_job(queue=name),
        queues=queue_cache(*queues, queue("other")),
        policy=JobPolicy(denies_unusable_queues=True),
    )
    assert response.outcome is Outcome.DENIED
    assert expected in response.message
    assert response.depends_on_queues


@pytest.mark.parametrize("state", ["", "Open"])
def test_open_leaf_queue_is_allowed(state):
    queues = queue_cache(queue("p"), queue("c", parent="p", state=state))
    assert validate(volcano_job(queue="c"), queues=queues).outcome is Outcome.ALLOWED


@pytest.mark.parametrize("denies", [False, True])
def test_queues_are_not_checked_before_the_first_list(denies):
    job, policy = volcano_job(queue="gone"), JobPolicy(denies_unusable_queues=denies)
    assert validate(job, queues=QueueCache(), policy=policy).outcome is Outcome.ALLOWED


def test_queue_cycle_terminates():
    queues = queue_cache(queue("a", parent="b"), queue("b", parent="a"))
    assert validate(volcano_job(), queues=queues).outcome is Outcome.WARNED


def test_job_without_queue_is_checked_with_the_default_queue():
    job = volcano_job(queue="")
    assert validate(job, policy=JobPolicy(default_queue="a")).outcome is Outcome.ALLOWED
    assert "'x' does not exist" in validate(job, policy=JobPolicy(default_queue="x")).warnings[0]


def without_defaults(**spec):
    return {"metadata": {"name": "j", "namespace": "ml"}, "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"} | {
        "spec": spec
    }


DEFAULTED = [
    pytest.param(without_defaults(tasks=[{}]), "queue", "default", id="queue"),
    pytest.param(without_defaults(tasks=[{}]), "schedulerName", "volcano", id="scheduler"),
    pytest.param(without_defaults(tasks=[{}], schedulerName="mine"), "schedulerName", "mine", id="scheduler-unchanged"),
    pytest.param(without_defaults(tasks=[{}]), "maxRetry", 3, id="retries"),
    pytest.param(without_defaults(tasks=[{}], maxRetry=5), "maxRetry", 5, id="retries-unchanged"),
    pytest.param(without_defaults(tasks=[{}, {"name": "b"}, {}]), "tasks.2.name", "default2", id="task-name"),
    pytest.param(without_defaults(tasks=[{"replicas": 4}]), "tasks.0.minAvailable", 4, id="task-minimum"),
    pytest.param(
        without_defaults(tasks=[{"replicas": 4, "minAvailable": 0}]),
        "tasks.0.minAvailable",
        0,
        id="task-minimum-0-unchanged",
    ),
    pytest.param(without_defaults(tasks=[{}]), "tasks.0.maxRetry", 3, id="task-retries"),
    pytest.param(
        without_defaults(tasks=[{"replicas": 4}, {"replicas": 3, "minAvailable": 1}]), "minAvailable", 5, id="minimum"
    ),
    pytest.param(
        without_defaults(tasks=[{"replicas": 4}], minAvailable=0), "minAvailable", 4, id="an-explicit-0-is-unset"
    ),
    pytest.param(without_defaults(tasks=[{"replicas": 4}], minAvailable=2), "minAvailable", 2, id="minimum-unchanged"),
    pytest.param(
        without_defaults(
            tasks=[{"replicas": 8, "partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}}]
        ),
        "tasks.0.minAvailable",
        6,
        id="minimum-of-partitions",
    ),
    pytest.param(
        without_defaults(
            tasks=[{"replicas": 8, "partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}}]
        ),
        "minAvailable",
        6,
        id="minimum-follows-from-partitions",
    ),
    pytest.param(
        without_defaults(tasks=[{"template": {"spec": {"hostNetwork": True}}}]),
        "tasks.0.template.spec.dnsPolicy",
        "ClusterFirstWithHostNet",
        id="dns-of-a-host",
    ),
    pytest.param(
        without_defaults(tasks=[{"template": {"spec": {"hostNetwork": True, "dnsPolicy": "Default"}}}]),
        "tasks.0.template.spec.dnsPolicy",
        "Default",
        id="dns-unchanged",
    ),
    pytest.param(
        without_defaults(tasks=[{}], plugins={"pytorch": []}), "plugins", {"pytorch": [], "svc": []}, id="pytorch"
    ),
    pytest.param(
        without_defaults(tasks=[{}], plugins={"tensorflow": []}), "plugins", {"tensorflow": [], "svc": []}, id="tf"
    ),
    pytest.param(without_defaults(tasks=[{}], plugins={"ray": ["x"]}), "plugins", {"ray": ["x"], "svc": []}, id="ray"),
    pytest.param(
        without_defaults(tasks=[{}], plugins={"mpi": []}), "plugins", {"mpi": [], "svc": [], "ssh": []}, id="mpi"
    ),
    pytest.param(
        without_defaults(tasks=[{}], plugins={"mpi": [], "ssh": ["k"]}),
        "plugins",
        {"mpi": [], "svc": [], "ssh": ["k"]},
        id="ssh-unchanged",
    ),
    pytest.param(without_defaults(tasks=[{}], plugins={"env": []}), "plugins", {"env": []}, id="other-plugins"),
]


@pytest.mark.parametrize(("job", "path", "value"), DEFAULTED)
def test_volcano_defaults_are_set(job, path, value):
    place = mutated(job)[0]["spec"]
    for name in path.split("."):
        place = place[int(name)] if isinstance(place, list) else place[name]
    assert place == value


@pytest.mark.parametrize(
    ("named", "default", "stored"),
    [
        pytest.param("", "batch", "batch", id="empty"),
        pytest.param("default", "batch", "batch", id="as-the-definition-writes-it"),
        pytest.param("", "default", "default", id="empty-and-nothing-configured"),
        pytest.param("default", "default", "default", id="nothing-configured"),
        pytest.param("a", "batch", "a", id="named"),
    ],
)
def test_job_without_queue_gets_the_default_queue(named, default, stored):
    assert (
        mutated(without_defaults(tasks=[{}], queue=named), JobPolicy(default_queue=default))[0]["spec"]["queue"]
        == stored
    )


@pytest.mark.parametrize(
    ("before", "written", "stored"),
    [
        pytest.param("batch", "default", "batch", id="stays-in-the-default-queue"),
        pytest.param("batch", "", "batch", id="stays-where-it-was-emptied"),
        pytest.param("a", "default", "default", id="a-named-queue-is-not-kept-silently"),
        pytest.param("default", "default", "default", id="stored-before-the-operator-chose"),
        pytest.param("batch", "a", "a", id="another"),
    ],
)
def test_update_without_queue_stays_in_the_default_queue(before, written, stored):
    policy, old, new = JobPolicy(default_queue="batch"), volcano_job(queue=before), volcano_job(queue=written)
    after, paths = mutated(new, policy, old=old)
    assert after["spec"]["queue"] == stored
    assert paths == ([] if stored == written else ["/spec/queue"])
    response = validate(after, old=old, policy=policy)
    assert response.outcome is (Outcome.ALLOWED if stored == before else Outcome.DENIED)


def test_mutation_is_idempotent():
    whole, _ = mutated(without_defaults(tasks=[{"replicas": 2}, {}], plugins={"mpi": []}))
    assert mutated(whole) == (whole, [])


def test_mutation_leaves_other_fields_unchanged():
    before = without_defaults(
        tasks=[{"template": {"spec": {"containers": [{"name": "x", "env": [{"name": "A"}]}]}}}], minSuccess=1
    )
    after, _ = mutated(before)
    assert after["spec"]["tasks"][0]["template"] == before["spec"]["tasks"][0]["template"]
    assert after["spec"]["minSuccess"] == 1


@pytest.mark.parametrize("name", ["mpi-gang", "torchrun-gang"])
def test_example_jobs_are_allowed(name, examples):
    job, _ = mutated(examples(name))
    assert validate(job).outcome is Outcome.ALLOWED


def changed(before, **spec):
    after = copy.deepcopy(before)
    after["spec"] |= spec
    return after


BEFORE = volcano_job(task("m", 1), task("w", 4, minAvailable=2), minAvailable=3, priorityClassName="low", maxRetry=3)
CLAIM = volcano_job(volumes=[{"mountPath": "/d", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(BEFORE, BEFORE, id="nothing"),
        pytest.param(BEFORE, changed(BEFORE, minAvailable=1), id="minimum"),
        pytest.param(BEFORE, changed(BEFORE, priorityClassName="high"), id="priority-class"),
        pytest.param(BEFORE, changed(BEFORE, tasks=[task("m", 1), task("w", 2, minAvailable=2)]), id="replicas"),
        pytest.param(BEFORE, changed(BEFORE, tasks=[task("m", 1), task("w", 4, minAvailable=1)]), id="task-minimum"),
        pytest.param(BEFORE, changed(BEFORE, plugins={}, volumes=None), id="nothing-written-otherwise"),
        pytest.param(
            BEFORE, changed(BEFORE, tasks=[task("m", 1, cpu="1000m"), task("w", 4, minAvailable=2)]), id="same-amount"
        ),
        pytest.param(
            CLAIM,
            changed(CLAIM, volumes=[CLAIM["spec"]["volumes"][0] | {"volumeClaimName": "made"}]),
            id="claim-made-by-volcano",
        ),
    ],
)
def test_valid_update_is_allowed(before, after):
    assert validate(after, old=before).outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(BEFORE, changed(BEFORE, tasks=[task("m")]), "may not add or remove tasks", id="task-removed"),
        pytest.param(BEFORE, changed(BEFORE, queue="b"), "spec.queue", id="queue"),
        pytest.param(BEFORE, changed(BEFORE, maxRetry=4), "spec.maxRetry", id="retries"),
        pytest.param(BEFORE, changed(BEFORE, schedulerName="x"), "spec.schedulerName", id="scheduler"),
        pytest.param(BEFORE, changed(BEFORE, plugins={"svc": []}), "spec.plugins", id="plugins"),
        pytest.param(BEFORE, changed(BEFORE, runningEstimate="1h"), "spec.runningEstimate", id="unknown-member"),
        pytest.param(
            BEFORE,
            changed(BEFORE, tasks=[task("m", 1, cpu="2"), task("w", 4, minAvailable=2)]),
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec`",
            id="template",
        ),
        pytest.param(
            BEFORE, changed(BEFORE, tasks=[task("x", 1), task("w", 4, minAvailable=2)]), "spec.tasks", id="task-renamed"
        ),
        pytest.param(
            BEFORE,
            changed(BEFORE, tasks=[task("m", -1), task("w", 4)]),
            "'replicas' must be >= 0 in task: m",
            id="size",
        ),
        pytest.param(
            BEFORE,
            changed(BEFORE, tasks=[task("m", 1), task("w", 1, minAvailable=2)]),
            "'minAvailable' must be >= 0 and <= 'replicas' in task: w",
            id="replicas-below-minimum",
        ),
        pytest.param(BEFORE, changed(BEFORE, minAvailable=6), "must not be greater than total replicas", id="minimum"),
        pytest.param(BEFORE, changed(BEFORE, minAvailable=-1), "job 'minAvailable' must be >= 0", id="negative"),
        pytest.param(
            CLAIM,
            changed(CLAIM, volumes=[CLAIM["spec"]["volumes"][0] | {"mountPath": "/e"}]),
            "spec.volumes",
            id="mount-path",
        ),
    ],
)
def test_invalid_update_is_denied(before, after, expected):
    response = validate(after, old=before)
    assert response.outcome is Outcome.DENIED
    assert expected in response.message


GROWN = changed(BEFORE, tasks=[task("m", 1), task("w", 9, minAvailable=2)])


def running(job, phase):
    return job | {"status": {"state": {"phase": phase}}}


@pytest.mark.parametrize(
    ("resize", "end"),
    [
        (Resize(), "is evicted after 5m and queues again"),
        (Resize(action="Evict", grace_period="90s"), "is evicted after 90s and queues again"),
        (Resize(action="Report"), "continues to run and is reported"),
    ],
)
def test_resize_of_a_running_job_is_a_warning(resize, end):
    response = validate(running(GROWN, "Running"), old=running(BEFORE, "Running"), policy=JobPolicy(resize=resize))
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert "(w 4 -> 9)" in warning
    assert warning.endswith(end)
    # The API server truncates longer warnings.
    assert len(warning) <= 256


@pytest.mark.parametrize("phase", ["", "Aborted", "Completed", "Failed", "Terminated"])
def test_resize_of_an_inactive_job_is_not_warned_about(phase):
    assert validate(running(GROWN, phase), old=running(BEFORE, phase)).outcome is Outcome.ALLOWED


def test_scaling_down_is_not_warned_about():
    smaller = changed(BEFORE, tasks=[task("m", 1), task("w", 2, minAvailable=2)])
    assert validate(running(smaller, "Running"), old=running(BEFORE, "Running")).outcome is Outcome.ALLOWED


def test_exempt_namespace_is_neither_mutated_nor_validated():
    policy = JobPolicy(exempt_namespaces=frozenset({"ml"}))
    assert validate(volcano_job(tasks=[]), policy=policy).outcome is Outcome.EXEMPT
    assert mutated(without_defaults(tasks=[{}]), policy)[1] == []


@pytest.mark.parametrize("spec", [7, {"tasks": 7}, {"tasks": [{"replicas": "x"}]}, {"queue": []}, [], "x"])
def test_undecodable_object_is_denied_with_a_message(spec):
    job = without_defaults() | {"spec": spec}
    for response in (
        validate(job),
        mutate_job(make_request(job), POLICY),
        validate(job, old=BEFORE),
        validate(BEFORE, old=job),
    ):
        assert (response.outcome, response.code) == (Outcome.DENIED, 422)
        assert "cannot be decoded" in response.message


def test_deeply_nested_object_is_denied_with_a_message():
    deep = volcano_job()
    deep["spec"]["x"] = "DEEP"
    body = wire(review_of(deep, old=BEFORE, operation="UPDATE")).replace(b'"DEEP"', b"[" * 5000 + b"]" * 5000)
    try:
        response = validate_job(wire_review.read(body), POLICY, queue_cache())
    except wire_review.ReviewError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017 -- either of two decoders may report it
    else:
        assert response.outcome is Outcome.DENIED


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"operation": "DELETE"}, "not 'DELETE'"),
        ({"operation": "CONNECT"}, "not 'CONNECT'"),
        ({"resource": {"group": "batch", "version": "v1", "resource": "jobs"}}, "not 'batch/jobs'"),
        ({"subResource": "status"}, "not 'batch.volcano.sh/jobs/status'"),
    ],
)
def test_review_of_another_resource_names_the_rules(request_, expected):
    request = wire_review.read(
        wire(review_of(volcano_job()) | {"request": review_of(volcano_job())["request"] | request_})
    )
    for response in (validate_job(request, POLICY, queue_cache()), mutate_job(request, POLICY)):
        assert (response.outcome, response.code) == (Outcome.DENIED, 400)
        assert expected in response.message
        assert "correct the rules" in response.message


def restricted(*, denies, unmatched=False):
    tenant = Tenant(namespaces=("team-*",), queues=("a",), priority_classes=("normal",))
    return JobPolicy(denies_unusable_queues=denies, tenants=(tenant,), denies_unmatched_tenants=unmatched)


@pytest.mark.parametrize(
    ("namespace", "spec", "expected"),
    [
        pytest.param("team-a", {"queue": "a", "priorityClassName": "normal"}, None, id="allowed"),
        pytest.param("team-a", {"queue": "b"}, "may not use queue 'b'", id="queue"),
        pytest.param(
            "team-a", {"queue": "a", "priorityClassName": "high"}, "PriorityClass 'high'", id="class-of-the-job"
        ),
        pytest.param("team-a", {"queue": "a", "pods": "high"}, "PriorityClass 'high'", id="class-of-its-pods"),
        pytest.param("other", {"queue": "b", "pods": "high"}, None, id="unmatched"),
    ],
)
@pytest.mark.parametrize("denies", [False, True])
def test_tenant_restriction_is_a_warning_or_a_denial(namespace, spec, expected, denies):
    spec = dict(spec)
    new = volcano_job(queue=spec.pop("queue"))
    if pods := spec.pop("pods", None):
        new["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = pods
    new["spec"] |= spec
    new["metadata"]["namespace"] = namespace
    queues = queue_cache(queue("a"), queue("b"))
    response = validate(new, queues=queues, policy=restricted(denies=denies), namespace=namespace)
    if expected is None:
        assert response.outcome is Outcome.ALLOWED
    else:
        assert response.outcome is (Outcome.DENIED if denies else Outcome.WARNED)
        assert expected in (response.message if denies else response.warnings[0])


def test_unmatched_namespace_is_denied_when_configured():
    response = validate(
        volcano_job(queue="a"),
        queues=queue_cache(queue("a")),
        policy=restricted(denies=True, unmatched=True),
        namespace="x",
    )
    assert "namespace 'x' may not use queue 'a'" in response.message
