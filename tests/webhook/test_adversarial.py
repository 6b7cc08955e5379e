"""Tests that a review costs CPU in proportion to its bytes, for any content, and that large reviews delay no others."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from controller.api import quantity
from tests.controllers.hyperjob.objects import document, replicated
from tests.webhook.fuzz import answer_to
from tests.webhook.reviews import container, job_binding, review, review_of, task, volcano_job, volcano_queue, wire
from webhook import review as reviews
from webhook.app import BusyError, ReviewWorker
from webhook.review import MAX_MESSAGE_LENGTH, MAX_VALUES, validate_value_count
from webhook.validation import hyperjob, job_types
from webhook.validation.job_types import MAX_TASKS

#: Maximum cost ratio for four times the bytes: linear work, plus larger dictionaries and colder caches.
MAX_RATIO = 8
KIB, MIB = 1 << 10, 1 << 20
BINDINGS, JOBS, HYPERJOBS, QUEUES = (
    "/resourcebindings/mutate",
    "/jobs/validate",
    "/hyperjobs/validate",
    "/queues/validate",
)


def bare(n: int, **members: Any) -> dict[str, Any]:
    """Return the shortest valid task."""
    return {"name": f"t{n}", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}} | members


def job_of(count: int, one: Callable[[int], dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return the review of a job of *count* tasks."""
    return review_of(volcano_job(*map(one, range(count)), **spec))


def depending(n: int, *, on: range) -> dict[str, Any]:
    return bare(n, dependsOn={"name": [f"t{other}" for other in on]})


def amounts(count: int, value: str = "1") -> dict[str, Any]:
    """Return the review of a job that requests *count* resources."""
    asked = {f"example.com/r{n}": value for n in range(count)}
    return review_of(volcano_job(task(template={"spec": {"containers": [container(resources={"requests": asked})]}})))


def changed(count: int) -> dict[str, Any]:
    """Return the review of an update that changes *count* tasks and adds *count* members."""
    old, new = ([bare(n, maxRetry=retries) for n in range(count)] for retries in (1, 2))
    members = {f"m{n}": 1 for n in range(count)}
    return review_of(volcano_job(*new, **members), old=volcano_job(*old), operation="UPDATE")


def hyperjob_of(
    count: int, name: Callable[[int], str], queue: Callable[[int], str] = lambda _: "ml", *, hyperjob: str = "llm"
) -> dict[str, Any]:
    return review_of(document(*(replicated(name(n), spec={"queue": queue(n)}) for n in range(count)), name=hyperjob))


