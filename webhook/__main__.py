"""Runs the webhook: `python -m webhook --help`."""

import asyncio
import gc
import signal
import sys
from collections.abc import Sequence

import structlog

from controller.api.configuration import ConfigurationError
from controller.api.flags import SettingsError
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.limited_server import raise_open_files
from controller.kube.logs import configure_logging
from controller.kube.serving_certificate import Certificate, utc_now
from webhook.app import App, Configuration, admission_handlers
from webhook.queue_cache import QueueCache
from webhook.server import Server, listen, listen_tls
from webhook.settings import WebhookSettings, parse_flags
from webhook.watchers import ControlPlaneWatcher, PublishedBundle

log = structlog.get_logger(__name__)

#: How long the worker thread may hold the interpreter while the event loop waits for it.
_SWITCH_SECONDS = 0.001
_AUTHENTICATE = (
    "set --client-ca (webhook.clientCa in the chart) and configure a client certificate for webhooks in the API server;"
    " until then allow only the API server to reach the port, by a NetworkPolicy"
)


class Webhook:
    """The webhook process: ports, reloaded files, watched objects and shutdown."""

    def __init__(self, settings: WebhookSettings) -> None:
        self.settings = settings
        self.published = PublishedBundle(settings.webhook_configuration)
        self.certificate = Certificate(
            settings.certificate_directory, settings.client_ca, reason_to_keep=self.published.reason_to_keep
        )
        self.configuration = Configuration(settings.admission_configuration)
        self.queues = QueueCache()
        self.stopping = asyncio.Event()
        self._reason: str | None = None
        self.app = App(
            settings,
            admission_handlers(self.configuration, self.queues),
            self._not_ready,
            lambda: self.certificate.warning,
        )

    async def run(self) -> None:
        """Serve until stopped, and watch the control plane if a kubeconfig is configured."""
        if self.settings.kubeconfig is None:
            await self._serve()
            return
        connection = ControlPlaneWatcher.connect(self.settings.kubeconfig, self.queues, self.published)
        async with connection as watcher, asyncio.TaskGroup() as tasks:
            self.app.refresh_queues = watcher.refresh_queues
            watches = (watcher.watch_queues(), watcher.poll_bundle(seconds=self.settings.poll_seconds))
            started = [tasks.create_task(watch) for watch in watches]
            await self._serve()
            for task in started:
                task.cancel()

    async def _serve(self) -> None:
        self._refresh()
        plain = await listen(self.app.answer_plain, self.settings)
        secure = await listen_tls(self.app.answer_review, self.settings, self.certificate.context)
        # Objects created so far live as long as the process; excluding them shortens garbage collection pauses.
        gc.freeze()
        log.info("webhook started", port=secure.port, plain_port=plain.port)
        if self.settings.client_ca is None:
            log.warning("callers not authenticated", reason="--client-ca is not set", remedy=_AUTHENTICATE)
        while not self.stopping.is_set():
            await wait(self.stopping, seconds=self.settings.poll_seconds)
            self._refresh()
        await self._drain(secure, plain)

    def stop(self) -> None:
        """Start draining."""
        self.stopping.set()

    async def _drain(self, secure: Server, plain: Server) -> None:
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
        not_after = self.certificate.not_after
        reason = self._not_ready()
        if reason != self._reason:
            log.info("webhook ready") if reason is None else log.warning("webhook not ready", reason=reason)
        self._reason = reason
        self.app.metrics.update(
            ready=reason is None,
            certificate_expiry=not_after.timestamp() if not_after else 0,
            queues=len(self.queues.queues) if self.queues.is_synced else None,
            authenticates=self.settings.client_ca is not None,
            rejected=self.configuration.is_rejected,
        )

    def _not_ready(self) -> str | None:
        if self.app.draining:
            return "draining"
        reason = self.certificate.not_ready_reason(utc_now())
        if reason is None and self.settings.kubeconfig:
            reason = self.published.not_ready_reason(self.certificate.chain)
        return reason


async def wait(event: asyncio.Event, *, seconds: float) -> None:
    """Wait for *event*, at most *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


async def serve(settings: WebhookSettings) -> None:
    """Run the webhook until SIGTERM or SIGINT."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    webhook = Webhook(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, webhook.stop)
    await webhook.run()


def main(arguments: Sequence[str]) -> None:
    """Parse the flags and serve; a startup error prints one sentence and exits with code 1."""
    configure_logging("stdout")
    raise_open_files()
    try:
        asyncio.run(serve(parse_flags(arguments)))
    except (SettingsError, ConfigurationError, KubeconfigError, OSError) as error:
        sys.exit(f"webhook: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
