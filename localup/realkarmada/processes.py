"""Runs Karmada's programs and member clusters for them on a control plane, instead of the stand-in.

Flags are Karmada's defaults, except addresses, leader election, and intervals and thresholds for members. Where the
folder has `karmada-aggregated-apiserver`, it serves Clusters instead of their CRD and sets default resource models.
"""

import base64
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from controller.api.keys import CLUSTERS, Resource
from localup import ports
from localup.api import ApiError
from localup.apply import apply, apply_files, read_manifests, wait_until
from localup.controlplane import ControlPlane
from localup.credentials import AGGREGATED, Credentials, issue
from localup.karmada.objects import new_object
from localup.processes import ManagedProcess, ManagedProgram, ProcessOptions, Server, StepError, is_http_ready

#: Environment variable with the folder, used without the option.
KARMADA_BIN: Final = "KARMADA_BIN"
_REQUIRED: Final = ("karmada-controller-manager", "karmada-scheduler", "karmada-webhook")
_PREFIX: Final = "karmada-"
_AGGREGATED: Final = "karmada-aggregated-apiserver"
_ANSWER_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Programs:
    """Folder with the three required programs."""

    folder: Path

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Return the programs of a folder, or raise `StepError` if one is missing or not executable."""
        programs = cls(folder.resolve())
        if missing := [name for name in _REQUIRED if programs.path(name) is None]:
            raise StepError(
                f"{folder} has no {', '.join(missing)}; name a folder with {', '.join(_REQUIRED)}, "
                f"with or without '{_PREFIX}'"
            )
        return programs

    def path(self, name: str) -> Path | None:
        """Return the path of a program, ``None`` if absent; ``go build ./cmd/scheduler`` omits the prefix."""
        known = (self.folder / item for item in (name, name.removeprefix(_PREFIX)))
        return next((path for path in known if path.is_file() and os.access(path, os.X_OK)), None)

    @property
    def version(self) -> str:
        """Version reported by the programs, such as ``v1.18.2``."""
        command = [str(self.path(_REQUIRED[0])), "version"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS)
        match = re.search(r'GitVersion:"([^"]+)"', answer.stdout)
        return match[1] if match else "unknown"


def programs_from_environment() -> Programs | None:
    """Return the programs of the folder in `KARMADA_BIN`, ``None`` if it is not set."""
    folder = os.environ.get(KARMADA_BIN)
    return Programs.from_folder(Path(folder)) if folder else None


_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVICES: Final = Resource("", "v1", "services", "Service")
_API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)

_NAME, _NAMESPACE = AGGREGATED.split(".")[:2]


class AggregatedServer:
    """API server of Clusters, registered in a started control plane."""

    def __init__(self, program: Path, plane: ControlPlane) -> None:
        self._program = program
        self._plane = plane
        self._server = Server(_AGGREGATED, plane.folder / f"{_AGGREGATED}.log")

    def start(self, credentials: Credentials) -> None:
        """Replace the CRD of Clusters by this server, and return when it serves them."""
        self.stop()
        wait_until(self._has_no_definition, "CRD of Clusters deleted")
        self.restart(credentials)

    def restart(self, credentials: Credentials) -> None:
        """Start the server with the same data and port."""
        self._server.serve(lambda ports: self._command(ports, credentials), lambda: True)
        apply(self._plane.admin, self._registration(credentials))
        wait_until(self._serves, "karmada-aggregated-apiserver serves Clusters")

    def stop(self) -> None:
        """Stop it; does nothing if it is not running."""
        self._server.close()

    def _command(self, ports: Sequence[int], credentials: Credentials) -> list[str | Path]:
        kubeconfig = self._plane.kubeconfig("karmada")
        return [
            self._program,
            *(f"--{purpose}kubeconfig={kubeconfig}" for purpose in ("", "authentication-", "authorization-")),
            f"--etcd-servers={self._plane.etcd.url}",
            f"--etcd-prefix={self._plane.prefix}",
            f"--tls-cert-file={credentials.folder / 'apiserver.crt'}",
            f"--tls-private-key-file={credentials.folder / 'apiserver.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports[0]}",
            "--enable-priority-and-fairness=false",
        ]

    def _registration(self, credentials: Credentials) -> Iterator[dict[str, Any]]:
        """Yield the APIService and its Service for the API server."""
        service = new_object(_SERVICES, _NAME, _NAMESPACE)
        yield {**service, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        yield {
            **new_object(_API_SERVICES, "v1alpha1.cluster.karmada.io"),
            "spec": {
                "group": CLUSTERS.group,
                "version": CLUSTERS.version,
                "groupPriorityMinimum": 2000,
                "versionPriority": 10,
                "caBundle": base64.b64encode(credentials.ca.encode()).decode(),
                "service": {"name": _NAME, "namespace": _NAMESPACE, "port": self._server.ports[0]},
            },
        }

    def _has_no_definition(self) -> bool:
        """Delete the CRD of Clusters, and return whether it is deleted."""
        try:
            self._plane.admin.delete(f"{_CRDS}/clusters.cluster.karmada.io")
        except ApiError as error:
            return error.status == HTTPStatus.NOT_FOUND
        return False

    def _serves(self) -> bool:
        try:
            self._plane.admin.get(CLUSTERS.path)
        except ApiError:
            return False
        return True


_DEFINITIONS, _RBAC, _WEBHOOK_CONFIGURATIONS = (
    Path(__file__).with_name(f"{name}.yaml") for name in ("definitions", "rbac", "webhooks")
)
_PLACEHOLDER_URL: Final = "https://karmada.invalid"
_POLICIES: Final = "/apis/policy.karmada.io/v1alpha1/namespaces/localup-probe/propagationpolicies?dryRun=All"

_PROBE: Final = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "probe"},
    "spec": {"resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}]},
}

_NAMES: Final = ("webhook", "controller-manager", "scheduler", "members")

#: Processes with options.
PROGRAMS: Final = ("karmada-webhook", "karmada-controller-manager", "karmada-scheduler", "members")

#: Controllers of templates, bindings, works and clusters; others need APIs that are absent here.
_CONTROLLERS: Final = (
    *("applicationFailover", "binding", "bindingStatus", "cluster", "clusterStatus", "execution"),
    *("federatedResourceQuotaEnforcement", "gracefulEviction", "namespace", "workStatus", "workloadRebalancer"),
)

_SHORT_INTERVALS: Final = (
    "--cluster-status-update-frequency=1s",
    "--cluster-monitor-period=1s",
    "--cluster-failure-threshold=1s",
    "--cluster-success-threshold=1s",
    "--cluster-monitor-grace-period=5s",
)


class KarmadaProcesses:
    """Webhook, controller manager, scheduler and members of a started control plane, managed as one process."""

    def __init__(
        self, programs: Programs, plane: ControlPlane, options: Mapping[str, ProcessOptions] | None = None
    ) -> None:
        self.name = "karmada"
        self._programs = programs
        self._plane = plane
        self._options = options or {}
        self._ports = {name: ports.claim() for name in (*_NAMES, "hook")}
        self._credentials: Credentials | None = None
        program = programs.path(_AGGREGATED)
        self.aggregated = AggregatedServer(program, plane) if program else None
        self.webhook = self._process(
            "webhook",
            *(f"--cert-dir={self._folder}", "--tls-cert-file-name=apiserver.crt"),
            *("--tls-private-key-file-name=apiserver.key", "--bind-address=127.0.0.1"),
            f"--secure-port={self._ports['hook']}",
        )
        controllers = f"--controllers={','.join(_CONTROLLERS)}"
        self.controller_manager = self._process(
            "controller-manager", "--leader-elect=false", controllers, *_SHORT_INTERVALS
        )
        self.scheduler = self._process("scheduler", "--leader-elect=false")
        self.members = ManagedProcess(
            "members",
            plane.folder / "members.log",
            command=self._members_command,
            is_ready=lambda: "all lists applied" in self.members.output,
        )

    @property
    def log(self) -> Path:
        """Log of the controller manager, which is the most informative."""
        return self.controller_manager.log

    @property
    def output(self) -> str:
        """Output of all processes since their last start."""
        return "\n".join(part.output for part in self._parts)

    @property
    def _parts(self) -> tuple[ManagedProcess, ...]:
        """All processes in the order in which they start, the members last."""
        return self.webhook, self.controller_manager, self.scheduler, self.members

    def start(self) -> None:
        """Start or restart all processes and return when they are ready."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Apply prerequisites and start or restart all processes without waiting."""
        admin = self._plane.admin
        known = {item["metadata"]["name"] for item in admin.get(_CRDS)["items"]}
        apply(admin, [item for item in read_manifests(_DEFINITIONS) if item["metadata"]["name"] not in known])
        apply_files(admin, _RBAC)
        self._credentials = issue(self._folder)
        if self.aggregated:
            self.aggregated.start(self._credentials)
        for part in self._parts:
            part.begin()

    def wait(self) -> None:
        """Return when all are ready and the webhook, which has no health endpoint, is in effect."""
        for part in self._parts:
            part.wait()
        apply(self._plane.admin, self._registration())
        wait_until(self._defaults_policies, "karmada-webhook in effect")

    def check(self) -> None:
        """Raise if one of them has ended on its own."""
        for part in self._parts:
            part.check()

    def stop(self) -> None:
        """Stop them in reverse order; does nothing if they are not running."""
        for part in reversed(self._parts):
            part.stop()
        if self.aggregated:
            self.aggregated.stop()

    def kill(self) -> None:
        """Kill Karmada's programs; the members keep running."""
        for part in reversed(self._parts[:-1]):
            part.kill()

    def freeze(self) -> None:
        """Suspend Karmada's programs with SIGSTOP."""
        for part in self._parts[:-1]:
            part.freeze()

    def resume(self) -> None:
        """Resume Karmada's programs with SIGCONT."""
        for part in self._parts[:-1]:
            part.resume()

    def release(self) -> None:
        """Release the ports."""
        for port in self._ports.values():
            ports.release(port)

    def _process(self, name: str, *flags: str) -> ManagedProcess:
        program = f"{_PREFIX}{name}"
        options = self._options.get(program, ProcessOptions())

        def command() -> list[str | Path]:
            health = f"--health-probe-bind-address=127.0.0.1:{self._ports[name]}"
            kubeconfig = f"--kubeconfig={self._plane.kubeconfig('karmada')}"
            path = self._programs.path(program) or program
            return [path, kubeconfig, health, "--metrics-bind-address=0", *flags, *options.flags]

        return ManagedProgram(
            program,
            self._plane.folder / f"{program}.log",
            command=command,
            is_ready=lambda: name == "webhook" or is_http_ready(self._ports[name], path="/healthz"),
            environment=options.environment,
        )

    def _members_command(self) -> list[str | Path]:
        etcd = self._plane.etcd
        ground = ("--store", f"{etcd.url}{self._plane.prefix}-members", "--programs", etcd.binaries.folder)
        flags = self._options.get("members", ProcessOptions()).flags
        return ["-m", "localup.members", "--kubeconfig", self._plane.kubeconfig("admin"), *ground, *flags]

    @property
    def _folder(self) -> Path:
        folder = self._plane.folder / "karmada-webhook"
        folder.mkdir(exist_ok=True)
        return folder

    def _registration(self) -> Iterator[dict[str, Any]]:
        """Yield the webhook configurations with URL and CA bundle."""
        url = f"https://127.0.0.1:{self._ports['hook']}"
        bundle = base64.b64encode(self._credentials.ca.encode()).decode() if self._credentials else ""
        for manifest in read_manifests(_WEBHOOK_CONFIGURATIONS):
            for hook in manifest["webhooks"]:
                path = hook["clientConfig"]["url"].removeprefix(_PLACEHOLDER_URL)
                hook["clientConfig"] = {"url": f"{url}{path}", "caBundle": bundle}
            yield manifest

    def _defaults_policies(self) -> bool:
        """Return whether a new policy would get a permanent id."""
        try:
            stored = self._plane.admin.create(_POLICIES, _PROBE)
        except ApiError:
            return False
        return "propagationpolicy.karmada.io/permanent-id" in stored["metadata"].get("labels", {})
