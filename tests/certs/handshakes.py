"""Performs TLS handshakes in memory."""

import contextlib
import ssl


def handshake(certificate: bytes, key: bytes, *, bundle: bytes, name: str, folder) -> None:
    """Connect as a client that trusts *bundle* and calls *name*; raise the verification error if there is one."""
    (folder / "c.pem").write_bytes(certificate)
    (folder / "k.pem").write_bytes(key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "c.pem", folder / "k.pem")
    client_context = ssl.create_default_context(cadata=bundle.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.getpeercert()
