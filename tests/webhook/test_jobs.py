"""Tests reviews of jobs against a table of jobs with the answers of Volcano's own webhook."""

import copy

import pytest
import yaml

from controller.api.configuration import Resize, Tenant
from tests.files import EXAMPLES
from tests.webhook.reviews import (
    cached_queues,
    container,
    decoded,
    review_of,
    stored_after,
    task,
    volcano_job,
    volcano_queue,
    wire,
)
from webhook import review as wire_review
from webhook.queue_cache import QueueCache
from webhook.review import Outcome
from webhook.validation.job import JobPolicy, mutate_job, validate_job

POLICY, QUEUES = JobPolicy(), cached_queues("a", "b", "default")


def validate(new, *, old=None, policy=POLICY, queues=QUEUES, **request):
    return validate_job(decoded(new, old=old, **request), policy, queues)


def mutated(new, policy=POLICY, **request):
    """Return *new* with the defaults of the webhook, and the paths of the patch."""
    response = mutate_job(decoded(new, **request), policy)
    return stored_after(response, new), [operation.path for operation in response.patch]


def policies(*members):
    """Return a job with a lifecycle policy for each of *members*, which aborts it unless another action is given."""
    return volcano_job(policies=[{"action": "AbortJob"} | policy for policy in members])


def volumes(*members):
    """Return a job with a volume for each of *members*, mounted at `/d` unless another path is given."""
    return volcano_job(volumes=[{"mountPath": "/d"} | volume for volume in members])


def partitions(replicas, total, size, minimum=None, **policy):
    """Return a job whose task is divided into *total* partitions of *size* pods."""
    policy = {"totalPartitions": total, "partitionSize": size, **policy}
    return volcano_job(task(replicas=replicas, minAvailable=minimum, partitionPolicy=policy))


def pod(**members):
    """Return a job whose pods have these members."""
    spec = {"containers": [container()], "restartPolicy": "OnFailure"} | members
    return volcano_job(task(template={"spec": spec}))


def amounts(requests, limits=None):
    """Return a job with these requests and limits."""
    return pod(containers=[container(resources={"requests": requests, "limits": limits or {}})])


def depending(*names):
    """Return a job with two tasks, `a` which depends on *names*, and `b` which depends on `a`."""
    return volcano_job(task("a", dependsOn={"name": list(names)}), task("b", dependsOn={"name": ["a"]}))


