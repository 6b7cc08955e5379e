"""Tests reviews of queues against a table of queues with the answers of Volcano's own webhook."""

import pytest

from tests.webhook.reviews import cached_queues, decoded, stored_after, volcano_queue
from webhook.queue_cache import HIERARCHY, HIERARCHY_WEIGHTS, QueueCache
from webhook.review import Outcome
from webhook.validation.queue import mutate_queue, validate_queue

GPU = "nvidia.com/gpu"


def validate(new, *, old=None, others=(), **request):
    return validate_queue(decoded(new, old=old, **request), cached_queues(*others))


EMPTIED = volcano_queue(weight=2, capability=None) | {"metadata": {"name": "q", "annotations": None, "labels": None}}
"""As the API server sends a queue with empty maps after a change from client-side to server-side apply."""


def sized(name="q", parent="", *, guarantee=None, **amounts):
    """Return a queue with these amounts of CPU."""
    spec = {field: {"cpu": value} for field, value in amounts.items()}
    return volcano_queue(
        name, parent=parent, **spec, **({"guarantee": {"resource": {"cpu": guarantee}}} if guarantee else {})
    )


def chain(length):
    """Return a chain of queues below the root."""
    return [volcano_queue(f"q{n}", **({"parent": f"q{n - 1}"} if n > 1 else {})) for n in range(1, length + 1)]


def placed(path, weights, name="q"):
    """Return a queue with the annotations of a place in the hierarchy."""
    return volcano_queue(name, annotations={HIERARCHY: path, HIERARCHY_WEIGHTS: weights})


P = sized("p", capability="10", deserved="6", guarantee="4")
M = volcano_queue("m", parent="p")
BELOW = [volcano_queue("x", parent="q"), volcano_queue("y", parent="x")]
HELD = volcano_queue("p") | {"status": {"state": "Open", "allocated": {"pods": "3"}}}


@pytest.mark.parametrize(
    ("queue", "others"),
    [
        pytest.param(volcano_queue(), [], id="plain"),
        pytest.param(volcano_queue(weight=65535), [], id="weight"),
        pytest.param(volcano_queue(state="Closed"), [], id="closed"),
        pytest.param(sized(capability="8", deserved="4", guarantee="4"), [], id="amounts"),
        pytest.param(sized(deserved="4"), [], id="deserved-alone"),
        pytest.param(volcano_queue(capability={GPU: 8, "memory": "1.5Gi"}), [], id="devices"),
        pytest.param(sized(parent="root", deserved="999"), [], id="the-root-has-no-limit"),
        pytest.param(volcano_queue(parent="q4"), chain(4), id="maximum-depth"),
        pytest.param(sized(parent="p", capability="10", deserved="6", guarantee="4"), [P], id="all-its-parent-has"),
        pytest.param(volcano_queue(parent="p"), [HELD, volcano_queue("c", parent="p")], id="parent-has-children"),
        pytest.param(placed("root/eng/prod", "1/2/8"), [], id="hierarchy"),
        pytest.param(placed("root/eng", "1/2"), [placed("root/english", "1/1", "other")], id="two-hierarchies"),
        pytest.param(placed("root/a/b", "1/1/1"), [placed("root/a", "1/1", "c")], id="below-another-hierarchy"),
        pytest.param(placed("root/a", "1/1"), [placed("root/a", "1/1", "c")], id="equal-hierarchies"),
    ],
)
def test_valid_queue_is_allowed(queue, others):
    assert validate(queue, others=others).outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        pytest.param(volcano_queue(weight=-1), "spec.weight must be between 1 and 65535", id="weight"),
        pytest.param(volcano_queue(weight=65536), "spec.weight must be between", id="weight-too-large"),
        pytest.param(sized(capability="-1"), "must be greater than or equal to 0", id="negative"),
        pytest.param(sized(deserved="x"), "spec.deserved[cpu]: cpu: 'x' is not a quantity", id="text"),
        pytest.param(volcano_queue(capability={GPU: "1500m"}), "must be an integer", id="half-a-device"),
        pytest.param(sized(guarantee="1"), "deserved[cpu] must be >= guarantee[cpu]=1", id="guarantee-alone"),
        pytest.param(sized(guarantee="3", deserved="2"), "must be >= guarantee[cpu]=3", id="guarantee-above-deserved"),
        pytest.param(
            sized(capability="1", deserved="2"), "must be <= capability[cpu]=1", id="deserved-above-capability"
        ),
        pytest.param(volcano_queue(state="Closing"), "queue state must be in [Open Closed]", id="closing"),
        pytest.param(placed("root/a", "1"), "must have the same length", id="hierarchy"),
        pytest.param(placed("root/a", "1/0"), "must be a number larger than 0", id="zero"),
        pytest.param(placed("root/a", "1/x"), "'x' must be a number", id="no-number"),
        pytest.param(placed("root/a", "1/nan"), "'nan' must be a number", id="nan"),
    ],
)
def test_invalid_queue_is_denied(queue, expected):
    response = validate(queue)
    assert (response.outcome, response.code, response.depends_on_queues) == (Outcome.DENIED, 422, False)
    assert expected in response.message
    assert response.message.startswith("queue 'q': ")


