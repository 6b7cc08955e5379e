"""Tests the renewal of CA and serving certificate over years, with given times."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import AuthorityError, create_authority, load, load_bundle
from certs.rotation import Lifetimes, ensure_authority, ensure_leaf, examine_authority, examine_leaf
from certs.store import AUTHORITY, SERVING, DirectoryStore
from controller.kube.certificates import is_issued_by
from tests.certs.handshakes import handshake

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NAMES = ["localhost"]
OTHER, OTHER_KEY = create_authority(NOW, DAY).certificate_pem(), create_authority(NOW, DAY).key_pem()


CURVE, VERSION = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("a003020102")


def altered(pem, part):
    """Return *pem* with another number at the end of a *part* of it."""
    head, *body, tail = pem.decode().strip().split("\n")
    der = base64.b64decode("".join(body)).replace(part, part[:-1] + b"\x18")
    return f"{head}\n{base64.encodebytes(der).decode()}{tail}\n".encode()


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "store")


def ensure(store, *, at=NOW, names=NAMES, lifetimes=None):
    """Renew what is due at a time, and return the revisions of both sets."""
    lifetimes = lifetimes or Lifetimes()
    ensure_authority(store, at, lifetimes)
    ensure_leaf(store, names, now=at, lifetimes=lifetimes)
    return store.read(AUTHORITY).revision, store.read(SERVING).revision


def serving_pair(store):
    files = store.read(SERVING).files
    return load(files["tls.crt"], files["tls.key"])


@pytest.mark.parametrize(
    ("days", "authority_renewed", "leaf_renewed"),
    [
        pytest.param(0, False, False, id="new"),
        pytest.param(59, False, False, id="young"),
        pytest.param(60, False, True, id="leaf-due"),
        pytest.param(243, False, True, id="leaf-expired"),
        pytest.param(244, True, True, id="authority-due"),
        pytest.param(400, True, True, id="authority-expired"),
    ],
)
def test_only_due_certificates_are_renewed(store, days, authority_renewed, leaf_renewed):
    before = ensure(store)
    after = ensure(store, at=NOW + days * DAY)
    assert [old != new for old, new in zip(before, after, strict=True)] == [authority_renewed, leaf_renewed]


def test_old_ca_leaves_the_bundle_when_it_expires(store):
    ensure(store)
    first = load_bundle(store.read(AUTHORITY).files["ca.crt"])
    second = load_bundle(ensure_authority(store, NOW + 250 * DAY, Lifetimes()))
    assert second[1:] == first
    third = load_bundle(ensure_authority(store, NOW + 500 * DAY, Lifetimes()))
    assert third[1:] == second[:1]


def test_added_name_reissues_and_removed_name_does_not(store):
    one = ensure(store, names=["localhost"])
    two = ensure(store, names=["localhost", "127.0.0.1"])
    assert one[1] != two[1]
    assert serving_pair(store).names == {"localhost", "127.0.0.1"}
    assert ensure(store, names=["127.0.0.1"]) == two


def test_replaced_name_stays_until_the_next_renewal(store):
    ensure(store, names=["old"])
    ensure(store, names=["new"])
    assert serving_pair(store).names == {"old", "new"}
    ensure(store, at=NOW + 61 * DAY, names=["new"])
    assert serving_pair(store).names == {"new"}


@pytest.mark.parametrize("name", [AUTHORITY, SERVING])
@pytest.mark.parametrize(
    "files",
    [
        pytest.param({}, id="empty"),
        pytest.param({"tls.crt": b"", "tls.key": b"", "ca.crt": b""}, id="blank"),
        pytest.param({"tls.crt": b"x", "tls.key": b"y", "ca.crt": b"z"}, id="garbage"),
        pytest.param({"tls.crt": OTHER, "tls.key": OTHER_KEY, "ca.crt": OTHER}, id="mismatched"),
        pytest.param({"tls.crt": OTHER, "tls.key": altered(OTHER_KEY, CURVE), "ca.crt": OTHER}, id="curve-of-key"),
        pytest.param({"tls.crt": altered(OTHER, CURVE), "tls.key": OTHER_KEY, "ca.crt": OTHER}, id="curve"),
        pytest.param({"tls.crt": altered(OTHER, VERSION), "tls.key": OTHER_KEY, "ca.crt": OTHER}, id="version"),
    ],
)
def test_corrupt_set_is_replaced(store, name, files, tmp_path):
    ensure(store)
    store.write(name, files, expected=store.read(name))
    ensure(store)
    current = store.read(SERVING).files
    handshake(current["tls.crt"], current["tls.key"], bundle=current["ca.crt"], name="localhost", folder=tmp_path)


@pytest.mark.parametrize(
    "bundle", [b"", b"x", OTHER, altered(OTHER, VERSION)], ids=["empty", "garbage", "other", "version"]
)
def test_corrupt_bundle_is_not_published(store, bundle):
    ensure(store)
    files = store.read(AUTHORITY)
    store.write(AUTHORITY, {**files.files, "ca.crt": bundle}, expected=files)
    published = load_bundle(ensure_authority(store, NOW, Lifetimes()))
    assert examine_authority(store, NOW).pair.certificate == published[0]


def test_leaf_of_another_ca_is_replaced(store):
    ensure(store)
    other = create_authority(NOW, 100 * DAY)
    files = {"tls.crt": other.certificate_pem(), "tls.key": other.key_pem(), "ca.crt": other.certificate_pem()}
    store.write(AUTHORITY, files, expected=store.read(AUTHORITY))
    authority = examine_authority(store, NOW)
    stored_leaf = examine_leaf(store, authority, wanted=frozenset(NAMES), now=NOW)
    assert stored_leaf.reason == "another CA issued it"
    ensure(store)
    assert other.has_issued(serving_pair(store).certificate)


def test_no_leaf_is_issued_without_a_ca(store):
    with pytest.raises(AuthorityError, match="run ensure first"):
        ensure_leaf(store, NAMES, now=NOW, lifetimes=Lifetimes())


def test_chain_is_valid_for_ten_years_of_renewals(store):
    """The served leaf is covered by the bundle that is published next."""
    ensure(store)
    for day in range(0, 3650, 25):
        at = NOW + day * DAY
        leaf = serving_pair(store)
        bundle = load_bundle(ensure_authority(store, at, Lifetimes()))
        assert any(is_issued_by(issuer, leaf.certificate) for issuer in bundle)
        ensure_leaf(store, NAMES, now=at, lifetimes=Lifetimes())
        leaf = serving_pair(store)
        assert leaf.lifetime.not_before <= at < leaf.lifetime.not_after
        assert any(is_issued_by(issuer, leaf.certificate) for issuer in bundle)
