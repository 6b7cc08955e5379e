"""The webhook as an HTTP server: limits on what comes in, and the form of what goes out; judges nothing itself.

A bad request is answered 4xx with a sentence (as a Status, which the API server shows); a bad object is a review
answered with `allowed: false`. Nothing a caller sends raises an exception here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from structlog.typing import FilteringBoundLogger

from controller.api import review
from webhook.metrics import CONTENT_TYPE, Metrics
from webhook.request_validation import validate_value_count
from webhook.response import AdmissionResponse, Outcome, allowed, review_response
from webhook.routes import AdmissionHandler
from webhook.settings import Settings
from webhook.worker import BusyError, ReviewWorker

Probe = Callable[[], str | None]
"""Says why the webhook is not ready, or what will make it so, or ``None``."""
RefreshQueues = Callable[[], Awaitable[bool]]
"""Brings what was heard of the queues up to date, and says whether that worked."""

T = TypeVar("T")

_JSON = "application/json"
_MAX_LOGGED_LENGTH = 253
# Objects let through as they are leave no line: they are none of ours.
_EVENTS = {
    Outcome.DENIED: "object denied",
    Outcome.EXEMPT: "object exempted",
    Outcome.PATCHED: "object patched",
    Outcome.WARNED: "user warned",
}


class BadRequestError(Exception):
    """The request cannot be read as a review; answered with *status* and the sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, *, uid: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.uid = uid


