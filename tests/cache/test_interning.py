"""Interning of equal values."""

from controller.cache.index import InternPool, fingerprint


def test_equal_keys_share_one_value():
    pool: InternPool[list[int]] = InternPool()
    assert pool.get("a", lambda: [1]) is pool.get("a", lambda: [2])


def test_full_pool_is_cleared():
    pool: InternPool[int] = InternPool(size=2)
    for key in range(5):
        assert pool.get(key, lambda key=key: key) == key
    assert len(pool) == 1


def test_fingerprint_distinguishes_parts():
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(1, None) == fingerprint(1, None)
    assert fingerprint(10**30) != fingerprint(10**30 + 1)
