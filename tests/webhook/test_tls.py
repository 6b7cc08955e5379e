"""Tests the served certificate by handshakes: verification, replacement without closing connections, and errors."""

import asyncio
import shutil
import ssl
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.authority import create_authority, issue
from controller.kube.serving_certificate import Certificate
from tests.authority import write_certificate
from tests.webhook.conftest import ensure_certificates, trust_context
from tests.webhook.reviews import GOOD

NOW = datetime.now(UTC)


async def serial(running, context: ssl.SSLContext) -> int:
    """Return the serial number of the certificate on a new connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


def on_disk(folder) -> int:
    return x509.load_pem_x509_certificate((folder / "serving" / "tls.crt").read_bytes()).serial_number


async def test_server_certificate_is_verified(running, certificates, tmp_path_factory):
    assert await serial(running, running.trust) == on_disk(certificates)
    other = tmp_path_factory.mktemp("other")
    ensure_certificates(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        await serial(running, trust_context(other))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"webhook\.other"):
        await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust, server_hostname="webhook.other")


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        (ssl.TLSVersion.TLSv1, False),
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ],
)
async def test_tls_is_1_2_or_newer(running, version, accepted):
    context = running.trust
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    if accepted:
        assert await serial(running, context)
    else:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await serial(running, context)


async def test_connection_without_encryption_is_refused(running):
    context = trust_context(running.folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("NULL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await serial(running, context)


@pytest.mark.smoke
async def test_renewed_certificate_leaves_open_connections_alone(running, certificates):
    await running.post(GOOD)
    before = await serial(running, running.trust)
    shutil.rmtree(certificates / "serving")
    ensure_certificates(certificates)
    running.certificate.refresh()
    assert await serial(running, running.trust) == on_disk(certificates) != before
    async with running.post(GOOD) as answer:
        assert answer.status == 200


def put(folder, certificate, key):
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)


def put_leaf(folder, *, now=NOW):
    pair = issue(create_authority(now, timedelta(days=9)), ["localhost"], now=now, validity=timedelta(days=1))
    put(folder, pair.certificate_pem(), pair.key_pem())
    return pair


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda folder, _: shutil.rmtree(folder), id="deleted"),
        pytest.param(lambda folder, _: (folder / "tls.key").unlink(), id="no-key"),
        pytest.param(lambda folder, other: put(folder, other.certificate_pem(), other.key_pem()[:99]), id="half-key"),
        pytest.param(lambda folder, other: (folder / "tls.key").write_bytes(other.key_pem()), id="mismatched"),
        pytest.param(lambda folder, other: put(folder, other.certificate_pem()[:300], other.key_pem()), id="half"),
        pytest.param(lambda folder, _: put(folder, b"", b""), id="empty"),
    ],
)
def test_invalid_folder_names_the_remedy_and_recovers(tmp_path, spoil):
    """Before the first certificate the webhook is not ready; later it serves the last one."""
    folder = tmp_path / "tls"
    other = put_leaf(folder)
    put_leaf(folder)
    spoil(folder, other)
    certificate = Certificate(folder)
    assert "no certificate was read" in certificate.not_ready_reason(NOW)
    certificate.refresh()
    assert "python -m certs ensure" in certificate.not_ready_reason(NOW)
    put_leaf(folder)
    certificate.refresh()
    assert (certificate.not_ready_reason(NOW), certificate.warning) == (None, None)
    ends = certificate.not_after
    spoil(folder, other)
    certificate.refresh()
    assert (certificate.not_ready_reason(NOW), certificate.not_after) == (None, ends)
    assert "python -m certs ensure" in certificate.warning


@pytest.mark.parametrize(
    ("days", "expected"),
    [pytest.param(-2, "expired at", id="expired"), pytest.param(2, "is not valid before", id="not-yet-valid")],
)
def test_valid_certificate_is_not_replaced_by_an_invalid_one(tmp_path, days, expected):
    put_leaf(tmp_path / "tls")
    certificate = Certificate(tmp_path / "tls")
    certificate.refresh()
    ends = certificate.not_after
    put_leaf(tmp_path / "tls", now=NOW + timedelta(days=days))
    certificate.refresh()
    assert (certificate.not_ready_reason(NOW), certificate.not_after) == (None, ends)
    assert expected in certificate.warning


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(timedelta(), None, id="now"),
        pytest.param(timedelta(hours=23), None, id="shortly-before"),
        pytest.param(timedelta(hours=25), "expired", id="expired"),
        pytest.param(timedelta(days=400), "expired", id="clock-far-ahead"),
        pytest.param(timedelta(hours=-1), "correct the host's clock", id="not-yet-valid"),
    ],
)
def test_readiness_follows_the_clock(tmp_path, after, expected):
    put_leaf(tmp_path / "tls")
    certificate = Certificate(tmp_path / "tls")
    certificate.refresh()
    trouble = certificate.not_ready_reason(NOW + after)
    assert trouble is None if expected is None else expected in trouble


def test_folder_with_a_link_loop_is_read_again(tmp_path):
    (tmp_path / "tls.crt").symlink_to("tls.crt")
    certificate = Certificate(tmp_path)
    certificate.refresh()
    assert "tls.crt" in certificate.not_ready_reason(NOW)
    (tmp_path / "tls.crt").unlink()
    write_certificate(tmp_path)
    certificate.refresh()
    assert certificate.not_after is not None