@pytest.mark.parametrize(
    ("queue", "others", "expected"),
    [
        pytest.param(volcano_queue(parent="q"), [], "queue 'q' cannot use itself as parent", id="own-parent"),
        pytest.param(volcano_queue(parent="p"), [], "parent queue 'p' of queue 'q' does not exist", id="no-parent"),
        pytest.param(volcano_queue(parent="q5"), chain(5), "exceeds the maximum allowed depth of 5", id="too-deep"),
        pytest.param(
            volcano_queue(parent="q3"), [*chain(3), *BELOW], "the maximum allowed depth", id="subtree-too-deep"
        ),
        pytest.param(volcano_queue(parent="p"), [HELD], "because it has allocated Pods: 3", id="parent-runs-jobs"),
        pytest.param(sized(parent="p", capability="20"), [P], "'p' has [cpu]=10", id="capability-above-parents"),
        pytest.param(
            sized(parent="m", capability="20"), [P, M], "'p' has [cpu]=10", id="capability-above-grandparents"
        ),
        pytest.param(
            sized(parent="p", deserved="4", guarantee="3"),
            [P, sized("c", parent="p", deserved="2", guarantee="2")],
            "sum of children's guarantee ([cpu]=5) exceeds the guarantee limit ([cpu]=4) of 'p'",
            id="guarantees-above-parents",
        ),
        pytest.param(
            sized(parent="p", deserved="5"),
            [P, sized("c", parent="p", deserved="2")],
            "sum of children's deserved ([cpu]=7) exceeds the deserved limit ([cpu]=6) of 'p'",
            id="deserved-above-parents",
        ),
        # A device that the parent does not list is an error even at 0.
        pytest.param(volcano_queue(parent="p", deserved={GPU: 0}), [P], "[nvidia.com/gpu]=0", id="unlisted-device"),
        pytest.param(
            sized(capability="10"),
            [sized("c", parent="q", capability="12")],
            "is smaller than its descendants' max capability[cpu]=12",
            id="capability-below-a-childs",
        ),
        pytest.param(
            sized(deserved="1"),
            [sized("c", parent="q", deserved="2")],
            "sum of children's deserved ([cpu]=2) exceeds the deserved limit ([cpu]=1) of 'q'",
            id="deserved-below-the-childrens",
        ),
        pytest.param(placed("root/a", "1/1"), [placed("root/a/b", "1/1/1", "c")], "root/a/b of queue 'c'", id="above"),
    ],
)
def test_queue_that_violates_the_hierarchy_is_denied(queue, others, expected):
    response = validate(queue, others=others)
    assert (response.outcome, response.depends_on_queues) == (Outcome.DENIED, True)
    assert expected in response.message
    # Rules about several queues are skipped before the first list.
    assert validate_queue(decoded(queue), QueueCache()).outcome is Outcome.ALLOWED


def test_capability_of_no_cpu_is_a_warning():
    response = validate(sized(capability="0", deserved="0"))
    assert response.outcome is Outcome.WARNED
    (warning,) = response.warnings
    assert warning.startswith("capability[cpu]=0 lets queue 'q' use none of it")
    assert validate(volcano_queue(capability={GPU: 0})).outcome is Outcome.ALLOWED, "Volcano's limit is 0, too"