def template_of(count: int, plugins: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """Return the review of a HyperJob of one template with *count* tasks."""
    job = replicated("t", *(bare(n, replicas=1 + n % 2) for n in range(count)), **members)
    job["templateSpec"]["plugins"] = plugins
    for one in job["templateSpec"]["tasks"]:
        one["template"]["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    return review_of(document(job))


def scaled(count: int) -> dict[str, Any]:
    asked = {"accelerators": count + count // 2, "acceleratorType": "nvidia.com/gpu"}
    return template_of(count, splitPolicy={"strategy": "ByReplicas", "parts": 2, **asked})


def spliced(count: int, one: Callable[[int], bytes], around: bytes = b'{"spec": [%s]}') -> bytes:
    """Return the review of a binding that contains *count* pieces of JSON text."""
    text = b",".join(map(one, range(count)))
    return wire(review("PLACE")).replace(b'"PLACE"', around.replace(b"%s", text))


ATTACKS = [
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(t + 1, min(t + 2, n)))), id="chain"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(max(t - 1, 0), t))), id="reversed-chain"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(max(t - 50, 0), t))), id="on-fifty-others"),
    pytest.param(JOBS, lambda n: job_of(1, lambda t: depending(t, on=range(n))), id="one-task-depends-on-many"),
    pytest.param("/jobs/mutate", lambda n: job_of(n, lambda _: {}), id="empty-tasks"),
    pytest.param(JOBS, lambda n: job_of(n, lambda _: {}), id="empty-tasks-validated"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: bare(t, replicas=-1), name="x" * n * 40), id="long-job-name"),
    pytest.param(
        JOBS,
        lambda n: job_of(1, lambda _: task(template={"spec": {"containers": [container(f"c{c}") for c in range(n)]}})),
        id="containers",
    ),
    pytest.param(JOBS, amounts, id="resources"),
    pytest.param(JOBS, lambda n: amounts(n, "9" * 110 + "e99"), id="long-quantities"),
    pytest.param(
        JOBS,
        lambda n: review_of(volcano_job(volumes=[{"mountPath": f"/{v}", "volumeClaimName": "a.b"} for v in range(n)])),
        id="volumes",
    ),
    pytest.param(JOBS, lambda n: job_of(n, bare, plugins={"mpi": ["--master=t0"] * n}), id="mpi-arguments"),
    pytest.param(
        JOBS,
        lambda n: review_of(volcano_job(policies=[{"exitCode": p + 1, "action": "AbortJob"} for p in range(n)])),
        id="policies",
    ),
    pytest.param(JOBS, changed, id="changed-tasks-and-members"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda k: b'"k%d":1' % (k or 1), b'{"spec":{%s}}'), id="repeated-key"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b'"":0', b"{%s}"), id="one-key-again-and-again"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b"{}"), id="empty-objects-with-blanks"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b'{"a": ' * 400 + b"0" + b"}" * 400), id="deep-with-blanks"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format), id="replicated-jobs"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, lambda j: f"j{j // 2}"), id="replicated-jobs-of-one-name"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format, "q{}".format), id="replicated-jobs-in-many-queues"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format, hyperjob="x" * n * 100), id="long-hyperjob-name"),
    pytest.param(HYPERJOBS, template_of, id="template"),
    pytest.param(HYPERJOBS, scaled, id="template-scaled"),
    pytest.param(HYPERJOBS, lambda n: template_of(n, {"mpi": ["--master=none"] * n}), id="template-with-mpi-arguments"),
    pytest.param(HYPERJOBS, lambda n: review_of(document(*[{"name": 1}] * n)), id="wrong-fields-of-a-hyperjob"),
    pytest.param(
        QUEUES,
        lambda n: review_of(volcano_queue("a", capability={f"example.com/r{r}": "1" for r in range(n)}, parent="p")),
        id="capabilities",
    ),
    pytest.param(
        QUEUES,
        lambda n: review_of(
            volcano_queue(
                annotations={
                    "volcano.sh/hierarchy": "root" + "/a" * n,
                    "volcano.sh/hierarchy-weights": "1" + "/1" * n,
                }
            )
        ),
        id="long-hierarchy",
    ),
]


