"""YAML and JSON are parsed as by the Kubernetes tools."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controller.cli.input.yaml_loader import ParseError, load_documents
from tests.draws import draws


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("# comment\n", [], id="comment"),
        pytest.param("---\na: 1\n---\n---\nb: 2\n", [{"a": 1}, None, {"b": 2}], id="documents"),
        pytest.param("a: 2026-01-02T03:04:05Z", [{"a": "2026-01-02T03:04:05Z"}], id="times-are-text"),
        pytest.param("a: 12:30:45", [{"a": "12:30:45"}], id="no-sexagesimals"),
        pytest.param("a: [yes, No, on, OFF, true]", [{"a": [True, False, True, False, True]}], id="booleans"),
        pytest.param("a: [~, null, '~', '']", [{"a": [None, None, "~", ""]}], id="nulls"),
        pytest.param("a: [010, 0o10, 0x10, 0b10, 1_000, -3, +4]", [{"a": [8, 8, 16, 2, 1000, -3, 4]}], id="integers"),
        pytest.param("a: [.5, 1., 1e3, -1.5E-2]", [{"a": [0.5, 1.0, 1000.0, -0.015]}], id="floats"),
        pytest.param("a: [4x, 1-2, 0.1.2, +, -]", [{"a": ["4x", "1-2", "0.1.2", "+", "-"]}], id="words"),
        pytest.param("a: ['1', \"2\", !!str 3, ! 4]", [{"a": ["1", "2", "3", "4"]}], id="quoted"),
        pytest.param("a: !!int '7'", [{"a": 7}], id="tagged"),
        pytest.param("a: |\n  x\n  y\n", [{"a": "x\ny\n"}], id="block"),
        pytest.param("1: a\ntrue: b\n1.5: c", [{"1": "a", "true": "b", "1.5": "c"}], id="keys-are-text"),
        pytest.param("a: &x {b: 1}\nc: *x", [{"a": {"b": 1}, "c": {"b": 1}}], id="alias"),
        pytest.param("a: &x {b: 1}\nc: {<<: *x, d: 2}", [{"a": {"b": 1}, "c": {"b": 1, "d": 2}}], id="merge"),
        pytest.param("c: {b: 2, <<: {b: 1}}", [{"c": {"b": 2}}], id="merge-yields"),
        pytest.param("c: {<<: [{b: 1}, {b: 2, d: 3}]}", [{"c": {"b": 1, "d": 3}}], id="merge-many"),
        pytest.param('{"a": 1}\n{"b": [2.5]}', [{"a": 1}, {"b": [2.5]}], id="json-documents"),
        pytest.param('{"a": 1}\n---\n{"b": x}\n...\n', [{"a": 1}, {"b": "x"}], id="json-then-yaml"),
        pytest.param('{"a": 1}\n...\n---\n{b: 2} # c', [{"a": 1}, {"b": 2}], id="json-then-end"),
        pytest.param('{\n\t"a":\t1\n}\n', [{"a": 1}], id="json-with-tabs"),
        pytest.param("{a: 1}", [{"a": 1}], id="flow-style"),
    ],
)
def test_documents_are_parsed(text, expected):
    assert list(load_documents(text)) == expected


@pytest.mark.parametrize("text", ["a: {<<: 1}", "? [a]\n: b", "~: a", "a: b\n c: d", "@a"])
def test_invalid_yaml_is_rejected_with_its_line(text):
    with pytest.raises(ParseError, match=r"^line \d+"):
        list(load_documents(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('{"a": 1}\n{"b": 2, "b": 3}\n{"c": 4}', "line 2: duplicate key 'b'", id="duplicate-key"),
        pytest.param('{"a": 1} {"b": 1e999}\n{}', "line 1: 1e999 is a number that JSON cannot hold", id="number"),
        pytest.param('{"a": 1}\n{"b":\n[1, 2', "line 4, column 1: did not find expected ',' or ']'", id="truncated"),
    ],
)
def test_error_in_a_later_json_document_names_its_line(text, problem):
    documents = load_documents(text)
    assert next(documents) == {"a": 1}
    with pytest.raises(ParseError, match=f"^{re.escape(problem)}"):
        list(documents)


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
NESTED = st.recursive(
    SCALARS | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc-/.", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1), NESTED))
def test_json_round_trips(value):
    assert list(load_documents(json.dumps(value))) == [value]


@draws(40)
@given(st.dictionaries(st.text("abc", min_size=1), NESTED))
def test_yaml_round_trips(value):
    # Quoted, because PyYAML reads scalars such as 1e3 as text, but Kubernetes reads them as numbers.
    assert list(load_documents(yaml.safe_dump(value, allow_unicode=True, default_style='"'))) == [value]


@given(st.text())
def test_any_text_is_parsed_or_rejected(text):
    try:
        list(load_documents(text))
    except ParseError as error:
        assert str(error)  # noqa: PT017 -- parsing may also succeed
