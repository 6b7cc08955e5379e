"""Interning of equal values."""

from controller.cache.index import InternPool, fingerprint
from controller.cache.store import Store
from tests.cache.fake_event_handler import FakeEventHandler
from tests.cache.objects import admission_record, binding, job


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


def test_running_workloads_of_equal_templates_share_their_charge():
    store, handler = Store(), FakeEventHandler()
    for name in ("a", "b"):
        record = admission_record(f"rb-{name}", queue="a", charge={"cpu": "1", "pods": "1"}, clusters=("m1",))
        running = binding(name, record=record, paused=False, clusters=["m1"], phases={"m1": "Running"})
        store.bindings.upsert(store.bindings.decode(running))
        store.jobs.upsert(store.jobs.decode(job(name)))
    store.sync_to(handler, 0)
    records = [cached.record.charge for cached in store.bindings]
    admissions = [workload.admission for workload in handler.workloads.values()]
    charges = [admission.charge for admission in admissions]
    assert charges == records
    assert len({id(charge) for charge in records}) == len({id(charge) for charge in charges}) == 1
    assert {id(part.charge) for admission in admissions for part in admission.cluster_charges} == {id(charges[0])}
