"""Serves admission reviews and probes over HTTP by path, with limits on requests, and reloads the configuration.

The event loop answers small reviews itself, which is cheaper. A thread answers large ones: each may take a large part
of a second, during which the interpreter switches between the thread and the event loop.

A bad request is answered 4xx with a Status, which the API server shows; a bad object is answered with
`allowed: false`. No input of a caller raises an exception here.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from structlog.typing import FilteringBoundLogger

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.kube.config_file import ConfigurationFile
from webhook import review
from webhook.bindings import VOLCANO_JOB, GatedKinds, TemplateKind, review_binding
from webhook.metrics import CONTENT_TYPE, WebhookMetrics
from webhook.queue_cache import QueueCache
from webhook.review import AdmissionResponse, Outcome, Request, allowed, review_response, validate_value_count
from webhook.settings import WebhookSettings
from webhook.validation.data_source_claim import validate_claim
from webhook.validation.hyperjob import mutate_hyperjob, validate_hyperjob
from webhook.validation.job import JobPolicy, mutate_job, validate_job
from webhook.validation.queue import mutate_queue, validate_queue

AdmissionHandler = Callable[[Request], AdmissionResponse]
Probe = Callable[[], str | None]
"""Returns why the webhook is not ready, or will not be, or ``None``."""
RefreshQueues = Callable[[], Awaitable[bool]]
"""Lists the queues again and returns whether that succeeded."""

T = TypeVar("T")
_JSON = "application/json"
_MAX_LOGGED_LENGTH = 253

# Objects that are allowed unchanged are not logged.
_EVENTS = {
    Outcome.DENIED: "object denied",
    Outcome.EXEMPT: "object exempted",
    Outcome.PATCHED: "object patched",
    Outcome.WARNED: "object allowed with warnings",
}


class BusyError(Exception):
    """Raised when a review was not answered because too many are waiting or it took too long."""


class ReviewWorker:
    """Thread that answers large reviews, with a bounded number of waiting reviews and a deadline for each."""

    def __init__(self, *, max_waiting: int, seconds: float) -> None:
        self._max_waiting = max_waiting
        self._seconds = seconds
        self.unfinished = 0
        """Number of waiting and running reviews, including those past their deadline."""
        # More threads would share one interpreter and slow down the event loop.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reviews")

    async def run(self, task: Callable[[], T]) -> T:
        """Run *task* in the thread and return its result, or raise `BusyError`."""
        if self.unfinished >= self._max_waiting:
            raise BusyError(f"{self.unfinished} large reviews are waiting: try again")
        loop = asyncio.get_running_loop()
        self.unfinished += 1
        future = self._thread.submit(_capture, task)
        future.add_done_callback(lambda done: self._on_done(loop, done))
        try:
            # A thread cannot be stopped: a late review continues, and counts until it ends.
            outcome = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._seconds)
        except TimeoutError as error:
            message = f"the review took longer than {self._seconds:g} s: make the object smaller, or try again"
            raise BusyError(message) from error
        finally:
            future.cancel()
        try:
            return outcome()
        finally:
            # The traceback of an error names this frame: a cycle would keep the review's body in memory.
            del outcome, future

    def close(self) -> None:
        """Drop the waiting reviews."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _on_done(self, loop: asyncio.AbstractEventLoop, _: "Future[Callable[[], T]]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._decrement)

    def _decrement(self) -> None:
        self.unfinished -= 1


def _capture(task: Callable[[], T]) -> Callable[[], T]:
    """Run *task* and return a function that returns its result or raises its error; a future would retain the error."""
    try:
        result = task()
    except Exception as error:  # noqa: BLE001 -- raised again in the event loop
        return partial(_raise, [error])
    return lambda: result


def _raise(errors: list[Exception]) -> NoReturn:
    raise errors.pop()


def gated_kinds(configuration: VolcanoGlobalConfiguration) -> GatedKinds:
    """Return the gated kinds of *configuration*; Volcano Jobs are always gated."""
    integrations = (TemplateKind(rule.group, rule.kind) for rule in configuration.integrations)
    return GatedKinds(frozenset({VOLCANO_JOB, *integrations}), configuration.exempt_namespaces)


def job_policy(configuration: VolcanoGlobalConfiguration) -> JobPolicy:
    """Return the policy for jobs of *configuration*."""
    return JobPolicy(
        default_queue=configuration.default_queue,
        denies_unusable_queues=configuration.queue_validation == "Deny",
        resize=configuration.resize,
        exempt_namespaces=configuration.exempt_namespaces,
        tenants=configuration.tenants,
        max_parts=configuration.max_hyper_job_parts,
        denies_unmatched_tenants=configuration.unmatched_tenants == "Deny",
    )


class Configuration:
    """Current configuration, reloaded when its file changes; an invalid file leaves the previous one in force."""

    def __init__(self, path: Path | None) -> None:
        self._file = ConfigurationFile(path)
        self._file.read()
        self._apply()

    @property
    def is_rejected(self) -> bool:
        """Return whether the present content of the file is invalid."""
        return self._file.error is not None

    def refresh(self) -> None:
        """Reload the file if it has changed."""
        if self._file.refresh():
            self._apply()

    def _apply(self) -> None:
        self.admission = self._file.current
        self.gated_kinds, self.jobs = gated_kinds(self.admission), job_policy(self.admission)


