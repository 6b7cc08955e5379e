"""Tests that a review is work in proportion to its bytes, for any content, and that large reviews delay no others."""

import asyncio
import threading

import pytest

from controller.api import quantity
from tests.controllers.hyperjob.objects import document, replicated
from tests.waiting import LIMIT_SECONDS
from tests.webhook.fuzz import answer_to
from tests.webhook.large_reviews import ATTACKS, BINDINGS, HYPERJOBS, JOBS, KIB, body_of
from tests.webhook.reviews import job_binding, review, review_of, task, volcano_job, wire
from tests.work import work_of
from webhook import review as reviews
from webhook.app import BusyError, ReviewWorker
from webhook.review import MAX_MESSAGE_LENGTH, MAX_VALUES, validate_value_count
from webhook.validation import hyperjob, job_types
from webhook.validation.job_types import MAX_TASKS

#: Maximum ratio of the work for four times the bytes.
MAX_RATIO = 4.5
MIB = 1 << 20


@pytest.mark.parametrize(("path", "make"), ATTACKS)
def test_work_of_a_review_is_linear(path, make, monkeypatch):
    for module in (job_types, hyperjob):
        monkeypatch.setattr(module, "MAX_TASKS", 10**9)
    assert work(path, body_of(make, 24 * KIB)) < MAX_RATIO * work(path, body_of(make, 6 * KIB))


def work(path, body):
    answer_to(path, body)  # what only the first review does, such as imports
    quantity._amount.cache_clear()
    return work_of(lambda: answer_to(path, body))


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
    running.app.worker = ReviewWorker(max_waiting=1, seconds=LIMIT_SECONDS)
    validate_job = running.app.handlers[JOBS]
    running.app.handlers = {
        **running.app.handlers,
        JOBS: lambda asked: gate.wait(LIMIT_SECONDS) and validate_job(asked),
    }
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
    name, caches = "example.com/" + "r" * KIB, (quantity._amount, quantity._text)
    before = [cache.cache_info().currsize for cache in caches]
    assert quantity.format_quantity(name, 317_000) == "317"
    with pytest.raises(quantity.QuantityError):
        quantity.parse_quantity(name, "317")
    assert [cache.cache_info().currsize for cache in caches] == before
