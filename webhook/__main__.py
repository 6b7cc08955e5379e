"""Run the webhook: `python -m webhook --help`."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence

import msgspec
import structlog

from controller.api.configuration import ConfigurationError
from controller.kube import KubeconfigError
from webhook.app import App
from webhook.ca_bundle import PublishedBundle
from webhook.configuration import Configuration
from webhook.queue_cache import QueueCache
from webhook.routes import admission_handlers
from webhook.server import Listener, listen, listen_tls
from webhook.settings import Settings, SettingsError, parse_flags
from webhook.tls import Certificate, utc_now
from webhook.watchers import ControlPlaneWatcher

log = structlog.get_logger(__name__)

#: For how long the thread that judges large reviews keeps the interpreter while the event loop waits for it.
_SWITCH_SECONDS = 0.001
_AUTHENTICATE = (
    "anyone who reaches the port can have reviews judged: give --client-ca (webhook.clientCa in the chart), and let the"
    " API server show a certificate; until then admit only the API server by network policy"
)
_ENCODER = msgspec.json.Encoder(enc_hook=repr)


class Webhook:
    """The running process: what it serves, what it reads again, and how it stops."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.certificate = Certificate(settings.certificate_directory, settings.client_ca)
        self.configuration = Configuration(settings.admission_configuration)
        self.queues = QueueCache()
        self.published = PublishedBundle(settings.webhook_configuration)
        self.stopping = asyncio.Event()
        self._reason: str | None = None
        self.app = App(
            settings,
            admission_handlers(self.configuration, self.queues),
            self._not_ready,
            lambda: self.certificate.warning,
        )

    async def run(self) -> None:
        """Serve until told to stop, with an eye on the control plane if there is a way to it."""
        if self.settings.kubeconfig is None:
            await self._serve()
            return
        connection = ControlPlaneWatcher.connect(self.settings.kubeconfig, self.queues, self.published)
        async with connection as observer, asyncio.TaskGroup() as tasks:
            self.app.refresh_queues = observer.refresh_queues
            following = (observer.watch_queues(), observer.poll_bundle(seconds=self.settings.poll_seconds))
            started = [tasks.create_task(each) for each in following]
            await self._serve()
            for task in started:
                task.cancel()

    async def _serve(self) -> None:
        self._refresh()
        plain = await listen(self.app.answer_plain, self.settings)
        secure = await listen_tls(self.app.answer_review, self.settings, self.certificate.context)
        # What is loaded by now stays for good: looking through it again and again would be pauses.
        gc.freeze()
        log.info("webhook started", port=secure.port, plain_port=plain.port)
        if self.settings.client_ca is None:
            log.warning("callers not authenticated", reason="no --client-ca", remedy=_AUTHENTICATE)
        while not self.stopping.is_set():
            await wait(self.stopping, seconds=self.settings.poll_seconds)
            self._refresh()
        await self._drain(secure, plain)

    def stop(self) -> None:
        """Begin to drain."""
        self.stopping.set()

    async def _drain(self, secure: Listener, plain: Listener) -> None:
        self.app.draining = True
        log.info("webhook draining", seconds=self.settings.drain_seconds)
        await asyncio.sleep(self.settings.drain_seconds)
        await secure.close(seconds=self.settings.stop_seconds)
        await plain.close(seconds=1)
        self.app.worker.close()
        log.info("webhook stopped")

    def _refresh(self) -> None:
        self.certificate.refresh()
        self.configuration.refresh()
        ends = self.certificate.not_after
        reason = self._not_ready()
        if reason != self._reason:
            log.info("webhook ready") if reason is None else log.warning("webhook not ready", reason=reason)
        self._reason = reason
        self.app.metrics.update(
            ready=reason is None,
            certificate_expiry=ends.timestamp() if ends else 0,
            queues=len(self.queues.queues) if self.queues.is_synced else None,
            authenticates=self.settings.client_ca is not None,
        )

    def _not_ready(self) -> str | None:
        if self.app.draining:
            return "draining"
        trouble = self.certificate.not_ready_reason(utc_now())
        if trouble is None and self.settings.kubeconfig:
            trouble = self.published.not_ready_reason(self.certificate.chain)
        return trouble


async def wait(event: asyncio.Event, *, seconds: float) -> None:
    """Wait for *event*, at most *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def configure_logging() -> None:
    """Write one JSON object a line on standard output, also of what aiohttp and asyncio say."""
    # One line for each binding: written in one step, at a third of what structlog's own three cost.
    structlog.configure(
        processors=[_write_line],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(sys.stdout)
    before: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render = structlog.processors.JSONRenderer()
    foreign.setFormatter(structlog.stdlib.ProcessorFormatter(processor=render, foreign_pre_chain=before))
    logging.basicConfig(handlers=[foreign], level=logging.WARNING)


def _write_line(_logger: object, level: str, event: structlog.typing.EventDict) -> bytes:
    event["level"] = level
    event["timestamp"] = utc_now()
    return _ENCODER.encode(event)


async def serve(settings: Settings) -> None:
    """Run the webhook until SIGTERM or SIGINT."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    webhook = Webhook(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, webhook.stop)
    await webhook.run()


def main(arguments: Sequence[str]) -> None:
    """Parse the flags and serve; what it cannot start with is a sentence and exit code 1."""
    configure_logging()
    try:
        asyncio.run(serve(parse_flags(arguments)))
    except (SettingsError, ConfigurationError, KubeconfigError, OSError) as error:
        sys.exit(f"webhook: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
