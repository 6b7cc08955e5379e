"""Which certificates a bundle covers, as `certs` judges them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from certs.authority import KeyPair, create_authority, issue, load_bundle
from certs.reconciler import CertificateReconciler
from certs.settings import CertificateSettings
from certs.status import report
from certs.store import SERVING, DirectoryStore

NOW, DAY = datetime.now(UTC), timedelta(days=1)
OLD, NEW = create_authority(NOW, 365 * DAY), create_authority(NOW, 365 * DAY)
LEAF = issue(OLD, ["localhost"], now=NOW, validity=DAY)
INTERMEDIATE = issue(OLD, ["intermediate"], now=NOW, validity=DAY)
BELOW = issue(INTERMEDIATE, ["localhost"], now=NOW, validity=DAY)


def cross_signed(pair: KeyPair, authority: KeyPair) -> KeyPair:
    """Return *pair* with a certificate of another CA."""
    builder = x509.CertificateBuilder().subject_name(pair.certificate.subject).serial_number(1)
    builder = builder.issuer_name(authority.certificate.subject).public_key(pair.certificate.public_key())
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + DAY)
    return KeyPair(builder.sign(authority.key, hashes.SHA256()), pair.key)


@pytest.mark.parametrize(
    ("chain", "bundle", "covered"),
    [
        pytest.param((LEAF,), (OLD,), True, id="issuer"),
        pytest.param((LEAF,), (NEW,), False, id="other-ca"),
        pytest.param((LEAF, NEW), (NEW,), False, id="other-ca-in-the-chain"),
        pytest.param((BELOW, INTERMEDIATE, cross_signed(INTERMEDIATE, NEW)), (NEW,), True, id="cross-signed"),
        pytest.param((BELOW, INTERMEDIATE), (NEW,), False, id="not-cross-signed"),
    ],
)
def test_only_the_chain_of_the_leaf_is_covered(tmp_path, monkeypatch, chain, bundle, covered):
    store = DirectoryStore(tmp_path)
    chain_pem, bundle_pem = (b"".join(pair.certificate_pem() for pair in pairs) for pairs in (chain, bundle))
    store.write(SERVING, {"tls.crt": chain_pem, "tls.key": LEAF.key_pem(), "ca.crt": bundle_pem}, expected=None)
    settings = CertificateSettings(command="status", directory=tmp_path, external=True)

    async def published(_: CertificateSettings) -> dict[str, bytes]:
        return {"webhook": bundle_pem}

    monkeypatch.setattr("certs.status.read_published", published)
    says = "covers" if covered else "does not cover"
    assert f"published in webhook: 1 CA, {says} the serving certificate" in report(store, settings)
    # Old CAs leave the published bundle only if the new ones cover the served certificate.
    assert CertificateReconciler(store, settings)._is_covered(load_bundle(bundle_pem)) is covered
