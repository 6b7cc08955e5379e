"""Tests the order of renewal and publishing, and when old CAs leave the bundle."""

import pytest

from certs.authority import load_bundle
from certs.reconciler import CertificateReconciler
from certs.settings import CertificateSettings
from certs.store import AUTHORITY, SERVING, DirectoryStore


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def reconciler(folder, *, authority=False, delays=None, **settings):
    configured = CertificateSettings(
        command="ensure", directory=folder, dns=("localhost",), authority=authority, **settings
    )
    return CertificateReconciler(
        DirectoryStore(folder), configured, sleep=(delays if delays is not None else []).append
    )


def bundle(folder):
    return load_bundle(DirectoryStore(folder).read(AUTHORITY).files["ca.crt"])


def serial(folder, name=SERVING):
    return load_bundle(DirectoryStore(folder).read(name).files["tls.crt"])[0].serial_number


def test_rotate_renews_only_the_serving_certificate(folder):
    reconciler(folder).run()
    before = serial(folder), serial(folder, AUTHORITY)
    reconciler(folder).run(rotate=True)
    assert serial(folder) != before[0]
    assert serial(folder, AUTHORITY) == before[1]


def test_rotate_with_authority_renews_and_publishes_both_cas(folder):
    reconciler(folder).run()
    before = serial(folder), serial(folder, AUTHORITY)
    reconciler(folder, authority=True).run(rotate=True)
    assert serial(folder) != before[0]
    assert [ca.serial_number for ca in bundle(folder)] == [serial(folder, AUTHORITY), before[1]]


def test_former_ca_stays_until_all_replicas_serve_new_leaf(folder, replica):
    reconciler(folder).run()
    fast, slow = replica(folder / "serving"), replica(folder / "serving")
    options = {"replica": (fast.place, slow.place), "overlap_seconds": 0}
    reconciler(folder, authority=True, **options).run(rotate=True)
    fast.load()
    for _ in range(3):
        reconciler(folder, **options).run()
        assert len(bundle(folder)) == 2
    slow.load()
    reconciler(folder, **options).run()
    assert [ca.serial_number for ca in bundle(folder)] == [serial(folder, AUTHORITY)]
    reconciler(folder, **options).run()
    assert (
        DirectoryStore(folder).read(SERVING).files["ca.crt"] == DirectoryStore(folder).read(AUTHORITY).files["ca.crt"]
    )


def test_unreachable_replica_prevents_ca_pruning(folder, replica):
    reconciler(folder).run()
    stopped = replica(folder / "serving")
    stopped.close()
    options = {"replica": (stopped.place, "unresolvable.invalid:443"), "overlap_seconds": 0}
    reconciler(folder, authority=True, **options).run(rotate=True)
    reconciler(folder, **options).run()
    assert len(bundle(folder)) == 2


def test_former_ca_stays_for_the_overlap(folder, replica):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    current = replica(folder / "serving")
    reconciler(folder, replica=(current.place,), overlap_seconds=600).run()
    assert len(bundle(folder)) == 2


def test_former_ca_stays_until_expiry_without_replicas(folder):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    reconciler(folder, overlap_seconds=0).run()
    assert len(bundle(folder)) == 2
