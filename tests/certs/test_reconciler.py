"""Rounds of upkeep over a folder: what is renewed, in which order, and when former authorities leave."""

import pytest

from certs.authority import load_bundle
from certs.directory import DirectoryStore
from certs.reconciler import CertificateReconciler
from certs.rotation import AUTHORITY, SERVING
from certs.settings import Settings


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


def reconciler(folder, *, authority=False, slept=None, **settings):
    told = Settings(command="ensure", directory=folder, dns=("localhost",), authority=authority, **settings)
    return CertificateReconciler(DirectoryStore(folder), told, sleep=(slept if slept is not None else []).append)


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
    assert [each.serial_number for each in bundle(folder)] == [serial(folder, AUTHORITY), before[1]]


def test_former_ca_stays_until_all_replicas_serve_new_leaf(folder, replica):
    reconciler(folder).run()
    fast, slow = replica(folder / "serving"), replica(folder / "serving")
    told = {"replica": (fast.place, slow.place), "overlap_seconds": 0}
    reconciler(folder, authority=True, **told).run(rotate=True)
    fast.load()
    for _ in range(3):
        reconciler(folder, **told).run()
        assert len(bundle(folder)) == 2
    slow.load()
    reconciler(folder, **told).run()
    assert [each.serial_number for each in bundle(folder)] == [serial(folder, AUTHORITY)]
    reconciler(folder, **told).run()
    assert (
        DirectoryStore(folder).read(SERVING).files["ca.crt"] == DirectoryStore(folder).read(AUTHORITY).files["ca.crt"]
    )


def test_unreachable_replica_prevents_ca_pruning(folder, replica):
    reconciler(folder).run()
    gone = replica(folder / "serving")
    gone.close()
    told = {"replica": (gone.place, "nobody.invalid:443"), "overlap_seconds": 0}
    reconciler(folder, authority=True, **told).run(rotate=True)
    reconciler(folder, **told).run()
    assert len(bundle(folder)) == 2


def test_former_ca_stays_for_the_overlap(folder, replica):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    at_once = replica(folder / "serving")
    reconciler(folder, replica=(at_once.place,), overlap_seconds=600).run()
    assert len(bundle(folder)) == 2


def test_former_ca_stays_until_expiry_without_replicas(folder):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    reconciler(folder, overlap_seconds=0).run()
    assert len(bundle(folder)) == 2
