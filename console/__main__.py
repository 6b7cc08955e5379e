"""Run the web console: `python -m console --help`."""

import asyncio
import gc
import signal
import sys
from contextlib import suppress

import structlog

from console.analysis import Analyses
from console.history import MAX_BYTES, History, HistoryAccess
from console.history_file import HistoryFile
from console.identity import Identity
from console.model import Model
from console.reader import Rights
from console.renders import Renders
from console.server import ConsoleServer
from console.settings import ConsoleSettings, parse_flags
from controller.api.flags import SettingsError
from controller.kube.access_reviews import Access
from controller.kube.client import Api
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.limited_server import raise_open_files
from controller.kube.logs import configure_logging
from controller.kube.serving_certificate import Certificate, CertificateError
from controller.reporting.probes import serve_probes

_CONNECTIONS = 64

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


async def serve(settings: ConsoleSettings) -> None:
    """Serve the console until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder = settings.certificate_directory
    certificate = Certificate.read(folder, settings.proxy_client_ca) if folder is not None else None
    connect = Api.connect(
        settings.kubeconfig, context=settings.context, user_agent="volcano-global-console", connections=_CONNECTIONS
    )
    async with connect as api, asyncio.TaskGroup() as tasks:
        history = History(_history_access(settings, api), file=_history_file(settings))
        model = Model(
            api, namespace=settings.karmada_namespace, refresh_seconds=settings.refresh_seconds, history=history
        )
        access = Access(api, reviews_per_second=settings.reviews_per_second)
        renders = Renders(model, Rights(access), Analyses(seconds=settings.analysis_seconds))
        server = ConsoleServer(renders, Identity(access, settings), settings)
        connect_parts(model, renders, server)
        started = [tasks.create_task(model.run())]
        if history.is_enabled:
            started.append(tasks.create_task(history.run(seconds=settings.refresh_seconds)))
        if certificate is not None:
            started.append(tasks.create_task(certificate.follow(seconds=settings.poll_seconds)))
        async with (
            serve_probes(model.reason_not_ready, host=settings.probe_host, port=settings.probe_port),
            server.serve(certificate) as port,
        ):
            scheme = "https" if certificate is not None else "http"
            log.info("console started", url=f"{scheme}://{settings.host}:{port}", server=api.access.server)
            await stop.wait()
        for task in started:
            task.cancel()
    log.info("console stopped")


def connect_parts(model: Model, renders: Renders, server: ConsoleServer) -> None:
    """Add the handlers of each part to the events of the others."""
    model.on_update += [renders.invalidate, renders.ask_forecasts, server.on_update]
    model.history.on_update += [renders.invalidate, server.on_update]
    renders.analyses.on_answer += [renders.on_answer, server.on_update]


def _history_access(settings: ConsoleSettings, api: Api) -> HistoryAccess | None:
    if settings.history_url is None:
        return None
    return HistoryAccess(settings.history_url, lambda: api.access, settings.history_ca)


def _history_file(settings: ConsoleSettings) -> HistoryFile | None:
    return HistoryFile(settings.history_file, max_bytes=MAX_BYTES) if settings.history_file is not None else None


def main() -> None:
    """Parse the flags and serve."""
    configure_logging()
    raise_open_files()
    # Cached objects live long and form no reference cycles, so frequent collections would be wasted.
    gc.set_threshold(50_000, 50, 1000)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve(parse_flags(sys.argv[1:])))
    except (SettingsError, KubeconfigError, CertificateError, OSError, ValueError) as error:
        sys.exit(f"console: {error}")


if __name__ == "__main__":
    main()
