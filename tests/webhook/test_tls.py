"""Tests the served certificate by handshakes: verification, replacement without closing connections, and errors."""

import asyncio
import shutil
import ssl
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.authority import create_authority, issue
from controller.kube.serving_certificate import Certificate, CertificateError, load, read_pair
from tests.webhook.conftest import ensure_certificates, trust_context
from tests.webhook.reviews import job_binding, review, wire

GOOD = wire(review(job_binding()))
NOW = datetime.now(UTC)


async def serial(running, context: ssl.SSLContext) -> int:
    """Return the serial number of the certificate on a new connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


def on_disk(folder) -> int:
    return x509.load_pem_x509_certificate((folder / "serving" / "tls.crt").read_bytes()).serial_number


async def test_the_handshake_is_verified(running, certificates):
    assert await serial(running, running.trust) == on_disk(certificates)


async def test_server_certificate_of_another_ca_is_untrusted(running, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    ensure_certificates(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        await serial(running, trust_context(other))


async def test_server_certificate_is_invalid_for_another_name(running):
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


def put(folder, pair, *, key=None):
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(pair.certificate_pem() if hasattr(pair, "certificate_pem") else pair)
    (folder / "tls.key").write_bytes(key if key is not None else pair.key_pem())


def leaf(**validity):
    return issue(
        create_authority(NOW, timedelta(days=9)), ["localhost"], now=NOW, validity=timedelta(**validity or {"days": 1})
    )


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(shutil.rmtree, id="deleted"),
        pytest.param(lambda folder: (folder / "tls.key").unlink(), id="no-key"),
        pytest.param(lambda folder: (folder / "tls.crt").unlink(), id="no-certificate"),
        pytest.param(lambda folder: put(folder, leaf(), key=leaf().key_pem()), id="mismatched"),
        pytest.param(
            lambda folder: put(folder, leaf().certificate_pem()[:300], key=leaf().key_pem()), id="half-written"
        ),
        pytest.param(lambda folder: put(folder, b"", key=b""), id="empty"),
        pytest.param(lambda folder: put(folder, leaf(), key=b"\xff\x00"), id="garbage-key"),
    ],
)
def test_invalid_folder_names_the_remedy_and_recovers(tmp_path, spoil):
    folder = tmp_path / "tls"
    put(folder, leaf())
    spoil(folder)
    certificate = Certificate(folder)
    certificate.refresh()
    assert "python -m certs ensure" in certificate.not_ready_reason(NOW)
    put(folder, leaf())
    certificate.refresh()
    assert certificate.not_ready_reason(NOW) is None


@pytest.mark.parametrize("spoil", [shutil.rmtree, lambda folder: put(folder, leaf(), key=leaf().key_pem())])
def test_loaded_certificate_stays_while_the_folder_is_invalid(tmp_path, spoil):
    folder = tmp_path / "tls"
    put(folder, leaf())
    certificate = Certificate(folder)
    certificate.refresh()
    ends = certificate.not_after
    spoil(folder)
    certificate.refresh()
    assert (certificate.not_ready_reason(NOW), certificate.not_after) == (None, ends)


def test_webhook_is_not_ready_before_the_first_certificate(tmp_path):
    assert "no certificate was read" in Certificate(tmp_path).not_ready_reason(NOW)


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
    put(tmp_path / "tls", leaf(days=1))
    certificate = Certificate(tmp_path / "tls")
    certificate.refresh()
    trouble = certificate.not_ready_reason(NOW + after)
    assert trouble is None if expected is None else expected in trouble


def test_certificate_and_key_are_read_from_one_version(certificates):
    folder = certificates / "serving"
    for days in range(70, 360, 70):
        ensure_certificates(certificates, now=datetime.now(UTC) + timedelta(days=days))
        load(folder, read_pair(folder))


def test_mismatched_files_are_a_certificate_error(tmp_path):
    put(tmp_path, leaf(), key=leaf().key_pem())
    with pytest.raises(CertificateError, match="do not match"):
        load(tmp_path, read_pair(tmp_path))
