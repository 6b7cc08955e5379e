import pytest

from controller.api.configuration import Tenant
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.files import EXAMPLES, read_object
from tests.webhook.reviews import cached_queues, decoded, stored_after
from webhook.review import Outcome
from webhook.validation.hyperjob import mutate_hyperjob, validate_hyperjob
from webhook.validation.job import JobPolicy

POLICY, QUEUES = JobPolicy(default_queue="common"), cached_queues("ml", "common")


def validate(new, *, policy=POLICY, queues=QUEUES, **request):
    return validate_hyperjob(decoded(new, **request), policy, queues)


def documented():
    return read_object(EXAMPLES / "hyperjob-conceptual.yaml")


def mutated(new, **request):
    return stored_after(mutate_hyperjob(decoded(new, **request), POLICY), new)


def queues_of(*queues):
    """Return a HyperJob with a job in each of these queues; ``None`` names none."""
    named = [{"queue": queue} if queue is not None else {} for queue in queues]
    jobs = [replicated(f"job-{index}") for index in range(len(queues))]
    for job, fields in zip(jobs, named, strict=True):
        job["templateSpec"] = {"tasks": job["templateSpec"]["tasks"], **fields}
    return document(*jobs)


@pytest.mark.parametrize(
    ("named", "stored"), [(None, "common"), ("default", "common"), ("ml", "ml")], ids=["none", "default", "named"]
)
def test_template_without_queue_gets_the_default_queue(named, stored):
    jobs, documents = [replicated("x"), replicated("y")], documented()
    for spec in (jobs[0]["templateSpec"], documents["spec"]["template"]["spec"]):
        spec.pop("queue")
        spec.update({"queue": named} if named else {})
    replicated_jobs = mutated(document(*jobs))["spec"]["replicatedJobs"]
    assert [job["templateSpec"]["queue"] for job in replicated_jobs] == [stored, "ml"]
    assert mutated(documents)["spec"]["template"]["spec"]["queue"] == stored


@pytest.mark.parametrize(
    ("before", "written", "stored"),
    [
        pytest.param(["common", "ml"], [None, "ml"], ["common", "ml"], id="stays-in-the-default-queue"),
        pytest.param(["common"], ["default", None], ["common", "common"], id="new-job"),
        pytest.param(["ml"], [None], [None], id="a-named-queue-is-not-kept-silently"),
        pytest.param([None], [None], [None], id="stored-without-the-webhook"),
        pytest.param(["common"], ["ml"], ["ml"], id="another"),
    ],
)
def test_reapplied_manifest_stays_in_the_default_queue(before, written, stored):
    """A changed queue would stop the parts and create them again."""
    assert mutated(queues_of(*written), old=queues_of(*before)) == queues_of(*stored)


def test_update_of_an_unreadable_hyperjob_is_not_refused():
    unreadable = {**queues_of("ml"), "spec": {"replicatedJobs": 1}}
    assert mutated(unreadable, old=unreadable) == unreadable


def test_hyperjob_of_too_many_values_is_refused_undecoded():
    amounts = {f"r{number}": [] for number in range(20_000)}
    containers = {"containers": [{"resources": {"requests": amounts}}]}
    new = document(replicated("t", {"name": "w", "template": {"spec": containers}}))
    for response in (mutate_hyperjob(decoded(new), POLICY), validate(new)):
        assert response.message == "hyperjob ml/llm: its spec has more than 20000 values; make its templates smaller"
    assert mutated(new, old=document()) == new
    assert validate(new, old=document(), operation="UPDATE").outcome is Outcome.DENIED


def test_status_that_a_user_writes_is_not_read():
    """The API server drops it after the webhook."""
    written = {**document(), "status": {"split": {"parts": [1] * 1_000}}}
    assert mutated(written) == written
    assert validate(written).outcome is Outcome.ALLOWED


def test_documented_manifest_is_allowed():
    assert validate(documented(), queues=cached_queues("global-ai")).outcome is Outcome.ALLOWED
    assert mutated(documented()) == documented()


