"""Installs volcano-global in a Karmada control plane, or uninstalls it: `python -m install --help`."""

import asyncio
import logging
import sys
from collections.abc import Sequence

import structlog

from controller.kube.errors import ApiError
from controller.kube.kubeconfig import KubeconfigError
from install.commands import COMMANDS
from install.kubeconfigs import CredentialsError
from install.manifests import ManifestError
from install.objects import InstallError
from install.settings import parse_flags

_ERRORS = (ApiError, CredentialsError, InstallError, KubeconfigError, ManifestError, OSError)


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
        asyncio.run(COMMANDS[settings.command](settings))
    except _ERRORS as error:
        sys.exit(f"install: {error}")


if __name__ == "__main__":
    main()
