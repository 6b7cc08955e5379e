"""Run the history endpoint: `python -m controller.history --help`."""

import asyncio
import signal
import sys

import structlog

from controller.api.flags import SettingsError
from controller.history.server import HistoryEndpoint
from controller.history.settings import HistorySettings, parse_flags
from controller.kube.access_reviews import Access
from controller.kube.client import Api
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.limited_server import raise_open_files
from controller.kube.logs import configure_logging
from controller.kube.serving_certificate import Certificate, CertificateError
from controller.reporting.probes import serve_probes
from controller.visibility.https import serve_endpoint

_CONNECTIONS = 8

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def serve(settings: HistorySettings) -> None:
    """Serve the endpoint until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder = settings.certificate_directory
    certificate = Certificate.read(folder) if folder is not None else None
    connect = Api.connect(
        settings.kubeconfig, context=settings.context, user_agent="volcano-global-history", connections=_CONNECTIONS
    )
    async with connect as api:
        history = HistoryEndpoint(Access(api), settings.decision_log, replay_seconds=settings.replay_seconds)
        probes = serve_probes(lambda: None, host=settings.probe_host, port=settings.probe_port)
        async with probes, serve_endpoint(history, certificate, host=settings.host, port=settings.port) as port:
            log.info("history endpoint started", port=port, file=str(settings.decision_log))
            following = asyncio.create_task(certificate.follow(seconds=settings.poll_seconds)) if certificate else None
            await stop.wait()
            if following is not None:
                following.cancel()
    log.info("history endpoint stopped")


def main() -> None:
    """Parse the flags and serve."""
    configure_logging()
    raise_open_files()
    try:
        asyncio.run(serve(parse_flags(sys.argv[1:])))
    except (SettingsError, KubeconfigError, CertificateError, OSError, ValueError) as error:
        sys.exit(f"history: {error}")


if __name__ == "__main__":
    main()
