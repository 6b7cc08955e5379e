"""Minimal synchronous Kubernetes API client for bootstrapping and tests.

It uses one connection and sends one request at a time.
"""

import http.client
import json
import ssl
import threading
from typing import Any, Final, Self
from urllib.parse import urlsplit

_TIMEOUT_SECONDS: Final = 30
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server rejected a request."""

    def __init__(self, status: int, *, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """Client that authenticates with the token of one identity."""

    def __init__(self, url: str, *, ca: str, token: str) -> None:
        address = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._connection = http.client.HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=_TIMEOUT_SECONDS,
            context=ssl.create_default_context(cadata=ca),
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str) -> Any:
        """Return the object, list or text at *path*."""
        return self.request("GET", path)

    def create(self, path: str, body: Any) -> Any:
        """Create an object in the collection *path*."""
        return self.request("POST", path, body)

    def apply(self, path: str, body: Any) -> Any:
        """Apply an object server-side as field manager ``localup``."""
        return self.request("PATCH", f"{path}?fieldManager=localup&force=true", body, content_type=APPLY_PATCH)

    def merge(self, path: str, body: Any) -> Any:
        """Merge *body* into the object at *path*."""
        return self.request("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str) -> Any:
        """Delete the object at *path*."""
        return self.request("DELETE", path)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """Send a request and return the decoded response; raise `ApiError` for an error, else `OSError`."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content_type} if data else {})
        status, answer = self._exchange(method, path, data, headers)
        if status >= http.HTTPStatus.BAD_REQUEST:
            raise _error(status, answer)
        try:
            return json.loads(answer)
        except ValueError:  # /readyz and similar paths return text
            return answer.decode()

    def close(self) -> None:
        """Close the connection; the next request reopens it."""
        with self._lock:
            self._connection.close()

    def _exchange(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        with self._lock:
            reused = self._connection.sock is not None
            try:
                return self._send(method, path, data, headers)
            except (ConnectionError, ssl.SSLEOFError, http.client.HTTPException) as error:
                self._connection.close()
                if not reused:
                    raise ConnectionError(f"no answer from {self._connection.host}:{self._connection.port}") from error
            # The server closed the reused connection, for example by a restart.
            return self._send(method, path, data, headers)

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except BaseException:
            self._connection.close()
            raise


def _error(status: int, answer: bytes) -> ApiError:
    try:
        details = json.loads(answer)
    except ValueError:
        details = {}
    reason, message = details.get("reason", ""), details.get("message", answer.decode(errors="replace")[:500])
    return ApiError(status, reason=reason or http.HTTPStatus(status).phrase, message=message)