TWO_TIERS = {"highestTierAllowed": 1, "highestTierName": "rack"}
GPU = "nvidia.com/gpu"
LONG = f"{'d' * 253}/{'r' * 64}"


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(volcano_job(), id="plain"),
        pytest.param(volcano_job(task(replicas=4, minAvailable=2), task("b", 2, minAvailable=0)), id="task-minimum"),
        pytest.param(volcano_job(task("a", replicas=0), task("b", 2), minAvailable=2), id="gang-minimum"),
        pytest.param(volcano_job(task("master"), task("worker", 2), plugins={"mpi": []}), id="mpi"),
        pytest.param(volcano_job(task("a"), plugins={"mpi": ["--master=a", "--worker=a"]}), id="mpi-with-named-tasks"),
        pytest.param(
            volcano_job(task("a"), plugins={"mpi": ["-worker=a", "-master=b", "--master=a"]}), id="mpi-last-flag"
        ),
        pytest.param(volcano_job(task("a"), plugins={"mpi": ["--worker", "a", "-master", "a"]}), id="mpi-separate"),
        pytest.param(volcano_job(plugins={"env": [], "svc": None, "ray": ["--x"]}), id="plugins"),
        pytest.param(policies({"event": "PodEvicted"}, {"events": ["PodFailed"]}, {"exitCode": 3}), id="policies"),
        pytest.param(policies({"event": "*"}), id="policy-of-any-event"),
        pytest.param(volumes({"volumeClaimName": "data"}, {"mountPath": "/e", "volumeClaim": {}}), id="volumes"),
        pytest.param(depending(), id="depends-on"),
        pytest.param(volcano_job(task(cpu="2", topologyPolicy="single-numa-node")), id="topology-with-whole-cpus"),
        pytest.param(volcano_job(task(cpu="500m", topologyPolicy="none")), id="no-topology-with-half-a-cpu"),
        pytest.param(partitions(8, 4, 2), id="partitions"),
        pytest.param(volcano_job(networkTopology={"mode": "hard", "highestTierAllowed": 2}), id="network-topology"),
        pytest.param(amounts({GPU: 1, "hugepages-2Mi": "4Mi"}, {GPU: "1"}), id="devices"),
        pytest.param(amounts({}, {GPU: 8}), id="devices-in-limits-alone"),
        pytest.param(volcano_job(ttlSecondsAfterFinished=0, maxRetry=0, name="n" * 54), id="extreme-values"),
    ],
)
def test_valid_job_is_allowed(job):
    assert validate(job).outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(volcano_job(tasks=[]), "No task specified in job spec", id="no-task"),
        pytest.param(volcano_job(tasks=None), "No task specified in job spec", id="tasks-null"),
        pytest.param(volcano_job(plugins={"mpi": []}), "mpi master task was not found", id="mpi-without-master"),
        pytest.param(
            volcano_job(networkTopology=TWO_TIERS), "must not specify highestTierAllowed and", id="tier-twice"
        ),
        pytest.param(
            volcano_job(task(replicas=2, minAvailable=3)), "'minAvailable' is greater than", id="task-minimum"
        ),
        pytest.param(volcano_job(task(replicas=-1)), "'replicas' < 0 in task: worker", id="negative-replicas"),
        pytest.param(volcano_job(task(minAvailable=-1)), "'minAvailable' < 0 in task: worker", id="negative-minimum"),
        pytest.param(volcano_job(task("a"), task("a")), "duplicated task name a", id="task-twice"),
        pytest.param(volcano_job(task("Worker_1")), "task name 'Worker_1'", id="task-name"),
        pytest.param(volcano_job(task("t" * 64)), "task name", id="task-name-too-long"),
        pytest.param(volcano_job(task("")), "task name ''", id="task-name-empty"),
        pytest.param(volcano_job(name="n" * 55), "create pod with name", id="pod-name-too-long"),
        pytest.param(volcano_job(name="n" * 64), "create job with name", id="job-name-too-long"),
        pytest.param(volcano_job(name="-x"), "create job with name", id="job-name"),
        pytest.param(volcano_job(minAvailable=2), "'minAvailable' should not be greater than total", id="minimum"),
        pytest.param(volcano_job(minAvailable=-1), "job 'minAvailable' must be >= 0", id="negative-job-minimum"),
        pytest.param(volcano_job(maxRetry=-1), "'maxRetry' cannot be less than zero", id="negative-retries"),
        pytest.param(volcano_job(ttlSecondsAfterFinished=-1), "'ttlSecondsAfterFinished' cannot be", id="negative-ttl"),
        pytest.param(volcano_job(runningEstimate="soon"), "spec.runningEstimate: ", id="running-estimate"),
        pytest.param(
            policies({"event": "PodFailed", "exitCode": 1}), "must not specify event and exitCode", id="two-causes"
        ),
        pytest.param(policies({}), "either event and exitCode should be specified", id="neither-event-nor-exit-code"),
        pytest.param(policies({"event": "CommandIssued"}), "invalid policy event 'CommandIssued'", id="internal-event"),
        pytest.param(policies({"event": "PodFailed", "action": "SyncJob"}), "invalid policy action", id="action"),
        pytest.param(policies({"event": "PodFailed", "action": ""}), "valid actions are [AbortJob", id="no-action"),
        pytest.param(policies({"event": "PodFailed"}, {"events": ["PodFailed"]}), "duplicate event", id="event-twice"),
        pytest.param(policies({"exitCode": 0}), "0 is not a valid error code", id="exit-code-0"),
        pytest.param(policies({"exitCode": 3}, {"exitCode": 3}), "duplicate exitCode 3", id="exit-code-twice"),
        pytest.param(policies({"event": "*"}, {"event": "PodFailed"}), "if there's * here", id="any-event-and-another"),
        pytest.param(volcano_job(task(policies=[{"event": "x"}])), "spec.tasks[0].policies: inv", id="task-policy"),
        pytest.param(volcano_job(plugins={"telepathy": []}), "unable to find job plugin: telepathy", id="plugin"),
        pytest.param(volumes({"mountPath": ""}), "mountPath is required", id="no-mount-path"),
        pytest.param(
            volumes({"volumeClaimName": "x"}, {"volumeClaim": {}}), "duplicated mountPath: /d", id="path-twice"
        ),
        pytest.param(volumes({}), "either VolumeClaim or VolumeClaimName", id="no-claim"),
        pytest.param(volumes({"volumeClaimName": "x", "volumeClaim": {}}), "conflict", id="two-claims"),
        pytest.param(volumes({"volumeClaimName": "X_"}), "invalid VolumeClaimName", id="claim-name"),
        pytest.param(depending("b"), "doesn't form a directed acyclic graph(DAG)", id="cycle"),
        pytest.param(depending("c"), "(DAG)", id="depends-on-a-missing-task"),
        pytest.param(depending("a"), "(DAG)", id="depends-on-itself"),
        pytest.param(
            volcano_job(task("a", dependsOn={"name": ["b", "b"]}), task("b")), "on each once", id="depends-on-it-twice"
        ),
        pytest.param(
            volcano_job(task(cpu="1500m", topologyPolicy="restricted")), "cpu request isn't an", id="half-a-cpu"
        ),
        pytest.param(volcano_job(task(cpu="0", topologyPolicy="best-effort")), "isn't an integer", id="no-cpu"),
        pytest.param(volcano_job(task(topologyPolicy="any")), "topologyPolicy: use one of", id="topology-policy"),
        pytest.param(partitions(9, 4, 2), "'replicas' must be equal to 'totalPartitions' *", id="partitions"),
        pytest.param(partitions(0, 0, 2), "'totalPartitions' must be greater than 0", id="no-partitions"),
        pytest.param(partitions(0, 2, 0), "'partitionSize' must be greater than 0", id="empty-partitions"),
        pytest.param(
            partitions(8, 4, 2, minimum=3, minPartitions=2), "equal to 'minPartitions' *", id="partition-minimum"
        ),
        pytest.param(partitions(2, 1, 2, networkTopology=TWO_TIERS), "simultaneously", id="partition-tier-twice"),
        pytest.param(pod(containers=[]), "spec.task[0].template.spec.containers: Required", id="no-container"),
        pytest.param(pod(initContainers=[container()]), "containers[0].name: Duplicate value", id="container-twice"),
        pytest.param(pod(containers=[container("Main")]), "name: Invalid value", id="container-name"),
        pytest.param(pod(containers=[container(image="")]), "image: Required value", id="no-image"),
        pytest.param(pod(restartPolicy="Sometimes"), "restartPolicy: Unsupported", id="restart-policy"),
        pytest.param(pod(dnsPolicy="Mine"), "dnsPolicy: Unsupported value", id="dns-policy"),
        pytest.param(amounts({"cpu": "-1"}), "must be greater than or equal to 0", id="negative-cpu"),
        pytest.param(amounts({"cpu": "many"}, {"cpu": 1}), "is not a quantity", id="no-quantity"),
        pytest.param(amounts({"cpu": 2}, {"cpu": 1}), "less than or equal to cpu limit", id="above-its-limit"),
        pytest.param(amounts({GPU: 1}), "an extended resource needs an equal limit", id="no-limit"),
        pytest.param(amounts({GPU: 1}, {GPU: 2}), "must be equal to nvidia.com/gpu limit", id="another-limit"),
        pytest.param(amounts({}, {GPU: "500m"}), "must be an integer", id="half-a-device"),
        pytest.param(amounts({"gpu": 1}), "must be a standard resource for containers", id="resource"),
        pytest.param(amounts({}, {LONG: 1}), "has 318 characters; use at most 317", id="resource-name-too-long"),
        pytest.param(volcano_job(queue="q" * 254), "spec.queue has 254 characters", id="queue-too-long"),
        pytest.param(volcano_job(priorityClassName="c" * 254), "has 254 characters: use", id="priority-class-too-long"),
    ],
)
def test_invalid_job_is_denied(job, expected):
    response = validate(job)
    assert (response.outcome, response.code) == (Outcome.DENIED, 422)
    assert expected in response.message
    assert response.message.startswith(f"job ml/{job['metadata']['name']}: ")


