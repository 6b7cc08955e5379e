"""Tests CAs and the certificates they issue, by TLS handshakes."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import (
    BACKDATED,
    AuthorityError,
    Lifetime,
    create_authority,
    issue,
    reason_to_reissue,
    reason_to_renew,
)
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


def test_leaf_is_valid_for_each_of_its_names_only(authority, leaf, tmp_path):
    assert (leaf.names, authority.names) == (set(NAMES), set())
    for name in NAMES:
        connect(leaf, authority, name, tmp_path)
    for name in ("other.svc", "127.0.0.2", "sub.webhook.volcano-global-system.svc"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            connect(leaf, authority, name, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(leaf, create_authority(NOW, DAY), NAMES[0], tmp_path)


def test_bundle_of_two_cas_covers_leaves_of_both(authority, leaf, tmp_path):
    other = create_authority(NOW, 365 * DAY)
    bundle = other.certificate_pem() + authority.certificate_pem()
    for pair in (leaf, issue(other, NAMES, now=NOW, validity=DAY)):
        handshake(pair.certificate_pem(), pair.key_pem(), bundle=bundle, name=NAMES[0], folder=tmp_path)


def test_leaf_cannot_issue_certificates(authority, leaf, tmp_path):
    forged = issue(leaf, NAMES, now=NOW, validity=DAY)
    bundle = authority.certificate_pem() + leaf.certificate_pem()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(forged.certificate_pem(), forged.key_pem(), bundle=bundle, name=NAMES[0], folder=tmp_path)


def test_leaf_expires_no_later_than_its_ca(authority):
    leaf = issue(authority, NAMES, now=NOW + 300 * DAY, validity=90 * DAY)
    assert leaf.lifetime.not_after == authority.lifetime.not_after
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


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age_days", "reason"),
    [
        pytest.param(-1, "it is not valid yet", id="clock-behind"),
        pytest.param(0, None, id="new"),
        pytest.param(59.99, None, id="young"),
        pytest.param(60, "two thirds of its lifetime have passed", id="due"),
        pytest.param(400, "two thirds of its lifetime have passed", id="expired"),
    ],
)
def test_leaf_is_renewed_at_two_thirds_of_its_lifetime(age_days, reason):
    now, leaf = START + age_days * DAY, Lifetime(START, START + 90 * DAY)
    assert reason_to_renew(leaf, Lifetime(START, START + 365 * DAY), now) == reason
    assert reason_to_renew(leaf, leaf, now) == reason, "a CA is its own issuer"
    assert reason_to_renew(leaf, Lifetime(START, START + 89 * DAY), now) == "it outlives its issuer"


def test_leaf_is_reissued_for_missing_names():
    assert reason_to_reissue(frozenset("ab"), frozenset("a")) is None
    assert reason_to_reissue(frozenset("a"), frozenset("acb")) == "it does not cover b, c"
