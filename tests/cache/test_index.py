"""The index from keys to members."""

from hypothesis import given
from hypothesis import strategies as st

from controller.cache.index import Index


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3))))
def test_index_returns_members_that_were_not_discarded(steps):
    index: Index[int, int] = Index()
    expected: set[tuple[int, int]] = set()
    for adds, key, member in steps:
        (index.add if adds else index.discard)(key, member)
        (expected.add if adds else expected.discard)((key, member))
    assert {(key, member) for key in index for member in index.of(key)} == expected
    assert sorted(index) == sorted({key for key, _ in expected})
