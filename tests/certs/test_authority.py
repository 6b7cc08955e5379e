"""Tests CAs and the certificates they issue, by TLS handshakes."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import BACKDATED, AuthorityError, create_authority, issue, load, load_bundle
from tests.certs.handshakes import handshake

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
NAMES = ["webhook.volcano-global-system.svc", "127.0.0.1", "::1"]


@pytest.fixture(scope="module")
def authority():
    return create_authority(NOW, 365 * DAY)


@pytest.fixture(scope="module")
def leaf(authority):
    return issue(authority, NAMES, now=NOW, validity=90 * DAY)


def connect(leaf, authority, name, folder):
    handshake(leaf.certificate_pem(), leaf.key_pem(), bundle=authority.certificate_pem(), name=name, folder=folder)


@pytest.mark.parametrize("name", NAMES)
def test_leaf_is_valid_for_each_of_its_names(authority, leaf, name, tmp_path):
    connect(leaf, authority, name, tmp_path)


@pytest.mark.parametrize("name", ["other.svc", "127.0.0.2", "sub.webhook.volcano-global-system.svc"])
def test_leaf_is_invalid_for_other_names(authority, leaf, name, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connect(leaf, authority, name, tmp_path)


def test_leaf_is_untrusted_with_another_ca(leaf, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(leaf, create_authority(NOW, DAY), NAMES[0], tmp_path)


def test_bundle_of_two_cas_covers_leaves_of_both(authority, leaf, tmp_path):
    other = create_authority(NOW, 365 * DAY)
    bundle = other.certificate_pem() + authority.certificate_pem()
    for pair in (leaf, issue(other, NAMES, now=NOW, validity=DAY)):
        handshake(pair.certificate_pem(), pair.key_pem(), bundle=bundle, name=NAMES[0], folder=tmp_path)


def test_expired_leaf_is_untrusted(tmp_path):
    authority = create_authority(NOW - 100 * DAY, 365 * DAY)
    leaf = issue(authority, NAMES, now=NOW - 91 * DAY, validity=90 * DAY)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(leaf, authority, NAMES[0], tmp_path)


def test_leaf_cannot_issue_certificates(authority, leaf, tmp_path):
    forged = issue(leaf, NAMES, now=NOW, validity=DAY)
    bundle = authority.certificate_pem() + leaf.certificate_pem()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(forged.certificate_pem(), forged.key_pem(), bundle=bundle, name=NAMES[0], folder=tmp_path)


def test_leaf_expires_no_later_than_its_ca(authority):
    leaf = issue(authority, NAMES, now=NOW + 300 * DAY, validity=90 * DAY)
    assert leaf.lifetime.not_after == authority.lifetime.not_after


def test_expired_ca_issues_no_leaf(authority):
    with pytest.raises(AuthorityError, match="renew it first"):
        issue(authority, NAMES, now=NOW + 365 * DAY, validity=DAY)


def test_validity_is_backdated_for_slow_clocks(authority, leaf):
    assert authority.lifetime.not_before == leaf.lifetime.not_before == NOW - BACKDATED


def test_keys_are_p256_with_minimal_usages(authority, leaf):
    assert isinstance(leaf.key.curve, ec.SECP256R1)
    assert isinstance(authority.key.curve, ec.SECP256R1)
    extensions = leaf.certificate.extensions
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert not usage.value.key_cert_sign
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    constraints = authority.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)


def test_each_ca_has_its_own_serial_and_subject(authority):
    pairs = [create_authority(NOW, DAY) for _ in range(5)] + [authority]
    assert len({pair.certificate.serial_number for pair in pairs}) == 6
    assert len({pair.certificate.subject for pair in pairs}) == 6


def test_names_of_a_certificate(leaf, authority):
    assert leaf.names == set(NAMES)
    assert authority.names == set()


def test_stored_pair_loads_again(leaf):
    again = load(leaf.certificate_pem(), leaf.key_pem())
    assert again.certificate == leaf.certificate


@pytest.mark.parametrize(
    ("certificate", "key", "expected"),
    [
        pytest.param(b"", b"", "cannot be read", id="empty"),
        pytest.param(b"x", b"x", "cannot be read", id="garbage"),
        pytest.param(None, b"", "cannot be read", id="no-key"),
        pytest.param(None, create_authority(NOW, DAY).key_pem(), "do not match", id="mismatched"),
    ],
)
def test_unusable_pair_is_an_error(leaf, certificate, key, expected):
    with pytest.raises(AuthorityError, match=expected):
        load(leaf.certificate_pem() if certificate is None else certificate, key)


def test_bundle_of_several_cas_loads(authority):
    other = create_authority(NOW, DAY)
    assert load_bundle(other.certificate_pem() + authority.certificate_pem()) == [
        other.certificate,
        authority.certificate,
    ]
    with pytest.raises(AuthorityError, match="bundle"):
        load_bundle(b"x")
