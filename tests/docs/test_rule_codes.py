"""Every code of a rule, threat, fault or invariant leads to an anchor in the documents."""

import re

from tests.docs.rules import CODE, SEMANTICS, anchors, citations


def test_every_cited_code_has_an_anchor():
    known = anchors()
    assert sorted({(name, code) for name, code in citations() if code not in known}) == []


def test_every_rule_heading_has_a_unique_anchor():
    headings = re.findall(r"^### ([A-Z]\d+) .*\{#(\w+)\}$", SEMANTICS.read_text(), re.MULTILINE)
    assert [code.lower() for code, _ in headings] == [anchor for _, anchor in headings]
    assert len({anchor for _, anchor in headings}) == len(headings) == 48


def test_codes_are_recognised_in_prose():
    assert CODE.findall("as Q4 and P1 say (TB3b, D11); v1.18, P4's, DS9-1, C3,") == [
        "Q4",
        "P1",
        "TB3b",
        "D11",
        "P4",
        "C3",
    ]
