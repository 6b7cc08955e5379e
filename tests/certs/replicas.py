"""Serves certificates as replicas of the webhook do."""

import contextlib
import socket
import ssl
import threading


class Replica:
    """Serves the certificate of a folder as of the last `load`."""

    def __init__(self, folder, host: str = "127.0.0.1", port: int = 0) -> None:
        self.folder = folder
        self.load()
        self._listening = socket.create_server((host, port))
        self.port = self._listening.getsockname()[1]
        self.place = f"{host}:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def load(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")

    def close(self) -> None:
        # The accepting thread holds the socket until it is woken.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as secure:
                    secure.recv(1)
