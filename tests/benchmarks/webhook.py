"""Measures admission reviews over TLS, compared with no-op handlers on the same stack and in Go.

Sixteen callers post a review of 14 KB in a closed loop, in short turns, one server after the other.
"""

import asyncio
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from certs.reconciler import CertificateReconciler
from certs.settings import CertificateSettings
from certs.store import DirectoryStore
from localup.binaries import find_go, go_environment
from localup.folders import cache_folder
from tests.benchmarks.admission import process_seconds
from tests.benchmarks.closed_loop import call, post
from tests.benchmarks.figures import Figure
from tests.webhook.reviews import job_binding, review, wire

CALLERS = 16
SLOW = 1_000
SIZE = 14_000
GOAL_SHARE = 0.6
ROOT = Path(__file__).parents[2]


@dataclass
class Turns:
    """Measurements of one server over all its turns."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: float = 0

    @property
    def per_cpu_second(self) -> float:
        """Return the requests answered per second of the server's CPU."""
        return len(self.seconds) / self.cpu_seconds if self.cpu_seconds else 0

    def milliseconds(self, percent: int) -> float:
        """Return a percentile of the answer times."""
        return statistics.quantiles(self.seconds, n=100)[percent - 1] * 1e3


@dataclass(frozen=True)
class Server:
    """A process that answers reviews."""

    process: subprocess.Popen[str]
    port: int
    slow: int = 0
    """Number of connections with an unfinished TLS handshake during its turns."""


def measure(*, quick: bool) -> list[Figure]:
    """Run the benchmark and return its figures."""
    seconds, rounds = (0.5, 2) if quick else (2.0, 6)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        certificates = Path(folder)
        settings = CertificateSettings(command="ensure", directory=certificates, dns=("localhost",), ip=("127.0.0.1",))
        CertificateReconciler(DirectoryStore(certificates), settings).run()
        serving = certificates / "serving"
        servers = {
            "webhook": stack.enter_context(started(webhook_command(serving))),
            "noop": stack.enter_context(started([sys.executable, "-m", "tests.benchmarks.noop", str(serving)])),
        }
        if program := go_program():
            servers["go"] = stack.enter_context(started([str(program), str(serving)]))
        else:
            print("no Go on the PATH: the do-nothing handler in Go is left out")
        servers["slow"] = replace(servers["webhook"], slow=SLOW)
        trust = ssl.create_default_context(cafile=serving / "ca.crt")
        return figures(asyncio.run(take_turns(servers, trust, seconds=seconds, rounds=rounds)))


def figures(turns: dict[str, Turns]) -> list[Figure]:
    """Return the figures, each with its baseline."""
    ours, noop, slow = turns["webhook"], turns["noop"], turns["slow"]
    rows = [
        Figure("webhook_p50_ms", ours.milliseconds(50), "ms", baseline=noop.milliseconds(50)),
        Figure("webhook_p99_ms", ours.milliseconds(99), "ms", "at most 2 x baseline", noop.milliseconds(99)),
        Figure("webhook_p99_ratio", ours.milliseconds(99) / noop.milliseconds(99), "", "<= 2"),
        Figure(
            "webhook_requests_per_cpu_second",
            ours.per_cpu_second,
            "requests/CPU s",
            f"at least {GOAL_SHARE} x baseline",
            noop.per_cpu_second,
        ),
        Figure("webhook_cpu_ratio", ours.per_cpu_second / noop.per_cpu_second, "", f">= {GOAL_SHARE}"),
        Figure("webhook_noop_p99_ms", noop.milliseconds(99), "ms"),
        Figure("webhook_slow_p99_ms", slow.milliseconds(99), "ms", "at most 5 x baseline", ours.milliseconds(99)),
    ]
    if "go" in turns:
        go = turns["go"]
        rows += [
            Figure("webhook_go_noop_p99_ms", go.milliseconds(99), "ms"),
            Figure("webhook_go_noop_requests_per_cpu_second", go.per_cpu_second, "requests/CPU s"),
        ]
    return rows


async def take_turns(
    servers: dict[str, Server], trust: ssl.SSLContext, *, seconds: float, rounds: int
) -> dict[str, Turns]:
    """Call one server after the other, so that other load on the machine affects all of them."""
    request = post("/resourcebindings/mutate", large_review())
    turns = {name: Turns() for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            before = process_seconds(server.process.pid)
            with slow_connections(server.port, server.slow):
                taken = await call(server.port, trust, request, callers=CALLERS, seconds=seconds)
            if number:  # the first is to get warm
                turns[name].seconds += taken
                turns[name].cpu_seconds += process_seconds(server.process.pid) - before
    return turns


def large_review() -> bytes:
    """Return the review of a Volcano Job's binding with annotations, components and managed fields."""
    new = job_binding(components=[{"name": f"task-{number}", "replicas": 8} for number in range(8)])
    field = {"f:metadata": {"f:annotations": {".": {}, "f:policy.karmada.io/applied-placement": {}}}}
    fields: list[dict[str, Any]] = []
    new["metadata"] |= {
        "labels": {"propagationpolicy.karmada.io/permanent-id": "5a0b7d1c"},
        "annotations": {"policy.karmada.io/applied-placement": '{"clusterTolerations":[]}'},
        "managedFields": fields,
    }
    while len(body := wire(review(new))) <= SIZE:
        fields.append({"manager": "karmada-controller-manager", "operation": "Update", "fieldsV1": field})
    return body


def webhook_command(serving: Path) -> list[str]:
    """Return the command line that starts the webhook, as in the chart."""
    addresses = ["--host", "127.0.0.1", "--port", "0", "--plain-host", "127.0.0.1", "--plain-port", "0"]
    more = ["--certificate-directory", str(serving), "--header-seconds", "60"]
    return [sys.executable, "-m", "webhook", *addresses, *more]


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Run a server until the end of the block; it prints a line of JSON with its port."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, text=True, cwd=ROOT)
        try:
            yield Server(process, _port(process, log.fileno()))
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[str], log: int) -> int:
    while process.poll() is None:
        for line in os.pread(log, 1 << 16, 0).decode().splitlines(keepends=True):
            if '"port"' in line and line.endswith("\n"):
                return int(json.loads(line)["port"])
        time.sleep(0.01)
    raise RuntimeError(f"{process.args} ended with exit code {process.returncode}")


@contextmanager
def slow_connections(port: int, count: int) -> Iterator[None]:
    """Keep connections with an unfinished handshake open, and return when the server has closed them."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield
    if count:
        time.sleep(0.5)


def go_program() -> Path | None:
    """Return the no-op handler in Go, built if Go is installed."""
    go = find_go()
    if go.program is None:
        return None
    folder = cache_folder() / "noop"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "noop"
    with tempfile.TemporaryDirectory() as scratch:
        command = [go.program, "build", "-o", program, "."]
        source = ROOT / "tests" / "benchmarks" / "noop"
        subprocess.run(command, cwd=source, check=True, env=go_environment(Path(scratch)))
    return program