def test_mpi_job_without_workers_is_a_warning():
    response = validate(volcano_job(task("master"), plugins={"mpi": []}))
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert "mpi worker task was not found" in warning
    assert "Volcano 1.14 and older refuse the job" in warning


def test_all_violations_are_reported_together():
    message = validate(volcano_job(task("A", replicas=-1), plugins={"x": []})).message
    assert all(expected in message for expected in ("task name 'A'", "'replicas' < 0", "plugin: x"))


def test_generated_name_is_validated_with_its_suffix():
    job = volcano_job()
    job["metadata"] = {"generateName": "n" * 50, "namespace": "ml"}
    assert "create pod with name" in validate(job, name="").message
    job["metadata"]["generateName"] = "n-"
    assert validate(job, name="").outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("name", "queues", "expected"),
    [
        pytest.param("gone", [], "unable to find job queue: queue 'gone' does not exist", id="missing"),
        pytest.param(
            "c", [volcano_queue("c", state="Closed")], "state `Open`, queue 'c' status is `Closed`", id="closed"
        ),
        pytest.param("c", [volcano_queue("c", state="Closing")], "queue 'c' status is `Closing`", id="closing"),
        pytest.param("c", [volcano_queue("c", state="Unknown")], "queue 'c' status is `Unknown`", id="unknown"),
        pytest.param("root", ["root"], "can not submit job to root queue", id="root"),
        pytest.param(
            "p", ["p", volcano_queue("c", parent="p")], "leaf queue, queue 'p' has 1 child queue", id="parent"
        ),
        pytest.param(
            "c",
            [volcano_queue("p", state="Closed"), volcano_queue("c", parent="p")],
            "'p', an ancestor of 'c'",
            id="below",
        ),
    ],
)
def test_unusable_queue_is_a_warning_or_a_denial(name, queues, expected):
    job, queues = volcano_job(queue=name), cached_queues(*queues, "other")
    response = validate(job, queues=queues)
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert expected in warning
    assert warning.endswith("; until then the job waits")
    strict = validate(job, queues=queues, policy=JobPolicy(denies_unusable_queues=True))
    assert (strict.outcome, strict.depends_on_queues) == (Outcome.DENIED, True)
    assert expected in strict.message