def body_of(make: Callable[[int], Any], size: int) -> bytes:
    """Return the body that *make* generates for the count that gives about *size* bytes."""

    def body(count: int) -> bytes:
        made = make(count)
        return made if isinstance(made, bytes) else wire(made)

    sample = len(body(64)) - len(body(32))
    return body(max(size * 32 // sample, 1))


def cost(path: str, body: bytes) -> float:
    """Return the least CPU seconds of reviewing *body* in three runs."""
    seconds = []
    for _ in range(3):
        quantity._amount.cache_clear()
        began = time.process_time()
        answer_to(path, body)
        seconds.append(time.process_time() - began)
    return min(seconds)


@pytest.mark.parametrize(("path", "make"), ATTACKS)
def test_cost_of_a_review_is_linear(path, make, monkeypatch):
    for module in (job_types, hyperjob):
        monkeypatch.setattr(module, "MAX_TASKS", 10**9)
    small, large = body_of(make, 12 * KIB), body_of(make, 48 * KIB)
    # Other processes affect caches; the minimum of several tries is the cost of the work itself.
    assert any(cost(path, large) < MAX_RATIO * cost(path, small) for _ in range(4))


@pytest.mark.parametrize(("path", "make"), ATTACKS)
def test_message_on_a_large_object_is_short(path, make):
    _, response = answer_to(path, body_of(make, MIB))
    response = response or {}
    assert len(response.get("status", {}).get("message", "")) <= MAX_MESSAGE_LENGTH + 1
    assert len(response.get("patch", "")) <= MIB


def answered(path, new, **request):
    return answer_to(path, wire(review_of(new, **request)))[1]


@pytest.mark.parametrize("path", [JOBS, "/jobs/mutate"])
def test_job_of_the_maximum_number_of_tasks_is_allowed(path):
    assert answered(path, volcano_job(*(task(f"t{n}") for n in range(MAX_TASKS))))["allowed"]


def test_job_of_more_tasks_is_refused_but_may_be_changed():
    tasks = [task(f"t{n}") for n in range(MAX_TASKS + 1)]
    answer = answered(JOBS, volcano_job(*tasks))
    assert "use at most 1000, with replicas for equal pods" in answer["status"]["message"]
    assert "patch" not in answered("/jobs/mutate", volcano_job(*tasks))
    stored = {"old": volcano_job(*tasks), "operation": "UPDATE"}
    assert answered(JOBS, volcano_job(*tasks, minAvailable=1), **stored)["allowed"]


@pytest.mark.parametrize("path", [HYPERJOBS, "/hyperjobs/mutate"])
@pytest.mark.parametrize(
    ("jobs", "flaw"),
    [
        pytest.param([{}] * (MAX_TASKS + 1), "1001 jobs", id="jobs"),
        pytest.param([replicated("j", *[task(f"t{n}") for n in range(501)])] * 2, "1002 tasks", id="tasks"),
    ],
)
def test_oversized_hyperjob_is_refused_undecoded(path, jobs, flaw):
    assert flaw in answered(path, document(*jobs))["status"]["message"]


def dense(count):
    return wire(review(job_binding(clusters=[{}] * count)))


def test_object_and_body_of_too_many_values_are_refused():
    _, response = answer_to(BINDINGS, dense(MAX_VALUES))
    assert f"use at most {MAX_VALUES}" in response["status"]["message"]
    with pytest.raises(reviews.ReviewError, match="JSON values") as refusal:
        reviews.read(dense(2 * MAX_VALUES))
    assert refusal.value.uid


def test_stored_object_of_too_many_values_may_be_changed(monkeypatch):
    new, old = volcano_job(*[task()] * 50), volcano_job(*[task()] * 50)
    create = reviews.read(wire(review_of(new)))
    update = reviews.read(wire(review_of(new, old=old, operation="UPDATE")))
    monkeypatch.setattr("webhook.review.MAX_VALUES", 100)
    assert validate_value_count(create) is not None
    assert validate_value_count(update) is None


async def test_late_review_occupies_the_worker_until_it_ends():
    worker, gate = ReviewWorker(max_waiting=2, seconds=0.05), threading.Event()
    with pytest.raises(BusyError, match=r"took longer than 0\.05 s"):
        await worker.run(gate.wait)
    assert worker.unfinished == 1
    gate.set()
    assert await worker.run(lambda: "done") == "done"
    while worker.unfinished:  # noqa: ASYNC110 -- the counter is updated after the result
        await asyncio.sleep(0.001)


async def test_small_reviews_are_answered_while_large_ones_wait(running):
    """One large review is evaluated; another one exceeds the number of waiting reviews."""
    gate = threading.Event()
    running.app.worker = ReviewWorker(max_waiting=1, seconds=5)
    validate_job = running.app.handlers[JOBS]
    running.app.handlers = {**running.app.handlers, JOBS: lambda asked: gate.wait(5) and validate_job(asked)}
    large = wire(review_of(volcano_job(note="x" * running.app.settings.max_inline_bytes)))
    evaluated = asyncio.create_task(status(running, large, JOBS))
    while not running.app.worker.unfinished:  # noqa: ASYNC110 -- there is no event for it
        await asyncio.sleep(0.001)
    assert await status(running, wire(review(job_binding())), BINDINGS) == 200
    assert await status(running, large, JOBS) == 503
    assert not evaluated.done()
    gate.set()
    assert await evaluated == 200


async def status(running, body, path):
    async with running.post(body, path=path) as answer:
        return answer.status


def test_long_resource_names_are_not_cached():
    before = quantity._amount.cache_info().currsize
    assert quantity.parse_quantity("example.com/" + "r" * KIB, "317") == 317_000
    assert quantity._amount.cache_info().currsize == before
