"""Tests the folder store: complete sets, optimistic concurrency, and file permissions."""

import errno
import os
import stat
import threading

import pytest

from certs.store import ConflictError, DirectoryStore

ONE = {"tls.crt": b"certificate 1", "tls.key": b"key 1"}
TWO = {"tls.crt": b"certificate 2", "tls.key": b"key 2"}


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "store")


def test_written_set_is_read_back(store):
    assert store.read("serving") is None
    store.write("serving", ONE, expected=None)
    store.write("authority", TWO, expected=None)
    assert (store.read("serving").files, store.read("authority").files) == (ONE, TWO)


def test_write_over_an_older_revision_conflicts(store):
    store.write("serving", ONE, expected=None)
    with pytest.raises(ConflictError, match="another process"):
        store.write("serving", TWO, expected=None)
    before = store.read("serving")
    store.write("serving", TWO, expected=before)
    with pytest.raises(ConflictError):
        store.write("serving", ONE, expected=before)
    assert store.read("serving").files == TWO


def test_one_of_many_concurrent_writers_succeeds(store):
    succeeded = []

    def attempt(number):
        try:
            store.write("serving", {"tls.crt": b"%d" % number}, expected=None)
            succeeded.append(number)
        except ConflictError:
            pass

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(succeeded) == 1
    assert store.read("serving").files == {"tls.crt": b"%d" % succeeded[0]}


def test_files_are_readable_by_their_owner_only(store, tmp_path):
    store.write("serving", ONE, expected=None)
    key = tmp_path / "store" / "serving" / "tls.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.resolve().parent.stat().st_mode) == 0o700


def test_reader_sees_certificate_and_key_of_one_version(store, tmp_path):
    """Resolve one file, then read both next to it, while another thread replaces them."""
    sets = [{"tls.crt": b"%d" % number * 2000, "tls.key": b"%d" % number * 2000} for number in range(10)]
    store.write("serving", sets[0], expected=None)
    done = threading.Event()

    def replace():
        for number in range(60):
            store.write("serving", sets[number % 10], expected=store.read("serving"))
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    seen = set()
    while not done.is_set():
        version = (tmp_path / "store" / "serving" / "tls.crt").resolve().parent
        try:
            certificate, key = (version / "tls.crt").read_bytes(), (version / "tls.key").read_bytes()
        except FileNotFoundError:
            continue  # the version was removed: read again, as a poll does
        assert certificate == key
        seen.add(certificate)
    writer.join()
    assert len(seen) > 1
    versions = [
        entry for entry in (tmp_path / "store" / "serving").iterdir() if entry.is_dir() and not entry.is_symlink()
    ]
    assert len(versions) == 2, "older versions are removed"


def test_interrupted_write_leaves_the_old_set(store, tmp_path):
    store.write("serving", ONE, expected=None)
    unfinished = tmp_path / "store" / "serving" / "..half"
    unfinished.mkdir()
    (unfinished / "tls.crt").write_bytes(b"half")
    (tmp_path / "store" / "serving" / "..data.new").symlink_to("..half")
    assert store.read("serving").files == ONE
    store.write("serving", TWO, expected=store.read("serving"))
    assert store.read("serving").files == TWO


def test_failed_writes_leave_no_files(store, tmp_path, monkeypatch):
    store.write("serving", ONE, expected=None)
    before = sorted((tmp_path / "store").rglob("*"))

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for _ in range(3):
            with pytest.raises(OSError, match="no space left"):
                store.write("serving", TWO, expected=store.read("serving"))
    assert sorted((tmp_path / "store").rglob("*")) == before
    assert store.read("serving").files == ONE