def admission_handlers(configuration: Configuration, queues: QueueCache) -> Mapping[str, AdmissionHandler]:
    """Return the admission handler of each path."""
    return {
        "/resourcebindings/mutate": lambda request: review_binding(request, configuration.gated_kinds),
        "/jobs/mutate": lambda request: mutate_job(request, configuration.jobs),
        "/jobs/validate": lambda request: validate_job(request, configuration.jobs, queues),
        "/hyperjobs/mutate": lambda request: mutate_hyperjob(request, configuration.jobs),
        "/hyperjobs/validate": lambda request: validate_hyperjob(request, configuration.jobs, queues),
        "/datasourceclaims/validate": lambda request: validate_claim(
            request, configuration.gated_kinds.exempt_namespaces
        ),
        "/queues/mutate": mutate_queue,
        "/queues/validate": lambda request: validate_queue(request, queues),
    }


class BadRequestError(Exception):
    """The request is not a valid review; answered with *status* and *message*."""

    def __init__(self, status: HTTPStatus, message: str, *, uid: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.uid = uid


@dataclass(slots=True)
class App:
    """Answers reviews by path, and probes."""

    settings: WebhookSettings
    handlers: Mapping[str, AdmissionHandler]
    not_ready: Probe
    warning: Probe = lambda: None
    refresh_queues: RefreshQueues | None = None
    metrics: WebhookMetrics = field(default_factory=WebhookMetrics)
    # Bound once, since an unbound logger is created again for each line.
    log: FilteringBoundLogger = field(default_factory=lambda: structlog.get_logger(__name__).bind())
    worker: ReviewWorker = field(init=False)
    """Answers the reviews that are too large for the event loop."""
    draining: bool = False
    buffered: int = 0
    """Total bytes of the bodies being received."""

    def __post_init__(self) -> None:
        """Create the worker and initialize the metrics of every path."""
        self.worker = ReviewWorker(max_waiting=self.settings.max_waiting_reviews, seconds=self.settings.review_seconds)
        for path in self.handlers:
            self.metrics.requests.initialize(path)

    async def answer_review(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on the HTTPS port."""
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
        except Exception:
            # The server logs the error and answers 500.
            code = HTTPStatus.INTERNAL_SERVER_ERROR.value
            self.metrics.requests.count_request(path, code=code, seconds=time.perf_counter() - started)
            raise
        if self.draining:
            # The next request of the caller then opens a connection to another replica.
            answer.force_close()
        self.metrics.requests.count_request(path, code=answer.status, seconds=time.perf_counter() - started)
        return answer

    async def answer_plain(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request on the plain port, which accepts no reviews."""
        if request.path == "/metrics":
            return web.Response(body=self.metrics.render(), headers={"Content-Type": CONTENT_TYPE})
        try:
            return self._probe(request)
        except BadRequestError as error:
            return error_response(error)

    async def _review(self, request: web.BaseRequest, path: str, handler: AdmissionHandler) -> web.Response:
        check_headers(request, self.settings.max_body_bytes)
        # Nearly always the whole body has arrived with the headers.
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
        """Run *task* for a review of *size* bytes, in the event loop or in the worker."""
        return task() if size <= self.settings.max_inline_bytes else await self.worker.run(task)

    def _log_outcome(self, review_request: review.Request, answer: AdmissionResponse) -> None:
        """Log the outcome, except for objects that are allowed unchanged."""
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
        """Return the answer with freshly listed queues; if they cannot be listed, a denial becomes a warning."""
        if self.refresh_queues is not None and await self.refresh_queues():
            size = len(memoryview(review_request.object))
            return await self._run(size, partial(handler, review_request))
        if first_answer.outcome is Outcome.DENIED:
            return allowed(f"not checked, because the queues cannot be listed now: {first_answer.message}")
        return first_answer

    async def _read_body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a review within the limits for size, memory and time."""
        seconds = self.settings.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read_chunks(request)
        except TimeoutError as error:
            raise BadRequestError(
                HTTPStatus.REQUEST_TIMEOUT, f"the body was not complete within {seconds:g} s"
            ) from error
        except (HttpProcessingError, web.RequestPayloadError) as error:
            raise BadRequestError(HTTPStatus.BAD_REQUEST, "the transfer encoding of the body is invalid") from error

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
                    raise BadRequestError(
                        HTTPStatus.SERVICE_UNAVAILABLE, "too many bodies are being received: try again"
                    )
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
        paths = ", ".join(sorted(self.handlers))
        raise BadRequestError(
            HTTPStatus.NOT_FOUND, f"path {request.path[:100]!r} does not exist; reviews go to {paths}"
        )


def check_headers(request: web.BaseRequest, limit: int) -> None:
    """Raise `BadRequestError` for a request whose headers cannot be those of a review."""
    if request.method != "POST":
        raise BadRequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"a review is sent with POST, not {request.method[:20]}")
    if "Content-Encoding" in request.headers:
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a review is sent without Content-Encoding")
    # Parsing the header is the most expensive check; the API server sends exactly this value.
    if request.headers.get("Content-Type") != _JSON and request.content_type != _JSON:
        raise BadRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a review is sent as {_JSON}")
    if (request.content_length or 0) > limit:
        raise _body_too_large(limit)


def review_body(handler: AdmissionHandler, body: bytes) -> tuple[review.Request, AdmissionResponse]:
    """Return the review in *body* and its answer, or raise `ReviewError`."""
    review_request = review.read(body)
    # A value has at least one byte, so that only large bodies need counting.
    denial = validate_value_count(review_request) if len(body) > review.MAX_VALUES else None
    return review_request, denial or handler(review_request)


def _is_buffered(request: web.BaseRequest) -> bool:
    return request.content.is_eof() and (request.content_length or 0) > 0


def error_response(error: BadRequestError) -> web.Response:
    """Return a Status with the message, and with the uid of the review if it could be read."""
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
        # The rest of the request is not read.
        answer.force_close()
    return answer


def _body_too_large(limit: int) -> BadRequestError:
    return BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the review is larger than {limit} bytes")