@pytest.mark.parametrize("state", ["", "Open"])
def test_open_leaf_queue_is_allowed(state):
    queues = cached_queues("p", volcano_queue("c", parent="p", state=state))
    assert validate(volcano_job(queue="c"), queues=queues).outcome is Outcome.ALLOWED


@pytest.mark.parametrize("denies", [False, True])
def test_queues_are_not_checked_before_the_first_list(denies):
    job, policy = volcano_job(queue="gone"), JobPolicy(denies_unusable_queues=denies)
    assert validate(job, queues=QueueCache(), policy=policy).outcome is Outcome.ALLOWED


def test_queue_cycle_terminates():
    queues = cached_queues(volcano_queue("a", parent="b"), volcano_queue("b", parent="a"))
    assert validate(volcano_job(), queues=queues).outcome is Outcome.WARNED


def test_job_without_queue_is_checked_with_the_default_queue():
    job = volcano_job(queue="")
    assert validate(job, policy=JobPolicy(default_queue="a")).outcome is Outcome.ALLOWED
    assert "'x' does not exist" in validate(job, policy=JobPolicy(default_queue="x")).warnings[0]


def without_defaults(*tasks, **spec):
    """Return a job of *tasks*, or of an empty one, without the defaults."""
    metadata = {"name": "j", "namespace": "ml"}
    spec = {"tasks": list(tasks) or [{}], **spec}
    return {"metadata": metadata, "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec}


def plugins(**members):
    return without_defaults(plugins=members)


def on_host(**members):
    return without_defaults({"template": {"spec": {"hostNetwork": True} | members}})


PARTITIONED = {"replicas": 8, "partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}}
SMALL = {"replicas": 3, "minAvailable": 1}
DNS = "tasks.0.template.spec.dnsPolicy"


@pytest.mark.parametrize(
    ("job", "path", "value"),
    [
        pytest.param(without_defaults(), "queue", "default", id="queue"),
        pytest.param(without_defaults(), "schedulerName", "volcano", id="scheduler"),
        pytest.param(without_defaults(schedulerName="mine"), "schedulerName", "mine", id="scheduler-unchanged"),
        pytest.param(without_defaults(), "maxRetry", 3, id="retries"),
        pytest.param(without_defaults(maxRetry=5), "maxRetry", 5, id="retries-unchanged"),
        pytest.param(without_defaults({}, {"name": "b"}, {}), "tasks.2.name", "default2", id="task-name"),
        pytest.param(without_defaults({"replicas": 4}), "tasks.0.minAvailable", 4, id="task-minimum"),
        pytest.param(without_defaults({"minAvailable": 0}), "tasks.0.minAvailable", 0, id="task-minimum-0"),
        pytest.param(without_defaults(), "tasks.0.maxRetry", 3, id="task-retries"),
        pytest.param(without_defaults({"replicas": 4}, SMALL), "minAvailable", 5, id="minimum"),
        pytest.param(without_defaults({"replicas": 4}, minAvailable=0), "minAvailable", 4, id="an-explicit-0-is-unset"),
        pytest.param(without_defaults({"replicas": 4}, minAvailable=2), "minAvailable", 2, id="minimum-unchanged"),
        pytest.param(without_defaults(PARTITIONED), "tasks.0.minAvailable", 6, id="task-minimum-of-partitions"),
        pytest.param(without_defaults(PARTITIONED), "minAvailable", 6, id="minimum-of-partitions"),
        pytest.param(on_host(), DNS, "ClusterFirstWithHostNet", id="dns"),
        pytest.param(on_host(dnsPolicy="Default"), DNS, "Default", id="dns-unchanged"),
        pytest.param(plugins(pytorch=[]), "plugins", {"pytorch": [], "svc": []}, id="pytorch"),
        pytest.param(plugins(tensorflow=[]), "plugins", {"tensorflow": [], "svc": []}, id="tensorflow"),
        pytest.param(plugins(ray=["x"]), "plugins", {"ray": ["x"], "svc": []}, id="ray"),
        pytest.param(plugins(mpi=[]), "plugins", {"mpi": [], "svc": [], "ssh": []}, id="mpi"),
        pytest.param(plugins(mpi=[], ssh=["k"]), "plugins", {"mpi": [], "svc": [], "ssh": ["k"]}, id="ssh-unchanged"),
        pytest.param(plugins(env=[]), "plugins", {"env": []}, id="other-plugins"),
    ],
)
def test_volcano_defaults_are_set(job, path, value):
    place = mutated(job)[0]["spec"]
    for name in path.split("."):
        place = place[int(name)] if isinstance(place, list) else place[name]
    assert place == value


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


def test_manifest_that_is_applied_again_keeps_its_defaults():
    """The task has no name, the pods use the network of their host, and a plugin needs another one."""
    pods = {"template": {"spec": {"hostNetwork": True, "containers": [container()], "restartPolicy": "Never"}}}
    written = without_defaults({"replicas": 2} | pods, plugins={"pytorch": []})
    stored, _ = mutated(written)
    assert mutated(written, old=stored)[0] == stored
    resized, _ = mutated(without_defaults({"replicas": 4} | pods, plugins={"pytorch": []}), old=stored)
    assert resized["spec"]["tasks"][0]["name"] == "default0"
    assert validate(resized, old=stored).outcome is Outcome.ALLOWED


@pytest.mark.parametrize("given", [{}, {"minAvailable": 2}], ids=["default", "given"])
def test_minimum_that_an_update_leaves_out_follows_the_size(given):
    stored, _ = mutated(volcano_job(task(replicas=3), **given))
    resized, _ = mutated(volcano_job(task(replicas=5)), old=stored)
    assert (resized["spec"]["minAvailable"], resized["spec"]["tasks"][0]["minAvailable"]) == (5, 5)
    assert validate(resized, old=stored).outcome is not Outcome.DENIED


@pytest.mark.parametrize("old", [on_host(), on_host(dnsPolicy="Default")], ids=["without-defaults", "other-value"])
def test_update_sets_no_default_that_the_job_does_not_have(old):
    new = without_defaults({"template": {"spec": {"hostNetwork": True}}, "name": "x"}, queue="b", maxRetry=9)
    assert mutated(new, old=old)[1] == []


def test_mutation_is_idempotent_and_leaves_other_fields():
    template = {"spec": {"containers": [{"name": "x", "env": [{"name": "A"}]}]}}
    whole, _ = mutated(without_defaults({"replicas": 2, "template": template}, {}, plugins={"mpi": []}, minSuccess=1))
    assert (whole["spec"]["tasks"][0]["template"], whole["spec"]["minSuccess"]) == (template, 1)
    assert mutated(whole) == (whole, [])


@pytest.mark.parametrize("name", ["mpi-gang", "torchrun-gang"])
def test_example_jobs_are_allowed(name):
    objects = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())
    job, _ = mutated(next(manifest for manifest in objects if manifest["kind"] == "Job"))
    assert validate(job).outcome is Outcome.ALLOWED


def changed(before, **spec):
    after = copy.deepcopy(before)
    after["spec"] |= spec
    return after


def sized(replicas, minimum=2, *, name="m", cpu="1"):
    """Return `BEFORE` with another size of its task `w`, or another name or request of its task `m`."""
    return changed(BEFORE, tasks=[task(name, cpu=cpu), task("w", replicas, minAvailable=minimum)])


BEFORE = volcano_job(task("m", 1), task("w", 4, minAvailable=2), minAvailable=3, priorityClassName="low", maxRetry=3)
NEW_CLAIM = {"volumeClaim": {"accessModes": ["ReadWriteOnce"]}}
CLAIM = volumes(NEW_CLAIM)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(BEFORE, BEFORE, id="nothing"),
        pytest.param(BEFORE, changed(BEFORE, minAvailable=1), id="minimum"),
        pytest.param(BEFORE, changed(BEFORE, priorityClassName="high"), id="priority-class"),
        pytest.param(BEFORE, sized(2), id="replicas"),
        pytest.param(BEFORE, sized(4, minimum=1), id="task-minimum"),
        pytest.param(BEFORE, changed(BEFORE, plugins={}, volumes=None), id="nothing-written-otherwise"),
        pytest.param(BEFORE, sized(4, cpu="1000m"), id="same-amount"),
        pytest.param(CLAIM, volumes(NEW_CLAIM | {"volumeClaimName": "made"}), id="claim-made-by-volcano"),
    ],
)
def test_valid_update_is_allowed(before, after):
    assert validate(after, old=before).outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(changed(BEFORE, tasks=[task("m")]), "may not add or remove tasks", id="task-removed"),
        pytest.param(changed(BEFORE, queue="b"), "spec.queue", id="queue"),
        pytest.param(changed(BEFORE, plugins={"svc": []}), "spec.plugins", id="plugins"),
        pytest.param(changed(BEFORE, runningEstimate="1h"), "spec.runningEstimate", id="unknown-member"),
        pytest.param(sized(4, cpu="2"), "may not change fields other than `minAvailable`", id="template"),
        pytest.param(sized(4, name="x"), "spec.tasks", id="task-renamed"),
        pytest.param(sized(-1), "'replicas' must be >= 0 in task: w", id="replicas"),
        pytest.param(sized(1), "'minAvailable' must be >= 0 and <= 'replicas' in task: w", id="replicas-below-minimum"),
        pytest.param(changed(BEFORE, minAvailable=6), "must not be greater than total replicas", id="minimum"),
        pytest.param(changed(BEFORE, minAvailable=-1), "job 'minAvailable' must be >= 0", id="negative-minimum"),
        pytest.param(changed(BEFORE, volumes=[{"mountPath": "/e"}]), "spec.volumes", id="volumes"),
    ],
)
def test_invalid_update_is_denied(after, expected):
    response = validate(after, old=BEFORE)
    assert response.outcome is Outcome.DENIED
    assert expected in response.message


