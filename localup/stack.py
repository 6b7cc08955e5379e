"""Runs all processes on a control plane: webhook, policies, controller, and Karmada or its stand-in.

Each process has its own identity. All methods block.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from localup import ports
from localup.api import Api, ApiError
from localup.apply import apply, apply_files, read_manifests, wait_until
from localup.controlplane import ControlPlane
from localup.managed_process import (
    Command,
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
_BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/namespaces/localup-probe/resourcebindings?dryRun=All"
_JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/localup-probe/jobs?dryRun=All"
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
_LEASE: Final = (
    *("--identity", "localup", "--lease-seconds", "8", "--renew-seconds", "4", "--retry-seconds", "1"),
    *("--connect-seconds", "1", "--write-seconds", "2"),
)


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
        self._ports = {
            name: ports.claim()
            for name in (
                *("webhook", "webhook-plain", "controller"),
                *("console", "console-probes", "history", "history-probes"),
            )
        }
        self.controller = self._process("controller", self._controller_command, partial(self._is_ready, "controller"))
        self.karmada: ManagedProcess | KarmadaProcesses = (
            KarmadaProcesses(karmada, plane, self._options)
            if isinstance(karmada, Programs)
            else self._process("karmada", self._karmada_command, self._karmada_is_ready)
        )
        self.webhook = self._process("webhook", self._webhook_command, partial(self._is_ready, "webhook-plain"))
        self.console = self._process("console", self._console_command, partial(self._is_ready, "console-probes"))
        self.history = self._process("history", self._history_command, partial(self._is_ready, "history-probes"))
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
        run_to_completion("certs", self.log("certs"), self._certs_command())
        self.webhook.start()
        with self.plane.client("karmada") as karmada, self.plane.client("tenant") as tenant:
            wait_until(lambda: _suspends_bindings(karmada), "webhook in effect")
            wait_until(lambda: _policy_denies(tenant), "policies in effect")
            wait_until(lambda: _accepts_jobs(tenant), "webhook of jobs in effect")

    def start_karmada(self) -> None:
        """Start or restart Karmada or its stand-in."""
        self.karmada.start()

    def start_controller(self) -> None:
        """Start or restart the controller."""
        self.controller.start()

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

    def _process(self, name: str, command: Command, is_ready: Callable[[], bool]) -> ManagedProcess:
        environment = self._options.get(name, ProcessOptions()).environment
        return ManagedProcess(
            name, self.plane.folder / f"{name}.log", command=command, is_ready=is_ready, environment=environment
        )

    def _flags(self, name: str) -> Sequence[str | Path]:
        return self._options.get(name, ProcessOptions()).flags

    def _controller_command(self) -> list[str | Path]:
        kubeconfig = self.plane.kubeconfig("volcano-global-controller")
        stage = ("--hyperjob-kubeconfig", self.plane.kubeconfig("volcano-global-hyperjobs"))
        address = ("--host", "127.0.0.1", "--port", str(self._ports["controller"]))
        log = ("--decision-log", self._decision_log) if self._enabled["history"] else ()
        options = (*address, *_LEASE, *log, *self._flags("controller"))
        return ["-m", "controller", "--kubeconfig", kubeconfig, *stage, *options]

    def _history_command(self) -> list[str | Path]:
        return [
            *("-m", "controller.history", "--kubeconfig", self.plane.kubeconfig("volcano-global-console")),
            *("--decision-log", self._decision_log, "--port", str(self._ports["history"])),
            *("--probe-host", "127.0.0.1", "--probe-port", str(self._ports["history-probes"])),
        ]

    def _console_command(self) -> list[str | Path]:
        return [
            *("-m", "console", "--kubeconfig", self.plane.kubeconfig("volcano-global-console")),
            *("--port", str(self._ports["console"])),
            *("--probe-host", "127.0.0.1", "--probe-port", str(self._ports["console-probes"])),
            *("--history-url", f"http://127.0.0.1:{self._ports['history']}"),
            *self._flags("console"),
        ]

    @property
    def _decision_log(self) -> Path:
        return self.plane.folder / "decisions.jsonl"

    def _karmada_command(self) -> list[str | Path]:
        return ["-m", "localup.karmada", "--kubeconfig", self.plane.kubeconfig("karmada"), *self._flags("karmada")]

    def _webhook_command(self) -> list[str | Path]:
        return [
            *("-m", "webhook", "--certificate-directory", self._certificates / "serving"),
            *("--kubeconfig", self.plane.kubeconfig("volcano-global-webhook")),
            *("--host", "127.0.0.1", "--port", str(self._ports["webhook"])),
            *("--plain-host", "127.0.0.1", "--plain-port", str(self._ports["webhook-plain"])),
            # There is no other replica that could serve requests during a drain.
            *("--drain-seconds", "0"),
            *self._flags("webhook"),
        ]

    def _certs_command(self) -> list[str | Path]:
        kubeconfig = self.plane.kubeconfig("volcano-global-certs")
        return [
            *("-m", "certs", "ensure", "--directory", self._certificates, "--ip", "127.0.0.1"),
            *("--webhook-configuration", "volcano-global", "--kubeconfig", kubeconfig),
        ]

    @property
    def _certificates(self) -> Path:
        return self.plane.folder / "certificates"

    def _is_ready(self, name: str) -> bool:
        return is_http_ready(self._ports[name])

    def _karmada_is_ready(self) -> bool:
        """Return whether the stand-in has listed all objects; it has no health endpoint."""
        return "all lists applied" in self.karmada.output


def _with_url(registration: dict[str, Any], url: str) -> dict[str, Any]:
    for webhook in registration["webhooks"]:
        webhook["clientConfig"]["url"] = webhook["clientConfig"]["url"].replace(_PLACEHOLDER_URL, url)
    return registration


def _suspends_bindings(karmada: Api) -> bool:
    """Return whether a new binding would be suspended; it is rejected until the webhook's CA is trusted."""
    try:
        return bool(karmada.create(_BINDINGS, _probe_binding())["spec"].get("suspension", {}).get("scheduling"))
    except ApiError:
        return False


def _policy_denies(tenant: Api) -> bool:
    try:
        tenant.create(_BINDINGS, _probe_binding())
    except ApiError as error:
        return "volcano-global-bindings" in error.message
    return False


def _accepts_jobs(tenant: Api) -> bool:
    """Return whether a valid job would be accepted; it is rejected until the webhook's CA is trusted."""
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"minAvailable": 1, "queue": "default", "tasks": [{"name": "main", "replicas": 1, "template": pod}]}
    head = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "probe"}}
    try:
        tenant.create(_JOBS, {**head, "spec": spec})
    except ApiError:
        return False
    return True


def _probe_binding() -> dict[str, Any]:
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "probe-job"},
        "spec": {"resource": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "probe"}},
    }


def _unregister(admin: Api) -> None:
    for plural in _REGISTRATIONS:
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        try:
            admin.delete(f"{path}?{_OURS}&timeout={_REMOVE_SECONDS}s")
        except (ApiError, OSError):
            return  # the server fails, so further deletions would fail too
