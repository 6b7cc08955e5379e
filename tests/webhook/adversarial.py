"""Generates review bodies that try to use more CPU than their size justifies.

There is one attack for each code path whose work could grow faster than its input.
`python -m tests.webhook.adversarial [BYTES]` prints their cost.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.api import quantity
from controller.api.configuration import Resize
from controller.api.meta import ObjectMeta
from tests.controllers.hyperjob.objects import document, replicated
from tests.webhook.reviews import container, job_binding, review, review_of, task, volcano_job, volcano_queue, wire
from webhook import review as reviews
from webhook.app import review_body
from webhook.bindings import GatedKinds, review_binding
from webhook.queue_cache import QueueCache, ReviewedQueue, ReviewedQueueStatus, to_cached
from webhook.review import AdmissionResponse, review_response
from webhook.validation.hyperjob import mutate_hyperjob, validate_hyperjob
from webhook.validation.job import JobPolicy, mutate_job, validate_job
from webhook.validation.queue import mutate_queue, validate_queue

MIB = 1 << 20
ATTACKS: dict[str, tuple[str, Callable[[int], bytes]]] = {}
"""Attack -> the path it is sent to, and what makes its body of a number of bytes."""

_POLICY = JobPolicy(default_queue="common", resize=Resize())


def attack_of_size(path: str) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    """Register a function that generates the body of an attack on *path* for a number of bytes."""

    def register(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
        ATTACKS[make.__name__] = (path, make)
        return make

    return register


def attack(path: str) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
    """Register a function that generates the review of an attack on *path* for a number of repetitions."""

    def register(make: Callable[[int], Any]) -> Callable[[int], Any]:
        ATTACKS[make.__name__] = (path, lambda size: _filled(size, make))
        return make

    return register


def queues(count: int = 200) -> QueueCache:
    """Return *count* open queues in a hierarchy."""
    book = QueueCache()
    status = ReviewedQueueStatus("Open")
    book.replace([to_cached(ReviewedQueue(ObjectMeta(f"q{n}"), status=status)) for n in range(count)])
    return book


_QUEUES = queues()
_HANDLERS: Mapping[str, Callable[[reviews.Request], AdmissionResponse]] = {
    "/resourcebindings/mutate": lambda asked: review_binding(asked, GatedKinds()),
    "/jobs/mutate": lambda asked: mutate_job(asked, _POLICY),
    "/jobs/validate": lambda asked: validate_job(asked, _POLICY, _QUEUES),
    "/hyperjobs/mutate": lambda asked: mutate_hyperjob(asked, _POLICY),
    "/hyperjobs/validate": lambda asked: validate_hyperjob(asked, _POLICY, _QUEUES),
    "/queues/mutate": mutate_queue,
    "/queues/validate": lambda asked: validate_queue(asked, _QUEUES),
}


def run_review(path: str, body: bytes) -> bytes | None:
    """Return the answer to *body*, or ``None`` if it is refused as invalid."""
    try:
        asked, verdict = review_body(_HANDLERS[path], body)
    except reviews.ReviewError:
        return None
    return reviews.write(review_response(verdict, asked.uid))


def cost(path: str, body: bytes, *, times: int = 3) -> float:
    """Return the least CPU seconds of reviewing *body* in *times* runs."""
    found = []
    for _ in range(times):
        quantity._amount.cache_clear()
        began = time.process_time()
        run_review(path, body)
        found.append(time.process_time() - began)
    return min(found)


def _filled(size: int, make: Callable[[int], Any]) -> bytes:
    """Return the body that *make* generates for the count that gives about *size* bytes."""
    sample = len(wire(make(64))) - len(wire(make(32)))
    return wire(make(max(size * 32 // sample, 1)))


@attack("/jobs/validate")
def tasks_in_a_chain(count: int) -> Any:
    tasks = [task(f"t{n}", dependsOn={"name": [f"t{n + 1}"]} if n else {"name": []}) for n in range(count)]
    return review_of(volcano_job(*tasks))


@attack("/jobs/validate")
def tasks_in_a_reversed_chain(count: int) -> Any:
    tasks = [task(f"t{n}") | ({"dependsOn": {"name": [f"t{n - 1}"]}} if n else {}) for n in range(count)]
    return review_of(volcano_job(*tasks))


def _bare(n: int, **members: Any) -> dict[str, Any]:
    return {"name": f"t{n}", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}} | members


@attack("/jobs/validate")
def bare_tasks_in_a_chain(count: int) -> Any:
    tasks = [_bare(n) | ({"dependsOn": {"name": [f"t{n - 1}"]}} if n else {}) for n in range(count)]
    return review_of(volcano_job(*tasks))


@attack_of_size("/jobs/validate")
def tasks_that_all_depend_on_all(size: int) -> bytes:
    count = max(int((size / 8) ** 0.5), 2)
    names = [f"t{n}" for n in range(count)]
    return wire(review_of(volcano_job(*(task(name, dependsOn={"name": names[:n]}) for n, name in enumerate(names)))))


@attack("/jobs/validate")
def one_task_that_depends_on_many(count: int) -> Any:
    return review_of(volcano_job(task("a", dependsOn={"name": [f"t{n}" for n in range(count)]})))


@attack("/jobs/mutate")
def empty_tasks(count: int) -> Any:
    tasks = [{} for _ in range(count)]
    return review_of(volcano_job(*tasks))


@attack("/jobs/validate")
def empty_tasks_validated(count: int) -> Any:
    tasks = [{} for _ in range(count)]
    return review_of(volcano_job(*tasks))


@attack("/jobs/validate")
def tasks_and_a_long_job_name(count: int) -> Any:
    return review_of(volcano_job(*(_bare(n, replicas=-1) for n in range(count)), name="x" * (count * 40)))


@attack("/jobs/validate")
def containers(count: int) -> Any:
    pod = {"containers": [container(f"c{n}") for n in range(count)]}
    return review_of(volcano_job(task("a", template={"spec": pod})))


@attack("/jobs/validate")
def resources(count: int) -> Any:
    asked = {f"example.com/r{n}": f"{n}" for n in range(count)}
    pod = {"containers": [container(resources={"requests": asked, "limits": asked})]}
    return review_of(volcano_job(task("a", template={"spec": pod})))


@attack("/jobs/validate")
def long_quantities(count: int) -> Any:
    asked = {f"example.com/r{n}": f"{n}" + "9" * 110 + "e99" for n in range(count)}
    pod = {"containers": [container(resources={"requests": asked, "limits": asked})]}
    return review_of(volcano_job(task("a", template={"spec": pod})))


@attack("/jobs/validate")
def volumes(count: int) -> Any:
    return review_of(volcano_job(volumes=[{"mountPath": f"/{n}", "volumeClaimName": "a.b"} for n in range(count)]))


@attack("/jobs/validate")
def plugins_of_mpi(count: int) -> Any:
    return review_of(volcano_job(*(_bare(n) for n in range(count)), plugins={"mpi": ["--master=t0"] * count}))


@attack("/jobs/validate")
def policies(count: int) -> Any:
    return review_of(volcano_job(policies=[{"exitCode": n + 1, "action": "AbortJob"} for n in range(count)]))


@attack("/jobs/validate")
def changed_tasks(count: int) -> Any:
    tasks = [_bare(n, template={"spec": {"containers": [container(resources={})]}}) for n in range(count)]
    other = [one | {"replicas": 2, "maxRetry": n} for n, one in enumerate(tasks)]
    return review_of(volcano_job(*tasks), old=volcano_job(*other), operation="UPDATE")


@attack("/jobs/validate")
def changed_members(count: int) -> Any:
    new, old = volcano_job(), volcano_job()
    new["spec"] |= {f"m{n}": 1 for n in range(count)}
    return review_of(new, old=old, operation="UPDATE")


def _repeated(size: int, place: str) -> bytes:
    text = wire(review(job_binding(schedulerName="PLACE") if place == "spec" else job_binding()))
    count = size // 13
    members = b",".join(b'"k%06d":"1"' % (n if n < count - 1 else count - 2) for n in range(count))
    if place == "spec":
        return text.replace(b'"schedulerName":"PLACE"', members)
    return text.replace(b'"options":{', b'"options":{' + members + b",")


@attack_of_size("/resourcebindings/mutate")
def repeated_members_of_the_spec(size: int) -> bytes:
    return _repeated(size, "spec")


@attack_of_size("/resourcebindings/mutate")
def repeated_members_of_the_options(size: int) -> bytes:
    return _repeated(size, "options").replace(b'{"apiVersion"', b'{ "apiVersion"', 1)


@attack_of_size("/resourcebindings/mutate")
def one_member_again_and_again(size: int) -> bytes:
    return wire(review({})).replace(b'"object":{}', b'"object":{' + b",".join([b'"":0'] * (size // 5)) + b"}")


@attack_of_size("/resourcebindings/mutate")
def empty_objects_with_blanks(size: int) -> bytes:
    return wire(review({"spec": 0})).replace(b'"spec":0', b'"spec": [' + b",".join([b"{}"] * (size // 3)) + b"]")


@attack_of_size("/resourcebindings/mutate")
def deep_objects_with_blanks(size: int) -> bytes:
    deep = b'{"a": ' * 400 + b"0" + b"}" * 400
    found = b",".join([deep] * max(size // len(deep), 1))
    return wire(review({"spec": 0})).replace(b'"spec":0', b'"spec": [' + found + b"]")


@attack("/hyperjobs/validate")
def replicated_jobs(count: int) -> Any:
    return review_of(document(*(replicated(f"j{n}") for n in range(count))))


@attack("/hyperjobs/validate")
def replicated_jobs_of_one_name(count: int) -> Any:
    return review_of(document(*(replicated(f"j{n // 2}") for n in range(count))))


@attack("/hyperjobs/validate")
def replicated_jobs_in_many_queues(count: int) -> Any:
    jobs = [replicated(f"j{n}") for n in range(count)]
    for n, job in enumerate(jobs):
        job["templateSpec"]["queue"] = f"queue-{n}"
    return review_of(document(*jobs))


@attack("/hyperjobs/validate")
def a_long_hyperjob_name(count: int) -> Any:
    new = document(*(replicated(f"j{n}") for n in range(count)))
    new["metadata"]["name"] = "x" * (count * 100)
    return review_of(new)


def _many_tasks(count: int, **members: Any) -> Any:
    tasks = [_bare(n, replicas=1 + n % 2) for n in range(count)]
    for one in tasks:
        one["template"]["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    job = replicated("t", **members)
    job["templateSpec"]["tasks"] = tasks
    return job


@attack("/hyperjobs/validate")
def tasks_of_a_template(count: int) -> Any:
    return review_of(document(_many_tasks(count)))


@attack("/hyperjobs/validate")
def scaled_tasks_of_a_template(count: int) -> Any:
    asked = {"accelerators": count + count // 2, "acceleratorType": "nvidia.com/gpu"}
    return review_of(document(_many_tasks(count, splitPolicy={"strategy": "ByReplicas", "parts": 2, **asked})))


@attack("/hyperjobs/validate")
def tasks_of_a_template_with_mpi(count: int) -> Any:
    job = _many_tasks(count)
    job["templateSpec"]["plugins"] = {"mpi": ["--master=none"] * count}
    return review_of(document(job))


@attack("/hyperjobs/validate")
def wrong_fields_of_a_hyperjob(count: int) -> Any:
    return review_of(document(*({"name": 1} for _ in range(count))))


@attack("/queues/validate")
def capabilities(count: int) -> Any:
    amounts = {f"example.com/r{n}": "1" for n in range(count)}
    return review_of(volcano_queue("q1", capability=amounts, parent="q2"))


@attack("/queues/validate")
def a_long_hierarchy(count: int) -> Any:
    path = {"volcano.sh/hierarchy": "root" + "/a" * count, "volcano.sh/hierarchy-weights": "1" + "/1" * count}
    return review_of(volcano_queue("q1", annotations=path))


def rows(size: int) -> Iterator[tuple[str, int, float, float]]:
    """Yield each attack with its bytes, its CPU seconds per MiB, and the cost ratio of twice the bytes."""
    for name, (path, make) in ATTACKS.items():
        small, large = make(size), make(2 * size)
        one, two = cost(path, small), cost(path, large)
        yield name, len(large), two / len(large) * MIB, two / one


def main() -> None:
    """Print the table."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else MIB // 2
    sys.stdout.write(f"{'attack':40} {'bytes':>9} {'CPU s/MiB':>10} {'twice':>6}\n")
    for name, count, seconds, ratio in rows(size):
        sys.stdout.write(f"{name:40} {count:9} {seconds:10.3f} {ratio:6.2f}\n")


if __name__ == "__main__":
    main()
