"""Runs all processes on a control plane: webhook, policies, controller, and Karmada or its stand-in.

Each process has its own identity. All methods block.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from localup import ports
from localup.api import Api, ApiError
from localup.apply import apply, apply_files, read_manifests, wait_until
from localup.controlplane import ControlPlane
from localup.processes import (
    ManagedProcess,
    ProcessOptions,
    http_get,
    is_http_ready,
    run_to_completion,
    stop_on_error,
)
from localup.realkarmada.processes import PROGRAMS, KarmadaProcesses, Programs

CHART: Final = Path(__file__).parents[1] / "charts" / "volcano-global" / "files"
POLICIES: Final = CHART / "policies.yaml"
QUOTA_POLICIES: Final = CHART / "quota-policies.yaml"
RESERVED_POLICIES: Final = CHART / "reserved-policies.yaml"
WEBHOOK_CONFIGURATIONS: Final = CHART / "webhooks.yaml"
_PLACEHOLDER_URL: Final = "https://webhook.invalid"
_PROBES: Final = Path(__file__).with_name("probes.yaml")
#: Collections of what `start_webhook` applies, in the order in which they are cleared.
_REGISTRATIONS: Final = (
    *("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    *("validatingadmissionpolicybindings", "validatingadmissionpolicies"),
)
_OURS: Final = "labelSelector=app.kubernetes.io/name%3Dvolcano-global"
_REMOVE_SECONDS: Final = 3
_PROCESSES: Final = ("console", "controller", "karmada", "webhook")
# A fixed identity lets a restarted controller reacquire its lease. The short durations limit its initial delay: it
# writes nothing until writes of the previous process must have timed out.
_LEASE: Final = {
    "identity": "localup",
    "lease-seconds": 8,
    "renew-seconds": 4,
    "retry-seconds": 1,
    "connect-seconds": 1,
    "write-seconds": 2,
}


class Stack:
    """The processes, started together or individually; all end with the stack.

    `start` starts the webhook with its configurations and policies, the stand-in for Karmada or the programs of a real
    one, and the controller, unless excluded; the console with the history endpoint only if *options* name it. *options*
    are further flags and environment of these processes, and with a real Karmada of its programs and the members.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        webhook: bool = True,
        karmada: bool | Programs = True,
        controller: bool = True,
        options: Mapping[str, ProcessOptions] | None = None,
    ) -> None:
        self.plane = plane
        self._options = dict(options or {})
        if unknown := set(self._options).difference(_PROCESSES, PROGRAMS if isinstance(karmada, Programs) else ()):
            raise KeyError(f"unknown process {', '.join(sorted(unknown))}; known: {', '.join(_PROCESSES)}")
        self._enabled = {
            "webhook": webhook,
            "karmada": bool(karmada),
            "controller": controller,
            "console": "console" in self._options,
            "history": "console" in self._options,
        }
        servers = ("webhook", "webhook-plain", "controller", "console", "console-probes", "history", "history-probes")
        self._ports = {name: ports.claim() for name in servers}
        self.controller = self._process("controller", "volcano-global-controller", probe="controller")
        self.history = self._process("history", "volcano-global-console", probe="history-probes")
        self.console = self._process("console", "volcano-global-console", probe="console-probes")
        self.webhook = self._process("webhook", "volcano-global-webhook", probe="webhook-plain")
        self.karmada: ManagedProcess | KarmadaProcesses = (
            KarmadaProcesses(karmada, plane, self._options)
            if isinstance(karmada, Programs)
            else self._process("karmada", "karmada")
        )
        self._is_registered = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def parts(self) -> tuple[ManagedProcess | KarmadaProcesses, ...]:
        """All processes in the order in which they stop."""
        return self.console, self.history, self.controller, self.karmada, self.webhook

    @property
    def metrics_url(self) -> str:
        """URL of the controller's metrics."""
        return f"http://127.0.0.1:{self._ports['controller']}/metrics"

    def metrics(self) -> str:
        """Return the controller's metrics, nothing while it does not respond."""
        return http_get(self._ports["controller"], "/metrics") or ""

    @property
    def console_url(self) -> str:
        """URL of the web console."""
        return f"http://127.0.0.1:{self._ports['console']}/"

    @property
    def webhook_url(self) -> str:
        """URL of the webhook; restarts keep it."""
        return f"https://127.0.0.1:{self._ports['webhook']}"

    def log(self, name: str) -> Path:
        """Return the log of ``controller``, ``karmada``, ``webhook`` or ``certs``, including earlier runs."""
        if name == "karmada":
            return self.karmada.log
        return self.plane.folder / f"{name}.log"

    def start(self) -> None:
        """Start the enabled processes and return when all are ready."""
        with stop_on_error(self.stop):
            # Loading the programs takes most of the time, so they start concurrently.
            parts = (self.karmada, self.controller, self.history, self.console)
            begun = [part for part in parts if self._enabled[part.name]]
            for part in begun:
                part.begin()
            if self._enabled["webhook"]:
                self.start_webhook()
            for part in begun:
                part.wait()

    def start_webhook(self) -> None:
        """Start the webhook and return when new gated bindings are suspended and policies are in effect."""
        apply_files(self.plane.admin, POLICIES, QUOTA_POLICIES, RESERVED_POLICIES)
        apply(
            self.plane.admin,
            [_with_url(manifest, self.webhook_url) for manifest in read_manifests(WEBHOOK_CONFIGURATIONS)],
        )
        self._is_registered = True
        places = f"--directory={self.plane.folder / 'certificates'}", "--ip=127.0.0.1"
        flags = (*places, "--webhook-configuration=volcano-global", "--kubeconfig")
        kubeconfig = self.plane.kubeconfig("volcano-global-certs")
        run_to_completion("certs", self.log("certs"), ["-m", "certs", "ensure", *flags, kubeconfig])
        self.webhook.start()
        with self.plane.client("karmada") as karmada, self.plane.client("tenant") as tenant:
            wait_until(lambda: _suspends_bindings(karmada), "webhook in effect")
            wait_until(lambda: _policy_denies(tenant), "policies in effect")
            wait_until(lambda: _accepts_jobs(tenant), "webhook of jobs in effect")

    def check(self) -> None:
        """Raise if a started process has ended on its own."""
        for part in self.parts:
            part.check()

    def stop(self) -> None:
        """Stop all processes and delete webhook configurations and policies, which would reject further bindings."""
        for part in self.parts:
            part.stop()
        if self._is_registered:
            _unregister(self.plane.admin)
            self._is_registered = False
        for port in self._ports.values():
            ports.release(port)
        if isinstance(self.karmada, KarmadaProcesses):
            self.karmada.release()

    def _flags(self, name: str) -> Mapping[str, object]:
        """Return the flags of a process other than its kubeconfig."""
        host, folder = {"host": "127.0.0.1"}, self.plane.folder
        log = {"decision-log": folder / "decisions.jsonl"}
        flags: dict[str, Mapping[str, object]] = {
            "controller": {
                **host,
                "hyperjob-kubeconfig": self.plane.kubeconfig("volcano-global-hyperjobs"),
                **_LEASE,
                **(log if self._enabled["history"] else {}),
            },
            "history": log,
            "console": {"history-url": f"http://127.0.0.1:{self._ports['history']}"},
            "webhook": {
                **host,
                "plain-host": "127.0.0.1",
                "plain-port": self._ports["webhook-plain"],
                "certificate-directory": folder / "certificates" / "serving",
                # There is no other replica that could serve requests during a drain.
                "drain-seconds": 0,
            },
        }
        port = {"port": self._ports[name]} if name in self._ports else {}
        probes = self._ports.get(f"{name}-probes")
        return {
            **port,
            **({"probe-host": "127.0.0.1", "probe-port": probes} if probes else {}),
            **flags.get(name, {}),
        }

    def _process(self, name: str, identity: str, *, probe: str = "") -> ManagedProcess:
        """Return a process with the kubeconfig of *identity*; without a *probe* port it logs that it is ready."""
        options = self._options.get(name, ProcessOptions())
        module = {"history": "controller.history", "karmada": "localup.karmada"}.get(name, name)
        flags = {"kubeconfig": self.plane.kubeconfig(identity), **self._flags(name)}
        command = ["-m", module, *(f"--{flag}={value}" for flag, value in flags.items()), *options.flags]
        process = ManagedProcess(
            name,
            self.plane.folder / f"{name}.log",
            command=lambda: command,
            is_ready=lambda: is_http_ready(self._ports[probe]) if probe else "all lists applied" in process.output,
            environment=options.environment,
        )
        return process


