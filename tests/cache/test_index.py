"""The index from keys to members, and the pool of shared values."""

from hypothesis import given
from hypothesis import strategies as st

from controller.cache.index import Index
from controller.cache.interning import InternPool, fingerprint


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 3))))
def test_index_returns_members_that_were_not_discarded(steps):
    index: Index[int, int] = Index()
    expected: set[tuple[int, int]] = set()
    for adds, key, member in steps:
        (index.add if adds else index.discard)(key, member)
        (expected.add if adds else expected.discard)((key, member))
    assert {(key, member) for key in index for member in index.of(key)} == expected
    assert sorted(index) == sorted({key for key, _ in expected})


def test_pool_shares_equal_values_and_is_bounded():
    pool: InternPool[list[int]] = InternPool(size=2)
    assert pool.get("a", lambda: [1]) is pool.get("a", lambda: [2])
    for key in range(5):
        assert pool.get(key, lambda key=key: [key]) == [key]
    assert len(pool) <= 2


def test_pool_of_large_values_is_bounded_by_their_size():
    pool: InternPool[list[str]] = InternPool(max_bytes=1000)
    for key in range(20):
        assert pool.get(key, lambda key=key: [f"{key:0300}"]) == [f"{key:0300}"]
        assert len(pool) <= 3
    assert pool.get("larger", lambda: ["x" * 2000]) is pool.get("larger", list)
    assert pool.get("next", list) == []
    assert len(pool) == 1


def test_fingerprint_distinguishes_parts():
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(1, None) == fingerprint(1, None)
    assert fingerprint(10**30) != fingerprint(10**30 + 1)