@pytest.mark.parametrize(
    ("tasks", "outcome"),
    [((task(""), task("")), Outcome.ALLOWED), ((task("default1"), task("")), Outcome.DENIED)],
    ids=["unnamed", "name-taken"],
)
def test_tasks_without_names_get_those_of_volcano(tasks, outcome):
    assert validate(document(replicated("t", *tasks))).outcome is outcome


@pytest.mark.parametrize(("replicas", "outcome"), [(10, Outcome.ALLOWED), (11, Outcome.DENIED)])
def test_names_of_the_pods_of_the_last_part_are_validated(replicas, outcome):
    name = "h" * (63 - len("-t-9-worker-0"))
    response = validate(document(replicated("t", replicas=replicas), name=name))
    assert response.outcome is outcome
    assert ("-t-10-worker-0' validate failed: shorten" in response.message) is (outcome is Outcome.DENIED)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_hyperjob_that_cannot_be_split_is_refused(operation):
    response = validate(document(replicated("t", splitPolicy={"strategy": "ByReplicas"})), operation=operation)
    assert (response.outcome, response.code) == (Outcome.DENIED, 422)
    assert response.message == (
        "hyperjob ml/llm: replicated job 't': a split ByReplicas needs splitPolicy.parts, or splitPolicy.clusters with"
        " their weights"
    )


@pytest.mark.parametrize(
    ("plugins", "violation"),
    [({"typo": []}, "unable to find job plugin: typo"), ({"mpi": []}, "mpi plugin finds no master task")],
    ids=["unknown", "no-master"],
)
def test_plugins_of_all_jobs_are_validated(plugins, violation):
    response = validate(document(replicated("t"), plugins=plugins))
    assert (response.outcome, violation in response.message) == (Outcome.DENIED, True)


@pytest.mark.parametrize(
    ("before", "replicas", "outcome"),
    [(None, 3, Outcome.DENIED), (3, 3, Outcome.ALLOWED), (3, 4, Outcome.DENIED)],
    ids=["new", "unchanged", "with-more-parts"],
)
def test_hyperjob_keeps_its_parts_when_the_maximum_is_lowered(before, replicas, outcome):
    new = document(replicated("t", replicas=replicas), suspend=True)
    request = {"operation": "UPDATE", "old": document(replicated("t", replicas=before))} if before else {}
    assert validate(new, policy=JobPolicy(max_parts=2), queues=cached_queues("ml"), **request).outcome is outcome


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            document(replicated("t", task("a"), task("a"))), "job 't': duplicated task name a", id="volcano-rule"
        ),
        pytest.param(
            document(replicated("t", splitPolicy="auto")),
            "spec.replicatedJobs[0].splitPolicy: input should be a mapping",
            id="no-mapping",
        ),
        pytest.param(document(minAvailable="two"), "spec.minAvailable: input should be a valid integer", id="field"),
    ],
)
def test_invalid_template_or_field_is_named(new, expected):
    assert expected in validate(new).message


def test_missing_queue_is_a_warning_or_a_denial():
    response = validate(document(), queues=cached_queues("other"))
    assert response.outcome is Outcome.WARNED
    assert response.warnings[0].endswith("until then the HyperJob waits")
    strict = validate(document(), queues=cached_queues("other"), policy=JobPolicy(denies_unusable_queues=True))
    assert (strict.outcome, strict.depends_on_queues) == (Outcome.DENIED, True)


def test_tenant_priority_classes_apply_to_template_pods():
    tenant = Tenant(namespaces=("ml",), priority_classes=("normal",))
    high = task("a")
    high["template"]["spec"]["priorityClassName"] = "high"
    policy = JobPolicy(default_queue="common", denies_unusable_queues=True, tenants=(tenant,))
    response = validate(document(replicated("t", high)), policy=policy)
    assert "namespace 'ml' may not use PriorityClass 'high'" in response.message
