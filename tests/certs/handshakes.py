"""Two ends of a TLS connection in memory."""

import contextlib
import ssl


def handshake(certificate: bytes, key: bytes, *, bundle: bytes, name: str, folder) -> None:
    """Shake hands as a client that trusts *bundle* and calls *name*; raise what it finds wrong."""
    (folder / "c.pem").write_bytes(certificate)
    (folder / "k.pem").write_bytes(key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "c.pem", folder / "k.pem")
    trusting = ssl.create_default_context(cadata=bundle.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.getpeercert()