def _with_url(registration: dict[str, Any], url: str) -> dict[str, Any]:
    for webhook in registration["webhooks"]:
        webhook["clientConfig"]["url"] = webhook["clientConfig"]["url"].replace(_PLACEHOLDER_URL, url)
    return registration


def _probe(client: Api, kind: str) -> Any:
    """Create an object for a dry run; return the object or the error."""
    (body,) = (item for item in read_manifests(_PROBES) if item["kind"] == kind)
    path = f"/apis/{body['apiVersion']}/namespaces/localup-probe/{kind.lower()}s?dryRun=All"
    try:
        return client.create(path, body)
    except ApiError as error:
        return error


def _suspends_bindings(karmada: Api) -> bool:
    """Return whether a new binding would be suspended; it is rejected until the webhook's CA is trusted."""
    answer = _probe(karmada, "ResourceBinding")
    return not isinstance(answer, ApiError) and bool(answer["spec"].get("suspension", {}).get("scheduling"))


def _policy_denies(tenant: Api) -> bool:
    answer = _probe(tenant, "ResourceBinding")
    return isinstance(answer, ApiError) and "volcano-global-bindings" in answer.message


def _accepts_jobs(tenant: Api) -> bool:
    """Return whether a valid job would be accepted; it is rejected until the webhook's CA is trusted."""
    return not isinstance(_probe(tenant, "Job"), ApiError)


def _unregister(admin: Api) -> None:
    for plural in _REGISTRATIONS:
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        try:
            admin.delete(f"{path}?{_OURS}&timeout={_REMOVE_SECONDS}s")
        except (ApiError, OSError):
            return  # the server fails, so further deletions would fail too
