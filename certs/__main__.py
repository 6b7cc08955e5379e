"""Issues and renews the webhook's certificates: `python -m certs --help`."""

import logging
import signal
import sys
import threading
from collections.abc import Sequence

import msgspec
import structlog

from certs.authority import AuthorityError
from certs.injection import ChangedError, InjectionError
from certs.reconciler import CertificateReconciler
from certs.settings import CertificateSettings, parse_flags
from certs.status import report
from certs.store import CertificateStore, ConflictError, DirectoryStore, MissingSecretError, SecretStore
from controller.kube.errors import ApiError
from controller.kube.kubeconfig import KubeconfigError

log = structlog.get_logger(__name__)

# Concurrent writers are rare, and each of them makes progress.
_ATTEMPTS = 3
_INTERRUPTED = 130
#: Errors after which a later attempt may succeed.
_ERRORS = (
    AuthorityError,
    ConflictError,
    MissingSecretError,
    InjectionError,
    ApiError,
    KubeconfigError,
    msgspec.MsgspecError,
    OSError,
)


def open_store(settings: CertificateSettings) -> CertificateStore:
    """Return the store that *settings* configure."""
    if settings.directory:
        return DirectoryStore(settings.directory)
    return SecretStore(settings.host_kubeconfig, settings.secret_namespace or "", settings.secret_name or "")


def reconcile(reconciler: CertificateReconciler, *, rotate: bool = False) -> None:
    """Reconcile once, and again after a concurrent change."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            reconciler.run(rotate=rotate)
        except (ConflictError, ChangedError):
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def _reason(error: Exception) -> str:
    is_unreadable = isinstance(error, msgspec.MsgspecError)
    return f"the Secret or a webhook configuration cannot be decoded: {error}" if is_unreadable else str(error)


def run_periodically(reconciler: CertificateReconciler, seconds: float, stopping: threading.Event) -> None:
    """Reconcile every *seconds* until *stopping* is set; log errors and retry in the next interval."""
    while not stopping.is_set():
        try:
            reconcile(reconciler)
        except _ERRORS as error:
            log.error("reconcile failed", reason=_reason(error), again_in=seconds)  # noqa: TRY400 -- no traceback
        stopping.wait(seconds)


def run(settings: CertificateSettings) -> None:
    """Run the command."""
    store = open_store(settings)
    reconciler = CertificateReconciler(store, settings)
    if settings.command == "status":
        sys.stdout.writelines(f"{line}\n" for line in report(store, settings))
    elif settings.every is None or settings.command == "rotate":
        reconcile(reconciler, rotate=settings.command == "rotate")
    else:
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        run_periodically(reconciler, settings.every, stopping)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default that of the process; an error prints one sentence and exits with code 1."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    settings = parse_flags(arguments)
    try:
        run(settings)
    except _ERRORS as error:
        sys.exit(f"certs: {_reason(error)}")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
