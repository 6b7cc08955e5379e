"""Serves other webhooks: some patch the object, some misbehave."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any]], bytes | None]
"""Returns the answer to a review; ``None`` sends no answer."""


def patching(*operations: dict[str, Any], unless: str = "") -> Answer:
    """Answer with a patch, except for an object that contains *unless*."""

    def answer(review):
        found = json.dumps(review["request"]["object"])
        patch = [] if unless and unless in found else list(operations)
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        return _review(review["request"]["uid"], patchType="JSONPatch", patch=encoded)

    return answer


def with_uid(uid: str) -> Answer:
    """Answer with another uid."""
    return lambda _: _review(uid)


def slowly(seconds: float) -> Answer:
    """Answer correctly but late."""

    def answer(review):
        time.sleep(seconds)
        return _review(review["request"]["uid"])

    return answer


def _review(uid: str, **response: Any) -> bytes:
    whole = {"uid": uid, "allowed": True} | response
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": whole}).encode()


@contextmanager
def fake_webhook(
    folder: Path, answer: Answer, *, status: int = 200, received: list[bytes] | None = None
) -> Iterator[int]:
    """Serve *answer* with the certificate in *folder* and yield the port; bodies are appended to *received*."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if received is not None:
                received.append(sent)
            body = answer(json.loads(sent))
            if body is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore callers that have disconnected."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "serving" / "tls.crt", folder / "serving" / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
