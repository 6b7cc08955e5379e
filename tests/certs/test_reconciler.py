"""Tests the order of renewal and publishing, and when old CAs leave the bundle."""

from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from certs.authority import load_bundle
from certs.reconciler import CertificateReconciler, served_certificates
from certs.rotation import Lifetimes, ensure_authority
from certs.settings import CertificateSettings
from certs.store import AUTHORITY, SERVING, ConflictError, DirectoryStore
from controller.kube.serving_certificate import utc_now


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


def test_rotate_renews_the_ca_only_with_authority(folder):
    reconciler(folder).run()
    before = serial(folder), serial(folder, AUTHORITY)
    reconciler(folder).run(rotate=True)
    after = serial(folder)
    assert (after != before[0], serial(folder, AUTHORITY) == before[1]) == (True, True)
    reconciler(folder, authority=True).run(rotate=True)
    assert serial(folder) != after
    assert [ca.serial_number for ca in bundle(folder)] == [serial(folder, AUTHORITY), before[1]]


def test_address_in_a_long_form_is_covered(folder):
    reconciler(folder, ip=("FD00:0:0::1",)).run()
    with capture_logs() as logged:
        reconciler(folder, ip=("FD00:0:0::1",)).run()
    assert logged == []


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


def test_former_ca_stays_without_an_answer_of_all_replicas(folder, replica):
    """It stays for the overlap too, and until it expires where no replicas are named."""
    reconciler(folder).run()
    stopped = replica(folder / "serving")
    stopped.close()
    reconciler(folder, authority=True).run(rotate=True)
    current = replica(folder / "serving").place
    for options in (
        {"replica": (current, stopped.place), "overlap_seconds": 0},
        {"replica": (current, "unresolvable.invalid:443"), "overlap_seconds": 0},
        {"replica": (current,), "overlap_seconds": 600},
        {"overlap_seconds": 0},
    ):
        reconciler(folder, **options).run()
        assert len(bundle(folder)) == 2, options


def test_served_certificate_that_cannot_be_parsed_is_no_answer(folder, replica, monkeypatch):
    reconciler(folder).run()
    place = replica(folder / "serving").place

    def fail(_: bytes) -> None:
        raise ValueError("invalid length")

    monkeypatch.setattr("certs.reconciler.x509.load_der_x509_certificate", fail)
    assert served_certificates([place]) == {place: None}


def test_overlap_that_keeps_a_former_ca_is_logged(folder, replica):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    served = replica(folder / "serving")
    with capture_logs() as logged:
        reconciler(folder, replica=(served.place,)).run()
    (line,) = [event for event in logged if event["event"] == "old CAs not removed"]
    assert line["reason"] == "the newest certificate is too new"
    assert timedelta(minutes=9) < datetime.fromisoformat(line["until"]) - utc_now() < timedelta(minutes=10)


class SharedStore(DirectoryStore):
    """A store in which another process renews the CA just before it is read for the given time."""

    def __init__(self, folder, renewed_at_read):
        super().__init__(folder)
        self.folder, self.left = folder, renewed_at_read

    def read(self, name):
        self.left -= name == AUTHORITY
        if self.left == 0:
            self.left = -1
            ensure_authority(DirectoryStore(self.folder), utc_now(), Lifetimes(), forced_reason="a rotation")
        return super().read(name)


@pytest.mark.parametrize("read", [pytest.param(2, id="before-the-leaf"), pytest.param(3, id="before-the-removal")])
def test_ca_of_another_process_is_published_before_it_is_used(folder, replica, read):
    reconciler(folder).run()
    reconciler(folder, authority=True).run(rotate=True)
    served, known = replica(folder / "serving"), bundle(folder)
    interrupted = reconciler(folder, replica=(served.place,), overlap_seconds=0)
    before = serial(folder)
    with pytest.raises(ConflictError, match="renewed by another process"):
        CertificateReconciler(SharedStore(folder, read), interrupted.settings).run()
    assert serial(folder) == before
    assert bundle(folder)[1:] == known