def resized(replicas, phase, **policy):
    """Return the answer to a job in *phase* whose task `w` gets so many replicas instead of four."""
    status = {"status": {"state": {"phase": phase}}}
    return validate(sized(replicas) | status, old=BEFORE | status, **policy)


@pytest.mark.parametrize(
    ("resize", "end"),
    [
        pytest.param(Resize(), "is evicted after 5m and queues again", id="default"),
        pytest.param(Resize(grace_period="90s"), "is evicted after 90s and queues again", id="grace-period"),
        pytest.param(Resize(action="Report"), "continues to run and is reported", id="report"),
    ],
)
def test_resize_of_a_running_job_is_a_warning(resize, end):
    response = resized(9, "Running", policy=JobPolicy(resize=resize))
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert "(w 4 -> 9)" in warning
    assert warning.endswith(end)
    # The API server truncates longer warnings.
    assert len(warning) <= 256


@pytest.mark.parametrize("phase", ["", "Aborted", "Completed", "Failed", "Terminated"])
def test_resize_of_an_inactive_job_is_not_warned_about(phase):
    assert resized(9, phase).outcome is Outcome.ALLOWED
    assert resized(2, "Running").outcome is Outcome.ALLOWED, "a smaller job frees quota"


def test_deeply_nested_object_is_denied_with_a_message():
    deep = volcano_job(x="DEEP")
    body = wire(review_of(deep, old=BEFORE, operation="UPDATE")).replace(b'"DEEP"', b"[" * 5000 + b"]" * 5000)
    try:
        response = validate_job(wire_review.read(body), POLICY, QUEUES)
    except wire_review.ReviewError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017 -- either of two decoders may report it
    else:
        assert response.outcome is Outcome.DENIED


