"""The fast test of an object's fields and the messages about them agree."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from controller.cli.input import validation
from controller.cli.input.manifests import read
from controller.cli.input.objects import WIRE_TYPES
from tests.files import DATA, EXAMPLES

KINDS = {(resource.group, resource.kind): struct for resource, struct in WIRE_TYPES.items()}
OBJECTS = [
    (KINDS[manifest.group, manifest.kind], manifest.body)
    for manifest in read([str(DATA), str(EXAMPLES)])
    if (manifest.group, manifest.kind) in KINDS
]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**33)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "4", "-4", "1Gi", "500m", "1e-9", "Equal", "2026-01-01T00:00:00Z"])
    | st.sampled_from([{}, [], [{}], {"x": {"y": 1}}]).map(copy.deepcopy)
)


def places(value, path=()):
    """Yield the path of each member of *value*."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


def assert_agreement(struct, body):
    checked = validation.check_fields(struct, body)
    assert list(checked.violations) == list(validation._validate(struct, body, ""))
    assert list(checked.misspelled) == list(validation._misspelled(struct, body, ""))


def test_real_objects_get_the_same_messages():
    assert OBJECTS
    for struct, body in OBJECTS:
        assert_agreement(struct, body)


@given(st.data())
def test_changed_objects_get_the_same_messages(data):
    struct, body = data.draw(st.sampled_from(OBJECTS))
    body = copy.deepcopy(dict(body))
    path = data.draw(st.sampled_from(list(places(body))))
    parent = body
    for key in path[:-1]:
        parent = parent[key]
    if isinstance(parent, dict) and data.draw(st.booleans()):
        name = data.draw(st.sampled_from([f"{path[-1]}s", str(path[-1])[:-1], "other"]))
        parent[name] = parent.pop(path[-1])
    else:
        parent[path[-1]] = data.draw(VALUES)
    assert_agreement(struct, body)