@pytest.mark.parametrize(
    ("name", "others", "expected"),
    [
        pytest.param("default", [], "`default` queue can not be deleted", id="default"),
        pytest.param("root", [], "`root` queue can not be deleted", id="root"),
        pytest.param(
            "p",
            [P, volcano_queue("c", parent="p")],
            "queue 'p' can not be deleted because it has 1 child queues: c: delete them first",
            id="parent",
        ),
    ],
)
def test_undeletable_queue_is_denied(name, others, expected):
    response = validate(None, old=volcano_queue(name), operation="DELETE", others=others)
    assert response.outcome is Outcome.DENIED
    assert expected in response.message


def test_deletable_queue_is_allowed():
    assert validate(None, old=P, operation="DELETE", others=[P, volcano_queue("c")]).outcome is Outcome.ALLOWED


ROOT = sized("root", capability="8")
TOO_MUCH = sized(parent="p", capability="20")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(volcano_queue(), volcano_queue(weight=7), id="weight"),
        pytest.param(ROOT, ROOT | {"spec": ROOT["spec"] | {"weight": 2}}, id="weight-of-the-root"),
        pytest.param(volcano_queue(state="Closing"), volcano_queue(state="Closing", weight=2), id="state-of-volcanos"),
        pytest.param(TOO_MUCH, TOO_MUCH | {"spec": TOO_MUCH["spec"] | {"weight": 2}}, id="amounts-wrong-before"),
        pytest.param(volcano_queue(parent="gone"), volcano_queue(parent="gone", weight=2), id="parent-gone-before"),
        pytest.param(volcano_queue(), EMPTIED, id="null-for-empty-maps"),
    ],
)
def test_valid_update_is_allowed(before, after):
    assert validate(after, old=before, others=[P, before]).outcome is Outcome.ALLOWED


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(ROOT, sized("root", capability="9"), "root queue's resource attributes", id="root"),
        pytest.param(volcano_queue(), volcano_queue(state="Unknown"), "queue state must be in", id="state"),
        pytest.param(volcano_queue(parent="p"), TOO_MUCH, "exceeds its ancestor's capability", id="capability"),
        pytest.param(volcano_queue(), volcano_queue(parent="gone"), "does not exist", id="parent"),
    ],
)
def test_invalid_update_is_denied(before, after, expected):
    response = validate(after, old=before, others=[P, before])
    assert response.outcome is Outcome.DENIED
    assert expected in response.message


def mutated(queue, **request):
    return stored_after(mutate_queue(decoded(queue, **request)), queue)


DEFAULTS = {"weight": 1, "reclaimable": True, "parent": "root"}
WITHOUT_DEFAULTS = {"weight": 5, "reclaimable": False, "parent": "p"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, DEFAULTS, id="nothing-given"),
        pytest.param({"weight": 0, "parent": ""}, DEFAULTS, id="weight-0-and-empty-parent"),
        pytest.param(WITHOUT_DEFAULTS, WITHOUT_DEFAULTS, id="given"),
        pytest.param(None, DEFAULTS, id="no-spec"),
    ],
)
def test_volcano_defaults_are_set(spec, expected):
    assert mutated(volcano_queue() | {"spec": spec})["spec"] == expected


def test_root_queue_gets_no_parent():
    assert mutated(volcano_queue("root"))["spec"] == {"weight": 1, "reclaimable": True}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(placed("eng/prod", "2/8"), placed("root/eng/prod", "1/2/8"), id="without-the-root"),
        pytest.param(placed("root/eng", "1/2"), placed("root/eng", "1/2"), id="with-the-root"),
        pytest.param(placed("eng", ""), placed("eng", ""), id="without-weights"),
    ],
)
def test_hierarchy_annotation_is_prefixed_with_root(given, expected):
    assert mutated(given)["metadata"] == expected["metadata"]


def test_replaced_queue_keeps_defaults_and_given_annotations():
    """An empty parent would be written by Volcano in each member, and removed by Karmada, again and again."""
    applied = placed("eng/prod", "2/8") | {"spec": {"weight": 3}}
    stored = mutated(applied, old=mutated(applied))
    assert stored == applied | {"spec": DEFAULTS | {"weight": 3}}
