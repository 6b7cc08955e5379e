"""Tests that a review costs CPU in proportion to its bytes, for any content."""

import asyncio
import json
import threading

import pytest

from controller.api import quantity
from tests.controllers.hyperjob.objects import document, replicated
from tests.webhook.adversarial import ATTACKS, MIB, cost, run_review
from tests.webhook.reviews import job_binding, review, review_of, task, volcano_job, wire
from webhook import review as reviews
from webhook.app import BusyError, ReviewWorker, review_body
from webhook.review import MAX_MESSAGE_LENGTH, MAX_VALUES, validate_value_count
from webhook.validation import hyperjob, job_types
from webhook.validation.job_types import MAX_TASKS

#: Maximum cost ratio for four times the bytes: linear work, plus larger dictionaries and colder caches.
MAX_RATIO = 8
KIB = 1 << 10


def answered(path, new, **request):
    return json.loads(run_review(path, wire(review_of(new, **request))))["response"]


def has_linear_cost(path, make, size):
    small, large = make(size), make(4 * size)
    # Other processes affect caches; the minimum of several tries is the cost of the work itself.
    return any(cost(path, large) < MAX_RATIO * cost(path, small) for _ in range(4))


@pytest.mark.parametrize("name", ATTACKS)
def test_cost_of_a_review_is_linear(name, monkeypatch):
    for module in (job_types, hyperjob):
        monkeypatch.setattr(module, "MAX_TASKS", 10**9)
    path, make = ATTACKS[name]
    assert has_linear_cost(path, make, 12 * KIB)


@pytest.mark.parametrize("name", ATTACKS)
def test_message_on_a_large_object_is_short(name):
    path, make = ATTACKS[name]
    answer = run_review(path, make(MIB))
    verdict = json.loads(answer)["response"] if answer else {}
    assert len(verdict.get("status", {}).get("message", "")) <= MAX_MESSAGE_LENGTH + 1
    assert len(verdict.get("patch", "")) <= MIB


@pytest.mark.parametrize("path", ["/jobs/validate", "/jobs/mutate"])
def test_job_of_the_maximum_number_of_tasks_is_allowed(path):
    tasks = [task(f"t{n}") for n in range(MAX_TASKS)]
    assert answered(path, volcano_job(*tasks))["allowed"]


def test_job_of_more_tasks_is_refused():
    tasks = [task(f"t{n}") for n in range(MAX_TASKS + 1)]
    answer = answered("/jobs/validate", volcano_job(*tasks))
    assert "use at most 1000, with replicas for equal pods" in answer["status"]["message"]
    assert "patch" not in answered("/jobs/mutate", volcano_job(*tasks))


def test_stored_job_of_more_tasks_may_be_changed():
    tasks = [task(f"t{n}") for n in range(MAX_TASKS + 1)]
    before, after = volcano_job(*tasks), volcano_job(*tasks, minAvailable=1)
    assert answered("/jobs/validate", after, old=before, operation="UPDATE")["allowed"]


@pytest.mark.parametrize("path", ["/hyperjobs/validate", "/hyperjobs/mutate"])
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
    return job_binding(clusters=[{}] * count)


def test_new_object_of_too_many_values_is_refused():
    answer = json.loads(run_review("/resourcebindings/mutate", wire(review(dense(MAX_VALUES)))))["response"]
    assert f"use at most {MAX_VALUES}" in answer["status"]["message"]


def test_body_of_too_many_values_is_not_decoded():
    with pytest.raises(reviews.ReviewError, match="JSON values") as refusal:
        reviews.read(wire(review(dense(2 * MAX_VALUES))))
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


async def test_review_is_refused_when_the_worker_queue_is_full():
    worker, gate = ReviewWorker(max_waiting=1, seconds=5), threading.Event()
    first = asyncio.create_task(worker.run(gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="1 large reviews are waiting"):
        await worker.run(gate.wait)
    gate.set()
    assert await first


async def test_small_reviews_are_answered_during_a_large_one(running):
    gate, handlers = threading.Event(), dict(running.app.handlers)
    review_binding = handlers["/resourcebindings/mutate"]

    def slowly(request):
        return review_binding(request) if len(wire(request.name)) and gate.wait(5) else None

    running.app.handlers = handlers | {"/jobs/validate": slowly}
    large = wire(review_of(volcano_job(note="x" * running.app.settings.max_inline_bytes)))
    waiting = asyncio.create_task(_status(running, large, "/jobs/validate"))
    assert await _status(running, wire(review(job_binding())), "/resourcebindings/mutate") == 200
    assert not waiting.done()
    gate.set()
    assert await waiting == 200


async def test_large_review_gets_503_when_the_queue_is_full(running):
    gate = threading.Event()
    running.app.worker = ReviewWorker(max_waiting=1, seconds=5)
    running.app.handlers = dict(running.app.handlers) | {"/jobs/validate": lambda _: gate.wait(5)}
    large = wire(review_of(volcano_job(note="x" * running.app.settings.max_inline_bytes)))
    waiting = asyncio.create_task(_status(running, large, "/jobs/validate"))
    while not running.app.worker.unfinished:  # noqa: ASYNC110 -- there is no event for it
        await asyncio.sleep(0.001)
    assert await _status(running, large, "/jobs/validate") == 503
    gate.set()
    await asyncio.wait([waiting])


async def _status(running, body, path):
    async with running.post(body, path=path) as answer:
        return answer.status


def test_long_resource_names_are_not_cached():
    before = quantity._amount.cache_info().currsize
    assert quantity.parse_quantity("example.com/" + "r" * KIB, "317") == 317_000
    assert quantity._amount.cache_info().currsize == before


def test_thread_and_event_loop_give_the_same_answer():
    body = wire(review(job_binding()))
    request, verdict = review_body(lambda request: request.uid, body)
    assert verdict == request.uid
