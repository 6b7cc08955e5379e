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


def upkeep(folder, *, authority=False, slept=None, **settings):
    told = Settings(command="ensure", directory=folder, dns=("localhost",), authority=authority, **settings)
    return CertificateReconciler(DirectoryStore(folder), told, sleep=(slept if slept is not None else []).append)


def bundle(folder):
    return load_bundle(DirectoryStore(folder).read(AUTHORITY).files["ca.crt"])


def serial(folder, name=SERVING):
    return load_bundle(DirectoryStore(folder).read(name).files["tls.crt"])[0].serial_number


def test_rotate_renews_the_serving_certificate_alone(folder):
    upkeep(folder).run()
    before = serial(folder), serial(folder, AUTHORITY)
    upkeep(folder).run(rotate=True)
    assert serial(folder) != before[0]
    assert serial(folder, AUTHORITY) == before[1]


def test_rotate_with_authority_renews_both_and_publishes_both_authorities(folder):
    upkeep(folder).run()
    before = serial(folder), serial(folder, AUTHORITY)
    upkeep(folder, authority=True).run(rotate=True)
    assert serial(folder) != before[0]
    assert [each.serial_number for each in bundle(folder)] == [serial(folder, AUTHORITY), before[1]]


def test_former_authorities_stay_until_every_replica_serves_the_newest_certificate(folder, replica):
    upkeep(folder).run()
    fast, slow = replica(folder / "serving"), replica(folder / "serving")
    told = {"replica": (fast.place, slow.place), "overlap_seconds": 0}
    upkeep(folder, authority=True, **told).run(rotate=True)
    fast.load()
    for _ in range(3):
        upkeep(folder, **told).run()
        assert len(bundle(folder)) == 2
    slow.load()
    upkeep(folder, **told).run()
    assert [each.serial_number for each in bundle(folder)] == [serial(folder, AUTHORITY)]
    upkeep(folder, **told).run()
    assert (
        DirectoryStore(folder).read(SERVING).files["ca.crt"] == DirectoryStore(folder).read(AUTHORITY).files["ca.crt"]
    )


def test_a_replica_that_does_not_answer_keeps_former_authorities(folder, replica):
    upkeep(folder).run()
    gone = replica(folder / "serving")
    gone.close()
    told = {"replica": (gone.place, "nobody.invalid:443"), "overlap_seconds": 0}
    upkeep(folder, authority=True, **told).run(rotate=True)
    upkeep(folder, **told).run()
    assert len(bundle(folder)) == 2


def test_former_authorities_stay_for_the_overlap(folder, replica):
    upkeep(folder).run()
    upkeep(folder, authority=True).run(rotate=True)
    at_once = replica(folder / "serving")
    upkeep(folder, replica=(at_once.place,), overlap_seconds=600).run()
    assert len(bundle(folder)) == 2


def test_without_replicas_former_authorities_stay_until_they_expire(folder):
    upkeep(folder).run()
    upkeep(folder, authority=True).run(rotate=True)
    upkeep(folder, overlap_seconds=0).run()
    assert len(bundle(folder)) == 2
