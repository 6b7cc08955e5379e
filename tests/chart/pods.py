"""Runs one pod like the kubelet: volumes first, then each init container, then processes that are restarted."""

import http.client
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from localup.api import ApiError
from tests.chart import volumes
from tests.chart.relay import Endpoint
from tests.chart.sandbox import IMAGE, NAMES, PYTHON, Sandbox, end

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
#: Environment of the Dockerfile, with the path of Python in the base image.
ENVIRONMENT = {
    "PATH": f"{IMAGE}/bin:{NAMES}:{PYTHON}/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": f"{PYTHON}/lib",
    "PYTHONPATH": str(IMAGE),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
_POLL_SECONDS = 0.2


@dataclass
class Pod:
    """A pod in a thread of its own.

    Attributes:
        host: The cluster it runs in.
        name: Its name, which is also what its containers call their machine.
        spec: The pod's spec, as rendered.
        labels: Its labels.
        keep: Whether its containers are started again when they end.
    """

    host: Any
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    keep: bool = False
    phase: str = "Pending"
    reason: str = ""
    template: str = ""
    sandbox: Sandbox = field(init=False)
    _processes: dict[str, subprocess.Popen] = field(default_factory=dict)
    _ready: bool = False
    _stopping: threading.Event = field(default_factory=threading.Event)
    _mounting: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.folder: Path = self.host.folder / self.name
        self.sandbox = Sandbox(self.folder, self.host.image)
        self._thread = threading.Thread(target=self._run, daemon=True, name=self.name)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def ports(self) -> dict[str, int]:
        """The ports of all containers by name."""
        return {
            port["name"]: port["containerPort"]
            for container in self.spec["containers"]
            for port in container.get("ports", ())
        }

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def endpoint(self, port: int) -> Endpoint:
        return Endpoint(port, self.sandbox.network)

    @property
    def is_ready(self) -> bool:
        """Return whether the last probe succeeded; a stopping pod is not ready."""
        return self._ready and not self._stopping.is_set()

    def probe(self) -> None:
        """Probe readiness like the kubelet."""
        self._ready = self.phase == "Running" and not self._stopping.is_set() and self._answers()

    def _answers(self) -> bool:
        probe = self.spec["containers"][0].get("readinessProbe")
        if probe is None:
            return True
        port = self.ports[probe["httpGet"]["port"]]
        connection = http.client.HTTPConnection("pod", port, timeout=probe["timeoutSeconds"])
        try:
            connection.sock = self.sandbox.network.socket()
            connection.sock.settimeout(probe["timeoutSeconds"])
            connection.sock.connect(("127.0.0.1", connection.port))
            connection.request("GET", probe["httpGet"]["path"])
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def refresh(self) -> None:
        """Update the volumes, as the kubelet does periodically."""
        with self._mounting:  # called by the thread of the pod and that of the host
            for volume in self.spec.get("volumes", []):
                volumes.write(self.host.api, self.host.namespace, volume, self.folder / "volumes" / volume["name"])

    def stop(self) -> None:
        """Stop the pod within its grace period; it is removed from all Services at once."""
        self._stopping.set()
        ends = time.monotonic() + self.spec.get("terminationGracePeriodSeconds", 30)
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            end(process, seconds=max(ends - time.monotonic(), 0))
        self._thread.join(30)
        self.sandbox.close()

    def _run(self) -> None:
        try:
            self._mount()
            for number, container in enumerate(self.spec.get("initContainers", [])):
                if self._carry_out(number, container) != 0:
                    self.phase = "Failed"
                    return
            container, *others = self.spec["containers"]
            for number, other in enumerate(others, start=91):
                threading.Thread(target=self._repeat, args=(number, other), daemon=True, name=self.name).start()
            code = self._repeat(90, container)
            self.phase = "Succeeded" if code == 0 else "Failed"
        except (OSError, ValueError, ApiError) as error:  # read by a test
            self.phase, self.reason = "Failed", repr(error)

    def _repeat(self, number: int, container: Mapping[str, Any]) -> int:
        """Run a container, again and again in a pod of a Deployment; return its last exit code."""
        code = self._carry_out(number, container)
        while self.keep and not self._stopping.is_set():
            self.reason = f"{container['name']} ended with {code}"
            time.sleep(1)
            code = self._carry_out(number, container)
        return code

    def _mount(self) -> None:
        while not self._stopping.is_set():
            try:
                self.refresh()
            except volumes.NotYetError as error:
                self.reason = str(error)
                time.sleep(_POLL_SECONDS)
            else:
                if self.spec.get("automountServiceAccountToken"):
                    self.host.write_account(self.spec["serviceAccountName"], self.folder / "account")
                return

    def _carry_out(self, number: int, container: Mapping[str, Any]) -> int:
        if self._stopping.is_set():
            return -1
        given = {variable["name"]: variable["value"] for variable in container.get("env", [])}
        mounts = {mount["mountPath"]: self.folder / "volumes" / mount["name"] for mount in container["volumeMounts"]}
        environment = {**ENVIRONMENT, **self.host.environment, **given, "HOSTNAME": self.name}
        if (self.folder / "account").exists():
            mounts[ACCOUNT] = self.folder / "account"
        process = self._processes[container["name"]] = self.sandbox.start(
            [*container["command"], *container.get("args", [])],
            mounts=mounts,
            environment=environment,
            log=self.folder / f"{number:02}-{container['name']}.log",
        )
        self.phase = "Running"
        return process.wait()
