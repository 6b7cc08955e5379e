"""An invalid field affects neither the object nor its other fields."""

import msgspec
import pytest

from controller.api.bindings import TargetCluster, decode_binding
from controller.api.jobs import decode_job, decode_template
from controller.api.meta import decode_deeply_nested
from controller.api.queues import decode_priority_class


def test_field_of_wrong_type_is_reported_with_its_path():
    binding = decode_binding(
        b'{"metadata":{"name":"a","uid":"u"},"spec":{"replicas":"three",'
        b'"clusters":[{"name":"m1","replicas":"2"},{"name":"m2"}],"suspension":{"scheduling":true}}}'
    )
    assert binding.metadata.uid == "u"
    assert binding.spec.suspension is not None
    assert binding.spec.suspension.scheduling
    assert binding.spec.clusters == [TargetCluster("m1"), TargetCluster("m2")]
    assert [flaw.partition(":")[0] for flaw in binding.decode_errors] == ["spec.replicas", "spec.clusters[0].replicas"]


def test_null_is_an_unset_field_and_errors_cannot_be_injected():
    job = decode_job(
        b'{"metadata":{"labels":null},"flaws":["x"],'
        b'"spec":{"queue":null,"tasks":[{"template":{"spec":{"containers":null}}}]}}'
    )
    assert job.decode_errors == ()
    assert job.spec.queue == ""
    assert not job.spec.tasks[0].template.spec.containers


def test_invalid_annotation_does_not_hide_the_others():
    binding = decode_binding(b'{"metadata":{"annotations":{"a":1,"b":"c"}}}')
    assert binding.metadata.annotations == {"b": "c"}
    assert len(binding.decode_errors) == 1


def test_first_errors_of_many_are_stored_with_short_paths():
    """They stay in memory with the object, and the reason of a pending workload contains them."""
    job = decode_job(
        b'{"metadata":{"labels":{"%s":1}},"spec":{"tasks":[%s]}}' % (b"k" * 100_000, b"1," * 9_999 + b"{}")
    )
    assert len(job.decode_errors) == 20
    assert max(map(len, job.decode_errors)) < 600
    assert len(job.spec.tasks) == 1


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deeply_nested_value_hides_no_other_field(opening, closing):
    brackets = b'"]}\\"[{"'
    deep = opening * 20_000 + brackets + closing * 20_000
    raw = b'{"metadata":{"annotations":{"note":%s}},"spec":{"a":%s,"b":[%s],"c":7}}' % (brackets, deep, deep)
    assert decode_template(raw).metadata.annotations == {"note": ']}"[{'}

    members = decode_deeply_nested(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode, msgspec.Raw(raw))
    spec = msgspec.json.decode(members["spec"])
    assert spec["c"] == 7
    for value in (spec["a"], spec["b"]):
        levels = 2
        while value is not None:
            (value,) = value.values() if isinstance(value, dict) else value  # noqa: PLW2901
            levels += 1
        assert levels == 500


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"metadata":{"name":"a"},"value":' + b"9" * 5000 + b"}", id="very-large-number"),
        pytest.param(b'{"metadata":{"name":"a"},"value":1e400}', id="infinite-number"),
        pytest.param(b'{"metadata":{"name":"a"},"value":1.5}', id="fraction"),
        pytest.param(b'{"metadata":{"name":"a"},"value":{}}', id="object"),
    ],
)
def test_invalid_number_keeps_the_object(raw):
    decoded = decode_priority_class(raw)
    assert decoded.metadata.name == "a"
    assert decoded.value == 0
    assert decoded.decode_errors


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"[]", id="a-list"),
        pytest.param(b"7", id="a-number"),
        pytest.param(b'{"metadata":', id="cut-off"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_non_object_raises_decode_error(raw):
    with pytest.raises(msgspec.DecodeError):
        decode_template(raw)