@dataclass(slots=True)
class App:
    """Answers requests: reviews by path, and the probes."""

    settings: Settings
    handlers: Mapping[str, AdmissionHandler]
    not_ready: Probe
    warning: Probe = lambda: None
    refresh_queues: RefreshQueues | None = None
    metrics: Metrics = field(default_factory=Metrics)
    # Bound, since the one that is not is made anew for each line.
    log: FilteringBoundLogger = field(default_factory=lambda: structlog.get_logger(__name__).bind())
    worker: ReviewWorker = field(init=False)
    """Judges the reviews that are too large for the event loop."""
    draining: bool = False
    buffered: int = 0
    """Bytes of all bodies under way."""

    def __post_init__(self) -> None:
        """Count every path from the start."""
        self.worker = ReviewWorker(max_waiting=self.settings.max_waiting_reviews, seconds=self.settings.review_seconds)
        for path in self.handlers:
            self.metrics.requests.initialize(path)

    async def answer_review(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer on the HTTPS port."""
        started = time.perf_counter()
        path = request.path
        handler = self.handlers.get(path)
        if handler is None:
            path = "other"
        try:
            answer = await self._review(request, path, handler) if handler else self._probe(request)
        except BadRequestError as error:
            self.log.warning("request refused", path=path, code=error.status.value, reason=str(error))
            answer = error_response(error)
        if self.draining:
            # The caller's next request then opens a connection to another replica.
            answer.force_close()
        self.metrics.requests.count_request(path, code=answer.status, seconds=time.perf_counter() - started)
        return answer

    async def answer_plain(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer on the plain port, which takes no reviews."""
        if request.path == "/metrics":
            return web.Response(body=self.metrics.render(), headers={"Content-Type": CONTENT_TYPE})
        try:
            return self._probe(request)
        except BadRequestError as error:
            return error_response(error)

    async def _review(self, request: web.BaseRequest, path: str, handler: AdmissionHandler) -> web.Response:
        check_headers(request, self.settings.max_body_bytes)
        # All of it has come with its headers, as nearly always, or is waited for.
        body = request.content.read_nowait() if _is_buffered(request) else await self._read_body(request)
        try:
            review_request, answer = await self._run(len(body), partial(review_body, handler, body))
            if answer.depends_on_queues:
                answer = await self._review_again(handler, review_request, answer)
        except review.ReviewError as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, str(error), uid=error.uid) from error
        except BusyError as error:
            raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        self.metrics.requests.count_review(path, answer.outcome)
        self._log_outcome(review_request, answer)
        return web.Response(body=review.write(review_response(answer, review_request.uid)), content_type=_JSON)

    async def _run(self, size: int, task: Callable[[], T]) -> T:
        """Return what *judge* returns of a review of *size* bytes."""
        return task() if size <= self.settings.max_inline_bytes else await self.worker.run(task)

    def _log_outcome(self, review_request: review.Request, answer: AdmissionResponse) -> None:
        """Log what was decided about an object, unless it passed as it was."""
        if event := _EVENTS.get(answer.outcome):
            self.log.info(
                event,
                resource=review_request.resource.resource[:_MAX_LOGGED_LENGTH],
                namespace=review_request.namespace[:_MAX_LOGGED_LENGTH],
                name=review_request.name[:_MAX_LOGGED_LENGTH],
                uid=review_request.uid[:_MAX_LOGGED_LENGTH],
                dry_run=review_request.dry_run,
                reason=answer.message,
            )

    async def _review_again(
        self, handler: AdmissionHandler, review_request: review.Request, first_answer: AdmissionResponse
    ) -> AdmissionResponse:
        """Return the verdict over queues as they are now; where they cannot be read, nobody is refused for them."""
        if self.refresh_queues is not None and await self.refresh_queues():
            size = len(memoryview(review_request.object))
            return await self._run(size, partial(handler, review_request))
        if first_answer.outcome is Outcome.DENIED:
            return allowed(f"not checked, the queues cannot be read now: {first_answer.message}")
        return first_answer

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a review, never more of it in memory than is allowed."""
        seconds = self.settings.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read_chunks(request)
        except TimeoutError as error:
            raise BadRequestError(HTTPStatus.REQUEST_TIMEOUT, f"the body was not there within {seconds:g} s") from error
        except (HttpProcessingError, web.RequestPayloadError) as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "the body's transfer encoding is broken") from error

    async def _read_chunks(self, request: web.BaseRequest) -> bytes:
        limit = self.settings.max_body_bytes
        body = bytearray()
        try:
            while chunk := await request.content.readany():
                body += chunk
                self.buffered += len(chunk)
                if len(body) > limit:
                    raise _body_too_large(limit)
                if self.buffered > self.settings.max_buffered_bytes:
                    raise BadRequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many bodies are under way: try again")
        finally:
            self.buffered -= len(body)
        return bytes(body)

    def _probe(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/healthz":
            return web.Response(text="ok\n")
        if request.path == "/readyz":
            reason = self.not_ready()
            warning = self.warning()
            text = reason or ("ok" if warning is None else f"ok, but {warning}")
            return web.Response(text=f"{text}\n", status=503 if reason else 200)
        known = ", ".join(sorted(self.handlers))
        raise BadRequestError(HTTPStatus.NOT_FOUND, f"nothing is at {request.path[:100]!r}; reviews go to {known}")


def check_headers(request: web.BaseRequest, limit: int) -> None:
    """Raise `BadRequestError` for a request whose headers tell already that it is no review."""
    if request.method != "POST":
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"a review is sent with POST, not {request.method[:20]}")
    if "Content-Encoding" in request.headers:
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a review is sent without Content-Encoding")
    # Parsing the header costs more than all else here; the API server sends just this.
    if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a review is sent as {_JSON}")
    if (request.content_length or 0) > limit:
        raise _body_too_large(limit)


def review_body(handler: AdmissionHandler, body: bytes) -> tuple[review.Request, AdmissionResponse]:
    """Return the review in *body* and its verdict, or raise `ReviewError`."""
    review_request = review.read(body)
    # Each value has a byte at least, so that nearly all reviews need not be counted.
    refusal = validate_value_count(review_request) if len(body) > review.MAX_VALUES else None
    return review_request, refusal or handler(review_request)


def _is_buffered(request: web.BaseRequest) -> bool:
    return request.content.is_eof() and (request.content_length or 0) > 0


def error_response(error: BadRequestError) -> web.Response:
    """Return a Status with the sentence, and with the review's uid where it could be read."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": error.status.value,
        "message": str(error),
        "details": {"uid": error.uid},
    }
    answer = web.Response(body=msgspec.json.encode(body), status=error.status.value, content_type=_JSON)
    if error.status is not HTTPStatus.BAD_REQUEST:
        # What else is on its way is not worth reading.
        answer.force_close()
    return answer


def _body_too_large(limit: int) -> BadRequestError:
    return BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the review is larger than {limit} bytes")
