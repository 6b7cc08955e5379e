"""Interning of equal values."""

from controller.cache.index import InternPool, fingerprint
from controller.cache.store import Store


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


def test_binding_shares_names_with_its_template():
    store = Store()
    job = store.jobs.decode(
        b'{"metadata":{"name":"train","namespace":"ns","uid":"0d5a2f1c-8a52","creationTimestamp":"2026-01-01T00:00:07Z"}}'
    )
    binding = store.bindings.decode(
        b'{"metadata":{"name":"train-job","namespace":"ns","creationTimestamp":"2026-01-01T00:00:07Z"},"spec":'
        b'{"resource":{"apiVersion":"batch.volcano.sh/v1alpha1","kind":"Job","namespace":"ns","name":"train",'
        b'"uid":"0d5a2f1c-8a52"}}}'
    )
    assert binding.template is job.key
    assert binding.template_uid is job.uid
    assert binding.created_at is job.created_at
