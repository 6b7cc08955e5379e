"""Answers reviews of Volcano Queues by Volcano's defaults and rules, in the Karmada control plane.

Rules about several queues use cached queues, and are skipped before the first list. The controller reports an invalid
hierarchy regardless of what was stored.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

from controller.api.keys import QUEUES
from controller.api.meta import WatchedObject, decode_watched
from controller.api.queues import QueueSpec
from webhook.queue_cache import (
    HIERARCHY,
    HIERARCHY_WEIGHTS,
    ROOT,
    QueueCache,
    QueueName,
    ReviewedQueue,
    read_queue,
    to_cached,
)
from webhook.review import (
    AdmissionResponse,
    Operation,
    Outcome,
    Request,
    allowed,
    denied,
    leaves_unchanged,
    patched,
    validate_target,
)
from webhook.validation.queue_rules import (
    UNDELETABLE,
    Tree,
    capability_warnings,
    delete_violation,
    parent_violations,
    path_violations,
    queue_violations,
    quota_violations,
    state_violation,
)

_ANNOTATIONS = "/metadata/annotations"
_MAX_VIOLATIONS = 10
_METADATA = msgspec.json.Decoder(WatchedObject)


def mutate_queue(request: Request) -> AdmissionResponse:
    """Return the defaults that Volcano would set on the new queue; an update that leaves them out keeps them.

    The annotations of an updated queue stay as they are: a tool that compares them with its manifest would otherwise
    write them again and again.
    """
    if denial := validate_target(request, QUEUES.group, {QUEUES.plural}, operations=("CREATE", "UPDATE")):
        return denial
    try:
        queue = read_queue(request.object)
    except (ValueError, RecursionError) as error:
        return allowed() if leaves_unchanged(request, "spec") else _decode_failed(request, error)
    defaults = _default_patch(queue)
    return patched(*defaults) if request.operation == "UPDATE" else patched(*_hierarchy_patch(queue), *defaults)


def validate_queue(request: Request, queues: QueueCache) -> AdmissionResponse:
    """Return whether Volcano would accept the creation, update or deletion of the queue."""
    if denial := validate_target(request, QUEUES.group, {QUEUES.plural}, operations=("CREATE", "UPDATE", "DELETE")):
        return denial
    if request.operation == "DELETE":
        return _validate_delete(request, queues)
    if leaves_unchanged(request, "spec", "status") and _has_same_place(request):
        return allowed()
    try:
        queue = read_queue(request.object)
        old = read_queue(request.old_object) if request.operation == "UPDATE" else None
    except (ValueError, RecursionError) as error:
        return _decode_failed(request, error)
    violations = list(islice(_spec_violations(queue, old), _MAX_VIOLATIONS))
    depends_on_queues = not violations and queues.is_synced
    if depends_on_queues:
        violations = list(islice(_hierarchy_violations(queue, old, queues), _MAX_VIOLATIONS))
    if not violations:
        return allowed(*capability_warnings(to_cached(queue)))
    return denied(_message(request, *violations), code=422, depends_on_queues=depends_on_queues)


def _has_same_place(request: Request) -> bool:
    """Return whether an update leaves the annotations of the place in the hierarchy as they were."""
    try:
        new, old = (
            decode_watched(_METADATA, bytes(queue)).metadata.annotations
            for queue in (request.object, request.old_object)
        )
    except (ValueError, RecursionError):
        return False
    return all(new.get(name) == old.get(name) for name in (HIERARCHY, HIERARCHY_WEIGHTS))


def _validate_delete(request: Request, queues: QueueCache) -> AdmissionResponse:
    name = QueueName(request.name)
    violation = delete_violation(queues.queues, name)
    if violation:
        return denied(violation, depends_on_queues=name not in UNDELETABLE)
    # A child that is not cached yet would lose its parent.
    return AdmissionResponse(Outcome.ALLOWED, depends_on_queues=queues.is_synced)


def _spec_violations(queue: ReviewedQueue, old: ReviewedQueue | None) -> Iterator[str]:
    cached = to_cached(queue)
    yield from queue_violations(queue, cached)
    if violation := state_violation(queue, old):
        yield violation
    if old and cached.name == ROOT and cached.amounts != to_cached(old).amounts:
        yield "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"


def _hierarchy_violations(queue: ReviewedQueue, old: ReviewedQueue | None, queues: QueueCache) -> Iterator[str]:
    cached, old_cached = to_cached(queue), to_cached(old) if old else None
    tree: Tree = {**queues.queues, cached.name: cached}
    yield from path_violations(tree, cached)
    moved = old_cached is None or old_cached.parent != cached.parent
    invalid_parent = list(parent_violations(tree, cached)) if moved else []
    yield from invalid_parent
    if (
        not invalid_parent
        and cached.name != ROOT
        and (moved or old_cached is None or cached.amounts != old_cached.amounts)
    ):
        yield from quota_violations(tree, cached)


def _default_patch(queue: ReviewedQueue) -> Iterator[Operation]:
    """Yield the defaults of Volcano's webhook and, for the parent, of its queue controller.

    Where queues are propagated, the queue controller of a member writes an empty parent, and Karmada removes it again.
    """
    spec = queue.spec
    if spec is None:
        yield Operation("add", "/spec", {})
        spec = QueueSpec()
    if spec.reclaimable is None:
        yield Operation("add", "/spec/reclaimable", True)
    if not spec.weight:
        yield Operation("add", "/spec/weight", 1)
    if not spec.parent and queue.metadata.name != ROOT:
        yield Operation("add", "/spec/parent", ROOT)


def _hierarchy_patch(queue: ReviewedQueue) -> Iterator[Operation]:
    path, weights = queue.annotation(HIERARCHY), queue.annotation(HIERARCHY_WEIGHTS)
    if path and weights and not path.startswith(ROOT):
        for name, prefix, value in ((HIERARCHY, ROOT, path), (HIERARCHY_WEIGHTS, "1", weights)):
            yield Operation("add", f"{_ANNOTATIONS}/{name.replace('/', '~1')}", f"{prefix}/{value}")


def _decode_failed(request: Request, error: Exception) -> AdmissionResponse:
    return denied(f"queue {request.name!r} cannot be decoded: {error}", code=422)


def _message(request: Request, *violations: str) -> str:
    return f"queue {request.name!r}: {'; '.join(violations)}"