TENANT = Tenant(namespaces=("team-*",), queues=("a",), priority_classes=("normal",))


@pytest.mark.parametrize(
    ("namespace", "queue_name", "classes", "expected"),
    [
        pytest.param("team-a", "a", ("normal", ""), None, id="allowed"),
        pytest.param("team-a", "b", ("", ""), "may not use queue 'b'", id="queue"),
        pytest.param("team-a", "a", ("high", ""), "PriorityClass 'high'", id="class-of-the-job"),
        pytest.param("team-a", "a", ("", "high"), "PriorityClass 'high'", id="class-of-its-pods"),
        pytest.param("other", "b", ("", "high"), None, id="unmatched"),
    ],
)
def test_tenant_restriction_is_a_warning_or_a_denial(namespace, queue_name, classes, expected):
    new = volcano_job(queue=queue_name, priorityClassName=classes[0])
    new["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = classes[1]
    new["metadata"]["namespace"] = namespace
    lax, strict = (
        validate(new, policy=JobPolicy(denies_unusable_queues=denies, tenants=(TENANT,)), namespace=namespace)
        for denies in (False, True)
    )
    if expected is None:
        assert lax.outcome is strict.outcome is Outcome.ALLOWED
    else:
        assert (lax.outcome, strict.outcome) == (Outcome.WARNED, Outcome.DENIED)
        assert expected in lax.warnings[0]
        assert expected in strict.message


@pytest.mark.parametrize(
    ("namespace", "named"),
    [("team-a", "use one of them, as 'a'"), ("team-b", "name another in spec.queue"), ("x", "use one of them, as '0'")],
)
def test_child_queue_of_other_tenants_is_not_named(namespace, named):
    """Tenants may not list queues, which have the names of other tenants."""
    tenants = tuple(Tenant(namespaces=(f"team-{queue}",), queues=(queue,)) for queue in "ab")
    queues = cached_queues("p", volcano_queue("0", parent="p"), volcano_queue("a", parent="p"))
    policy = JobPolicy(tenants=tenants)
    response = validate(volcano_job(queue="p"), policy=policy, queues=queues, namespace=namespace)
    assert response.warnings[-1].partition("; until")[0].endswith(f"queue 'p' has 2 child queues: {named}")


def test_unmatched_namespace_is_denied_when_configured():
    policy = JobPolicy(denies_unusable_queues=True, tenants=(TENANT,), denies_unmatched_tenants=True)
    response = validate(volcano_job(), policy=policy, namespace="x")
    assert "namespace 'x' may not use queue 'a'" in response.message
