"""Command line of the stand-in for Karmada: `python -m localup.karmada --help`."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from controller.api.flags import SettingsError, read_flags
from controller.kube.client import Api
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.logs import configure_logging
from localup.karmada.settings import StandInSettings
from localup.karmada.standin import StandIn

_DESCRIPTION = """\
Run a stand-in for Karmada on a localup control plane until SIGTERM. It is for trials and tests: it is not Karmada, and
its member clusters are simulated."""

_EPILOG = """\
A Cluster is simulated if its annotation standin.volcano-global.io/allocatable has its capacity, for example
{"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "220"}, on one node, or .../nodes does, for example
[{"count": 4, "allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}]; .../external-usage, in the first form, is its
external usage; .../ready is True, False or Unknown; .../refuse-works is the message with which it refuses all Works. A
job runs for the time of its annotation volcano-global.io/runtime and ends as volcano-global.io/outcome says (Failed;
else Completed)."""

_FLAGS = {
    "": dict.fromkeys(("kubeconfig", "run_time", "status_period", "graceful_eviction_timeout", "template"), "VALUE")
    | {"taint_eviction": None, "unreported_jobs": None}
}


def main() -> None:
    """Parse the flags and run the stand-in."""
    configure_logging()
    try:
        settings = read_flags(StandInSettings, None, description=_DESCRIPTION, epilog=_EPILOG, groups=_FLAGS)
        structlog.get_logger().warning("this is a stand-in for Karmada: member clusters are simulated", pid=os.getpid())
        serve(lambda api: StandIn(api, settings).run(), settings.kubeconfig, user_agent="karmada-stand-in")
    except (SettingsError, KubeconfigError) as error:
        sys.exit(f"localup.karmada: {error}")


def serve(program: Callable[[Api], Awaitable[None]], kubeconfig: Path | None, *, user_agent: str) -> None:
    """Run *program* with a client until SIGTERM or SIGINT."""

    async def run() -> None:
        async with Api.connect(kubeconfig, user_agent=user_agent) as api:
            running = asyncio.ensure_future(program(api))
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(run())


if __name__ == "__main__":
    main()
