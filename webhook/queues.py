"""The verdict on Volcano Queues: Volcano's defaults and rules, in the control plane; reads and writes nothing.

Rules about other queues rest on what this process has heard of them. Until it has heard of any, they are left out;
the controller holds a tree that makes no sense, and says so, whatever was stored.
"""

from collections.abc import Iterator
from itertools import islice

from controller.api.review import Operation, Request
from webhook.queuebook import QueueBook
from webhook.queuerules import queue_flaws, state_flaw
from webhook.queuespec import (
    HIERARCHY,
    HIERARCHY_WEIGHTS,
    ROOT,
    Queue,
    QueueName,
    Remembered,
    Spec,
    read_queue,
    remember,
)
from webhook.queuetree import KEPT, Tree, delete_flaw, hierarchy_flaws, place_flaws, sum_flaws
from webhook.routing import misrouted
from webhook.verdict import Outcome, Verdict, allowed, denied, patched

GROUP, RESOURCE = "scheduling.volcano.sh", "queues"
_ANNOTATIONS = "/metadata/annotations"
_MOST_FLAWS = 10


def mutate_queue(request: Request) -> Verdict:
    """Return what Volcano would fill in of the queue that *request* creates."""
    if refusal := misrouted(request, GROUP, {RESOURCE}, operations=("CREATE",)):
        return refusal
    try:
        queue = read_queue(request.object)
    except (ValueError, RecursionError) as error:
        return _unreadable(request, error)
    return patched(*_rooted(queue), *_defaults(queue.spec))


def validate_queue(request: Request, queues: QueueBook) -> Verdict:
    """Return whether Volcano would take the queue, its change, or its end."""
    if refusal := misrouted(request, GROUP, {RESOURCE}, operations=("CREATE", "UPDATE", "DELETE")):
        return refusal
    if request.operation == "DELETE":
        return _judge_end(request, queues)
    try:
        queue = read_queue(request.object)
        before = read_queue(request.old_object) if request.operation == "UPDATE" else None
    except (ValueError, RecursionError) as error:
        return _unreadable(request, error)
    if flaws := list(islice(_own_flaws(queue, before), _MOST_FLAWS)):
        return denied(_about(request, *flaws), code=422)
    if queues.is_known and (flaws := list(islice(_tree_flaws(queue, before, queues), _MOST_FLAWS))):
        return denied(_about(request, *flaws), code=422, rests_on_queues=True)
    return allowed()


def _judge_end(request: Request, queues: QueueBook) -> Verdict:
    name = QueueName(request.name)
    flaw = delete_flaw(queues.queues, name)
    if flaw:
        return denied(flaw, rests_on_queues=name not in KEPT)
    # A child that nobody has told us of yet would be left without its parent.
    return Verdict(Outcome.ALLOWED, rests_on_queues=queues.is_known)


def _own_flaws(queue: Queue, before: Queue | None) -> Iterator[str]:
    known = remember(queue)
    yield from queue_flaws(queue, known)
    if flaw := state_flaw(queue, before):
        yield flaw
    if before and known.name == ROOT and _amounts_changed(known, remember(before)):
        yield "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"


def _tree_flaws(queue: Queue, before: Queue | None, queues: QueueBook) -> Iterator[str]:
    known, former = remember(queue), remember(before) if before else None
    tree: Tree = {**queues.queues, known.name: known}
    yield from hierarchy_flaws(tree, known)
    moved = former is None or former.parent != known.parent
    misplaced = list(place_flaws(tree, known)) if moved else []
    yield from misplaced
    if not misplaced and known.name != ROOT and (moved or former is None or _amounts_changed(known, former)):
        yield from sum_flaws(tree, known)


def _amounts_changed(one: Remembered, other: Remembered) -> bool:
    return one.amounts != other.amounts


def _defaults(spec: Spec | None) -> Iterator[Operation]:
    if spec is None:
        yield Operation("add", "/spec", {"reclaimable": True, "weight": 1})
        return
    if spec.reclaimable is None:
        yield Operation("add", "/spec/reclaimable", True)
    if not spec.weight:
        yield Operation("add", "/spec/weight", 1)


def _rooted(queue: Queue) -> Iterator[Operation]:
    path, weights = queue.annotation(HIERARCHY), queue.annotation(HIERARCHY_WEIGHTS)
    if path and weights and not path.startswith(ROOT):
        for name, prefix, value in ((HIERARCHY, ROOT, path), (HIERARCHY_WEIGHTS, "1", weights)):
            yield Operation("add", f"{_ANNOTATIONS}/{name.replace('/', '~1')}", f"{prefix}/{value}")


def _unreadable(request: Request, error: Exception) -> Verdict:
    return denied(f"queue {request.name!r} cannot be read: {error}", code=422)


def _about(request: Request, *flaws: str) -> str:
    return f"queue {request.name!r}: {'; '.join(flaws)}"
