"""Run the webhook: `python -m webhook --help`."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

import structlog

from controller.api import review
from controller.api.configuration import ConfigurationError
from webhook.app import App
from webhook.configuration import Configuration
from webhook.listener import Listener, listen, listen_tls
from webhook.resourcebindings import review_binding
from webhook.settings import Settings, SettingsError, parse_flags
from webhook.tls import Certificate, utc_now
from webhook.verdict import Verdict

log = structlog.get_logger(__name__)


class Webhook:
    """The running process: what it serves, what it reads again, and how it stops."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.certificate = Certificate(settings.certificate_directory)
        self.configuration = Configuration(settings.admission_configuration)
        self.stopping = asyncio.Event()
        self.app = App(settings, {"/resourcebindings/mutate": self._review_binding}, self._not_ready)
        for path in self.app.reviewers:
            self.app.metrics.announce(path)

    async def run(self) -> None:
        """Serve until told to stop."""
        self._refresh()
        plain = await listen(self.app.answer_plain, self.settings)
        secure = await listen_tls(self.app.answer_review, self.settings, self.certificate.listening)
        log.info("webhook started", port=secure.port, plain_port=plain.port)
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
        log.info("webhook stopped")

    def _refresh(self) -> None:
        self.certificate.refresh()
        self.configuration.refresh()
        ends = self.certificate.ends
        self.app.metrics.show(ready=self._not_ready() is None, certificate_ends=ends.timestamp() if ends else 0)

    def _review_binding(self, request: review.Request) -> Verdict:
        return review_binding(request, self.configuration.gate)

    def _not_ready(self) -> str | None:
        return "draining" if self.app.draining else self.certificate.trouble(utc_now())


async def wait(event: asyncio.Event, *, seconds: float) -> None:
    """Wait for *event*, at most *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def configure_logging() -> None:
    """Write one JSON object a line on standard output, also of what aiohttp and asyncio say."""
    common: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*common, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(),
        cache_logger_on_first_use=True,
    )
    foreign = logging.StreamHandler(sys.stdout)
    foreign.setFormatter(structlog.stdlib.ProcessorFormatter(processor=render, foreign_pre_chain=common))
    logging.basicConfig(handlers=[foreign], level=logging.WARNING)


async def serve(settings: Settings) -> None:
    """Run the webhook until SIGTERM or SIGINT."""
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
    except (SettingsError, ConfigurationError, OSError) as error:
        sys.exit(f"webhook: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
