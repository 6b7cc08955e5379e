"""Reviews unusual bodies continuously: `python -m tests.webhook.fuzz [--seed N] [--count N]`.

Each number determines one body. A failure names its number.
"""

import argparse
import copy
import gc
import itertools
import json
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.unusual_values import mutate
from tests.webhook.reviews import (
    apply,
    binding,
    cached_queues,
    container,
    job_binding,
    review,
    review_of,
    task,
    volcano_job,
    volcano_queue,
    wire,
)
from webhook.app import Configuration, admission_handlers, review_body
from webhook.review import ReviewError, review_response, write

JOB = volcano_job(
    task("m", 1, minAvailable=1, policies=[{"event": "PodFailed", "action": "RestartJob"}]),
    task("w", 8, dependsOn={"name": ["m"]}, template={"spec": {"containers": [container()], "initContainers": []}}),
    plugins={"mpi": ["--master=m", "--worker=w"]},
    volumes=[{"mountPath": "/d", "volumeClaim": {}}],
    minAvailable=3,
)
QUEUE = volcano_queue(
    "q",
    parent="p",
    capability={"cpu": "8", "nvidia.com/gpu": 2},
    deserved={"cpu": "4"},
    guarantee={"resource": {"cpu": "1"}},
    annotations={"volcano.sh/hierarchy": "root/a", "volcano.sh/hierarchy-weights": "1/2"},
)
SEEDS = [
    review(job_binding(suspension={"dispatching": True}, clusters=[{"name": "m"}])),
    review(job_binding()),
    review(binding("apps/v1", "Deployment")),
    review_of(JOB),
    review_of(JOB, old=JOB, operation="UPDATE"),
    review_of(QUEUE),
    review_of(QUEUE, old=QUEUE, operation="UPDATE"),
    review_of(None, old=QUEUE, operation="DELETE"),
]
FRAGMENTS = [
    *(b"", b"\x00", b"\xff", b"\xed\xa0\x80", b"[" * 50, b"}" * 3, b'"', b"\\", b",", b"NaN", b"1e9999", b"\\ud800"),
]


HANDLERS = admission_handlers(Configuration(None), cached_queues("a", "p"))
"""The handler of every path of the webhook."""


def answer_to(path: str, body: bytes) -> tuple[str, dict[str, Any] | None]:
    """Return the uid of the answer to *body*, and its response unless *body* is refused as invalid."""
    try:
        asked, answer = review_body(HANDLERS[path], body)
    except ReviewError as error:
        return error.uid, None
    response = dict(json.loads(write(review_response(answer, asked.uid)))["response"])
    return response["uid"], response


def body(number: int) -> bytes:
    """Return the body with that number."""
    dice = random.Random(number)
    review_ = copy.deepcopy(dice.choice(SEEDS))
    for _ in range(dice.choice((0, 1, 1, 2, 3, 8))):
        mutate(review_, dice)
    text = wire(review_) if dice.random() < 0.8 else json.dumps(review_, indent=dice.choice((None, 1))).encode()
    return _break(text, dice) if dice.random() < 0.3 else text


def _break(text: bytes, dice: random.Random) -> bytes:
    """Change arbitrary bytes."""
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, length = dice.randrange(len(text) + 1), dice.choice((0, 0, 1, 2, 40))
        inserted = dice.choice((dice.choice(FRAGMENTS), dice.randbytes(dice.randrange(4)), text[at : at + 30]))
        text = text[:at] + inserted + text[at + length :]
    return text


def check(path: str, sent: bytes) -> None:
    """Raise `AssertionError` for an invalid answer to *sent*, and any error that is not about the review."""
    answered, response = answer_to(path, sent)
    assert uid(sent) in {None, answered}, (uid(sent), answered)
    if response is None:
        return
    assert answered
    assert response["allowed"] or response["status"]["message"]
    if path == "/resourcebindings/mutate" and response["allowed"]:
        check_suspended(json.loads(sent)["request"]["object"], response)


def check_suspended(new: dict[str, Any], response: dict[str, Any]) -> None:
    """Raise if the binding of a Volcano Job would be stored unsuspended."""
    template = new["spec"]["resource"]
    if template["kind"] == "Job" and template["apiVersion"].startswith("batch.volcano.sh/"):
        spec = apply(response, new)["spec"]
        assert spec["suspension"]["scheduling"] is True
        assert not spec.get("clusters")


def uid(sent: bytes) -> str | None:
    """Return the uid in the body, decoded independently of the webhook."""
    try:
        decoded = json.loads(sent.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse)
        value = decoded["request"]["uid"]
        json.dumps(decoded, ensure_ascii=False).encode("utf-8")
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) != len(pairs):
        raise ValueError("twice")
    return by_key


def _refuse(text: str) -> None:
    raise ValueError(text)


def run(numbers: Iterator[int] | range) -> int:
    """Review the bodies with *numbers*, each on the next path, and return the growth of memory in bytes."""
    paths = itertools.cycle(sorted(HANDLERS))
    before, began = 0, time.monotonic()
    for count, number in enumerate(numbers):
        sent, path = body(number), next(paths)
        try:
            check(path, sent)
        except Exception as error:
            raise AssertionError(f"body {number} to {path}: {error!r}: {sent[:2000]!r}") from error
        if count == 5_000:
            before = memory()
        if count and count % 50_000 == 0:
            print(f"{count} bodies, {count / (time.monotonic() - began):.0f} a second")  # noqa: T201 -- progress
    return memory() - before if before else 0


def memory() -> int:
    """Return the current memory of this process in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Review bodies until one fails, or the requested number is reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.webhook.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF, help="number of the first body")
    parser.add_argument("--count", type=int, help="how many; endless without")
    arguments = parser.parse_args()
    first, count = arguments.seed, arguments.count
    print(f"from body {first} on")  # noqa: T201 -- to the user
    grown = run(itertools.count(first) if count is None else range(first, first + count))
    print(f"{count} bodies were answered as they should; memory grew by {grown >> 10} KiB after the first 5,000")  # noqa: T201 -- to the user


if __name__ == "__main__":
    main()
